"""Windows: learnt only from what an upstream states, and let go as readily as they are learnt."""

from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies import windows
from policies.calls import Call, Surface
from policies.kinds import Family, Role, Wire
from policies.windows import Window, Windows
from tests.rows import over

NOW = 1_790_000_000.0
SAID = "Range of input length should be [1, 98304]"


def asked(upstream: str, model: str, family: Family = Family.ZAI, *, thinking: bool = False, long: bool = False) -> Call:
    surface = Surface(upstream, family, Wire.OPENAI, Role.GENERATION)
    return Call(surface, "POST", "/", "account", model, thinking=thinking, long_context=long)


def effective(
    known: Windows, model: str = "glm-4.6", *, thinking: bool = False, long: bool = False, at: float = NOW
) -> Window | None:
    return known.effective(asked("zai", model, Family.ZAI, thinking=thinking, long=long), at)


def tokens(
    known: Windows, model: str = "glm-4.6", *, thinking: bool = False, long: bool = False, at: float = NOW
) -> int | None:
    window = effective(known, model, thinking=thinking, long=long, at=at)
    return window.tokens if window else None


def taught(number: int = 98_304, model: str = "glm-4.6", *, thinking: bool = False) -> Windows:
    known = Windows({})
    assert known.learn(asked("zai", model, thinking=thinking), number, SAID, NOW)
    return known


def test_the_catalogue_speaks_first_and_an_unknown_model_has_no_window() -> None:
    assert effective(Windows({})) == Window(204_800, "catalogue: models.dev 2026-07-02")
    assert tokens(Windows({}), "some-model") is None


def test_thinking_narrows_the_window_where_that_is_known() -> None:
    known = Windows({})
    sizes = [
        known.effective(asked("dashscope", "qwen3.8-max", Family.DASHSCOPE, thinking=on, long=False), NOW)
        for on in (False, True)
    ]
    assert [size.tokens for size in sizes if size] == [991_808, 983_616]


def test_a_configured_window_goes_before_the_catalogue() -> None:
    known = Windows({"GLM-4.6": 64_000, "my-model*": 65_536, "my-model-large*": 131_072, "my-model-large-1": 9_000})
    assert effective(known) == Window(64_000, "config")
    assert [tokens(known, f"my-model{end}") for end in ("", "-x", "-large", "-large-1", "-large-10")] == [
        65_536,
        65_536,
        131_072,
        9_000,
        131_072,
    ]
    assert tokens(known, "my-mode") is None


def test_a_changed_configuration_keeps_what_was_learnt() -> None:
    known = taught()
    known.configure({"glm-4.6": 50_000})
    assert tokens(known) == 50_000
    known.configure({})
    assert tokens(known) == 98_304


def test_a_stated_window_narrows_what_the_catalogue_says() -> None:
    assert effective(taught()) == Window(98_304, f"learnt: {SAID}")


def test_a_stated_window_gives_an_unknown_model_one() -> None:
    assert tokens(taught(32_768, "some-model"), "some-model") == 32_768


def test_a_stated_window_never_widens_what_is_known() -> None:
    known = Windows({})
    assert known.learn(asked("zai", "glm-4.6"), 210_000, SAID, NOW)
    assert tokens(known) == 204_800


@over("number", [-1, 0, 1, 999, 225_281, 10**12])
def test_a_number_that_is_no_credible_window_teaches_nothing(number: int) -> None:
    known = Windows({})
    assert not known.learn(asked("zai", "glm-4.6"), number, SAID, NOW)
    assert known.learnt() == []
    assert tokens(known) == 204_800


@pytest.mark.parametrize("number", [1_000, 225_280])
def test_the_bounds_themselves_are_credible(number: int) -> None:
    assert Windows({}).learn(asked("zai", "glm-4.6"), number, SAID, NOW)


def test_the_row_of_its_family_bounds_it() -> None:
    assert Windows({}).learn(asked("dashscope", "glm-5.1", Family.DASHSCOPE), 222_000, SAID, NOW)
    assert not Windows({}).learn(asked("zai", "glm-5.1"), 222_000, SAID, NOW)


def test_a_window_is_learnt_for_one_upstream_one_model_and_one_state_of_thinking() -> None:
    known = taught()
    assert tokens(known, thinking=True) == 204_800
    assert tokens(known, "glm-4.7") == 204_800
    assert known.effective(asked("bigmodel", "glm-4.6"), NOW) == effective(Windows({}))
    assert tokens(known, "GLM-4.6") == 98_304


def test_a_number_that_is_stated_again_holds_longer_and_another_one_replaces_it() -> None:
    known = taught()
    known.learn(asked("zai", "glm-4.6"), 98_304, SAID, NOW + 1)
    assert [(row.tokens, row.when) for row in known.learnt()] == [(98_304, NOW + 1)]
    known.learn(asked("zai", "glm-4.6"), 131_072, SAID, NOW + 2)
    assert [row.tokens for row in known.learnt()] == [131_072]


@over(("used", "taken"), [(0, False), (98_304, False), (101_253, False), (101_254, True), (150_000, True)])
def test_a_success_above_a_learnt_window_takes_it_back(used: int, taken: bool) -> None:
    known = taught()
    assert known.succeeded(asked("zai", "glm-4.6"), used, NOW) is taken
    assert tokens(known) == (204_800 if taken else 98_304)
    assert known.succeeded(asked("zai", "glm-4.6"), used, NOW) is False


@pytest.mark.parametrize(("used", "taken"), [(1_256, False), (1_257, True)])
def test_a_small_window_needs_an_excess_of_256_tokens(used: int, taken: bool) -> None:
    assert taught(1_000).succeeded(asked("zai", "glm-4.6"), used, NOW) is taken


def test_a_success_elsewhere_takes_nothing_back() -> None:
    known = taught()
    assert not known.succeeded(asked("bigmodel", "glm-4.6"), 150_000, NOW)
    assert not known.succeeded(asked("zai", "glm-4.7"), 150_000, NOW)
    assert tokens(known) == 98_304


def test_thinking_only_narrows_so_a_success_with_it_frees_both_and_one_without_it_only_its_own() -> None:
    known = taught()
    assert known.succeeded(asked("zai", "GLM-4.6", thinking=True), 150_000, NOW)
    assert tokens(known) == 204_800
    known = taught(thinking=True)
    assert not known.succeeded(asked("zai", "glm-4.6"), 150_000, NOW)
    assert tokens(known, thinking=True) == 98_304


def test_a_window_that_was_taken_back_can_be_learnt_again() -> None:
    known = taught()
    known.succeeded(asked("zai", "glm-4.6"), 150_000, NOW)
    assert known.learn(asked("zai", "glm-4.6"), 160_000, SAID, NOW)
    assert tokens(known) == 160_000


def test_a_learnt_window_ends_after_a_day_of_wall_clock() -> None:
    known = taught()
    assert tokens(known, at=NOW + 86_399) == 98_304
    assert tokens(known, at=NOW + 86_400) == 204_800
    assert known.learnt() == []


def test_a_statement_repeated_renews_the_day() -> None:
    known = taught()
    known.learn(asked("zai", "glm-4.6"), 98_304, SAID, NOW + 80_000)
    assert tokens(known, at=NOW + 160_000) == 98_304


def test_a_wall_clock_set_back_never_keeps_a_window_longer() -> None:
    known = taught()
    assert tokens(known, at=NOW - 60) == 98_304
    assert tokens(known, at=NOW - 7_200) == 204_800


def test_a_model_is_forgotten_on_every_upstream() -> None:
    known = taught()
    known.learn(asked("bigmodel", "GLM-4.6", thinking=True), 98_304, SAID, NOW)
    known.learn(asked("zai", "glm-4.7"), 98_304, SAID, NOW)
    assert known.forget(" GLM-4.6 ") == 2
    assert known.forget("glm-4.6") == 0
    assert [row.model for row in known.learnt()] == ["glm-4.7"]


def test_the_long_context_raises_the_window_to_a_million_at_least() -> None:
    known = Windows({"huge": 2_000_000})
    assert tokens(known, long=True) == 1_000_000
    assert tokens(known, "huge", long=True) == 2_000_000
    assert tokens(known, "glm-5.3", long=True) == 1_048_576
    assert tokens(known, "some-model", long=True) is None
    assert tokens(taught(), long=True) == 1_000_000
    assert tokens(taught(32_768, "some-model"), "some-model", long=True) == 1_000_000


def test_a_window_learnt_from_long_requests_narrows_only_those() -> None:
    known = Windows({})
    assert known.learn(asked("zai", "glm-4.6", long=True), 500_000, SAID, NOW)
    assert tokens(known, long=True) == 500_000
    assert tokens(known) == 204_800
    assert known.succeeded(asked("zai", "glm-4.6", long=True), 600_000, NOW)
    assert tokens(known, long=True) == 1_000_000


def test_the_rows_survive_a_restart_with_their_source() -> None:
    known = taught()
    known.learn(asked("zai", "glm-4.6"), 98_304, SAID, NOW)
    again = Windows({})
    assert again.load(known.learnt(), NOW + 10) == len(known.learnt())
    assert again.learnt() == known.learnt()
    assert effective(again) == Window(98_304, f"learnt: {SAID}")


def test_an_expired_row_is_left_out() -> None:
    known = Windows({})
    assert known.load(taught().learnt(), NOW + 86_400) == 0
    assert known.learnt() == []


def test_a_row_of_no_time_or_of_the_far_future_holds_nothing() -> None:
    known = Windows({})
    row = taught().learnt()[0]
    rows = [dataclasses.replace(row, when=when) for when in (math.nan, NOW + 10_000, math.inf)]
    assert known.load(rows, NOW) == 0
    assert tokens(known) == 204_800


def test_the_oldest_rows_go_when_there_are_too_many() -> None:
    known = Windows({})
    for number in range(windows.BOUND + 5):
        known.learn(asked("zai", f"model-{number}"), 50_000, SAID, NOW + number)
    assert len(known.learnt()) == windows.BOUND
    assert tokens(known, "model-4", at=NOW + 2_000) is None
    assert tokens(known, "model-5", at=NOW + 2_000) == 50_000


STEPS = st.lists(
    st.tuples(st.sampled_from(["learn", "succeed", "wait", "forget"]), st.integers(-10, 400_000), st.booleans()),
    max_size=30,
)


@given(STEPS)
def test_a_window_in_force_was_stated_within_the_day_and_never_disproved_since(
    steps: list[tuple[str, int, bool]],
) -> None:
    known, wall = Windows({}), NOW
    stated: dict[bool, tuple[int, float] | None] = {False: None, True: None}
    for step, number, thinking in steps:
        if step == "learn" and known.learn(asked("zai", "glm-4.6", thinking=thinking), number, SAID, wall):
            stated[thinking] = (number, wall)
        elif step == "succeed":
            known.succeeded(asked("zai", "glm-4.6", thinking=thinking), number, wall)
            for state in {thinking, False}:
                row = stated[state]
                if row and number > row[0] + max(256, 0.03 * row[0]):
                    stated[state] = None
        elif step == "wait":
            wall += max(0, number) / 4
        elif step == "forget" and number % 7 == 0:
            known.forget("glm-4.6")
            stated = {False: None, True: None}
        for state, row in stated.items():
            alive = row is not None and wall - row[1] < 86_400
            assert tokens(known, thinking=state, at=wall) == (min(204_800, row[0]) if row and alive else 204_800)
