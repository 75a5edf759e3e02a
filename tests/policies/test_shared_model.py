"""A shared breaker against any sequence of requests, lost, late and reordered messages, skewed clocks and killed owners."""

from __future__ import annotations

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from bench.fleet_lab import PaperProcess, PaperServer
from policies.breaker import LEASE_SECONDS, BreakerState, Permit
from policies.settings import BreakerSettings
from policies.shared_rows import MARGIN_SECONDS, Value, later

WHO = st.integers(0, 3)
SETTINGS = BreakerSettings(strikes=2, open_seconds=30)
SETTLED = SETTINGS.open_seconds + LEASE_SECONDS + MARGIN_SECONDS + 1


class Fleet(RuleBasedStateMachine):
    """Four processes that never lose the server: what is promised of a probe is promised of them."""

    @initialize(
        clocks=st.lists(st.floats(0, 1e6), min_size=4, max_size=4), behind=st.lists(st.floats(0, 0.2), min_size=4, max_size=4)
    )
    def start(self, clocks: list[float], behind: list[float]) -> None:
        self.server = PaperServer()
        self.processes = [
            PaperProcess(f"p{number}", self.server, SETTINGS, clock, late)
            for number, (clock, late) in enumerate(zip(clocks, behind, strict=True))
        ]
        self.permits: list[list[Permit]] = [[] for _ in self.processes]
        self.ended_by_hand: set[str] = set()
        """Leases: whoever has one and has not heard of it is a probe no more."""

    @rule(seconds=st.one_of(st.sampled_from([0.1, 1.0, 5.0, 29.9, 30.0, 64.9, 69.9, 70.0, 70.9, 71.0]), st.floats(0, 80)))
    def time_passes(self, seconds: float) -> None:
        for who in range(4):
            self.all_told(who)  # a process that cannot tell within 0.2 s has lost the server
        self.server.now += seconds

    @rule(who=WHO)
    def request(self, who: int) -> None:
        process = self.processes[who]
        if process.breaker.current(process.now) is BreakerState.HALF_OPEN:
            self.send(who)
            self.all_told(who)
        self.send(who)

    def probing(self, process: PaperProcess) -> bool:
        return process.probing() and process.breaker.lease not in self.ended_by_hand

    def send(self, who: int) -> None:
        process = self.processes[who]
        permit = process.ask()
        if permit is None:
            return
        if permit.probe:
            assert not any(self.probing(other) for other in self.processes if other is not process), "two live probes"
        self.permits[who].append(permit)

    @rule(who=WHO)
    def request_that_asks_and_waits(self, who: int) -> None:
        self.send(who)

    @rule(who=WHO)
    def everybody_hears_and_the_window_ends(self, who: int) -> None:
        self.by_hand(who, "open")
        self.all_told(who)
        for process in self.processes:
            process.look()
        self.time_passes(SETTINGS.open_seconds + 0.2)

    @rule(who=WHO, which=st.integers(0, 5), outcome=st.sampled_from(["answered", "challenged", "ended", "heard"]))
    def outcome(self, who: int, which: int, outcome: str) -> None:
        process, permits = self.processes[who], self.permits[who]
        if permits:
            getattr(process.breaker, outcome)(permits[-1 - which % len(permits)], process.now)

    @rule(who=WHO)
    def tell_one(self, who: int) -> None:
        if self.processes[who].outbox:
            self.processes[who].tell()

    def all_told(self, who: int) -> None:
        while self.processes[who].outbox:
            self.processes[who].tell()

    @rule(who=WHO, which=st.integers(0, 20), lost=st.booleans())
    def message(self, who: int, which: int, lost: bool) -> None:
        process = self.processes[who]
        if process.inbox:
            number = which % len(process.inbox)
            if lost:
                process.inbox.pop(number)
            else:
                process.hear(number)

    @rule(who=WHO)
    def look(self, who: int) -> None:
        self.processes[who].look()

    @rule(who=WHO)
    def killed(self, who: int) -> None:
        """A fresh one takes its place, with nothing of what it knew and none of what it had not told."""
        old = self.processes[who]
        self.server.listeners.remove(old)
        fresh = PaperProcess(f"{old.owner}+", self.server, SETTINGS, old.now - self.server.now + 1.7e9, old.behind)
        fresh.look()
        self.processes[who], self.permits[who] = fresh, []

    @rule(who=WHO, command=st.sampled_from(["open", "close", "reset"]))
    def by_hand(self, who: int, command: str) -> None:
        self.ended_by_hand |= {process.breaker.lease for process in self.processes}
        process = self.processes[who]
        getattr(process.breaker, command)(process.now)

    @invariant()
    def never_two_live_probes(self) -> None:
        if hasattr(self, "processes"):
            assert sum(self.probing(process) for process in self.processes) <= 1

    def teardown(self) -> None:
        """An open breaker always ends, whoever is gone and whatever was lost: without one more message, somebody may send."""
        if not hasattr(self, "processes"):
            return
        for who, process in enumerate(self.processes):
            self.all_told(who)
            process.inbox.clear()
        self.server.now += SETTLED
        sent = 0
        for who, process in enumerate(self.processes):
            process.look()
            sent += process.ask() is not None
            self.all_told(who)
            sent += process.ask() is not None
        assert sent >= 1


Fleet.TestCase.settings = settings(stateful_step_count=50)
TestFleet = Fleet.TestCase

VALUES = st.builds(
    Value,
    version=st.integers(0, 5),
    state=st.sampled_from(list(BreakerState)),
    strikes=st.integers(0, 3),
    epoch=st.integers(0, 3),
    opened_at=st.sampled_from([0.0, 1.0]),
    ends=st.sampled_from([0.0, 1.0, 2.0]),
    lease=st.sampled_from(["", "a:1", "b:1"]),
    until=st.sampled_from([0.0, 3.0, 4.0]),
)


@given(VALUES, VALUES, VALUES)
def test_in_whatever_order_values_are_merged_one_comes_out(one: Value, two: Value, three: Value) -> None:
    assert later(one, two) == later(two, one)
    assert later(later(one, two), three) == later(one, later(two, three))
    assert later(one, one) == one
    assert later(one, two).ends == max(one.ends, two.ends)
    assert msgspec.json.decode(msgspec.json.encode(one), type=Value) == one
