"""Stated waits: what an upstream says of a rate limit or overload holds back that account and model, and no other."""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass

from policies.concurrency import Key

LONGEST_QUEUED = 59.0
"""Seconds of a stated wait that the others queue behind; a longer one is told, this long at a time."""


@dataclass(frozen=True, slots=True)
class Standing:
    """A stated wait that is not over."""

    until: float
    """Monotonic seconds at which one may ask again."""
    told: bool
    """Too long to wait for: requests are told, not queued."""


class StatedWaits:
    """The stated waits by upstream, account and model. Every ``now`` is in seconds of one monotonic clock."""

    def __init__(self, limit: int = 10_000) -> None:
        self._limit = limit
        self._waits: OrderedDict[Key, Standing] = OrderedDict()

    def state(self, key: Key, seconds: float, now: float) -> None:
        """The upstream said so; a shorter wait does not end a longer one that stands."""
        if not math.isfinite(seconds) or seconds <= 0:
            return
        new = Standing(now + min(seconds, LONGEST_QUEUED), told=seconds > LONGEST_QUEUED)
        old = self.standing(key, now)
        self._waits[key] = new if old is None or new.until >= old.until else old
        self._waits.move_to_end(key)
        while len(self._waits) > self._limit:
            self._waits.popitem(last=False)

    def standing(self, key: Key, now: float) -> Standing | None:
        found = self._waits.get(key)
        if found is not None and found.until <= now:
            del self._waits[key]
            return None
        return found

    def forget(self, upstream: str) -> None:
        for key in [key for key in self._waits if key.upstream == upstream]:
            del self._waits[key]
