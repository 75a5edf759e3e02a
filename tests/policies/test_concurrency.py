"""Calls at a time, learnt from refusals."""

from __future__ import annotations

import msgspec
import pytest

from policies.concurrency import KEPT_SECONDS, Key, LearntLimit, Limits
from policies.settings import Concurrency
from tests.rows import over

KEY = Key("zai", "acc", "glm-4.6")


def limits(setting: Concurrency = "learn", **more: int) -> Limits:
    return Limits(lambda _: setting, **more)


def full(to: int, *, sent: int = 10, now: float = 0.0) -> Limits:
    """A plan of so many met so many calls at once."""
    found = limits()
    for call in range(sent):
        found.sent(KEY, call, now)
    for call in range(to, sent):
        found.crowded(KEY, call, now)
    return found


def limit_of(found: Limits, now: float = 0.0) -> int | None:
    return next((row.limit for row in found.listed(now)), None)


def test_nothing_is_limited_until_a_refusal_says_so() -> None:
    found = limits()
    for call in range(500):
        assert found.room(KEY, 0.0)
        found.sent(KEY, call, 0.0)
    assert limit_of(found) is None


def test_a_plan_of_two_is_learnt_from_the_refusals_of_ten_and_nothing_is_sent_meanwhile() -> None:
    found = limits()
    for call in range(10):
        found.sent(KEY, call, 0.0)
    for call in range(2, 10):
        found.crowded(KEY, call, 0.0)
        assert not found.room(KEY, 0.0)
    assert limit_of(found) == 2
    found.ended(KEY, 0, 1.0)
    assert found.room(KEY, 1.0)


def test_the_limit_is_never_below_one() -> None:
    assert limit_of(full(0, sent=1)) == 1


def test_after_a_minute_one_more_is_tried_and_an_answer_raises_the_limit() -> None:
    found = full(2)
    assert not found.room(KEY, 59.9)
    assert found.changes_at(KEY, 10.0) == 60.0
    assert found.room(KEY, 60.0)
    found.sent(KEY, 20, 60.0)
    assert not found.room(KEY, 200.0), "two trials at once"
    found.answered(KEY, 20, 61.0)
    assert limit_of(found) == 3
    assert not found.room(KEY, 120.9)
    assert found.room(KEY, 121.0)


def test_a_refused_try_leaves_the_limit_and_doubles_the_time_up_to_ten_minutes() -> None:
    found, now = full(2), 0.0
    for wait in (60, 120, 240, 480, 600, 600):
        assert not found.room(KEY, now + wait - 0.1)
        now += wait
        assert found.room(KEY, now)
        found.sent(KEY, 20, now)
        found.crowded(KEY, 20, now)
        assert limit_of(found, now) == 2


def test_a_try_that_ends_without_a_word_says_nothing() -> None:
    found = full(2)
    found.sent(KEY, 20, 60.0)
    found.ended(KEY, 20, 70.0)
    assert limit_of(found) == 2
    assert not found.room(KEY, 129.9)
    assert found.room(KEY, 130.0)


def test_a_plan_that_others_fill_is_asked_again_after_five_seconds_doubling_to_thirty() -> None:
    found, now = limits(), 0.0
    for pause in (5, 10, 20, 30, 30):
        found.sent(KEY, 1, now)
        found.crowded(KEY, 1, now)
        assert not found.room(KEY, now + pause - 0.1)
        assert found.changes_at(KEY, now) == now + pause
        now += pause
        assert found.room(KEY, now)
    found.sent(KEY, 1, now)
    found.answered(KEY, 1, now)
    found.ended(KEY, 1, now)
    found.sent(KEY, 2, now)
    found.crowded(KEY, 2, now)
    assert found.room(KEY, now + 5)


def test_a_fixed_number_is_kept_and_never_learnt_over_but_a_refusal_pauses() -> None:
    found = limits(3)
    for call in range(3):
        assert found.room(KEY, 0.0)
        found.sent(KEY, call, 0.0)
    assert not found.room(KEY, 1e6)
    found.crowded(KEY, 2, 0.0)
    assert limit_of(found) is None
    assert not found.room(KEY, 4.9)
    assert found.room(KEY, 5.0)


def test_off_is_off() -> None:
    found = limits("off")
    for call in range(10):
        found.sent(KEY, call, 0.0)
    found.crowded(KEY, 9, 0.0)
    assert found.room(KEY, 0.0)


def test_models_and_accounts_have_limits_of_their_own_and_forget_is_by_model() -> None:
    found = full(2)
    assert found.room(KEY._replace(model="other"), 0.0)
    assert found.room(KEY._replace(account="other"), 0.0)
    assert found.forget("other") == 0
    assert found.forget(" GLM-4.6 ") == 1
    assert found.room(KEY, 0.0)


def test_a_limit_outlives_a_restart_but_not_a_day() -> None:
    rows = full(2).dump(wall=1.7e9, now=100.0)
    assert rows == [LearntLimit("zai", "acc", "glm-4.6", 2, 1.7e9 - 100)]
    for wall, taken in [(1.7e9 + 3600, True), (1.7e9 - 9999, True), (1.7e9 + KEPT_SECONDS, False)]:
        found = limits()
        found.load(rows, wall, 5.0)
        assert limit_of(found, 5.0) == (2 if taken else None)
    found = limits()
    found.load(rows, 1.7e9, 0.0)
    assert limit_of(found, KEPT_SECONDS - 101) == 2
    assert limit_of(found, KEPT_SECONDS - 100) is None


GOOD: dict[str, object] = {"upstream": "zai", "account": "a", "model": "m", "limit": 2, "learnt_at": 1.7e9}


@over(
    "row",
    [
        None,
        [],
        {},
        *(
            {**GOOD, **bad}
            for bad in (
                {"limit": 0},
                {"limit": True},
                {"limit": 2.0},
                {"limit": 10**9},
                {"learnt_at": "x"},
                {"learnt_at": float("nan")},
                {"learnt_at": -1},
                {"learnt_at": 1e300},
                {"upstream": 1},
                {"model": None},
            )
        ),
    ],
)
def test_a_row_that_is_none_is_left_out(row: object) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(row, LearntLimit)
    assert msgspec.convert(GOOD, LearntLimit) == LearntLimit("zai", "a", "m", 2, 1.7e9)


def test_memory_is_bounded_and_what_is_under_way_is_kept() -> None:
    found = limits(limit=10)
    busy = KEY._replace(account="busy")
    found.sent(busy, 0, 0.0)
    for number in range(100):
        key = KEY._replace(account=str(number))
        found.sent(key, number + 1, 0.0)
        found.crowded(key, number + 1, 0.0)
    assert len(found.listed(0.0)) == 9
    assert found.under_way(busy) == 1


def test_there_is_one_try_at_a_time_also_when_another_call_ends_meanwhile() -> None:
    found = full(2)
    found.sent(KEY, 20, 60.0)
    found.ended(KEY, 0, 61.0)
    assert not found.room(KEY, 62.0)


def test_a_refusal_never_raises_a_limit() -> None:
    found = limits()
    found.load([LearntLimit(*KEY, 2, 1.7e9)], 1.7e9, 0.0)
    for call in range(5):
        found.sent(KEY, call, 0.0)
    found.crowded(KEY, 4, 0.0)
    assert limit_of(found) == 2
