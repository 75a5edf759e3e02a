"""The breaker of an upstream: it stops the sends after repeated challenges, then lets one probe find out."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count

from policies.breaker_table import (
    LEVELS,
    NO_TIME,
    TRANSITIONS,
    BreakerView,
    Event,
    Pass,
    Refused,
    State,
    Transition,
    tell,
)
from policies.settings import BreakerSettings

__all__ = ["LEASE_SECONDS", "Breaker", "BreakerView", "Pass", "Refused", "State", "Transition", "tell"]

LEASE_SECONDS = 70.0
"""A probe without a byte from its upstream for so long has lapsed."""

_KNOWN_PASSES = 1024
"""Passes in the closed state whose events still count; the oldest is forgotten first."""


class Breaker:
    """One breaker. Every ``now`` is in seconds of one monotonic clock."""

    def __init__(
        self,
        settings: BreakerSettings,
        cap: int,
        *,
        upstream: str = "",
        account: str = "",
        serials: count[int] | None = None,
    ) -> None:
        self.upstream = upstream
        self.account = account
        self.settings = settings
        self.cap = cap
        self._serials = serials or count(1)
        self._state = State.CLOSED
        self._epoch = 0
        self._strikes = 0
        self._opened_at = 0.0
        self._ends = 0.0
        self._probe: Pass | None = None
        self._probe_since = 0.0
        self._probe_heard = 0.0
        self._known: dict[Pass, set[str]] = {}

    @property
    def window(self) -> float:
        """Seconds that an opening lasts; 0 where the breaker is disabled.

        Clients are told at most ``cap``, so a window up to a second longer would greet them a second early: it ends
        at ``cap``.
        """
        seconds = self.settings.open_seconds
        return float(self.cap) if self.cap < seconds <= self.cap + 1 else seconds

    @property
    def untouched(self) -> bool:
        """Nothing would be lost with this breaker."""
        return self._state is State.CLOSED and not self._strikes

    @property
    def closed(self) -> bool:
        return self._state is State.CLOSED

    def current(self, now: float) -> State:
        self._elapse(now)
        return self._state

    def admit(self, now: float) -> Pass | Refused:
        """Leave to send one generation request, or what to tell its client."""
        refused = self.preparation(now)
        if refused is not None:
            return refused
        pass_ = Pass(self._epoch, probe=self._state is State.HALF, serial=next(self._serials))
        if pass_.probe:
            self._step(Event.TAKEN, now)
            self._probe, self._probe_since, self._probe_heard = pass_, now, now
        self._known[pass_] = set()
        if len(self._known) > _KNOWN_PASSES:
            del self._known[next(iter(self._known))]
        return pass_

    def preparation(self, now: float) -> Refused | None:
        """What to tell the client of a preparation step, or None where it may go on; it never takes the probe."""
        self._elapse(now)
        if self._state is State.OPEN:
            return Refused(self._ends - now, probe_out=False)
        if self._state is State.PROBING:
            return Refused(self.window, probe_out=True)
        return None

    def heard(self, pass_: Pass, now: float) -> None:
        """A byte came from the upstream."""
        self._elapse(now)
        if pass_ == self._probe:
            self._probe_heard = now

    def answered(self, pass_: Pass, now: float) -> Transition | None:
        """The first answer frame came."""
        if not self._counts(pass_, "answered", now):
            return None
        return self._step(Event.ANSWERED, now)

    def challenged(self, pass_: Pass, now: float) -> Transition | None:
        """A challenge came: one strike, however often the same request meets one."""
        if not self._counts(pass_, "challenged", now):
            return None
        self._strikes += 1
        if self._state is State.PROBING:
            return self._step(Event.PROBE_CHALLENGED, now)
        last = self._strikes >= self.settings.strikes and self.window > 0
        return self._step(Event.LAST_STRIKE if last else Event.STRIKE, now)

    def ended(self, pass_: Pass, now: float) -> Transition | None:
        """The request is over, whatever came of it; nothing counts for this pass any more."""
        if not self._counts(pass_, "ended", now):
            return None
        del self._known[pass_]
        return self._step(Event.ENDED, now)

    def open(self, now: float) -> Transition | None:
        """Open by hand, for a full window; a disabled breaker stays closed."""
        return self._step(Event.OPENED, now) if self.window > 0 else None

    def close(self, now: float) -> Transition | None:
        """Close by hand."""
        return self._step(Event.CLOSED, now)

    def reset(self, now: float) -> Transition | None:
        """Close by hand and forget what is under way: its outcome counts for nothing."""
        self.forget()
        return self._step(Event.RESET, now)

    def forget(self) -> None:
        """Nobody meets this breaker any more: what is under way with it counts for nothing."""
        self._known.clear()

    def update(self, settings: BreakerSettings, cap: int, now: float) -> Transition | None:
        """Take changed settings; a running window may get shorter by it, never longer."""
        self.settings, self.cap = settings, cap
        if self.window <= 0:
            return self._step(Event.DISABLED, now)
        self._ends = min(self._ends, self._opened_at + self.window)
        return None

    def state(self, now: float) -> BreakerView:
        self._elapse(now)
        is_open, is_closed = self._state is State.OPEN, self._state is State.CLOSED
        return BreakerView(
            state=self._state,
            strikes=self._strikes,
            left=self._ends - now if is_open else 0.0,
            opened_at=None if is_closed else self._opened_at,
            probe_age=now - self._probe_since if self._probe else None,
        )

    def dump(self, wall: float, now: float) -> dict[str, float | int] | None:
        """A row for the state file, None while closed; ``wall`` is the wall clock in seconds."""
        view = self.state(now)
        if view.opened_at is None:
            return None
        return {"ends_at": wall + view.left, "strikes": view.strikes}

    def load(self, row: Mapping[str, object], wall: float, now: float) -> bool:
        """Open again from a row; False where the row is none. Whatever the wall clock did, a window at most."""
        ends_at, strikes = row.get("ends_at"), row.get("strikes", 0)
        if type(ends_at) not in (int, float) or type(strikes) is not int or self.window <= 0:
            return False
        assert isinstance(ends_at, int | float)
        if not 0 < ends_at < NO_TIME:
            return False
        self._enter(State.OPEN, now)
        self._strikes = max(strikes, 0)
        self._ends = now + min(max(ends_at - wall, 0.0), self.window)
        self._opened_at = self._ends - self.window
        return True

    def _counts(self, pass_: Pass, outcome: str, now: float) -> bool:
        self._elapse(now)
        outcomes = self._known.get(pass_)
        if outcomes is None or outcome in outcomes:
            return False
        outcomes.add(outcome)
        return True

    def _elapse(self, now: float) -> None:
        if self._state is State.OPEN and now >= self._ends:
            self._step(Event.WINDOW_OVER, now)
        elif self._state is State.PROBING and now - self._probe_heard >= LEASE_SECONDS:
            self._step(Event.LEASE_OVER, now)

    def _step(self, event: Event, now: float) -> Transition | None:
        before, after = self._state, TRANSITIONS[self._state].get(event)
        if after is None:
            return None
        if event in (Event.ANSWERED, Event.CLOSED, Event.RESET, Event.DISABLED):
            self._strikes = 0
        if after is before and event is not Event.OPENED:
            return None
        self._enter(after, now)
        left = self._ends - now if after is State.OPEN else 0.0
        return Transition(self.upstream, before, after, event.value, LEVELS.get(after, "debug"), left)

    def _enter(self, state: State, now: float) -> None:
        if state is State.OPEN:
            self._epoch += 1
            self._opened_at, self._ends = now, now + self.window
        if state in (State.OPEN, State.HALF):
            self._known.clear()
        self._probe = None
        self._state = state
