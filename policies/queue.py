"""The waiting line: who waits, in which order, and what is remembered of a request that comes again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

import msgspec

from policies.breaker import Permit
from policies.concurrency import Key
from policies.kinds import Reason

SIDE_SECONDS = 20.0
"""A side request that has waited so long stands among the main ones: it starves behind no number of them."""
CROWDED_AT_MOST = 5
"""Times that a request refused as one too many goes back to the head; then it is told."""
REMEMBERED_SECONDS = 600.0
"""A request that was not refused for so long is new."""


class Standing(StrEnum):
    """Where a request stands."""

    NEW = "new"
    WAITING = "waiting"
    UNDER_WAY = "under_way"
    """Permit in hand; no answer frame yet."""
    ANSWERED = "answered"
    """Its first answer frame came; its slot is taken until it ends."""
    TOLD = "told"
    """Its client is told to come again, or told what the upstream said."""
    OVER = "over"


class Move(StrEnum):
    """What moves a request; the value is the reason code."""

    ARRIVED = "arrived"
    TURN = "turn"
    ENDED = "ended"
    """End, whoever ended it: the answer's end, its client's leaving, an exception."""
    ANSWERED = "answered"
    REFUSED = "refused"
    """The upstream refused it, and its client is told."""
    HELD = "held"
    """The upstream refused it, and it waits here for another turn."""
    TELL = "told"
    """Told: it may not or cannot wait (any longer)."""
    RELEASED = "released"
    """Sent, and nothing that comes of it counts here."""


# Theory of operation
# ===================
#
# A request has a permit, room in the slow start and a slot from TURN on, all three or none. It gives back whatever it has on
# every way out of UNDER_WAY and ANSWERED, at once. HELD is such a way out: who waits holds nothing, so nobody who waits can
# keep others waiting.
#
# A missing cell means: the move changes nothing. So an end that is reported twice gives nothing back twice, and an answer
# that comes after the client left makes no room.
MOVES: Mapping[Standing, Mapping[Move, Standing]] = {
    Standing.NEW: {Move.ARRIVED: Standing.WAITING},
    Standing.WAITING: {
        Move.TURN: Standing.UNDER_WAY,
        Move.TELL: Standing.TOLD,
        Move.RELEASED: Standing.OVER,
        Move.ENDED: Standing.OVER,
    },
    Standing.UNDER_WAY: {
        Move.ANSWERED: Standing.ANSWERED,
        Move.REFUSED: Standing.TOLD,
        Move.HELD: Standing.WAITING,
        Move.ENDED: Standing.OVER,
    },
    Standing.ANSWERED: {Move.REFUSED: Standing.TOLD, Move.ENDED: Standing.OVER},
    Standing.TOLD: {Move.ENDED: Standing.OVER},
    Standing.OVER: {},
}


@dataclass(frozen=True, slots=True)
class Told:
    """What a request waits for, or is told when it cannot wait."""

    why: Reason
    left: float
    """Seconds to tell, before ``tell`` of policies.breaker makes them 1 to the cap."""


class Asking(msgspec.Struct, frozen=True, dict=True):
    """A generation request, as far as its turn depends on it."""

    upstream: str
    account: str
    model: str
    digest: str | Callable[[], str]
    """What is asked, or how to get it: it reads the whole body, so it is asked for only where anything is remembered."""
    session: str
    side: bool = False
    patience: float = 0.0
    """Seconds that it may wait here; 0 where it is told at once."""
    not_before: float = 0.0
    """Monotonic seconds at which the wait that its client was told is over; 0 where there is none."""
    holdable: bool = True
    """False with a one-time captcha token: it may be spent, so a refusal is told every time."""

    @cached_property
    def key(self) -> Key:
        return Key(self.upstream, self.account, self.model)


class Place(msgspec.Struct, eq=False):
    """One request of a client, from its coming to its end."""

    asking: Asking
    number: int
    came: float
    """Monotonic seconds of this coming."""
    arrival: float
    """Monotonic seconds of its first coming: what its order goes by."""
    round: int
    """Which of its session's requests it is, counted from where the others stood when it came."""
    refusals: int
    """Times that the upstream refused it, over all its comings."""
    not_before: float
    standing: Standing = Standing.NEW
    permit: Permit | None = None
    told: Told | None = None
    crowded: int = 0
    """Times that it was refused as one too many since it came."""
    head: bool = False
    """First among its like: it was refused as one too many."""
    waited: float = 0.0
    """Seconds that it has waited here since it came, up to the last move."""
    since: float = 0.0
    """Monotonic seconds at which it began to wait."""

    @property
    def deadline(self) -> float:
        """Monotonic seconds at which its patience is over."""
        return self.came + self.asking.patience

    def order(self, now: float) -> tuple[bool, int, int, float, int]:
        """Smaller goes first."""
        late = self.asking.side and now - self.arrival < SIDE_SECONDS
        rank = 0 if self.head else min(self.refusals, 1) + 1
        return late, rank, self.round, self.arrival, self.number

    def move(self, move: Move, now: float) -> bool:
        """Whether the table has this move here; where not, nothing changes."""
        after = MOVES[self.standing].get(move)
        if after is None:
            return False
        if self.standing is Standing.WAITING:
            self.waited += now - self.since
        if after is Standing.WAITING:
            self.since = now
        self.standing = after
        return True


@dataclass(frozen=True, slots=True)
class _Known:
    arrival: float
    round: int
    refusals: int
    until: float


class Returning:
    """The requests whose clients may come again, by account and digest: since when they wait, how often they were refused.

    Every ``now`` is in seconds of one monotonic clock.
    """

    def __init__(self, limit: int = 10_000) -> None:
        self._limit = limit
        self._known: OrderedDict[tuple[str, str, str], _Known] = OrderedDict()

    def place(self, asking: Asking, number: int, queue: Queue, now: float) -> Place:
        """Its place: the one that it had where it comes again, else the last of its session."""
        known = self._known.get(_name(asking)) if self._known else None
        if known is None or known.until <= now:
            known = _Known(now, queue.round_of(asking.session), 0, now)
        return Place(asking, number, now, known.arrival, known.round, known.refusals, asking.not_before)

    def keep(self, place: Place, now: float) -> None:
        """Keep the place of one that was told, or left: its client may come again."""
        name = _name(place.asking)
        self._known[name] = _Known(place.arrival, place.round, place.refusals, now + REMEMBERED_SECONDS)
        self._known.move_to_end(name)
        while len(self._known) > self._limit:
            self._known.popitem(last=False)

    def answered(self, asking: Asking) -> None:
        if self._known:
            self._known.pop(_name(asking), None)


def _name(asking: Asking) -> tuple[str, str, str]:
    digest = asking.digest if isinstance(asking.digest, str) else asking.digest()
    return asking.upstream, asking.account, digest


@dataclass
class Queue:
    """Requests that wait at one breaker, in order."""

    waiting: set[Place] = field(default_factory=set)
    _round: int = 0
    _rounds: dict[str, int] = field(default_factory=dict)

    def round_of(self, session: str) -> int:
        """The round of a session's next request: the others' where it waits for nothing, else one after its last."""
        self._rounds[session] = max(self._round, self._rounds.get(session, -1) + 1)
        return self._rounds[session]

    def add(self, place: Place) -> None:
        self.waiting.add(place)

    def remove(self, place: Place, *, sent: bool = False) -> None:
        self.waiting.discard(place)
        if sent:
            self._round = max(self._round, place.round)
        if not self.waiting:
            self._rounds.clear()
            self._round = 0

    def ordered(self, now: float) -> list[Place]:
        return sorted(self.waiting, key=lambda place: place.order(now)) if len(self.waiting) > 1 else [*self.waiting]

    def main_waits(self) -> bool:
        return any(not place.asking.side for place in self.waiting)
