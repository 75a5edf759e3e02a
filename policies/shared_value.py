"""The value of a breaker that many processes share, and how two of them become one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from policies.breaker import LEASE_SECONDS, BreakerState
from policies.settings import DAY

MARGIN_SECONDS = 1.0
"""Seconds after the end of a lease before another may take the probe; more than any two processes' clocks differ."""

Outcome = Literal["challenged", "answered", "ended", "taken", "heard", "open", "close", "reset"]
_FURTHER = {state: rank for rank, state in enumerate(("closed", "open", "half_open", "probing"))}
"""Of two values with one end, the one that is further along holds."""


class Value(msgspec.Struct, frozen=True, omit_defaults=True):
    """The breaker as it is shared; all times are seconds of the server's clock."""

    version: int = 0
    state: BreakerState = BreakerState.CLOSED
    strikes: int = 0
    epoch: int = 0
    opened_at: float = 0.0
    ends: float = 0.0
    """End of the window; while closed, the moment of closing, 0 where it was never open."""
    lease: str = ""
    """Of the probe: the process that has it, and a number."""
    until: float = 0.0
    """End of the lease for everybody but its owner."""

    @property
    def says(self) -> Value:
        """What it says of the breaker, whatever its number."""
        return msgspec.structs.replace(self, version=0, epoch=0)


@dataclass(frozen=True, slots=True)
class Told:
    """One outcome, on its way to the shared value."""

    outcome: Outcome
    epoch: int
    lease: str = ""
    strikes: int = 0
    """Strikes before it, for a server that has lost them."""


def read(text: str | bytes, server_now: float) -> Value | None:
    """Value out of its text; None where it is none, or says that it lasts longer than any breaker may."""
    try:
        value = msgspec.json.decode(text, type=Value)
    except msgspec.MsgspecError:
        return None
    latest = server_now + DAY + LEASE_SECONDS + MARGIN_SECONDS
    sound = value.strikes >= 0 and value.version >= 0 and value.ends <= latest and value.until <= latest
    return value if sound else None


def later(one: Value, other: Value) -> Value:
    """The one of two values that holds where neither knew of the other: the later end wins."""
    best = max(one, other, key=_order)
    return msgspec.structs.replace(best, epoch=max(one.epoch, other.epoch), version=max(one.version, other.version))


def _order(value: Value) -> tuple[Any, ...]:
    return value.ends, _FURTHER[value.state], value.until, value.strikes, value.opened_at, value.lease


def next_version(value: Value, server_now: float) -> int:
    """Version of what replaces a value: microseconds of the server's clock, so that it grows after a loss of all as well."""
    return max(value.version + 1, int(server_now * 1e6))
