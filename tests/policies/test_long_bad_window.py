"""A long bad window: every send is challenged with probability 0.93, or a plan takes two at a time; clients as measured.

``python -m tests.policies.test_long_bad_window`` prints the table of docs/agents.md. The clock is simulated.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from policies.breaker import Breaker, tell
from policies.hurdles import Refusal, Refused
from policies.patience import NODE_SECONDS, Patience
from policies.queue import Asking, Place, Standing
from policies.refusal_memory import RefusalMemory
from policies.settings import BreakerSettings, QueueSettings
from policies.turns import Line

HOURS = 2
FIRST_FRAME = 3.0
ANSWER = 20.0
REFUSAL = 0.5
BETWEEN_TURNS = 10.0


@dataclass(frozen=True)
class Habit:
    """How long a client bears, and how many refusals; measured."""

    name: str
    limit: float
    tries: int
    jitter: float = 0.0


CLAUDE = Habit("Claude Code", 300.0, 11, 0.25)
OPUS = Habit("Claude Code, Opus", 300.0, 3, 0.25)
QWEN = Habit("Qwen Code", 119.0, 28)
OPENCODE = Habit("opencode", NODE_SECONDS, 8)
CODEX = Habit("Codex", 585.0, 40)
SDK = Habit("SDK", 600.0, 3)
FOUR = (CLAUDE, QWEN, OPENCODE, CODEX)
NINE = (CLAUDE, OPUS, CLAUDE, QWEN, QWEN, OPENCODE, CODEX, SDK, SDK)


@dataclass
class Tally:
    turns: int = 0
    answered: int = 0
    sends: int = 0
    refused: int = 0
    longest: float = 0.0
    """Seconds of the longest turn that ended in the answer, from its first request to its first frame."""
    ended_at: float = 0.0
    lost: list[str] = field(default_factory=list)


Upstream = Callable[[float, int], Refused | None]
"""What becomes of a send at this moment, with so many others under way; None is the answer."""


def challenged_until(seconds: float) -> Upstream:
    return lambda now, _: Refused.CHALLENGE if now < seconds else None


def mostly_challenged(dice: random.Random, share: float = 0.93) -> Upstream:
    return lambda *_: Refused.CHALLENGE if dice.random() < share else None


def plan_of(places: int) -> Upstream:
    return lambda _, others: Refused.CROWD if others >= places else None


class World:
    """Clients, Breakwater and an upstream, one event at a time. ``guard``: queue, refuse (queue.seconds 0) or none."""

    def __init__(self, guard: str, upstream: Upstream, dice: random.Random, until: float = math.inf) -> None:
        self.guard, self.upstream, self.dice, self.until = guard, upstream, dice, until
        self.now, self.tally = 0.0, Tally()
        self.breaker = Breaker(BreakerSettings(), 59, upstream="zai")
        seconds = 280.0 if guard == "queue" else 0.0
        self.seconds = seconds
        concurrency = "learn" if guard == "queue" else "off"
        self.line = Line(QueueSettings(seconds=seconds), lambda *_: self.breaker, lambda _: concurrency)  # type: ignore[arg-type, return-value]
        self.memory = RefusalMemory()
        self.accepted = 0
        self._turns: dict[Place, Turn] = {}
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._timer = math.inf

    def later(self, seconds: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + seconds, next(self._order), event))

    def run(self) -> Tally:
        while self._events:
            self.now, _, event = heapq.heappop(self._events)
            event()
            self.wake()
        return self.tally

    def wake(self) -> None:
        for place in self.line.due(self.now):
            self._turns[place].goes_on(place)
        look = self.line.next_look(self.now)
        if look is not None and (look < self._timer or self._timer <= self.now):
            self._timer = look
            self.later(look - self.now, lambda: None)

    def asks(self, turn: Turn) -> None:
        if self.guard == "none":
            turn.sent(None)
            return
        patience = Patience(turn.habit.limit, max(0.0, min(turn.habit.limit - 20, self.seconds)))
        remembered = self.memory.waiting("a", turn.digest, self.now)
        place = self.line.arrive(
            Asking("zai", "a", "glm", turn.digest, turn.digest, patience=patience.waits,
                   not_before=self.now + remembered.left if remembered else 0.0),
            self.now,
        )
        self._turns[place] = turn
        turn.goes_on(place)


class Turn:
    """One turn of a client: it asks until it is answered or has had enough."""

    serials = itertools.count()

    def __init__(self, world: World, habit: Habit, done: Callable[[], None]) -> None:
        self.world, self.habit, self.done = world, habit, done
        self.digest = str(next(self.serials))
        self.began, self.tries = world.now, 0
        world.tally.turns += 1
        self.ask()

    def ask(self) -> None:
        self.tries += 1
        self.world.asks(self)

    def goes_on(self, place: Place) -> None:
        if place.standing is Standing.UNDER_WAY:
            self.sent(place)
        elif place.standing is Standing.TOLD:
            assert place.told
            self.told(tell(place.told.left, 59))

    def told(self, wait: float) -> None:
        if self.tries >= self.habit.tries:
            self.world.tally.lost.append(self.habit.name)
            self.done()
            return
        self.world.later(wait * self.world.dice.uniform(1, 1 + self.habit.jitter), self.ask)

    def sent(self, place: Place | None) -> None:
        world = self.world
        world.tally.sends += 1
        verdict = world.upstream(world.now, world.accepted)
        if verdict is None:
            world.accepted += 1
            world.later(FIRST_FRAME, lambda: self.answered(place))
        else:
            world.tally.refused += 1
            world.later(REFUSAL, lambda: self.refused(place, verdict))

    def refused(self, place: Place | None, verdict: Refused) -> None:
        world = self.world
        if place is None:
            self.told(0.5 * 2 ** min(self.tries - 1, 5))  # the clients' own backoff, without a Retry-After
            return
        wait = 0 if verdict is Refused.CROWD else world.memory.refused("a", self.digest, world.now, first=30, cap=59, stated=None)
        world.line.refused(place, Refusal(verdict, wait or 5.0 if world.guard == "refuse" else wait), world.now)
        self.goes_on(place)

    def answered(self, place: Place | None) -> None:
        world = self.world
        world.tally.answered += 1
        world.tally.longest = max(world.tally.longest, world.now - self.began)
        if place is not None:
            world.line.answered(place, world.now)
        world.later(ANSWER - FIRST_FRAME, lambda: self.ended(place))

    def ended(self, place: Place | None) -> None:
        world = self.world
        world.accepted -= 1
        world.tally.ended_at = world.now
        if place is not None:
            world.line.ended(place, world.now)
        self.done()


def agents(habits: tuple[Habit, ...], guard: str, upstream: Upstream, seed: int, seconds: float) -> Tally:
    """Each agent takes turn after turn for so long; with 0 seconds, one turn."""
    world = World(guard, upstream, random.Random(seed))

    def next_turn(habit: Habit) -> None:
        def done() -> None:
            if world.now < seconds:
                world.later(BETWEEN_TURNS, lambda: next_turn(habit))

        Turn(world, habit, done)

    for number, habit in enumerate(habits):
        world.later(number * 0.3, lambda habit=habit: next_turn(habit))  # type: ignore[misc]
    return world.run()


def bad_hours(guard: str, seeds: int = 10) -> Iterator[Tally]:
    for seed in range(seeds):
        yield agents(FOUR, guard, mostly_challenged(random.Random(1000 + seed)), seed, HOURS * 3600.0)


def test_four_agents_in_a_long_bad_window_lose_fewer_turns_and_do_not_storm() -> None:
    """Bare clients get more answers by hammering, where each send is a draw of its own; that is not ours to do."""
    queue, refuse, none = (list(bad_hours(guard)) for guard in ("queue", "refuse", "none"))
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
    world = World("queue", plan_of(2), random.Random(0))
    ideal = 10 / 2 * ANSWER
    for at_most_refused, at_most in ((9, 1.6), (1, 1.35)):
        world.tally, began = Tally(), world.now
        for _ in range(10):
            world.later(0.0, lambda: Turn(world, CLAUDE, lambda: None) and None)
        tally = world.run()
        assert tally.answered == 10
        assert tally.refused <= at_most_refused
        assert tally.ended_at - began <= at_most * ideal


def main() -> None:
    print("four agents, two hours, each send challenged with probability 0.93, mean of ten")
    print("| | turns | answered | sends | longest wait, s |\n|---|---|---|---|---|")
    for guard in ("queue", "refuse", "none"):
        rows = list(bad_hours(guard))
        mean = [sum(getattr(t, name) for t in rows) / len(rows) for name in ("turns", "answered", "sends")]
        print(f"| {guard} | {mean[0]:.1f} | {mean[1]:.1f} ({mean[1] / mean[0]:.0%}) | {mean[2]:.0f} | {max(t.longest for t in rows):.0f} |")
    print("nine agents, one turn each\n| | challenged for, s | answered | sends | last first frame, s |\n|---|---|---|---|---|")
    for guard, seconds in itertools.product(("queue", "refuse", "none"), (70, 300, 600)):
        t = agents(NINE, guard, challenged_until(seconds), 0, 0.0)
        print(f"| {guard} | {seconds} | {t.answered} | {t.sends} ({t.refused} refused) | {t.longest:.0f} | {t.lost}")
    print("ten at once on a plan of two\n| | answered | refused sends | total of ideal |\n|---|---|---|---|")
    for guard in ("queue", "refuse", "none"):
        world = World(guard, plan_of(2), random.Random(0))
        for time in ("first", "second"):
            world.tally, began = Tally(), world.now
            for _ in range(10):
                world.later(0.0, lambda world=world: Turn(world, CLAUDE, lambda: None) and None)  # type: ignore[misc]
            t = world.run()
            print(f"| {guard}, {time} time | {t.answered} | {t.refused} | {(t.ended_at - began) / 100:.2f} |")


if __name__ == "__main__":
    main()
