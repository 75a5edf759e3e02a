"""Slow start: after a refusal one goes first, and each answer lets twice as many be under way."""

from __future__ import annotations

from collections import OrderedDict

from policies.breaker import LEASE_SECONDS

LAST_STEP = 16
"""Calls under way at the last step: the next answer lifts the limit."""

# Theory of operation
# ===================
#
# A refusal begins a round: one call may be under way. Each first answer frame of a call of the round doubles that: 2, 4, 8,
# 16, then no limit. Calls that were sent before the round neither take room nor make any: they stream on, or they bring
# the refusals that were already on their way, and a crowd of those must not begin a round each.
#
# A call without a word for LEASE_SECONDS gives its room back, as a probe does. So nobody waits for an end that never comes.


class SlowStart:
    """The calls that may be under way at a time after a refusal. Every ``now`` is in seconds of one monotonic clock."""

    def __init__(self) -> None:
        self._allowed: int | None = None
        self._unheard: OrderedDict[int, float] = OrderedDict()
        self._answered: set[int] = set()

    @property
    def unlimited(self) -> bool:
        return self._allowed is None

    def room(self, now: float) -> bool:
        """Whether one more may be sent."""
        if self._allowed is None:
            return True
        while self._unheard and now - next(iter(self._unheard.values())) >= LEASE_SECONDS:
            self._unheard.popitem(last=False)
        return len(self._unheard) + len(self._answered) < self._allowed

    def changes_at(self) -> float | None:
        """The moment at which a silent call gives its room back; None where none is out."""
        return next(iter(self._unheard.values())) + LEASE_SECONDS if self._unheard else None

    def sent(self, call: int, now: float) -> None:
        if self._allowed is not None:
            self._unheard[call] = now

    def answered(self, call: int) -> None:
        """Its first answer frame came."""
        if self._allowed is None or self._unheard.pop(call, None) is None:
            return
        self._answered.add(call)
        self._allowed *= 2
        if self._allowed > LAST_STEP:
            self.lift()

    def ended(self, call: int) -> None:
        self._unheard.pop(call, None)
        self._answered.discard(call)

    def refused(self, call: int) -> None:
        """Back to one, unless this call is of the time before the round."""
        if self._allowed is None or call in self._unheard or call in self._answered:
            self.begin()

    def begin(self) -> None:
        """One goes first."""
        self._allowed = 1
        self._unheard.clear()
        self._answered.clear()

    def lift(self) -> None:
        """No limit any more."""
        self._allowed = None
        self._unheard.clear()
        self._answered.clear()
