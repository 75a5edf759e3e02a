"""Whose turn it is: one line before every upstream, served in order as the hurdles fall."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

from policies.breaker import Transition
from policies.concurrency import Key, Limits
from policies.hurdles import Block, Hurdles, Refusal, Refused
from policies.kinds import Reason
from policies.queue import CROWDED_AT_MOST, Asking, Move, Place, Queue, Returning, Standing, Told
from policies.settings import Concurrency, QueueSettings
from policies.shared import SharedBreaker

UNKNOWN_LEFT = 5.0
"""Seconds to tell where nothing says when there is room."""
_MOST_LANES = 10_000


@dataclass(eq=False)
class _Lane:
    """All that wait before one breaker."""

    queue: Queue = field(default_factory=Queue)
    main_came: float = -math.inf
    look_at: float = math.inf
    """Monotonic seconds at which time alone may end somebody's wait here."""


# Theory of operation
# ===================
#
# Whoever finds the line empty and nothing in the way has its turn at once. Everybody else is put in the line, and then the
# line is served: in order, each that nothing blocks gets its turn. So nobody overtakes.
#
# What blocks a request also says until when. What can change that is an event that is reported here, or a moment that was
# named. So the line is served after every event, and once at the earliest of those moments (next_look): nobody is forgotten.
# A coming that is blocked itself changes nothing for the others: that the line is long makes it no dearer.
#
# Places that moved through another's event are handed out once, by ``due``; their layers are then to be woken. The place
# itself says what became of it: UNDER_WAY is to be sent, TOLD is to be told.


class Line:
    """The line before all upstreams. Every ``now`` is in seconds of one monotonic clock."""

    def __init__(
        self,
        settings: QueueSettings,
        breaker_of: Callable[[str, str], SharedBreaker],
        concurrency_of: Callable[[str], Concurrency],
    ) -> None:
        """``breaker_of`` an upstream and account; ``concurrency_of`` an upstream."""
        self._hurdles = Hurdles(breaker_of, concurrency_of)
        self._take(settings)
        self._numbers = count(1)
        self._returning = Returning()
        self._lanes: OrderedDict[tuple[str, str], _Lane] = OrderedDict()
        self._waiting: dict[Place, _Lane] = {}
        self._changed: dict[Place, None] = {}

    @property
    def limits(self) -> Limits:
        """What was learnt of calls at a time: to be listed, forgotten, dumped and loaded."""
        return self._hurdles.limits

    # -- what happens to a request ----------------------------------------------------------------------------------

    def arrive(self, asking: Asking, now: float) -> Place:
        """A request came: UNDER_WAY where it may be sent, WAITING, or TOLD where it must not wait."""
        lane = self._lane(asking)
        lane.main_came = lane.main_came if asking.side else now
        full = len(self._waiting) >= self._settings.size
        place = self._returning.place(asking, next(self._numbers), lane.queue, now)
        place.move(Move.ARRIVED, now)
        try:
            if (block := self._block(lane, place, now)) is None and not lane.queue.waiting:
                self._go(lane, place, now)
            else:
                self._wait(place, lane)
                self._serve(lane, now) if block is None else self._stay(lane, place, block, now)
        except Exception:
            self._release(place, now)  # nobody knows of it: its turn would be nobody's
            raise
        if full and place.standing is Standing.WAITING:
            self._tell(place, Told(Reason.QUEUE_FULL, UNKNOWN_LEFT), now)
        self._changed.pop(place, None)
        return place

    def heard(self, place: Place, now: float) -> None:
        """A byte came from the upstream."""
        self._hurdles.heard(place, now)

    def answered(self, place: Place, now: float) -> Transition | None:
        """Its first answer frame came."""
        if not place.move(Move.ANSWERED, now):
            return None
        transition = self._hurdles.answered(place, now)
        self._returning.answered(place.asking)
        if self._waiting:
            self._serve(self._lane(place.asking), now)
        return transition

    def refused(self, place: Place, refusal: Refusal, now: float) -> Transition | None:
        """The upstream refused it: WAITING where it waits here for another turn, else TOLD."""
        held = place.standing is Standing.UNDER_WAY and self._holds(place, refusal, now)
        if not place.move(Move.HELD if held else Move.REFUSED, now):
            return None
        lane = self._lane(place.asking)
        transition = self._hurdles.refused(place, refusal, now)
        self._hurdles.give_back(place, now)
        _count(place, refusal, now)
        if held:
            self._wait(place, lane)
        else:
            place.told = Told(Reason.REMEMBERED_WAIT, refusal.wait)
            self._keep(place, now)
        self._serve(lane, now)
        self._changed.pop(place, None)
        return transition

    def ended(self, place: Place, now: float) -> Transition | None:
        """End it, whatever came of it; its client may have left while it waited. Later calls change nothing."""
        answered = place.standing is Standing.ANSWERED
        if not place.move(Move.ENDED, now):
            return None
        if not answered:
            self._keep(place, now)
        if lane := self._waiting.pop(place, None):
            lane.queue.remove(place)
        transition = self._hurdles.give_back(place, now) if self._hurdles.under_way(place) else None
        self._changed.pop(place, None)
        if self._waiting:
            self._serve(self._lane(place.asking), now)
        return transition

    # -- whom to wake, and when ---------------------------------------------------------------------------------------

    def due(self, now: float) -> tuple[Place, ...]:
        """Requests whose waiting ended, each once; to be asked after every event and at ``next_look``."""
        self._serve_all(now)
        changed, self._changed = tuple(self._changed), {}
        return changed

    def next_look(self) -> float | None:
        """Monotonic seconds at which ``due`` must be asked though nothing happened; None where time alone ends no wait."""
        at = min((lane.look_at for lane in self._lanes.values() if lane.queue.waiting), default=math.inf)
        return -math.inf if self._changed else at if at < math.inf else None

    def why(self, place: Place, now: float) -> Told | None:
        """What a waiting request waits for; None where it does not wait."""
        lane = self._waiting.get(place)
        return None if lane is None else _told(self._block(lane, place, now), now)

    def others(self, place: Place) -> int:
        """Calls of its upstream, account and model that are under way beside it."""
        return self.limits.under_way(place.asking.key) - self._hurdles.under_way(place)

    def waiting(self) -> tuple[Place, ...]:
        return tuple(self._waiting)

    def begin_slowly(self, upstream: str, account: str) -> None:
        """Another process's probe closed a shared breaker: here too one goes first."""
        self._hurdles.begin_slowly((upstream, account))

    # -- by hand ------------------------------------------------------------------------------------------------------

    def release(self, upstream: str, now: float) -> None:
        """The breaker was closed by hand: only slots keep anybody of this upstream here."""
        self._hurdles.release(upstream)
        for place in self._waiting:
            if place.asking.upstream == upstream:
                place.not_before = now
        self._serve_all(now)

    def update(self, settings: QueueSettings, now: float) -> None:
        """Changed settings: everybody who waits is sent at once, and nothing that comes of it counts here."""
        self._take(settings)
        self.let_go(now)

    def let_go(self, now: float) -> None:
        """Everybody who waits is sent at once, and nothing that comes of it counts here."""
        for place in list(self._waiting):
            self._release(place, now)
            self._changed[place] = None

    def close(self, now: float) -> None:
        """The process ends: everybody who waits is told."""
        for place in list(self._waiting):
            self._tell(place, Told(Reason.CLOSING, UNKNOWN_LEFT), now)

    # -- inside -------------------------------------------------------------------------------------------------------

    def _take(self, settings: QueueSettings) -> None:
        self._settings = settings
        self._hurdles.queued = settings.seconds > 0

    def _serve_all(self, now: float) -> None:
        for lane in dict.fromkeys(self._waiting.values()):
            self._serve(lane, now)

    def _serve(self, lane: _Lane, now: float) -> None:
        """In order, each that nothing blocks gets its turn; each that may wait no longer is told."""
        blocked: dict[tuple[Key, bool], Block] = {}  # a turn only takes room, so what blocked one blocks the next of its kind
        lane.look_at = math.inf
        for place in lane.queue.ordered(now):
            kind = (place.asking.key, place.asking.side)
            block = (blocked.get(kind) if place.not_before <= now else None) or self._block(lane, place, now)
            if block is not None and block.why is not Reason.REMEMBERED_WAIT:
                blocked[kind] = block
            if block is None:
                self._go(lane, place, now)
            else:
                self._stay(lane, place, block, now)

    def _stay(self, lane: _Lane, place: Place, block: Block, now: float) -> None:
        """A blocked request is told where it may wait no longer; else it is looked at again when the block or its time ends."""
        if block.tells or not self._may_wait(place, now):
            self._tell(place, _told(block, now), now)
        else:
            lane.look_at = min(lane.look_at, self._wait_ends(place), math.inf if block.until is None else block.until)

    def _may_wait(self, place: Place, now: float) -> bool:
        return now < self._wait_ends(place)

    def _wait_ends(self, place: Place) -> float:
        return min(place.deadline, place.came + self._settings.seconds)

    def _block(self, lane: _Lane, place: Place, now: float) -> Block | None:
        main_waits = place.asking.side and lane.queue.main_waits()
        return self._hurdles.block(place, now, main_waits=main_waits, main_came=lane.main_came)

    def _wait(self, place: Place, lane: _Lane) -> None:
        self._waiting[place] = lane
        lane.queue.add(place)

    def _go(self, lane: _Lane, place: Place, now: float) -> None:
        self._hurdles.take(place, now)
        place.move(Move.TURN, now)
        place.head = False
        self._waiting.pop(place, None)
        lane.queue.remove(place, sent=True)
        self._changed[place] = None

    def _release(self, place: Place, now: float) -> None:
        if (lane := self._waiting.pop(place, None)) is not None:
            lane.queue.remove(place)
        place.move(Move.RELEASED if place.standing is Standing.WAITING else Move.ENDED, now)
        if self._hurdles.under_way(place):  # a fault came while it took its turn
            self._hurdles.give_back(place, now)

    def _tell(self, place: Place, told: Told, now: float) -> None:
        place.move(Move.TELL, now)
        self._waiting.pop(place).queue.remove(place)
        place.told = told
        self._keep(place, now)
        self._changed[place] = None

    def _keep(self, place: Place, now: float) -> None:
        """Its client may come again, and has its place then; where nobody waits, there is none."""
        if self._settings.seconds > 0:
            self._returning.keep(place, now)

    def _holds(self, place: Place, refusal: Refusal, now: float) -> bool:
        """Whether a refused request waits here for another turn: a crowd's at once, any other from the second on."""
        if not refusal.curable or not place.asking.holdable or not self._may_wait(place, now):
            return False
        if refusal.kind is Refused.CROWD:
            return place.crowded < CROWDED_AT_MOST and self.limits.setting(place.asking.upstream) != "off"
        return refusal.kind in (Refused.CHALLENGE, Refused.OVERLOAD) and place.refusals > 0

    def _lane(self, asking: Asking) -> _Lane:
        breaker = self._hurdles.breaker_of(asking.upstream, asking.account)
        name = breaker.upstream, breaker.account
        if (lane := self._lanes.get(name)) is None:
            if len(self._lanes) >= _MOST_LANES and (
                idle := next((n for n, each in self._lanes.items() if not each.queue.waiting), None)
            ):
                del self._lanes[idle]
            lane = self._lanes[name] = _Lane()
        return lane


def _count(place: Place, refusal: Refusal, now: float) -> None:
    if refusal.kind is Refused.CROWD:
        place.crowded += 1
        place.head = True
    else:
        place.refusals += 1
        place.not_before = now + refusal.wait


def _told(block: Block | None, now: float) -> Told:
    if block is None:
        return Told(Reason.NO_SLOT, UNKNOWN_LEFT)
    return Told(block.why, UNKNOWN_LEFT if block.until is None else block.until - now)
