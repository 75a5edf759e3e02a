"""Remembered refusals: what the upstream just refused is not asked again before its time."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from policies.breaker import tell
from policies.calls import Call
from policies.saved import StandingRefusal

RefusalKind = Literal["wait", "overflow", "body_size", "blocked"]

START_AGAIN_SECONDS = 600.0
"""A request that was not refused for so long starts again at the first wait."""
HOPELESS_SECONDS = 600.0
"""A request that cannot succeed as it is is refused here for so long."""


@dataclass(frozen=True, slots=True)
class Remembered:
    """Refusal that still stands."""

    kind: RefusalKind
    left: float
    """Seconds until it is over."""
    upstream: str = ""
    model: str = ""
    code: str | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    refusal: Remembered
    """As it began: ``left`` is its whole length."""
    until: float
    """Refused here before this."""
    forget_at: float
    """Nothing is left of it from here on."""
    rounds: int = 0
    """Times that the wait was doubled."""

    def remembered(self, now: float) -> Remembered:
        return replace(self.refusal, left=self.until - now)


def _lasting(refusal: Remembered, now: float) -> Entry:
    return Entry(refusal, now + refusal.left, now + refusal.left)


Key = tuple[str, str]


class RefusalMemory:
    """The refusals of requests, keyed by account and digest, and of accounts, keyed by account and upstream.

    Every ``now`` is in seconds of one monotonic clock, every ``wall`` in seconds of the wall clock.
    """

    def __init__(self, limit: int = 10_000) -> None:
        self._limit = limit
        self._requests: OrderedDict[Key, Entry] = OrderedDict()
        self._accounts: OrderedDict[Key, Entry] = OrderedDict()
        self._per_account: Counter[str] = Counter()

    def any_for(self, account: str) -> bool:
        """Tell whether any request of this account is remembered: where not, no digest need be computed."""
        return account in self._per_account

    def standing(self, call: Call, now: float) -> Remembered | None:
        """The refusal that stands against a request: its account's, or its own."""
        if not (self._requests or self._accounts):
            return None
        blocked = self.blocked(call.account, call.surface.upstream, now)
        if blocked is not None or not self.any_for(call.account):
            return blocked
        return self.waiting(call.account, call.digest, now, call.surface.upstream)

    def waiting(self, account: str, digest: str, now: float, upstream: str | None = None) -> Remembered | None:
        """The refusal of this very request that still stands; with ``upstream``, only one by that upstream."""
        entry = self._request((account, digest), now)
        if entry is None or entry.until <= now or _elsewhere(entry, upstream):
            return None
        self._requests.move_to_end((account, digest))
        return entry.remembered(now)

    def blocked(self, account: str, upstream: str, now: float) -> Remembered | None:
        """The block that stands against this account at an upstream, if one does."""
        self._sweep(now)
        entry = self._accounts.get((account, upstream))
        return None if entry is None or entry.until <= now else entry.remembered(now)

    def refused(  # noqa: PLR0913  a request and a wait
        self, call: Call, code: str | None, now: float, *, first: float, cap: int, stated: float | None, sent: float
    ) -> int:
        """Remember that the upstream refused this request, and say what its client is told: 1 to ``cap`` seconds.

        ``first`` doubles with every refusal after the wait before it; ``stated`` is the upstream's own wait and goes
        before it. ``sent`` is when the refused request was sent: where it went out before the wait was over (two in
        flight), nothing doubles. Of two such, the first one's wait stands, so that neither client comes too early.
        """
        key, upstream = (call.account, call.digest), call.surface.upstream
        last = self._request(key, now)
        if last and (last.refusal.kind != "wait" or _elsewhere(last, upstream)):
            last = None
        own = stated if stated is not None and stated > 0 else None
        rounds = last.rounds if last else 0
        if last and own is None and sent >= last.until:
            rounds = min(rounds + 1, 16)
        wait = tell(first * 2**rounds if own is None else own, cap)
        until = last.until if last and last.until > now else now + wait
        standing = Remembered("wait", wait, upstream, call.model, code)
        self._remember(key, Entry(standing, until, now + START_AGAIN_SECONDS, rounds), now)
        return wait

    def answered(self, call: Call) -> None:
        """The request was answered: its next refusal is a first one."""
        if self.any_for(call.account):
            self._forget((call.account, call.digest))

    def hopeless(self, call: Call, kind: Literal["overflow", "body_size"], code: str | None, now: float) -> None:
        """Remember that this request cannot succeed as it is: it is refused here for some minutes."""
        refusal = Remembered(kind, HOPELESS_SECONDS, call.surface.upstream, call.model, code)
        self._remember((call.account, call.digest), _lasting(refusal, now), now)

    def block(self, call: Call, code: str | None, now: float, seconds: float) -> None:
        """Remember that the upstream blocked this account; each further send would make it worse."""
        upstream = call.surface.upstream
        refusal = Remembered("blocked", seconds, upstream, call.model, code)
        self._block((call.account, upstream), _lasting(refusal, now), now)

    def forget_overflows(self, upstream: str | None, model: str) -> int:
        """Drop the overflows of a model, however it is spelled, at every upstream for None; the number dropped."""
        name = model.strip().lower()
        overflows = [(key, entry.refusal) for key, entry in self._requests.items() if entry.refusal.kind == "overflow"]
        fits = [key for key, of in overflows if of.model.strip().lower() == name and upstream in (None, of.upstream)]
        return sum(map(self._forget, fits))

    def reset(self, upstream: str | None = None) -> int:
        """Drop everything, or everything of one upstream; the number dropped."""
        gone = [key for key, entry in self._requests.items() if upstream in (None, entry.refusal.upstream)]
        freed = [self._accounts.pop(key) for key in [*self._accounts] if upstream in (None, key[1])]
        return sum(map(self._forget, gone)) + len(freed)

    def listed(self, now: float) -> list[tuple[str, Remembered]]:
        """Refusals that still stand, each with its account, the latest last."""
        self._sweep(now)
        entries = [*self._requests.items(), *self._accounts.items()]
        return [(key[0], entry.remembered(now)) for key, entry in entries if entry.until > now]

    def dump(self, wall: float, now: float) -> list[StandingRefusal]:
        """Rows of the blocked accounts and of the requests that are hopeless."""
        rows = []
        for (account, other), entry in [*self._requests.items(), *self._accounts.items()]:
            found = entry.refusal
            if found.kind != "wait" and entry.until > now:
                ends_at = wall + entry.until - now
                row = StandingRefusal(found.kind, account, other, found.upstream, ends_at, found.left, found.model, found.code)
                rows.append(row)
        return rows

    def load(self, rows: Iterable[StandingRefusal], wall: float, now: float) -> int:
        """Take up dumped rows; the number taken. Whatever the wall clock did, none lasts longer than it was to."""
        taken = 0
        for row in rows:
            left = min(row.until - wall, row.left)
            if left <= 0:
                continue
            entry = _lasting(Remembered(row.kind, left, row.upstream, row.model, row.code), now)
            (self._block if row.kind == "blocked" else self._remember)(row.key, entry, now)
            taken += 1
        return taken

    def _request(self, key: Key, now: float) -> Entry | None:
        entry = self._requests.get(key)
        if entry is not None and entry.forget_at <= now:
            self._forget(key)
            return None
        return entry

    def _remember(self, key: Key, entry: Entry, now: float) -> None:
        self._sweep(now)
        if key not in self._requests:
            self._per_account[key[0]] += 1
        self._requests[key] = entry
        self._requests.move_to_end(key)
        while len(self._requests) > self._limit:
            self._forget(next(iter(self._requests)))

    def _block(self, key: Key, entry: Entry, now: float) -> None:
        self._sweep(now)
        self._accounts[key] = entry
        self._accounts.move_to_end(key)
        while len(self._accounts) > self._limit:
            self._accounts.popitem(last=False)

    def _forget(self, key: Key) -> bool:
        if self._requests.pop(key, None) is None:
            return False
        self._per_account[key[0]] -= 1
        if not self._per_account[key[0]]:
            del self._per_account[key[0]]
        return True

    def _sweep(self, now: float) -> None:
        """Forget from the oldest on, up to the first that still matters: cheap enough for every call."""
        while self._requests and self._requests[oldest := next(iter(self._requests))].forget_at <= now:
            self._forget(oldest)
        while self._accounts and next(iter(self._accounts.values())).until <= now:
            self._accounts.popitem(last=False)


def _elsewhere(entry: Entry, upstream: str | None) -> bool:
    """Tell whether both upstreams are known and differ."""
    return bool(upstream and entry.refusal.upstream and entry.refusal.upstream != upstream)
