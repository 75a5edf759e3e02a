"""The breaker of an upstream: it stops the sends after repeated challenges, then lets one probe find out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import count
from typing import Literal

import msgspec

from policies.saved import OpenBreaker
from policies.settings import BreakerSettings

LEASE_SECONDS = 70.0
"""A probe without a byte from its upstream for so long has lapsed."""

_KNOWN_PERMITS = 1024
"""Permits in the closed state whose events still count; the oldest is forgotten first."""


class BreakerState(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"
    """The window is over and nobody has probed yet."""
    PROBING = "probing"


class Event(StrEnum):
    """What moves a breaker; the value is the reason code of the transition."""

    STRIKE = "challenged"
    LAST_STRIKE = "repeated_challenges"
    PROBE_CHALLENGED = "probe_challenged"
    ANSWERED = "answered"
    ENDED = "ended_otherwise"
    TAKEN = "probe_taken"
    WINDOW_OVER = "window_over"
    LEASE_OVER = "lease_over"
    OPENED = "opened_by_hand"
    CLOSED = "closed_by_hand"
    RESET = "reset_by_hand"
    DISABLED = "disabled"


Level = Literal["debug", "info", "warning"]

# Theory of operation
# ===================
#
# A request that may be sent gets a Permit. What becomes of it comes back with that permit: answered, challenged, or ended
# any other way. Only a permit that the breaker still knows can move it:
#
# - Entering OPEN forgets every permit. So a request sent before the opening can neither clear, close, extend nor reopen
#   anything, however late its answer comes.
# - In PROBING the probe is the only known permit. Entering HALF_OPEN forgets it. So a probe that lapsed counts for nothing.
# - Each event counts once per permit, so the re-sends of one request are one strike.
#
# Time moves it too, looked at before anything else is done: OPEN becomes HALF_OPEN when its window is over, PROBING becomes
# HALF_OPEN when the lease of the probe is. There is no timer, and no way out of PROBING that needs an event to come: whoever
# asks after the lease takes the probe.
#
# HALF_OPEN has one way on: the next request is the probe. So there is at most one, and a probe that ended without a verdict
# is followed by another at once.
#
# A cell that is missing means: the event changes nothing.
_BY_HAND = {Event.OPENED: BreakerState.OPEN, Event.CLOSED: BreakerState.CLOSED, Event.RESET: BreakerState.CLOSED}
_NOT_CLOSED = {**_BY_HAND, Event.DISABLED: BreakerState.CLOSED}
TRANSITIONS: Mapping[BreakerState, Mapping[Event, BreakerState]] = {
    BreakerState.CLOSED: {
        **_BY_HAND,
        Event.STRIKE: BreakerState.CLOSED,
        Event.LAST_STRIKE: BreakerState.OPEN,
        Event.ANSWERED: BreakerState.CLOSED,
        Event.ENDED: BreakerState.CLOSED,
    },
    BreakerState.OPEN: {**_NOT_CLOSED, Event.WINDOW_OVER: BreakerState.HALF_OPEN},
    BreakerState.HALF_OPEN: {**_NOT_CLOSED, Event.TAKEN: BreakerState.PROBING},
    BreakerState.PROBING: {
        **_NOT_CLOSED,
        Event.ANSWERED: BreakerState.CLOSED,
        Event.PROBE_CHALLENGED: BreakerState.OPEN,
        Event.ENDED: BreakerState.HALF_OPEN,
        Event.LEASE_OVER: BreakerState.HALF_OPEN,
    },
}
"""Every move; ``_BY_HAND`` is possible in each state."""

LEVELS: Mapping[BreakerState, Level] = {BreakerState.OPEN: "warning", BreakerState.CLOSED: "info"}


class Permit(msgspec.Struct, frozen=True):
    """The leave to send one request, with all its re-sends; handed back with whatever becomes of it."""

    probe: bool
    serial: int


@dataclass(frozen=True, slots=True)
class Refused:
    left: float
    """Seconds to tell, before ``tell``: what is left of the window, or of the lease of the probe that is out."""
    probe_out: bool


@dataclass(frozen=True, slots=True)
class Transition:
    """One change of state, to be logged once."""

    upstream: str
    before: BreakerState
    after: BreakerState
    reason: str
    level: Level
    """``warning`` on opening, ``info`` on closing, ``debug`` on what lies between."""
    left: float = 0.0
    """Seconds of the window that an opening starts."""


@dataclass(frozen=True, slots=True)
class BreakerView:
    state: BreakerState
    strikes: int
    left: float
    """Seconds of the window still to go, 0 unless open."""
    opened_at: float | None
    """Monotonic seconds of the last opening, None while closed."""
    probe_age: float | None
    """Seconds since the probe was let out, None where none is."""


def tell(seconds: float, cap: int) -> int:
    """Whole seconds for a Retry-After: rounded up, 1 to ``cap``."""
    return (
        cap if not seconds < cap else max(1, math.ceil(seconds - 1e-6))
    )  # a sum of clock readings may be a hair above a whole second


class Breaker:
    """One breaker. Every ``now`` is in seconds of one monotonic clock."""

    def __init__(
        self, settings: BreakerSettings, cap: int, *, upstream: str = "", account: str = "", serials: count[int] | None = None
    ) -> None:
        self.upstream = upstream
        self.account = account
        self.settings = settings
        self.cap = cap
        self._serials = serials or count(1)
        self._state = BreakerState.CLOSED
        self._strikes = 0
        self._opened_at = 0.0
        self._ends = 0.0
        self._probe: Permit | None = None
        self._probe_since = 0.0
        self._probe_heard = 0.0
        self._known: dict[Permit, set[str]] = {}

    @property
    def window(self) -> float:
        """Seconds that an opening lasts, 0 where the breaker is disabled; one up to a second above ``cap`` ends at it."""
        seconds = self.settings.open_seconds
        return float(self.cap) if self.cap < seconds <= self.cap + 1 else seconds

    @property
    def untouched(self) -> bool:
        """Nothing would be lost with this breaker."""
        return self.closed and not self._strikes

    @property
    def closed(self) -> bool:
        return self._state is BreakerState.CLOSED

    def current(self, now: float) -> BreakerState:
        self._elapse(now)
        return self._state

    def admit(self, now: float) -> Permit | Refused:
        """Leave to send one generation request, or what to tell its client."""
        refused = self.preparation(now)
        if refused is not None:
            return refused
        permit = Permit(probe=self._state is BreakerState.HALF_OPEN, serial=next(self._serials))
        if permit.probe:
            self._step(Event.TAKEN, now)
            self._probe, self._probe_since, self._probe_heard = permit, now, now
        self._known[permit] = set()
        if len(self._known) > _KNOWN_PERMITS:
            del self._known[next(iter(self._known))]
        return permit

    def preparation(self, now: float) -> Refused | None:
        """What to tell the client of a preparation step, or None where it may go on; it never takes the probe."""
        self._elapse(now)
        if self._state is BreakerState.OPEN:
            return Refused(self._ends - now, probe_out=False)
        if self._state is BreakerState.PROBING:
            return Refused(self._probe_heard + LEASE_SECONDS - now, probe_out=True)
        return None

    def changes_at(self, now: float) -> float | None:
        """Monotonic seconds at which time alone moves it: the end of the window or of the lease; None where none runs."""
        refused = self.preparation(now)
        return None if refused is None else now + refused.left

    def heard(self, permit: Permit, now: float) -> None:
        """A byte came from the upstream."""
        self._elapse(now)
        if permit == self._probe:
            self._probe_heard = now

    def answered(self, permit: Permit, now: float) -> Transition | None:
        """The first answer frame came."""
        return self._step(Event.ANSWERED, now) if self._counts(permit, "answered", now) else None

    def challenged(self, permit: Permit, now: float) -> Transition | None:
        """Count a challenge: one strike, however often a request meets one."""
        if not self._counts(permit, "challenged", now):
            return None
        self._strikes += 1
        if self._state is BreakerState.PROBING:
            return self._step(Event.PROBE_CHALLENGED, now)
        last = self._strikes >= self.settings.strikes and self.window > 0
        return self._step(Event.LAST_STRIKE if last else Event.STRIKE, now)

    def opens_for(self, permit: Permit) -> float:
        """Seconds of the window that a challenge of this request would open; 0 where it would open none."""
        if "challenged" in self._known.get(permit, {"challenged"}):
            return 0.0
        last = permit == self._probe or self._strikes + 1 >= self.settings.strikes
        return self.window if last else 0.0

    def ended(self, permit: Permit, now: float) -> Transition | None:
        """The request is over, whatever came of it; nothing counts for this permit any more."""
        if not self._counts(permit, "ended", now):
            return None
        del self._known[permit]
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
        left = self._ends - now if self._state is BreakerState.OPEN else 0.0
        age = now - self._probe_since if self._probe else None
        return BreakerView(self._state, self._strikes, left, None if self.closed else self._opened_at, age)

    def dump(self, wall: float, now: float) -> OpenBreaker | None:
        """A row for the state file, None while closed; ``wall`` is the wall clock in seconds."""
        view = self.state(now)
        if view.opened_at is None:
            return None
        return OpenBreaker(self.upstream, self.account, wall + view.left, view.strikes)

    def load(self, row: OpenBreaker, wall: float, now: float) -> bool:
        """Open again from a row; False where it is disabled. Whatever the wall clock did, a window at most."""
        if self.window <= 0:
            return False
        self._enter(BreakerState.OPEN, now)
        self._strikes = row.strikes
        self._ends = now + min(max(row.until - wall, 0.0), self.window)
        self._opened_at = self._ends - self.window
        return True

    def _counts(self, permit: Permit, outcome: str, now: float) -> bool:
        self._elapse(now)
        outcomes = self._known.get(permit)
        if outcomes is None or outcome in outcomes:
            return False
        outcomes.add(outcome)
        return True

    def _elapse(self, now: float) -> None:
        if self._state is BreakerState.OPEN and now >= self._ends:
            self._step(Event.WINDOW_OVER, now)
        elif self._state is BreakerState.PROBING and now - self._probe_heard >= LEASE_SECONDS:
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
        left = self._ends - now if after is BreakerState.OPEN else 0.0
        return Transition(self.upstream, before, after, event.value, LEVELS.get(after, "debug"), left)

    def _enter(self, state: BreakerState, now: float) -> None:
        if state is BreakerState.OPEN:
            self._opened_at, self._ends = now, now + self.window
        if state in (BreakerState.OPEN, BreakerState.HALF_OPEN):
            self._known.clear()
        self._probe = None
        self._state = state
