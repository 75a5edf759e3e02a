"""What was refused is not asked again before its time, and no longer than that."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.calls import Call, Surface
from policies.kinds import Family, Role, Wire
from policies.refusal_memory import START_AGAIN_SECONDS, RefusalMemory, Remembered
from policies.saved import StandingRefusal
from tests.rows import over

CAP = 59
START = 1000.0
WALL = 1.7e9


def call(digest: str = "d", account: str = "a", upstream: str = "", model: str = "") -> Call:
    made = Call(Surface(upstream, Family.ZAI, Wire.ANTHROPIC, Role.GENERATION), "POST", "/v1/messages", account, model)
    made.__dict__["digest"] = digest
    return made


def told(
    refusals: RefusalMemory,
    now: float,
    stated: float | None = None,
    digest: str = "d",
    *,
    upstream: str = "",
    code: str | None = None,
    **more: Any,
) -> int:
    facts: dict[str, Any] = {"first": 30, "cap": CAP, "stated": stated, "sent": now} | more
    return refusals.refused(call(digest, upstream=upstream), code, now, **facts)


def test_a_refused_request_waits_here_until_its_wait_is_over() -> None:
    refusals = RefusalMemory()
    assert told(refusals, START, code="3007", upstream="zcode") == 30
    assert refusals.waiting("a", "d", START + 10) == Remembered("wait", 20.0, upstream="zcode", code="3007")
    assert refusals.waiting("a", "d", START + 29.99) is not None
    assert refusals.waiting("a", "d", START + 30) is None


def test_another_request_or_account_does_not_wait() -> None:
    refusals = RefusalMemory()
    told(refusals, START)
    assert refusals.waiting("a", "another", START) is None
    assert refusals.waiting("another", "d", START) is None


def test_a_wait_of_one_upstream_is_none_at_another() -> None:
    refusals = RefusalMemory()
    told(refusals, START, upstream="zai")
    assert refusals.waiting("a", "d", START, "bigmodel") is None
    assert refusals.waiting("a", "d", START, "zai") is not None
    assert told(refusals, START + 30, upstream="bigmodel") == 30


@pytest.mark.parametrize(("first", "waits"), [(30, [30, 59, 59]), (5, [5, 10, 20, 40, 59]), (59, [59, 59])])
def test_a_wait_doubles_each_time_that_the_request_is_refused_again_after_it(first: int, waits: list[int]) -> None:
    refusals, now = RefusalMemory(), START
    for wait in waits:
        assert told(refusals, now, first=first) == wait
        assert refusals.waiting("a", "d", now + wait - 0.01) is not None
        now += wait


def test_an_answer_starts_again_at_the_first_wait() -> None:
    refusals = RefusalMemory()
    told(refusals, START)
    refusals.answered(call("d"))
    assert refusals.waiting("a", "d", START) is None
    assert told(refusals, START + 30) == 30


def test_an_answer_to_another_request_does_not() -> None:
    refusals = RefusalMemory()
    told(refusals, START)
    refusals.answered(call("another"))
    assert told(refusals, START + 30) == 59


def test_ten_minutes_without_a_refusal_start_again_at_the_first_wait() -> None:
    refusals = RefusalMemory()
    told(refusals, START)
    assert told(refusals, START + START_AGAIN_SECONDS - 1) == 59
    assert told(refusals, START + 2 * START_AGAIN_SECONDS - 1) == 30


def test_of_two_in_flight_the_second_refusal_does_not_double_nor_move_the_wait_of_the_first() -> None:
    refusals = RefusalMemory()
    assert told(refusals, START) == 30
    assert told(refusals, START + 2) == 30
    assert refusals.waiting("a", "d", START + 30) is None
    assert told(refusals, START + 30) == 59


def test_one_that_was_sent_before_the_wait_was_over_does_not_double_however_late_its_refusal() -> None:
    refusals = RefusalMemory()
    told(refusals, START, sent=START - 1)
    assert told(refusals, START + 40, sent=START - 1) == 30
    assert told(refusals, START + 80, sent=START + 71) == 59


@over(("stated", "expected"), [(1, 1), (14, 14), (2.3, 3), (0.2, 1), (59, 59), (60, 59), (504641, 59), (float("inf"), 59)])
def test_the_upstreams_own_wait_goes_before_ours(stated: float | None, expected: object) -> None:
    refusals = RefusalMemory()
    assert told(refusals, START, stated) == expected
    assert refusals.waiting("a", "d", START + expected - 0.01) is not None
    assert refusals.waiting("a", "d", START + expected) is None


@over("stated", [0, -3, float("nan"), None])
def test_a_stated_wait_that_is_none_is_ours(stated: float | None) -> None:
    assert told(RefusalMemory(), START, stated) == 30


def test_a_stated_wait_doubles_nothing_and_undoes_nothing() -> None:
    refusals = RefusalMemory()
    told(refusals, START)
    assert told(refusals, START + 30, stated=7) == 7
    assert told(refusals, START + 40) == 59


@pytest.mark.parametrize("kind", ["overflow", "body_size"])
def test_a_hopeless_request_is_refused_for_ten_minutes(kind: Literal["overflow", "body_size"]) -> None:
    refusals = RefusalMemory()
    refusals.hopeless(call("d", upstream="zai", model="glm-4.6"), kind, "1261", START)
    assert refusals.waiting("a", "d", START + 599) == Remembered(kind, 1.0, "zai", "glm-4.6", "1261")
    assert refusals.waiting("a", "d", START + 600) is None
    assert not refusals.any_for("a")


def test_an_answer_frees_a_hopeless_request() -> None:
    refusals = RefusalMemory()
    refusals.hopeless(call("d"), "overflow", None, START)
    refusals.answered(call("d"))
    assert refusals.waiting("a", "d", START) is None


def test_the_overflows_of_a_model_can_be_forgotten_and_nothing_else_with_them() -> None:
    refusals = RefusalMemory()
    refusals.hopeless(call("1", upstream="zai", model="glm-4.6"), "overflow", None, START)
    refusals.hopeless(call("2", upstream="bigmodel", model="glm-4.6"), "overflow", None, START)
    refusals.hopeless(call("3", upstream="zai", model="glm-4.5"), "overflow", None, START)
    refusals.hopeless(call("4", upstream="zai", model="glm-4.6"), "body_size", None, START)
    assert refusals.forget_overflows("zai", "glm-4.6") == 1
    assert [digest for digest in "1234" if refusals.waiting("a", digest, START)] == ["2", "3", "4"]
    assert refusals.forget_overflows(None, "glm-4.6") == 1
    assert [digest for digest in "1234" if refusals.waiting("a", digest, START)] == ["3", "4"]


def test_a_blocked_account_is_refused_at_its_upstream_only() -> None:
    refusals = RefusalMemory()
    refusals.block(call(account="a", upstream="zcode"), "3012", START, 1800)
    assert refusals.blocked("a", "zcode", START + 1799) == Remembered("blocked", 1.0, "zcode", code="3012")
    assert refusals.blocked("a", "zai", START) is None
    assert refusals.blocked("b", "zcode", START) is None
    assert refusals.blocked("a", "zcode", START + 1800) is None


def test_a_block_of_no_seconds_blocks_nothing() -> None:
    refusals = RefusalMemory()
    refusals.block(call(account="a", upstream="zcode"), None, START, 0)
    assert refusals.blocked("a", "zcode", START) is None


def test_no_digest_is_needed_for_an_account_of_which_nothing_is_remembered() -> None:
    refusals = RefusalMemory()
    assert not refusals.any_for("a")
    told(refusals, START, digest="1")
    told(refusals, START, digest="1")
    told(refusals, START, digest="2")
    assert refusals.any_for("a")
    assert not refusals.any_for("b")
    refusals.answered(call("1"))
    assert refusals.any_for("a")
    refusals.answered(call("2"))
    assert not refusals.any_for("a")


def test_what_is_over_is_forgotten_without_being_asked_for() -> None:
    refusals = RefusalMemory()
    told(refusals, START)
    refusals.blocked("a", "zai", START + START_AGAIN_SECONDS)
    assert not refusals.any_for("a")
    told(refusals, START)
    assert refusals.listed(START + START_AGAIN_SECONDS) == []
    assert not refusals.any_for("a")


def test_it_is_bounded_and_the_longest_unused_goes_first() -> None:
    refusals = RefusalMemory(limit=3)
    for digest in "123":
        told(refusals, START, digest=digest)
    assert refusals.waiting("a", "1", START)
    told(refusals, START, digest="4")
    assert [digest for digest in "1234" if refusals.waiting("a", digest, START)] == ["1", "3", "4"]
    told(refusals, START, digest="1")
    told(refusals, START, digest="5")
    assert [digest for digest in "12345" if refusals.waiting("a", digest, START)] == ["1", "4", "5"]
    for number in range(10):
        refusals.block(call(account=str(number), upstream="zcode"), None, START, 60)
    assert [n for n in range(10) if refusals.blocked(str(n), "zcode", START)] == [7, 8, 9]


def test_a_reset_clears_everything_or_one_upstream() -> None:
    refusals = RefusalMemory()
    told(refusals, START, digest="1", upstream="zai")
    told(refusals, START, digest="2", upstream="zcode")
    refusals.block(call(account="a", upstream="zcode"), None, START, 1800)
    assert refusals.reset("zcode") == 2
    assert refusals.waiting("a", "1", START)
    assert not refusals.waiting("a", "2", START)
    assert not refusals.blocked("a", "zcode", START)
    assert refusals.reset() == 1
    assert not refusals.any_for("a")


def test_what_stands_can_be_listed() -> None:
    refusals = RefusalMemory()
    told(refusals, START, upstream="zai")
    refusals.block(call(account="b", upstream="zcode"), None, START, 1800)
    listed = [(account, row.kind, row.left) for account, row in refusals.listed(START + 10)]
    assert listed == [("a", "wait", 20.0), ("b", "blocked", 1790.0)]
    assert [account for account, _ in refusals.listed(START + 40)] == ["b"]


# -- a restart ------------------------------------------------------------------------------------------------


def restarted(refusals: RefusalMemory, later: float = 0.0) -> tuple[RefusalMemory, int]:
    fresh = RefusalMemory()
    return fresh, fresh.load(refusals.dump(WALL, START), WALL + later, 5.0)


def test_a_restart_keeps_blocked_accounts_and_hopeless_requests_but_no_waits() -> None:
    refusals = RefusalMemory()
    told(refusals, START, digest="1")
    refusals.hopeless(call("2", upstream="zai", model="glm-4.6"), "overflow", None, START)
    refusals.block(call(account="a", upstream="zcode"), "3012", START, 1800)
    fresh, taken = restarted(refusals, later=100)
    assert taken == 2
    assert fresh.waiting("a", "1", 5.0) is None
    assert fresh.waiting("a", "2", 5.0) == Remembered("overflow", 500.0, "zai", "glm-4.6", None)
    assert fresh.blocked("a", "zcode", 5.0) == Remembered("blocked", 1700.0, "zcode", code="3012")
    assert fresh.any_for("a")


@over(("jump", "left"), [(-1e6, 1800), (0, 1800), (1799, 1), (1800, None), (1e9, None)])
def test_whatever_the_wall_clock_did_nothing_lasts_longer_than_it_was_to(jump: float, left: float | None) -> None:
    refusals = RefusalMemory()
    refusals.block(call(account="a", upstream="zcode"), None, START, 1800)
    fresh, _ = restarted(refusals, jump)
    blocked = fresh.blocked("a", "zcode", 5.0)
    assert (blocked.left if blocked else None) == left


def test_no_more_accounts_are_taken_up_than_are_kept() -> None:
    rows = [StandingRefusal("blocked", f"account {number}", "zcode", "zcode", WALL + 60, 60) for number in range(5)]
    fresh = RefusalMemory(limit=3)
    fresh.load(rows, WALL, 5.0)
    assert [account for account, _ in fresh.listed(5.0)] == ["account 2", "account 3", "account 4"]


# -- whatever happens -----------------------------------------------------------------------------------------

STEPS = st.lists(
    st.tuples(
        st.floats(0, 90),
        st.sampled_from(["1", "2"]),
        st.sampled_from(["refused", "answered", "reset"]),
        st.none() | st.floats(allow_nan=True, allow_infinity=True),
    ),
    max_size=30,
)


@given(STEPS, st.integers(1, 59))
def test_told_is_always_within_the_cap_and_no_request_is_kept_longer_than_it(
    steps: list[tuple[float, str, str, float | None]], cap: int
) -> None:
    refusals, now = RefusalMemory(limit=2), START
    for seconds, digest, step, stated in steps:
        now += seconds
        if step == "told":
            assert 1 <= told(refusals, now, stated, digest=digest, cap=cap) <= cap
        elif step == "answered":
            refusals.answered(call(digest))
        else:
            refusals.reset()
        for each in "12":
            standing = refusals.waiting("a", each, now)
            assert standing is None or 0 < standing.left <= cap + 1e-6
    assert all(refusals.waiting("a", digest, now + cap) is None for digest in "12")
    assert refusals.listed(now + START_AGAIN_SECONDS) == []
    assert not refusals.any_for("a")


def test_a_model_is_forgotten_however_it_is_spelled() -> None:
    refusals = RefusalMemory()
    refusals.hopeless(call(upstream="zai", model="GLM-5.3"), "overflow", None, 0)
    assert refusals.forget_overflows("zai", " glm-5.3") == 1
