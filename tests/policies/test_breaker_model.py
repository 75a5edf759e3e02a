"""The breaker against any sequence of requests, outcomes, commands and waits."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, rule

from policies.breaker import LEASE_SECONDS, Breaker, BreakerState, Permit, Refused, tell
from policies.settings import BreakerSettings

WAITS = st.one_of(
    st.sampled_from([0.0, 0.2, 1.0, 59.0, 60.0, LEASE_SECONDS - 1, LEASE_SECONDS]),
    st.floats(0, 200, allow_nan=False),
)


class BreakerMachine(RuleBasedStateMachine):
    """The model keeps what must hold: who is the probe, when it was last heard, which passes are of the past."""

    passes: Bundle[Permit] = Bundle("passes")

    @initialize(
        strikes=st.integers(1, 4),
        open_seconds=st.sampled_from([0.5, 10.0, 59.0, 60.0, 61.0, 300.0]),
        cap=st.sampled_from([1, 20, 59]),
    )
    def start(self, strikes: int, open_seconds: float, cap: int) -> None:
        self.now = 1000.0
        self.cap = cap
        self.breaker = Breaker(BreakerSettings(strikes=strikes, open_seconds=open_seconds), cap)
        self.probe: Permit | None = None
        self.heard_at = 0.0
        self.dead: set[Permit] = set()
        self.alive: set[Permit] = set()

    def view(self) -> BreakerState:
        return self.breaker.state(self.now).state

    def bury(self) -> None:
        """No pass so far may move anything again."""
        self.dead |= self.alive
        self.alive = set()
        self.probe = None

    def notice_time(self) -> None:
        if self.probe is not None and self.now - self.heard_at >= LEASE_SECONDS:
            self.bury()

    @rule(seconds=WAITS)
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.notice_time()

    @rule(target=passes)
    def request(self) -> Any:
        before = self.view()
        answer = self.breaker.admit(self.now)
        if isinstance(answer, Refused):
            assert before in (BreakerState.OPEN, BreakerState.PROBING)
            assert answer.probe_out == (self.probe is not None)
            assert 1 <= tell(answer.left, self.cap) <= self.cap
            return multiple()
        assert before in (BreakerState.CLOSED, BreakerState.HALF_OPEN)
        assert answer.probe == (before is BreakerState.HALF_OPEN)
        if answer.probe:
            assert self.probe is None, "two probes"
            self.probe, self.heard_at = answer, self.now
        self.alive.add(answer)
        return answer

    @rule()
    def preparation(self) -> None:
        before = self.breaker.state(self.now)
        refused = self.breaker.preparation(self.now)
        assert (refused is not None) == (before.state in (BreakerState.OPEN, BreakerState.PROBING))
        assert self.breaker.state(self.now) == before

    @rule(permit=passes)
    def byte(self, permit: Permit) -> None:
        self.breaker.heard(permit, self.now)
        if permit == self.probe:
            self.heard_at = self.now

    @rule(permit=passes, outcome=st.sampled_from(["answered", "challenged", "ended"]))
    def outcome(self, permit: Permit, outcome: str) -> None:
        before = self.breaker.state(self.now)
        transition = getattr(self.breaker, outcome)(permit, self.now)
        after = self.breaker.state(self.now)
        if permit in self.dead:
            assert transition is None
            assert after == before, "a request of the past moved the breaker"
        if permit == self.probe:
            assert (
                after.state
                is {"answered": BreakerState.CLOSED, "challenged": BreakerState.OPEN, "ended": BreakerState.HALF_OPEN}[outcome]
            )
            self.probe = None
        if transition is not None and after.state in (BreakerState.OPEN, BreakerState.HALF_OPEN):
            self.bury()
        if outcome == "ended":
            self.alive.discard(permit)
            self.dead.add(permit)

    @rule(permit=passes)
    def challenged_again(self, permit: Permit) -> None:
        self.outcome(permit, "challenged")
        before = self.breaker.state(self.now)
        assert self.breaker.challenged(permit, self.now) is None
        assert self.breaker.state(self.now) == before

    @rule(command=st.sampled_from(["open", "close", "reset"]))
    def by_hand(self, command: str) -> None:
        getattr(self.breaker, command)(self.now)
        assert self.view() is (BreakerState.OPEN if command == "open" else BreakerState.CLOSED)
        if command == "close":
            self.probe = None
        else:
            self.bury()

    @rule()
    def restart(self) -> None:
        row = self.breaker.dump(1.7e9, self.now)
        left = self.breaker.state(self.now).left
        fresh = Breaker(self.breaker.settings, self.cap)
        if row is not None:
            assert fresh.load(row, 1.7e9, self.now)
            assert abs(fresh.state(self.now).left - left) < 0.001
            assert fresh.state(self.now).state in (BreakerState.OPEN, BreakerState.HALF_OPEN)

    @rule(target=passes)
    def come_back_much_later(self) -> Permit:
        """Whatever happened: a window and a lease without a word, and whoever asks may send."""
        self.wait(self.breaker.window + LEASE_SECONDS)
        answer = self.request()
        assert isinstance(answer, Permit)
        return answer

    @invariant()
    def a_probe_is_out_exactly_while_it_is_live(self) -> None:
        view = self.breaker.state(self.now)
        assert (view.state is BreakerState.PROBING) == (self.probe is not None) == (view.probe_age is not None)
        assert 0 <= view.left <= self.breaker.window + 0.001

    def teardown(self) -> None:
        if hasattr(self, "breaker"):
            later = self.now + self.breaker.window + LEASE_SECONDS
            assert isinstance(self.breaker.admit(later), Permit)
            assert isinstance(self.breaker.admit(later + self.breaker.window + LEASE_SECONDS), Permit)


BreakerMachine.TestCase.settings = settings(stateful_step_count=40)
TestBreakerMachine = BreakerMachine.TestCase
