"""What a breaker is made of: its states, the table of its transitions, and the values that go in and out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

import msgspec


class State(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF = "half"
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

NO_TIME = 1e12
"""Seconds that no wall clock shows: what a state file says of the end of a wait stays below."""

# Theory of operation
# ===================
#
# A request that may be sent gets a Pass. What becomes of it comes back with that pass: answered, challenged, or ended
# any other way. Only a pass that the breaker still knows can move it:
#
# - Entering OPEN forgets every pass. So a request sent before the opening can neither clear, close, extend nor reopen
#   anything, however late its answer comes.
# - In PROBING the probe is the only known pass. Entering HALF forgets it. So a probe that lapsed counts for nothing.
# - Each event counts once per pass, so the re-sends of one request are one strike.
#
# Time moves it too, looked at before anything else is done: OPEN becomes HALF when its window is over, PROBING becomes
# HALF when the lease of the probe is. There is no timer, and no way out of PROBING that needs an event to come: whoever
# asks after the lease takes the probe.
#
# HALF has one way on: the next request is the probe. So there is at most one, and a probe that ended without a verdict
# is followed by another at once.
#
# A cell that is missing means: the event changes nothing.
TRANSITIONS: Mapping[State, Mapping[Event, State]] = {
    State.CLOSED: {
        Event.STRIKE: State.CLOSED,
        Event.LAST_STRIKE: State.OPEN,
        Event.ANSWERED: State.CLOSED,
        Event.ENDED: State.CLOSED,
        Event.OPENED: State.OPEN,
        Event.CLOSED: State.CLOSED,
        Event.RESET: State.CLOSED,
    },
    State.OPEN: {
        Event.WINDOW_OVER: State.HALF,
        Event.OPENED: State.OPEN,
        Event.CLOSED: State.CLOSED,
        Event.RESET: State.CLOSED,
        Event.DISABLED: State.CLOSED,
    },
    State.HALF: {
        Event.TAKEN: State.PROBING,
        Event.OPENED: State.OPEN,
        Event.CLOSED: State.CLOSED,
        Event.RESET: State.CLOSED,
        Event.DISABLED: State.CLOSED,
    },
    State.PROBING: {
        Event.ANSWERED: State.CLOSED,
        Event.PROBE_CHALLENGED: State.OPEN,
        Event.ENDED: State.HALF,
        Event.LEASE_OVER: State.HALF,
        Event.OPENED: State.OPEN,
        Event.CLOSED: State.CLOSED,
        Event.RESET: State.CLOSED,
        Event.DISABLED: State.CLOSED,
    },
}

LEVELS: Mapping[State, Level] = {State.OPEN: "warning", State.CLOSED: "info"}


class Pass(msgspec.Struct, frozen=True):
    """The leave to send one request, with all its re-sends; handed back with whatever becomes of it."""

    epoch: int
    """Number of openings before it."""
    probe: bool
    serial: int


@dataclass(frozen=True, slots=True)
class Refused:
    left: float
    """Seconds to tell, before ``tell``: what is left of the window, or a fresh one while the probe is out."""
    probe_out: bool


@dataclass(frozen=True, slots=True)
class Transition:
    """One change of state, to be logged once."""

    upstream: str
    before: State
    after: State
    reason: str
    level: Level
    """``warning`` on opening, ``info`` on closing, ``debug`` on what lies between."""
    left: float = 0.0
    """Seconds of the window that an opening starts."""


@dataclass(frozen=True, slots=True)
class BreakerView:
    state: State
    strikes: int
    left: float
    """Seconds of the window still to go, 0 unless open."""
    opened_at: float | None
    """Monotonic seconds of the last opening, None while closed."""
    probe_age: float | None
    """Seconds since the probe was let out, None where none is."""


def tell(seconds: float, cap: int) -> int:
    """Whole seconds for a Retry-After: rounded up, 1 to ``cap``."""
    if not seconds < cap:
        return cap
    return max(1, math.ceil(seconds - 1e-6))  # a sum of clock readings may be a hair above a whole second
