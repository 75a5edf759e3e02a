"""The breaker that many processes share: one versioned value, moved by the table of every breaker."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import Any, Literal, Protocol, cast

from policies.breaker import LEASE_SECONDS, Breaker, BreakerState, Event, Level, Permit, Refused, Transition
from policies.settings import BreakerSettings
from policies.shared_rows import MARGIN_SECONDS, Value

Outcome = Literal["challenged", "answered", "ended", "taken", "heard", "open", "close", "reset"]
RENEW_SECONDS = 5.0
"""Seconds between two renewals of a lease, while bytes come."""
ANSWER_SECONDS = 0.2
"""Seconds that a probe waits for the word of the others; then it goes without."""
UNUSED_SECONDS = 5.0
"""Seconds for which a granted probe is kept for its request; then others may have it."""

_BY_HAND: dict[Event, Outcome] = {Event.OPENED: "open", Event.CLOSED: "close", Event.RESET: "reset"}
_ELSEWHERE = Permit(probe=True, serial=0)
"""The probe of another process."""
_PLAIN = Permit(probe=False, serial=0)

# Theory of operation
# ===================
#
# Every process has a breaker of its own and asks it alone. What happens to it (an Outcome) is told to the others: the same
# outcome is applied to the shared Value, by a breaker made of that value, and the new value replaces the old one where
# nobody else was faster; else it is applied once more to what is there. Whoever hears of a newer value adopts it.
#
# What an outcome means is decided by one table, so a state is set here only where a value says that the table led there.
#
# - An outcome of a request counts only in the epoch in which it was permitted: an epoch is one opening. So a request sent
#   before an opening moves nothing after it, in whatever process.
# - A probe has a lease: its name, and until when. Only the outcome of the lease that stands counts.
# - Time moves each copy by itself: no message says that a window or a lease is over.
# - A process's idea of the server's time is never ahead of it, and behind by less than MARGIN_SECONDS. The owner of a lease
#   gives it up at its end, everybody else takes it MARGIN_SECONDS later. So two never have it at once.


@dataclass(frozen=True, slots=True)
class Told:
    """One outcome, on its way to the shared value."""

    outcome: Outcome
    epoch: int
    lease: str = ""
    strikes: int = 0
    """Strikes before it, for a server that has lost them."""


class Link(Protocol):
    """The way to the others. Neither method may wait or raise."""

    owner: str
    connected: bool

    def told(self, breaker: SharedBreaker, told: Told) -> None: ...


def applied(value: Value, told: Told, settings: BreakerSettings, cap: int, server_now: float) -> Value | None:
    """The value after an outcome; None where it counts for nothing."""
    made = SharedBreaker(settings, cap, serials=count(1))
    made.adopt(value, server_now, server_now, sure=True)
    if not made.take_up(told, server_now):
        return None
    return made.value(server_now, server_now, value.next_version(server_now))


def offered(breaker: SharedBreaker, told: Told, known: Value | None, now: float, server_now: float) -> Value | None:
    """What an outcome here makes of the value that the server has; None where it counts for nothing.

    A server that has none (it was emptied, or never had it) is given what is known here.
    """
    base = known
    if base is None and told.outcome == "taken":
        base = breaker.value(now, server_now)
    if base is None and not told.lease and told.outcome in ("challenged", "answered"):
        base = Value(version=breaker.version, epoch=told.epoch, strikes=told.strikes)
    if base is None:
        return breaker.value(now, server_now, Value(breaker.version).next_version(server_now))
    return applied(base, told, breaker.settings, breaker.cap, server_now)


class SharedBreaker(Breaker):
    """A breaker that tells the others what happens to it, and hears what happened to them. Without a link it is alone."""

    link: Link | None = None

    def __init__(self, settings: BreakerSettings, cap: int, **named: Any) -> None:
        super().__init__(settings, cap, **named)
        self.version = 0
        self.epoch = 0
        self.pending = 0
        """Outcomes that are not in the shared value yet: until they are, what is heard is older than this breaker."""
        self.lease = ""
        """Of the probe that is out, or that is asked for."""
        self._closed_at: float | None = None
        self._asked_at: float | None = None
        self._granted_at: float | None = None
        self._read_end = (-1.0, 0.0)
        """The end that was last read, on both clocks: it goes back as it came, whatever the clocks did since."""

    @property
    def name(self) -> str:
        """Its name among the others."""
        return f"{self.upstream}:{self.account}"

    # -- what happens here ----------------------------------------------------------------------------------------

    def asks_until(self, now: float) -> float | None:
        """Monotonic seconds until which the next probe waits for word from the others; None where it need not."""
        if not self._linked or self.current(now) is not BreakerState.HALF_OPEN:
            return None
        self.give_back(now)
        if self._granted_at is not None:
            return None
        if self._asked_at is None:
            self._asked_at = now
            self.lease = self._new_lease()
            self._tell("taken", self.lease)
        ends = self._asked_at + ANSWER_SECONDS
        return ends if now < ends else None

    def admit(self, now: float) -> Permit | Refused:
        self._elapse(now)
        self.give_back(now)
        began = now if self._granted_at is None or self._asked_at is None else self._asked_at
        permit = super().admit(now)
        if isinstance(permit, Permit) and permit.probe:
            self._probe_heard = began  # the lease runs from the asking on
            if not self.lease:
                self.lease = self._new_lease()
                self._tell("taken", self.lease)
        return permit

    def heard(self, permit: Permit, now: float) -> None:
        if self._linked and permit == self._probe:
            if now - self._probe_heard < RENEW_SECONDS:
                return
            self._elapse(now)
            if permit == self._probe:
                self._tell("heard", self.lease)
        super().heard(permit, now)

    def give_back(self, now: float) -> None:
        """Let others have a probe that was granted and that nobody took."""
        if self._granted_at is not None and now - self._granted_at >= UNUSED_SECONDS:
            self._tell("ended", self.lease)
            self._asked_at = self._granted_at = None
            self.lease = ""

    def alone(self) -> None:
        """The others are lost: nothing is asked of them any more."""
        self.pending = 0
        self._asked_at = self._granted_at = None

    # -- what is shared ---------------------------------------------------------------------------------------------

    def value(self, now: float, server_now: float, version: int | None = None) -> Value:
        """The breaker as the others may see it."""
        self._elapse(now)
        if self.owns_probe and not self.lease:
            self.lease = self._new_lease()
        shift, closed, probing = server_now - now, self._state is BreakerState.CLOSED, self._probe is not None
        ends = self._closed_at if closed else self._ends
        until = self._probe_heard + LEASE_SECONDS + (MARGIN_SECONDS if self.owns_probe else 0.0)
        return Value(
            self.version if version is None else version,
            self._state,
            self._strikes,
            self.epoch,
            self._opened_at + shift if not closed else 0.0,
            0.0 if ends is None else self._read_end[1] if ends == self._read_end[0] else ends + shift,
            self.lease if probing else "",
            until + shift if probing else 0.0,
        )

    def adopt(self, value: Value, now: float, server_now: float, *, sure: bool = False) -> Transition | None:
        """Follow a value that is newer; ``sure``: it is what the server has, and nothing of this breaker is missing in it."""
        if self.pending or value.version < self.version or (value.version == self.version and not sure):
            return None
        self._elapse(now)
        before, self.version = self._state, value.version
        if self.window <= 0 and value.state is not BreakerState.CLOSED:
            return None
        if value.state is BreakerState.PROBING and value.lease == self.lease and self._may_own(value.lease):
            self._granted(value, now, now - server_now)
        else:
            self._follow(value, now, now - server_now)
        self._elapse(now)
        if self._state is before:
            return None
        level: Level = "info" if BreakerState.CLOSED in (before, self._state) else "debug"
        left = self._ends - now if self._state is BreakerState.OPEN else 0.0
        return Transition(self.upstream, before, self._state, "told_by_others", level, left)

    def take_up(self, told: Told, now: float) -> bool:
        """Let an outcome that was told happen here; False where it counts for nothing."""
        self._elapse(now)
        if told.outcome in ("open", "close", "reset"):
            getattr(self, told.outcome)(now)
        elif told.outcome == "taken":
            if self._state is not BreakerState.HALF_OPEN:
                return False
            self.admit(now)
            self.lease = told.lease
        elif not told.lease:
            counts = self._state is BreakerState.CLOSED and told.epoch == self.epoch
            return counts and self._happens(told.outcome, _PLAIN, now)
        elif self._state is not BreakerState.PROBING or told.lease != self.lease:
            return False
        elif told.outcome == "heard":
            self._probe_heard = now + MARGIN_SECONDS
        else:
            return self._happens(told.outcome, _ELSEWHERE, now)
        return True

    # -- inside -------------------------------------------------------------------------------------------------------

    def _happens(self, outcome: str, permit: Permit, now: float) -> bool:
        if outcome == "answered" and not permit.probe and not self._strikes:
            return False
        self._known[permit] = set()
        getattr(self, outcome)(permit, now)
        return True

    @property
    def _linked(self) -> bool:
        return self.link is not None and self.link.connected

    @property
    def owns_probe(self) -> bool:
        return self._probe is not None and self._probe in self._known

    def _may_own(self, lease: str) -> bool:
        mine = self.link is not None and lease.startswith(f"{self.link.owner}:")
        return mine and (self.owns_probe or self._state is BreakerState.HALF_OPEN)

    def _granted(self, value: Value, now: float, shift: float) -> None:
        """The probe is out here, or may go out."""
        self._strikes, self.epoch = value.strikes, value.epoch
        if self.owns_probe:
            self._probe_heard = min(now, value.until + shift - LEASE_SECONDS - MARGIN_SECONDS)
        elif self._granted_at is None:
            self._granted_at = now

    def _follow(self, value: Value, now: float, shift: float) -> None:
        if value.epoch != self.epoch:
            self._known.clear()  # sent before an opening that was elsewhere
        self._enter(value.state, now)
        self._strikes, self.epoch = value.strikes, value.epoch
        if value.state is BreakerState.CLOSED:
            self._closed_at = value.ends + shift if value.ends else None
        else:
            self._opened_at, self._ends = value.opened_at + shift, value.ends + shift
        self._read_end = (value.ends + shift, value.ends)
        if value.state is BreakerState.PROBING:
            self._known.clear()
            self._probe, self._probe_since, self.lease = _ELSEWHERE, now, value.lease
            self._probe_heard = value.until + shift - LEASE_SECONDS

    def _new_lease(self) -> str:
        return f"{self.link.owner}:{next(self._serials)}" if self.link is not None else ""

    def _tell(self, outcome: Outcome, lease: str = "") -> None:
        if self._linked:
            assert self.link
            self.link.told(self, Told(outcome, self.epoch, lease, self._strikes))

    def _step(self, event: Event, now: float) -> Transition | None:
        if event in _BY_HAND:
            self._tell(_BY_HAND[event])
        return super()._step(event, now)

    def _counts(self, permit: Permit, outcome: str, now: float) -> bool:
        if not super()._counts(permit, outcome, now):
            return False
        if permit == self._probe:
            self._tell(cast("Outcome", outcome), self.lease)
        elif outcome == "challenged" or (outcome == "answered" and self._strikes):
            self._tell(cast("Outcome", outcome))
        return True

    def _enter(self, state: BreakerState, now: float) -> None:
        super()._enter(state, now)
        self.epoch += state is BreakerState.OPEN
        self._asked_at = self._granted_at = None
        if state is BreakerState.CLOSED:
            self._closed_at = now
        if state is not BreakerState.PROBING:
            self.lease = ""
