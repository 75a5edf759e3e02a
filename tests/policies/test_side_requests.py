"""The side-request guard: what is a side request, and which of them cannot fit."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.calls import Call, Surface
from policies.kinds import Family, Role, Wire
from policies.request import tokens
from policies.settings import SideRequestSettings, TraitRow
from policies.windows import effective_window, is_side, oversize
from tests.policies.request.test_reading import RECORDED, SURFACE, read, recorded
from tests.rows import over

DEFAULTS = SideRequestSettings()
OPENAI = Surface("zai", Family.ZAI, Wire.OPENAI, Role.GENERATION)
COUNTING = Surface("zai", Family.ZAI, Wire.ANTHROPIC, Role.OTHER)
SIDE_WITHOUT_TOOLS = [row for row in RECORDED if row["kind"] == "side" and not row["body"].get("tools")]


def side(words: int = 0, surface: Surface = SURFACE, **changes: Any) -> Call:
    body = {
        "model": "glm-4.6",
        "max_tokens": 100,
        "messages": [{"role": "user", "content": "word " * words}],
        **changes,
    }
    return read(body, surface=surface)


@over("row", SIDE_WITHOUT_TOOLS, ids=lambda row: row["client"])
def test_the_recorded_side_requests_without_tools_are_side(row: dict[str, Any]) -> None:
    assert is_side(read(row["body"], row["headers"]), DEFAULTS)


@over("row", [row for row in RECORDED if (row.get("body") or {}).get("tools")], ids=lambda row: row["client"])
def test_a_request_with_tools_is_never_side(row: dict[str, Any]) -> None:
    assert not is_side(read({**row["body"], "max_tokens": 1}, row["headers"]), DEFAULTS)


def test_counting_tokens_is_never_side() -> None:
    body = {"model": "m", "max_tokens": 1, "messages": []}
    assert is_side(read(body), DEFAULTS)
    assert not is_side(read(body, surface=COUNTING), DEFAULTS)
    count = next(row for row in RECORDED if "count_tokens" in row["path"])
    assert not is_side(read({**count["body"], "tools": []}, surface=COUNTING), DEFAULTS)


@over(("budget", "expected"), [(1, True), (199, True), (200, True), (201, False), (32_000, False)])
def test_a_small_output_budget_makes_a_side_request(budget: int, expected: bool) -> None:
    assert is_side(side(max_tokens=budget), DEFAULTS) is expected


@over("budget", ["100", None, 0, -5, 99.5, True, [1]])
def test_an_odd_budget_makes_a_main_request(budget: object) -> None:
    assert not is_side(side(max_tokens=budget), DEFAULTS)
    assert oversize(side(200_000, max_tokens=budget), DEFAULTS, 8_000) is None


@over("tools", [{}, "t", 5, [{}]])
def test_odd_tools_make_a_main_request(tools: object) -> None:
    assert not is_side(side(tools=tools), DEFAULTS)


@over("body", [b"", b"[]", b"not json " * 50_000, b'{"max_tokens":1'])
def test_what_cannot_be_read_is_a_main_request(body: bytes) -> None:
    call = read(body)
    assert not is_side(call, DEFAULTS)
    assert oversize(call, DEFAULTS, 1_000) is None


def test_the_limit_and_the_traits_come_from_the_settings() -> None:
    assert is_side(side(max_tokens=500), replace(DEFAULTS, max_output_tokens=500))
    row = TraitRow("mine", "user", "ping")
    named = read({"messages": [{"role": "user", "content": "ping"}]}, traits=(row,))
    assert is_side(named, DEFAULTS)
    assert not is_side(read({"messages": [{"role": "user", "content": "ping"}]}), DEFAULTS)


def test_the_rule_can_be_turned_off() -> None:
    off = replace(DEFAULTS, enabled=False)
    assert is_side(side(), off), "it still is no previous answer of its session"
    assert oversize(side(200_000), off, 8_000) is None
    assert oversize(side(200_000), DEFAULTS, 8_000) is not None


def test_an_oversize_side_request_is_refused_with_its_figures() -> None:
    over = oversize(side(20_000), DEFAULTS, 8_000)
    assert over is not None
    assert over.estimate == tokens.estimate(side(20_000).body, Wire.ANTHROPIC, DEFAULTS.weights) > 20_000
    assert (over.window, over.effective_window) == (8_000, 8_000)


def test_a_title_request_with_a_whole_history_is_refused_and_a_new_one_is_not() -> None:
    title = recorded("opencode-1.18.33-openai-compatible-title")
    assert oversize(title, DEFAULTS, 131_072) is None
    document = json.loads(title.body)
    document["messages"] += [{"role": "user", "content": "what is it " * 60_000}]
    assert oversize(read(document, surface=OPENAI), DEFAULTS, 131_072) is not None


def test_a_request_that_fits_its_margin_goes_on() -> None:
    call = side(5_000)
    estimate = tokens.estimate(call.body, Wire.ANTHROPIC, DEFAULTS.weights)
    assert oversize(call, replace(DEFAULTS, margin=1.0), estimate) is not None
    assert oversize(call, replace(DEFAULTS, margin=1.0), estimate + 1) is None
    assert oversize(call, DEFAULTS, int(estimate / 1.25) - 1) is not None
    assert oversize(call, DEFAULTS, int(estimate / 1.25) + 1) is None


def test_an_unknown_window_refuses_nothing() -> None:
    assert oversize(side(500_000), DEFAULTS, None) is None
    assert oversize(side(500_000), DEFAULTS, 0) is None


@pytest.mark.parametrize("words", [10, 100_000, 400_000])
def test_a_main_request_of_any_size_goes_on(words: int) -> None:
    assert oversize(side(words, max_tokens=32_000), DEFAULTS, 1_000) is None
    assert oversize(side(words, tools=[{"name": "t"}]), DEFAULTS, 1_000) is None


@over(
    ("wire", "budget", "fillable"),
    [
        (Wire.ANTHROPIC, 100, 8_000),
        (Wire.ANTHROPIC, None, 8_000),
        (Wire.OPENAI, 100, 7_900),
        (Wire.OPENAI, 2_000, 6_000),
        (Wire.OPENAI, 32_000, 6_000),
        (Wire.OPENAI, None, 8_000),
        (Wire.DASHSCOPE_NATIVE, 100, 7_900),
        (Wire.RESPONSES, 100, 7_900),
    ],
)
def test_the_output_is_reserved_on_all_wires_but_anthropics_and_a_quarter_at_most(
    wire: Wire, budget: int | None, fillable: int
) -> None:
    call = msgspec.structs.replace(side(surface=replace(OPENAI, wire=wire)), output_budget=budget)
    assert effective_window(call, 8_000) == fillable


def test_an_image_is_not_refused_for_the_length_of_its_base64() -> None:
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QUJD" * 100_000}}
    assert oversize(side(messages=[{"role": "user", "content": [picture]}]), DEFAULTS, 8_000) is None


def test_many_remote_images_are_counted_although_their_bytes_are_few() -> None:
    picture = {"type": "image_url", "image_url": {"url": "https://a.example/b.png"}}
    call = side(messages=[{"role": "user", "content": [picture] * 60}], surface=OPENAI)
    assert len(call.body) < 8_000
    assert oversize(call, DEFAULTS, 8_000) is not None


def test_a_request_whose_bytes_cannot_reach_the_window_is_not_estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> int:
        raise AssertionError("estimated")

    monkeypatch.setattr("policies.request.tokens.estimate", never)
    assert oversize(side(1_000), DEFAULTS, 200_000) is None


def test_a_figure_never_shows_what_was_asked() -> None:
    call = side(messages=[{"role": "user", "content": "secret " * 20_000}])
    assert "secret" not in repr(oversize(call, DEFAULTS, 8_000))


@given(st.text(max_size=2_000), st.text(max_size=2_000), st.integers(1, 600))
def test_a_request_that_is_refused_stays_refused_when_it_grows(text: str, added: str, window: int) -> None:
    if oversize(side(messages=[{"role": "user", "content": text}]), DEFAULTS, window) is not None:
        assert oversize(side(messages=[{"role": "user", "content": text + added}]), DEFAULTS, window) is not None
