"""What a request must pass before it is sent: its own wait, stated waits, breaker, slow start and slots, all at once."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from policies.breaker import LEASE_SECONDS, BreakerState, Permit, Transition
from policies.concurrency import Key, Limits
from policies.kinds import Reason
from policies.queue import Asking, Place
from policies.settings import Concurrency
from policies.shared import SharedBreaker

MAIN_SECONDS = 5.0
"""A side request is no probe for so long after a main one came."""
LONGEST_QUEUED = 59.0
"""Seconds of a stated wait that the others queue behind; a longer one is told, this long at a time."""
LAST_STEP = 16
"""Calls under way at the last step of a slow start: the next answer lifts the limit."""
_MOST_STARTS = _MOST_WAITS = 10_000


class Refused(StrEnum):
    """What the upstream's refusal means for the line."""

    CHALLENGE = "challenge"
    OVERLOAD = "overload"
    RATE_LIMIT = "rate_limit"
    CROWD = "crowd"
    """Too many at a time."""


@dataclass(frozen=True, slots=True)
class Refusal:
    kind: Refused
    wait: float = 0.0
    """Seconds that this request must not be sent again: what its client is told, or would be."""
    stated: float | None = None
    """Seconds that the upstream itself asks for."""
    curable: bool = True
    """False where another send makes it worse (3012) or cannot help (a body too large)."""


@dataclass(frozen=True, slots=True)
class Block:
    """What keeps a request here."""

    why: Reason
    until: float | None = None
    """Monotonic seconds at which time alone ends it; None where only another's end does."""
    tells: bool = False
    """Too long to wait for."""


@dataclass(frozen=True, slots=True)
class StatedWait:
    """A wait that an upstream asked for and that is not over."""

    until: float
    """Monotonic seconds at which one may ask again."""
    told: bool
    """Too long to wait for: requests are told, not queued."""


class StatedWaits:
    """The stated waits by upstream, account and model. Every ``now`` is in seconds of one monotonic clock."""

    def __init__(self) -> None:
        self._waits: OrderedDict[Key, StatedWait] = OrderedDict()

    def state(self, key: Key, seconds: float, now: float) -> None:
        """The upstream said so; a shorter wait does not end a longer one that stands."""
        if not math.isfinite(seconds) or seconds <= 0:
            return
        new = StatedWait(now + min(seconds, LONGEST_QUEUED), told=seconds > LONGEST_QUEUED)
        old = self.standing(key, now)
        self._waits[key] = new if old is None or new.until >= old.until else old
        self._waits.move_to_end(key)
        while len(self._waits) > _MOST_WAITS:
            self._waits.popitem(last=False)

    def standing(self, key: Key, now: float) -> StatedWait | None:
        found = self._waits.get(key)
        if found is not None and found.until <= now:
            del self._waits[key]
            return None
        return found

    def forget(self, upstream: str) -> None:
        for key in [key for key in self._waits if key.upstream == upstream]:
            del self._waits[key]


# Theory of operation of a slow start
# ===================================
#
# A refusal begins a round: one call may be under way. Each first answer frame of a call of the round doubles that: 2, 4, 8,
# 16, then no limit. Calls that were sent before the round neither take room nor make any: they stream on, or they bring
# the refusals that were already on their way, and a crowd of those must not begin a round each.
#
# A call without a word for LEASE_SECONDS gives its room back, as a probe does. So nobody waits for an end that never comes.


class SlowStart:
    """The calls that may be under way at a time after a refusal. Every ``now`` is in seconds of one monotonic clock."""

    def __init__(self) -> None:
        self._allowed = math.inf
        self._calls: dict[int, float] = {}
        """Of the round: since when they are out, for ever once they are answered."""

    @property
    def unlimited(self) -> bool:
        return self._allowed == math.inf

    def room(self, now: float) -> bool:
        """Whether one more may be sent."""
        self._calls = {call: since for call, since in self._calls.items() if now - since < LEASE_SECONDS}
        return len(self._calls) < self._allowed

    def changes_at(self) -> float | None:
        """The moment at which a silent call gives its room back; None where none is out."""
        first = min(self._calls.values(), default=math.inf)
        return first + LEASE_SECONDS if first < math.inf else None

    def sent(self, call: int, now: float) -> None:
        if not self.unlimited:
            self._calls[call] = now

    def answered(self, call: int) -> None:
        """Its first answer frame came."""
        if self._calls.get(call, math.inf) < math.inf:
            self._calls[call] = math.inf
            self._allowed *= 2
            if self._allowed > LAST_STEP:
                self.begin(math.inf)

    def ended(self, call: int) -> None:
        self._calls.pop(call, None)

    def refused(self, call: int) -> None:
        """Back to one, unless this call is of the time before the round."""
        if self.unlimited or call in self._calls:
            self.begin()

    def begin(self, allowed: float = 1) -> None:
        """So many may be under way, and those that are count no more."""
        self._allowed = allowed
        self._calls.clear()


# Theory of operation
# ===================
#
# ``block`` asks everything that may keep a request here and changes nothing. Where nothing does, ``take`` takes a permit of
# the breaker, room in the slow starts and a slot, and ``give_back`` returns them; both are called by the Line alone.
#
# A challenge is the upstream's word to everybody, so the slow start that it begins is of its breaker. An overload or a
# stated wait is about one model, so what that begins is of its upstream, account and model: one model id that is always
# refused stops no other.


class Hurdles:
    """The hurdles before all upstreams. Every ``now`` is in seconds of one monotonic clock."""

    def __init__(self, breaker_of: Callable[[str, str], SharedBreaker], concurrency_of: Callable[[str], Concurrency]) -> None:
        self.breaker_of = breaker_of
        self.limits = Limits(concurrency_of)
        self.queued = True
        """Whether anybody waits at all; where not, only breaker and slots are asked."""
        self._stated = StatedWaits()
        self._starts: OrderedDict[tuple[str, ...], SlowStart] = OrderedDict()
        self._under_way: dict[Place, SharedBreaker] = {}

    def block(self, place: Place, now: float, *, main_waits: bool, main_came: float) -> Block | None:
        """What keeps a request here now, None where it may go."""
        asking = place.asking
        if place.not_before > now:
            return Block(Reason.REMEMBERED_WAIT, place.not_before)
        stated = self._stated.standing(asking.key, now) if self.queued else None
        if stated is not None:
            return Block(Reason.STATED_WAIT, stated.until, tells=stated.told)
        breaker = self.breaker_of(asking.upstream, asking.account)
        state = breaker.current(now)
        if state is BreakerState.CLOSED:
            return self._room_lacks(asking, now)
        if state is BreakerState.HALF_OPEN:
            return self._probe_blocks(breaker, asking, now, main_waits, main_came)
        return Block(Reason.BREAKER_OPEN if state is BreakerState.OPEN else Reason.PROBE_OUT, breaker.changes_at(now))

    def _probe_blocks(
        self, breaker: SharedBreaker, asking: Asking, now: float, main_waits: bool, main_came: float
    ) -> Block | None:
        if asking.side and (main_waits or now < main_came + MAIN_SECONDS):
            return Block(Reason.PROBE_OUT, None if main_waits else main_came + MAIN_SECONDS)
        if (lacks := self._room_lacks(asking, now, probes=True)) is not None:
            return lacks
        until = breaker.asks_until(now)  # a probe is one over all that share a breaker: nothing else keeps it here
        return None if until is None else Block(Reason.PROBE_OUT, until)

    def _room_lacks(self, asking: Asking, now: float, *, probes: bool = False) -> Block | None:
        for start in self._starts_of(asking, but_the_breakers=probes) if self._starts and self.queued else ():
            if not start.room(now):
                return Block(Reason.SLOW_START, start.changes_at())
        if not self.limits.room(asking.key, now):
            return Block(Reason.NO_SLOT, self.limits.changes_at(asking.key, now))
        return None

    def take(self, place: Place, now: float) -> None:
        """Permit, room and slot, for a request that nothing blocks."""
        asking = place.asking
        breaker = self.breaker_of(asking.upstream, asking.account)
        permit = breaker.admit(now)
        assert isinstance(permit, Permit), "a blocked request had its turn"
        place.permit, self._under_way[place] = permit, breaker
        if permit.probe:
            self.begin_slowly((breaker.upstream, breaker.account))
        for start in self._starts_of(asking) if self._starts else ():
            start.sent(place.number, now)
        self.limits.sent(asking.key, place.number, now)

    def give_back(self, place: Place, now: float) -> Transition | None:
        """Permit, room and slot of a request that has them."""
        assert place.permit
        breaker, permit, place.permit = self._under_way.pop(place), place.permit, None
        self.limits.ended(place.asking.key, place.number, now)
        for start in self._starts_of(place.asking) if self._starts else ():
            start.ended(place.number)
        return breaker.ended(permit, now)  # last: where this fails a lease ends the probe, and nothing ends a slot

    def under_way(self, place: Place) -> bool:
        return place in self._under_way

    def heard(self, place: Place, now: float) -> None:
        if place.permit is not None:
            self._under_way[place].heard(place.permit, now)

    def answered(self, place: Place, now: float) -> Transition | None:
        assert place.permit
        for start in self._starts_of(place.asking) if self._starts else ():
            start.answered(place.number)
        self.limits.answered(place.asking.key, place.number, now)
        return self._under_way[place].answered(place.permit, now)

    def refused(self, place: Place, refusal: Refusal, now: float) -> Transition | None:
        """What a refusal says of others; the request still has what it took."""
        assert place.permit
        breaker, key = self._under_way[place], place.asking.key
        if refusal.kind is Refused.CHALLENGE:
            self._begin((breaker.upstream, breaker.account), place.number)
            return breaker.challenged(place.permit, now)
        if refusal.kind is Refused.CROWD:
            self.limits.crowded(key, place.number, now)
        elif refusal.kind is Refused.OVERLOAD or (refusal.kind is Refused.RATE_LIMIT and refusal.stated):
            self._stated.state(key, refusal.stated or 0.0, now)
            self._begin(key, place.number)
        return None

    def release(self, upstream: str) -> None:
        """Everything of an upstream but its breaker and its learnt limits is lifted."""
        self._stated.forget(upstream)
        self.limits.release(upstream)
        for name in [name for name in self._starts if name[0] == upstream]:
            del self._starts[name]

    def begin_slowly(self, name: tuple[str, ...]) -> None:
        self._starts.setdefault(name, SlowStart()).begin()

    def _begin(self, name: tuple[str, ...], call: int) -> None:
        self._starts.setdefault(name, SlowStart()).refused(call)
        self._starts.move_to_end(name)
        while len(self._starts) > _MOST_STARTS:
            self._starts.popitem(last=False)

    def _starts_of(self, asking: Asking, *, but_the_breakers: bool = False) -> list[SlowStart]:
        """The slow starts that a request goes through, its key's, and its breaker's, which begins anew with a probe."""
        breaker = self.breaker_of(asking.upstream, asking.account)
        found = []
        for name in (asking.key,) if but_the_breakers else (asking.key, (breaker.upstream, breaker.account)):
            start = self._starts.get(name)
            if start is not None and start.unlimited:
                del self._starts[name]
            elif start is not None:
                found.append(start)
        return found
