"""Long bad windows on a simulated clock: agents whose sends are mostly challenged, and a plan that takes two at a time."""

from __future__ import annotations

import random
from functools import partial

import pytest

from bench.long_bad_window import (
    CLAUDE,
    CODEX,
    HOURS,
    IDEAL,
    NINE,
    Turn,
    World,
    agents,
    bad_hours,
    challenged_until,
    ten_at_once,
)
from policies.hurdles import Refused


def test_four_agents_in_a_long_bad_window_lose_fewer_turns_and_do_not_storm() -> None:
    """Bare clients get more answers by hammering, where each send is a draw of its own; that is not ours to do."""
    queue, refuse, none = (list(bad_hours(guard, seeds=4)) for guard in ("queue", "refuse", "none"))
    lost = [sum(len(t.lost) for t in rows) for rows in (queue, refuse, none)]
    assert lost[0] < 0.3 * lost[1] < lost[2]
    assert sum(t.answered for t in queue) > sum(t.answered for t in refuse)
    assert max(t.sends for t in queue) <= 2 * HOURS * 60


@pytest.mark.parametrize(("seconds", "refused"), [(70, 5), (300, 9)])
def test_nine_agents_at_once_all_end_in_the_answer(seconds: float, refused: int) -> None:
    tally = agents(NINE, "queue", challenged_until(seconds), 0, 0.0)
    assert tally.lost == []
    assert tally.refused <= refused


def test_ten_minutes_lose_only_clients_of_three_tries() -> None:
    """Three times 280 s and what they are told between end at about 640 s; whether a probe is answered by then is chance."""
    tally = agents(NINE, "queue", challenged_until(600), 0, 0.0)
    assert set(tally.lost) <= {"SDK", "Claude Code, Opus"}
    assert tally.answered >= 6
    assert tally.refused <= 15


def test_ten_at_once_on_a_plan_of_two_are_all_answered_in_little_more_than_the_ideal_time() -> None:
    first, second = ten_at_once("queue")
    assert (first.answered, second.answered) == (10, 10)
    assert first.refused <= 9
    assert second.refused <= 1
    assert first.ended_at <= 1.6 * IDEAL
    assert second.ended_at <= 1.35 * IDEAL


def test_with_one_request_always_refused_the_others_go_on() -> None:
    world = World("queue", lambda *_: None, random.Random(0))
    world.upstream = lambda *_: Refused.CHALLENGE if world.sending and world.sending.habit is CODEX else None
    world.later(0.0, partial(Turn, world, CODEX, lambda: None))
    for number in range(6):
        world.later(1.0 + number, partial(Turn, world, CLAUDE, lambda: None))
    tally = world.run()
    assert tally.answered == 6
    assert tally.longest <= 70
    assert tally.lost == ["Codex"]
