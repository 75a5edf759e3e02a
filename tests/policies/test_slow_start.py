"""After a refusal one goes first, then twice as many with each answer."""

from __future__ import annotations

from policies.breaker import LEASE_SECONDS
from policies.hurdles import SlowStart


def fill(start: SlowStart, first: int) -> list[int]:
    """As many as have room are sent; their numbers."""
    sent: list[int] = []
    while start.room(0.0) and len(sent) < 100:
        sent.append(first + len(sent))
        start.sent(sent[-1], 0.0)
    return sent


def test_one_two_four_eight_sixteen_and_then_no_limit() -> None:
    start = SlowStart()
    assert len(fill(start, 0)) == 100
    start.refused(0)
    under_way, number = 0, 1000
    for allowed in (1, 2, 4, 8, 16):
        sent = fill(start, number)
        under_way += len(sent)
        assert under_way == allowed
        start.answered(sent[0])
        number += 100
    assert start.unlimited
    assert start.changes_at() is None


def test_an_end_makes_room_and_an_answer_counts_once() -> None:
    start = SlowStart()
    start.begin()
    start.sent(1, 0.0)
    start.ended(1)
    assert fill(start, 2) == [2]
    start.answered(2)
    start.answered(2)
    assert fill(start, 3) == [3]


def test_a_call_of_the_time_before_makes_no_room_and_begins_nothing() -> None:
    start = SlowStart()
    start.begin()
    start.sent(1, 0.0)
    start.answered(99)
    start.refused(99)
    assert not start.room(0.0)


def test_a_silent_call_gives_its_room_back_after_the_lease() -> None:
    start = SlowStart()
    start.begin()
    start.sent(1, 10.0)
    assert start.changes_at() == 10 + LEASE_SECONDS
    assert not start.room(9.9 + LEASE_SECONDS)
    assert start.room(10 + LEASE_SECONDS)
