"""Concurrency: how many calls at a time an account's plan takes of a model, learnt from its refusals."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Annotated, NamedTuple

import msgspec

from policies.settings import Concurrency

FIRST_TRY_SECONDS = 60.0
"""At the limit without a refusal for so long, one call more is tried."""
LAST_TRY_SECONDS = 600.0
"""A refused try doubles the time to the next one, up to this."""
FIRST_PAUSE_SECONDS = 5.0
"""A plan that others fill is asked again after so long, doubling."""
LAST_PAUSE_SECONDS = 30.0
KEPT_SECONDS = 86400.0
"""A learnt limit lasts a day after the last refusal that taught it."""
LARGEST = 10_000
"""A dumped limit above it is none."""


class Key(NamedTuple):
    """Whom a limit is of."""

    upstream: str
    account: str
    model: str


# Theory of operation
# ===================
#
# A refusal "too many at a time" teaches: the upstream took what else is under way, so that is the limit, never below 1.
# Of ten that were sent at once on a plan of two, eight are refused one after the other; the limit falls from 9 to 2 with
# them, and nothing is sent meanwhile, since as many as the limit are under way all the time.
#
# A limit is tried again: when it was full for FIRST_TRY_SECONDS without such a refusal, one call more is the trial.
# There is at most one. Answered: the limit is one more. Refused: it stays, and the next trial comes after twice as long.
# Ended any other way: it says nothing, and the time to the next one begins anew.
#
# Refused with nothing of ours under way means that others use the plan too. No end of a call of ours will make room then,
# so that key pauses: 5 s, doubling to 30 s with each such refusal; an answer begins again at 5 s. With a fixed number
# the limit does not fall, so there each such refusal pauses.


@dataclass(slots=True)
class _Plan:
    limit: int | None = None
    refused_at: float = 0.0
    """Monotonic seconds of the refusal or rise from which the next trial is counted."""
    learnt_at: float = 0.0
    """Monotonic seconds of the last refusal."""
    try_after: float = FIRST_TRY_SECONDS
    trial: int | None = None
    pause: float = 0.0
    paused_until: float = -math.inf
    under_way: set[int] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Learnt:
    """A learnt limit, as it is shown."""

    key: Key
    limit: int
    under_way: int


class LearntLimit(msgspec.Struct, frozen=True):
    """Learnt limit as the state file has it."""

    upstream: str
    account: str
    model: str
    limit: Annotated[int, msgspec.Meta(ge=1, le=LARGEST)]
    learnt_at: Annotated[float, msgspec.Meta(gt=0, lt=1e12)]
    """Wall clock, seconds since the epoch."""

    @property
    def key(self) -> Key:
        return Key(self.upstream, self.account, self.model)

    @property
    def until(self) -> float:
        return self.learnt_at + KEPT_SECONDS


class Limits:
    """The limits and the calls under way, by upstream, account and model.

    Every ``now`` is in seconds of one monotonic clock. ``setting`` says what is configured for an upstream.
    """

    def __init__(self, setting: Callable[[str], Concurrency], limit: int = 10_000) -> None:
        self.setting = setting
        self._most = limit
        self._plans: OrderedDict[Key, _Plan] = OrderedDict()

    def room(self, key: Key, now: float) -> bool:
        """Whether one more call may be sent."""
        plan = self._known(key, now)
        if plan is None or (setting := self.setting(key.upstream)) == "off":
            return True
        if now < plan.paused_until:
            return False
        limit = plan.limit if setting == "learn" else setting
        if limit is None or len(plan.under_way) < limit:
            return True
        return setting == "learn" and len(plan.under_way) == limit and self._may_try(plan, now)

    def changes_at(self, key: Key, now: float) -> float | None:
        """The next moment at which time alone may make room; None where only an end does."""
        plan = self._known(key, now)
        if plan is None:
            return None
        if now < plan.paused_until:
            return plan.paused_until
        if self.setting(key.upstream) != "learn" or plan.trial is not None or plan.limit is None:
            return None
        trial, forgotten = plan.refused_at + plan.try_after, plan.learnt_at + KEPT_SECONDS
        return min((moment for moment in (trial, forgotten) if moment > now), default=None)

    def under_way(self, key: Key) -> int:
        plan = self._plans.get(key)
        return len(plan.under_way) if plan else 0

    def sent(self, key: Key, call: int, now: float) -> None:
        """One more is under way; the one beyond the limit is the trial."""
        plan = self._plan(key, now)
        if plan.limit is not None and len(plan.under_way) >= plan.limit and plan.trial is None:
            plan.trial = call
        plan.under_way.add(call)

    def answered(self, key: Key, call: int, now: float) -> None:
        """Its first answer frame came: a trial has shown that the plan takes one more."""
        plan = self._plans.get(key)
        if plan is None or call not in plan.under_way:
            return
        plan.pause = 0.0
        if plan.trial == call:
            assert plan.limit is not None
            plan.limit, plan.trial, plan.refused_at, plan.try_after = plan.limit + 1, None, now, FIRST_TRY_SECONDS

    def ended(self, key: Key, call: int, now: float) -> None:
        plan = self._plans.get(key)
        if plan is None:
            return
        plan.under_way.discard(call)
        if plan.trial == call:
            plan.trial, plan.refused_at = None, now
        if not plan.under_way and plan.limit is None and not plan.pause:
            del self._plans[key]

    def crowded(self, key: Key, call: int, now: float) -> None:
        """Refused as one too many; the call is no longer under way."""
        plan = self._plan(key, now)
        plan.under_way.discard(call)
        others, setting = len(plan.under_way), self.setting(key.upstream)
        if setting == "learn":
            if plan.trial is not None:
                plan.try_after = min(plan.try_after * 2, LAST_TRY_SECONDS)
                plan.trial = None
            plan.limit = max(1, others if plan.limit is None else min(plan.limit, others))
            plan.refused_at = plan.learnt_at = now
        if not others or setting != "learn":
            plan.pause = min(max(plan.pause * 2, FIRST_PAUSE_SECONDS), LAST_PAUSE_SECONDS)
            plan.paused_until = now + plan.pause

    def forget(self, model: str) -> int:
        """Forget what was learnt of a model at every upstream; the number of limits."""
        name, gone = model.strip().lower(), 0
        for key, plan in self._plans.items():
            if key.model.strip().lower() == name and plan.limit is not None:
                self._unlearn(plan)
                gone += 1
        return gone

    def release(self, upstream: str) -> None:
        """End the pauses of an upstream; limits stay."""
        for key, plan in self._plans.items():
            if key.upstream == upstream:
                plan.pause, plan.paused_until = 0.0, -math.inf

    def listed(self, now: float) -> list[Learnt]:
        plans = [(key, self._known(key, now)) for key in list(self._plans)]
        return [Learnt(key, p.limit, len(p.under_way)) for key, p in plans if p is not None and p.limit is not None]

    def dump(self, wall: float, now: float) -> list[LearntLimit]:
        """Rows for the state file; ``wall`` is the wall clock in seconds."""
        return [LearntLimit(*row.key, row.limit, wall - (now - self._plans[row.key].learnt_at)) for row in self.listed(now)]

    def load(self, rows: Iterable[LearntLimit], wall: float, now: float) -> None:
        """Take up kept rows that are not older than a day; a wall clock that went back makes them new."""
        for row in rows:
            age = max(0.0, wall - row.learnt_at)
            if age < KEPT_SECONDS:
                plan = self._plan(row.key, now)
                plan.limit, plan.refused_at, plan.learnt_at = row.limit, now, now - age

    def _may_try(self, plan: _Plan, now: float) -> bool:
        return plan.trial is None and now >= plan.refused_at + plan.try_after

    def _known(self, key: Key, now: float) -> _Plan | None:
        plan = self._plans.get(key)
        if plan is not None and plan.limit is not None and now - plan.learnt_at >= KEPT_SECONDS:
            self._unlearn(plan)
        return plan

    def _plan(self, key: Key, now: float) -> _Plan:
        plan = self._known(key, now)
        if plan is None:
            self._make_room()
            plan = self._plans[key] = _Plan()
        self._plans.move_to_end(key)
        return plan

    def _unlearn(self, plan: _Plan) -> None:
        plan.limit = plan.trial = None
        plan.try_after = FIRST_TRY_SECONDS

    def _make_room(self) -> None:
        """Drop the key that was unused for longest and has nothing under way."""
        if len(self._plans) >= self._most:
            idle = next((key for key, plan in self._plans.items() if not plan.under_way), None)
            if idle is not None:
                del self._plans[idle]
