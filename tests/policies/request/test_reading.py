"""The facts of a request: read from real clients' requests, from every spelling, and from anything at all."""

from __future__ import annotations

import json
import pathlib
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.calls import Call, Surface
from policies.kinds import Family, Role, Wire
from policies.request import body, reading
from policies.settings import TraitRow
from tests.rows import over

CORPUS = pathlib.Path(__file__).parents[2] / "corpus" / "requests.jsonl"
RECORDED: list[dict[str, Any]] = [json.loads(line) for line in CORPUS.read_text("utf-8").splitlines()]
SURFACE = Surface("zai", Family.ZAI, Wire.ANTHROPIC, Role.GENERATION)
NATIVE = Surface("dashscope", Family.DASHSCOPE, Wire.DASHSCOPE_NATIVE, Role.GENERATION)


def read(
    body: object,
    headers: dict[str, str] | None = None,
    query: str = "",
    surface: Surface = SURFACE,
    traits: tuple[TraitRow, ...] = (),
) -> Call:
    given_headers = {name.lower(): value for name, value in (headers or {}).items()}
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return reading.read(
        surface,
        "POST",
        "/v1/messages",
        lambda name: given_headers.get(name.lower(), ""),
        query,
        data,
        size=len(data),
        account="account",
        hashed=lambda token: f"hash of {len(token)}",
        traits=traits,
    )


def recorded(client: str) -> Call:
    row = next(row for row in RECORDED if row["client"] == client)
    return read(row.get("body"), row["headers"], row["path"].partition("?")[2])


@over("row", RECORDED, ids=lambda row: row["client"])
def test_every_recorded_request_is_read(row: dict[str, Any]) -> None:
    body = row.get("body") or {}
    call = read(body, row["headers"])
    assert call.fields
    assert call.model == body.get("model", "")
    assert call.output_budget == body.get("max_tokens")
    assert call.stream == body.get("stream", False)
    assert call.tools == bool(body.get("tools"))
    assert call.one_time_token is None


@over(
    ("client", "session"),
    [
        ("claude-code-2.1.332-interactive-main", "15cccc4b-6880-455f-8625-43640b9f1ffc"),
        ("claude-code-2.1.112-interactive-title", "8459b14a-80f0-4ed3-a853-ca2aa8259d4c"),
        ("codex-0.171.0-responses-main", "01a22a63-6ebe-7eb1-a196-f60dad5baf3b"),
        ("qwen-code-0.24.4-openai-main", None),
        ("sdk-python-openai-3.57.0", None),
    ],
)
def test_a_client_that_names_its_session_is_known_by_it(client: str, session: str | None) -> None:
    assert recorded(client).session_id == session


def test_a_main_and_a_title_request_of_one_session_share_its_id() -> None:
    main, title = (recorded(f"opencode-1.18.33-anthropic-{kind}") for kind in ("main", "title"))
    assert main.session_id is not None
    assert main.session_id == title.session_id


@over(
    ("body", "headers", "query", "session"),
    [
        ({"metadata": {"user_id": '{"device_id":"d","session_id":"s-1"}'}}, {}, "", "s-1"),
        ({"metadata": {"user_id": "user_1_account__session_2"}}, {}, "", "user_1_account__session_2"),
        ({"metadata": {"user_id": "{broken"}}, {}, "", "{broken"),
        ({"metadata": {"user_id": 7}}, {}, "", None),
        ({"metadata": "x"}, {}, "", None),
        ({"prompt_cache_key": "k"}, {}, "", "k"),
        ({"chat_id": "body"}, {}, "chat_id=query&x=1", "query"),
        ({"chat_id": "body"}, {}, "chat%5Fid=query", "query"),
        ({"chat_id": "body"}, {}, "", "body"),
        ({}, {"x-dashscope-sdk-session-id": "sdk"}, "", "sdk"),
        ({"prompt_cache_key": "k"}, {"X-Session-Affinity": "a"}, "", "a"),
        ({"prompt_cache_key": "k"}, {"X-Session-Affinity": "  "}, "", "k"),
    ],
)
def test_session_ids_in_their_spellings(body: object, headers: dict[str, str], query: str, session: str | None) -> None:
    assert read(body, headers, query).session_id == session


def test_a_very_long_session_id_is_kept_as_a_digest() -> None:
    one, two = (read({"prompt_cache_key": "k" * 5000 + end}).session_id for end in "12")
    assert one != two
    assert len(one or "") < 100


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens", "max_output_tokens"])
def test_the_output_budget_in_its_spellings(name: str) -> None:
    assert read({name: 64}).output_budget == 64
    assert read({"parameters": {name: 64}}, surface=NATIVE).output_budget == 64


@over("value", ["200", 0, -1, 1.5, 200.0, True, [], {}, 10**40])
def test_an_odd_output_budget_is_none(value: object) -> None:
    call = read({"model": "m", "max_tokens": value, "max_completion_tokens": 100})
    assert (call.fields is not None, call.output_budget) == (True, None)


def test_a_number_beyond_a_float_is_no_budget() -> None:
    assert read(b'{"max_tokens":1e400}').output_budget is None


def test_an_absent_budget_is_none_and_the_largest_of_several_counts() -> None:
    assert read({"max_tokens": None}).output_budget is None
    assert read({"max_tokens": None, "max_completion_tokens": 9}).output_budget == 9
    assert read({"max_tokens": 100, "max_completion_tokens": 5000}).output_budget == 5000


@pytest.mark.parametrize("tools", [b"[]", b"[ \n\t ]", b"null"])
def test_empty_tools_count_as_absent(tools: bytes) -> None:
    assert not read(b'{"tools":' + tools + b"}").tools


@over("tools", [b'[{"name":"t"}]', b"[ 1]", b"{}", b'""', b"false", b"[[]]"])
def test_tools_that_are_there_or_odd_make_a_main_request(tools: bytes) -> None:
    assert read(b'{"tools":' + tools + b"}").tools
    assert read(b'{"parameters":{"tools":' + tools + b"}}", surface=NATIVE).tools


@over(
    ("body", "thinking"),
    [
        ({"thinking": {"type": "enabled", "budget_tokens": 1000}}, True),
        ({"thinking": {"type": "adaptive"}}, True),
        ({"thinking": {"type": "disabled"}, "enable_thinking": True}, False),
        ({"thinking": None}, False),
        ({"thinking": True}, True),
        ({"enable_thinking": True}, True),
        ({"enable_thinking": False, "reasoning_effort": "high"}, False),
        ({"enable_thinking": "yes"}, False),
        ({"parameters": {"enable_thinking": True}}, True),
        ({"reasoning_effort": "low"}, True),
        ({"reasoning_effort": "none"}, False),
        ({"reasoning": {"effort": "high"}}, True),
        ({"reasoning": {"effort": "none"}}, False),
        ({"reasoning": {"summary": "auto"}}, False),
        ({}, False),
    ],
)
def test_thinking_in_its_spellings(body: object, thinking: bool) -> None:
    assert read(body).thinking is thinking


def test_a_long_context_is_asked_for_by_header_or_suffix() -> None:
    assert read({}, {"anthropic-beta": "a-2025,context-1m-2025-08-07"}).long_context
    suffixed = read({"model": "glm-5.2[1m]"})
    assert (suffixed.model, suffixed.long_context) == ("glm-5.2", True)
    assert not read({"model": "glm-5.2"}, {"anthropic-beta": "token-counting-2024"}).long_context


def test_a_model_name_is_short_and_fit_for_a_log_line() -> None:
    assert read({"model": "glm\n4.6\x1b[0m"}).model == "glm4.6[0m"
    assert len(read({"model": "m" * 5_000}).model) == 200


def test_dashscope_native_streams_by_header() -> None:
    assert read({"model": "m"}, {"X-DashScope-SSE": "enable"}, surface=NATIVE).stream
    assert read({"model": "m"}, {"Accept": "text/event-stream"}, surface=NATIVE).stream
    assert not read({"model": "m"}, {"Accept": "text/event-stream"}).stream
    assert not read({"stream": "true"}).stream


def test_a_one_time_token_is_kept_as_a_hash_only() -> None:
    by_header = read({}, {"X-Aliyun-Captcha-Verify-Param": "secret-token"})
    by_body = read({"captcha_verify_param": "secret-token"})
    assert by_header.one_time_token == by_body.one_time_token == "hash of 12"
    assert read({"captcha_verify_param": ""}).one_time_token is None
    assert "secret-token" not in repr(by_header)


@over("body", [b"", b"[]", b'"x"', b"null", b"12", b"{", b'{"model":"m"', b"\xff\xfe", b'{"model":"m"} x', b"[" * 100_000])
def test_what_is_no_object_is_unreadable_and_a_main_request(body: bytes) -> None:
    call = read(body)
    assert (call.fields is not None, call.model, call.output_budget, call.trait, call.body) == (False, "", None, None, body)


def test_invalid_utf_8_and_duplicate_keys_are_read_without_an_exception() -> None:
    assert read(b'{"model":"m\xff","max_tokens":5}').model == ""
    assert read(b'{"max_tokens":5,"max_tokens":7}').output_budget == 7
    assert read({"model": ["m"], "metadata": [], "parameters": 3, "reasoning": "x", "thinking": "on"}).model == ""


def test_a_deep_value_is_read_without_an_exception() -> None:
    call = read(b'{"model":"m","metadata":' + b'{"a":' * 50_000 + b"1" + b"}" * 50_000 + b"}")
    assert (call.model, call.session_id) in (("m", None), ("", None))


FIELDS = st.sampled_from([*body.RequestBody.__struct_fields__, "x"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text() | FIELDS, inner, max_size=3),
    max_leaves=10,
)


@given(
    st.dictionaries(FIELDS, VALUES),
    st.text(),
    st.dictionaries(st.sampled_from(["accept", "anthropic-beta"]), st.text()),
)
def test_any_document_is_read(body: dict[str, object], query: str, headers: dict[str, str]) -> None:
    call = read(body, headers, query)
    assert call.output_budget is None or call.output_budget > 0
    assert isinstance(call.model, str)


@given(st.binary())
def test_any_bytes_are_read(body: bytes) -> None:
    call = read(body)
    assert (call.body, call.size) == (body, len(body))
    assert call.output_budget is None or 0 < call.output_budget < 10**15
    assert len(call.model) <= 200
    assert call.digest == "hash of 32", "a digest is kept and shared: a plain one could be guessed from"


def test_the_head_of_a_large_main_request_costs_a_fraction_of_parsing_it() -> None:
    piece = {"type": "text", "text": "def run(self):\n    return 'it is what it is, after all'\n" * 12}
    turn = [{"role": "user", "content": [piece]}, {"role": "assistant", "content": [piece]}]
    body = json.dumps({"model": "m", "messages": turn * 950, "tools": [{"name": "t"}], "max_tokens": 9}).encode()
    assert len(body) > 1_300_000

    def best(run: Callable[[], object]) -> float:
        times = []
        for _ in range(9):
            start = time.perf_counter()
            run()
            times.append(time.perf_counter() - start)
        return min(times)

    assert best(lambda: read(body)) < 0.35 * best(lambda: json.loads(body))
