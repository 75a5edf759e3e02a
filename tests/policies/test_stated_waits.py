"""What an upstream says of how long to wait holds back one account and model."""

from __future__ import annotations

import pytest

from policies import hurdles
from policies.concurrency import Key
from policies.hurdles import StatedWait, StatedWaits
from tests.rows import over

KEY = Key("zai", "acc", "glm")


def test_a_wait_stands_until_it_is_over() -> None:
    waits = StatedWaits()
    waits.state(KEY, 59, 0.0)
    assert waits.standing(KEY, 58.9) == StatedWait(59.0, told=False)
    assert waits.standing(KEY, 59.0) is None
    assert waits.standing(KEY, 0.0) is None, "what is over is forgotten"


def test_a_longer_one_is_told_a_minute_at_a_time() -> None:
    waits = StatedWaits()
    waits.state(KEY, 3600, 0.0)
    assert waits.standing(KEY, 0.0) == StatedWait(59.0, told=True)


def test_a_shorter_one_does_not_end_a_longer_one() -> None:
    waits = StatedWaits()
    waits.state(KEY, 40, 0.0)
    waits.state(KEY, 5, 1.0)
    assert waits.standing(KEY, 39.0) is not None


@over("seconds", [0.0, -1.0, float("nan"), float("inf")])
def test_what_is_no_wait_is_left_out(seconds: float) -> None:
    waits = StatedWaits()
    waits.state(KEY, seconds, 0.0)
    assert waits._waits == {}


def test_it_is_bounded_and_forgotten_by_upstream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hurdles, "_MOST_WAITS", 2)
    waits = StatedWaits()
    for account in "abc":
        waits.state(KEY._replace(account=account), 30, 0.0)
    assert waits.standing(KEY._replace(account="a"), 0.0) is None
    waits.forget("other")
    assert waits.standing(KEY._replace(account="c"), 0.0) is not None
    waits.forget("zai")
    assert waits.standing(KEY._replace(account="c"), 0.0) is None
