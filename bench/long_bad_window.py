"""A long bad window: every send is challenged with probability 0.93, or a plan takes two at a time; clients as measured.

``python -m bench.long_bad_window`` prints the tables. The clock is simulated.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from policies.breaker import tell
from policies.calls import Call, Surface
from policies.hurdles import Refusal, Refused
from policies.kinds import Family, Role, Wire
from policies.patience import NODE_SECONDS, Patience
from policies.queue import Asking, Place, Standing
from policies.refusal_memory import RefusalMemory
from policies.settings import BreakerSettings, QueueSettings
from policies.shared import SharedBreaker
from policies.turns import Line

HOURS = 2
FIRST_FRAME = 3.0
ANSWER = 20.0
REFUSAL = 0.5
BETWEEN_TURNS = 10.0
IDEAL = 10 / 2 * ANSWER
"""Seconds that ten calls take on a plan of two, at best."""


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
        self.breaker = SharedBreaker(BreakerSettings(), 59, upstream="zai")
        seconds = 280.0 if guard == "queue" else 0.0
        self.seconds = seconds
        concurrency = "learn" if guard == "queue" else "off"
        self.line = Line(QueueSettings(seconds=seconds), lambda *_: self.breaker, lambda _: concurrency)  # type: ignore[arg-type, return-value]
        self.memory = RefusalMemory()
        self.accepted = 0
        self.sending: Turn | None = None
        """Whose send the upstream is asked about."""
        self._turns: dict[Place, Turn] = {}
        self._events: list[tuple[float, int, Callable[[], object]]] = []
        self._order = itertools.count()
        self._timer = math.inf

    def later(self, seconds: float, event: Callable[[], object]) -> None:
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
        look = self.line.next_look()
        if look is not None and (look < self._timer or self._timer <= self.now):
            self._timer = look
            self.later(look - self.now, lambda: None)

    def refused(self, digest: str) -> int:
        """Seconds that the client of a refused request is told."""
        call = Call(Surface("zai", Family.ZAI, Wire.ANTHROPIC, Role.GENERATION), "POST", "/v1/messages", "a", "glm")
        call.__dict__["digest"] = digest
        return self.memory.refused(call, None, self.now, first=30, cap=59, stated=None, sent=self.now)

    def asks(self, turn: Turn) -> None:
        if self.guard == "none":
            turn.sent(None)
            return
        patience = Patience(turn.habit.limit, max(0.0, min(turn.habit.limit - 20, self.seconds)))
        remembered = self.memory.waiting("a", turn.digest, self.now)
        place = self.line.arrive(
            Asking(
                "zai",
                "a",
                "glm",
                turn.digest,
                turn.digest,
                patience=patience.waits,
                not_before=self.now + remembered.left if remembered else 0.0,
            ),
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
        world.sending = self
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
        wait = 0 if verdict is Refused.CROWD else world.refused(self.digest)
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


def ten_at_once(guard: str) -> Iterator[Tally]:
    """Ten calls at once on a plan of two, twice; ``ended_at`` is counted from their coming."""
    world = World(guard, plan_of(2), random.Random(0))

    def ten() -> None:
        for _ in range(10):
            Turn(world, CLAUDE, lambda: None)

    for _ in range(2):
        world.tally, began = Tally(), world.now
        world.later(0.0, ten)
        tally = world.run()
        tally.ended_at -= began
        yield tally


def bad_hours(guard: str, seeds: int = 10) -> Iterator[Tally]:
    for seed in range(seeds):
        yield agents(FOUR, guard, mostly_challenged(random.Random(1000 + seed)), seed, HOURS * 3600.0)


def main() -> None:
    print("four agents, two hours, each send challenged with probability 0.93, mean of ten")
    print("| | turns | answered | sends | longest wait, s |\n|---|---|---|---|---|")
    for guard in ("queue", "refuse", "none"):
        rows = list(bad_hours(guard))
        mean = [sum(getattr(t, name) for t in rows) / len(rows) for name in ("turns", "answered", "sends")]
        print(
            f"| {guard} | {mean[0]:.1f} | {mean[1]:.1f} ({mean[1] / mean[0]:.0%}) | {mean[2]:.0f} | {max(t.longest for t in rows):.0f} |"
        )
    print("nine agents, one turn each\n| | challenged for, s | answered | sends | last first frame, s |\n|---|---|---|---|---|")
    for guard, seconds in itertools.product(("queue", "refuse", "none"), (70, 300, 600)):
        t = agents(NINE, guard, challenged_until(seconds), 0, 0.0)
        print(f"| {guard} | {seconds} | {t.answered} | {t.sends} ({t.refused} refused) | {t.longest:.0f} |")
    print("ten at once on a plan of two\n| | answered | refused sends | total of ideal |\n|---|---|---|---|")
    for guard in ("queue", "refuse", "none"):
        for time, t in zip(("first", "second"), ten_at_once(guard), strict=True):
            print(f"| {guard}, {time} time | {t.answered} | {t.refused} | {t.ended_at / IDEAL:.2f} |")


if __name__ == "__main__":
    main()
