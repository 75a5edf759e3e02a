"""`python -m bench.fleet_simulation`: many Breakwaters, one outage, lost messages, skewed clocks; on paper, in seconds.

Every process has one agent that asks again and again. The upstream challenges everything for a while. Counted are the sends
that reach it, and how many of them were probes at once.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from bench.fleet_lab import PaperProcess, PaperServer
from policies.breaker import BreakerState, Permit
from policies.settings import BreakerSettings

STEP = 0.25
"""Seconds between two moments that are looked at."""
LOOK_SECONDS = 2.0
SETTINGS = BreakerSettings(strikes=3, open_seconds=59)


@dataclass
class Outage:
    """One run. ``shared``: all over one server; else each for itself."""

    processes: int = 1000
    seconds: float = 600.0
    """Length of the outage; the run goes on for two minutes after it."""
    lost: float = 0.3
    """Share of the messages that never come."""
    shared: bool = True
    seed: int = 1
    sends: int = 0
    refused: int = 0
    """Sends that were challenged."""
    most_probes: int = 0
    windows: int = 0
    closed_after: float = 0.0
    """Seconds from the end of the outage until every breaker was closed."""
    messages: int = 0
    writes: int = 0
    unanswered: dict[int, tuple[Permit, float]] = field(default_factory=dict)

    def run(self) -> Outage:
        self.dice, self.server = random.Random(self.seed), PaperServer()
        self.fleet = [self._process(number) for number in range(self.processes)]
        self.begin = self.server.now
        asks_at = [self.begin + self.dice.uniform(0, 30) for _ in self.fleet]
        looks_at = [self.begin + self.dice.uniform(0, LOOK_SECONDS) for _ in self.fleet]
        while self.server.now < self.begin + self.seconds + 120:
            for number in self._order():
                process = self.fleet[number]
                self._hear(process)
                self._end(number, process)
                if self.server.now >= looks_at[number] and self.shared:
                    process.look()
                    looks_at[number] += LOOK_SECONDS
                if self.server.now >= asks_at[number] and number not in self.unanswered:
                    asks_at[number] = self.server.now + self._ask(number, process)
                while process.outbox:
                    process.tell()
            self._count()
            self.server.now += STEP
        self.messages, self.writes = self.server.messages, self.server.writes
        return self

    def _process(self, number: int) -> PaperProcess:
        process = PaperProcess(f"p{number}", self.server, SETTINGS, self.dice.uniform(0, 1e6), self.dice.uniform(0, 0.2))
        if not self.shared:
            process.lose()
        return process

    def _order(self) -> list[int]:
        order = list(range(self.processes))
        self.dice.shuffle(order)
        return order

    def _hear(self, process: PaperProcess) -> None:
        if process.inbox and self.shared:
            self.dice.shuffle(process.inbox)
            while process.inbox:
                if self.dice.random() < self.lost:
                    process.inbox.pop()
                else:
                    process.hear(len(process.inbox) - 1)
        process.inbox.clear()

    def _ask(self, number: int, process: PaperProcess) -> float:
        """Seconds until its agent asks again."""
        permit = process.ask()
        if permit is None and process.outbox:  # the others are asked; the answer comes at once
            while process.outbox:
                process.tell()
            permit = process.ask()
        if permit is None:
            return 5.0
        self.sends += 1
        self.unanswered[number] = permit, self.server.now + self.dice.uniform(0.5, 3.0)
        return 10.0

    def _end(self, number: int, process: PaperProcess) -> None:
        """Its answer comes."""
        if number not in self.unanswered or self.server.now < self.unanswered[number][1]:
            return
        permit, _ = self.unanswered.pop(number)
        refused = self.server.now < self.begin + self.seconds
        self.refused += refused
        moved = (process.breaker.challenged if refused else process.breaker.answered)(permit, process.now)
        self.windows += moved is not None and moved.after is BreakerState.OPEN
        process.breaker.ended(permit, process.now)

    def _count(self) -> None:
        probes = sum(permit.probe and self.fleet[number].probing() for number, (permit, _) in self.unanswered.items())
        self.most_probes = max(self.most_probes, probes)
        if self.server.now > self.begin + self.seconds and not self.closed_after:
            states = {process.breaker.current(process.now) for process in self.fleet}
            if states == {BreakerState.CLOSED}:
                self.closed_after = self.server.now - self.begin - self.seconds


def rows(processes: int) -> Iterator[str]:
    """A table: shared with messages lost or not, and each for itself."""
    yield f"{'':<44} {'sends':>7} {'in outage':>10} {'probes at once':>15} {'openings':>9} {'writes':>7} {'messages':>9} {'closed after':>13}"
    runs = [("each for itself", False, 0.0), ("shared", True, 0.0), ("shared, 30 % of messages lost", True, 0.3)]
    for name, shared, lost in (*runs, ("shared, every message lost", True, 1.0)):
        run = Outage(processes, shared=shared, lost=lost).run()
        yield (
            f"{name:<44} {run.sends:>7} {run.refused:>10} {run.most_probes:>15} {run.windows:>9} {run.writes:>7} {run.messages:>9} {run.closed_after:>11.1f} s"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=1000)
    arguments = parser.parse_args()
    print(
        f"{arguments.processes} Breakwaters, one agent each, everything challenged for 600 s, window {SETTINGS.open_seconds} s"
    )
    for row in rows(arguments.processes):
        print(row)


if __name__ == "__main__":
    main()
