"""State of the rules: everything that they remember, all breakers among it, and the settings they follow."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import count

from policies.breaker import Breaker, Transition
from policies.calls import Call
from policies.refusal.recogniser import Recogniser
from policies.replays import Replays, Sessions
from policies.request.surfaces import Surfaces
from policies.research.evidence import Evidence
from policies.saved import OpenBreaker
from policies.settings import BreakerSettings, Concurrency, ReplaySettings, Settings
from policies.shared import Link, SharedBreaker
from policies.shared_rows import SharedRefusals, SharedWindows
from policies.turns import Line


class Breakers:
    """All breakers: one per upstream, or one per account of it where its settings say so."""

    def __init__(self, settings: Settings, limit: int = 10_000) -> None:
        self._limit = limit
        self._serials = count(1)
        self._link: Link | None = None
        self._unshared = ""
        self._breakers: OrderedDict[tuple[str, str], SharedBreaker] = OrderedDict()
        self._take(settings)

    def of(self, upstream: str, account: str) -> SharedBreaker:
        """The breaker that a request of this account meets; made where there is none yet."""
        settings = self._own.get(upstream, self._default)
        key = (upstream, account if settings.scope == "account" else "")
        breaker = self._breakers.get(key)
        if breaker is None:
            breaker = SharedBreaker(settings, self._cap, upstream=upstream, account=key[1], serials=self._serials)
            breaker.link = self._link_of(upstream)
            self._make_room()
            self._breakers[key] = breaker
        self._breakers.move_to_end(key)
        return breaker

    def all(self) -> tuple[SharedBreaker, ...]:
        return tuple(self._breakers.values())

    def named(self, upstream: str) -> tuple[SharedBreaker, ...]:
        """Breakers that a command for this upstream is for: its own, or each account's that there is."""
        if self._settings_of(upstream).scope == "upstream":
            return (self.of(upstream, ""),)
        return tuple(breaker for breaker in self.all() if breaker.upstream == upstream)

    def update(self, settings: Settings, now: float) -> list[Transition]:
        """Take changed settings and keep every state, but for breakers of a scope that is no more."""
        self._take(settings)
        transitions = []
        for key, breaker in list(self._breakers.items()):
            own = self._settings_of(breaker.upstream)
            if (own.scope == "account") != bool(breaker.account):
                self._breakers.pop(key).forget()
            elif transition := breaker.update(own, self._cap, now):
                transitions.append(transition)
        return transitions

    def share(self, link: Link | None, without: str = "") -> None:
        """Share every breaker over this link, but for one upstream's; or none any more."""
        self._link, self._unshared = link, without
        for breaker in self.all():
            breaker.link = self._link_of(breaker.upstream)
            breaker.alone()

    def shared(self, upstream: str, account: str) -> SharedBreaker | None:
        """The breaker that another process speaks of; None where its scope is another here."""
        return self.of(upstream, account) if (self._settings_of(upstream).scope == "account") == bool(account) else None

    def dump(self, wall: float, now: float) -> list[OpenBreaker]:
        """Rows of the breakers that are not closed; ``wall`` is the wall clock in seconds."""
        return [row for breaker in self.all() if (row := breaker.dump(wall, now))]

    def load(self, rows: Iterable[OpenBreaker], wall: float, now: float) -> int:
        """Open what was open; the number of rows taken. A row of another scope is left out."""
        taken = 0
        for row in rows:
            if breaker := self.shared(row.upstream, row.account):
                taken += breaker.load(row, wall, now)
        return taken

    def _take(self, settings: Settings) -> None:
        self._cap = settings.retry_after.cap
        self._default = settings.breaker
        self._own = {upstream.name: upstream.breaker for upstream in settings.upstreams if upstream.breaker}

    def _link_of(self, upstream: str) -> Link | None:
        return None if upstream == self._unshared else self._link

    def _settings_of(self, upstream: str) -> BreakerSettings:
        return self._own.get(upstream, self._default)

    def _make_room(self) -> None:
        """Drop the account that was unused for longest; an open breaker only where all are."""
        if len(self._breakers) < self._limit:
            return
        accounts = [(key, breaker) for key, breaker in self._breakers.items() if breaker.account]
        for harmless in (lambda b: b.untouched, lambda b: b.closed, lambda _: True):
            for key, breaker in accounts:
                if harmless(breaker):
                    self._breakers.pop(key).forget()
                    return


@dataclass
class State:
    """State of the rules: handed on whole when mitmproxy reloads the addon."""

    settings: Settings
    surfaces: Surfaces
    recogniser: Recogniser
    breakers: Breakers
    windows: SharedWindows
    key: bytes = field(repr=False)
    """Of the hashes: at most 64 bytes, kept over restarts."""
    refusals: SharedRefusals = field(default_factory=SharedRefusals)
    replays: Replays = field(default_factory=Replays)
    sessions: Sessions = field(default_factory=Sessions)
    evidence: Evidence = field(default_factory=Evidence)
    replay_of: dict[str, ReplaySettings] = field(default_factory=dict)
    """Settings of the replays, by upstream."""
    concurrency_of: dict[str, Concurrency] = field(default_factory=dict)
    """Calls at a time, by upstream."""
    enforces: bool = field(init=False)
    """False in ``mode: observe``."""
    line: Line = field(init=False)

    def __post_init__(self) -> None:
        self._by_upstream()
        self.line = Line(self.settings.queue, self.breakers.of, lambda upstream: self.concurrency_of.get(upstream, "learn"))

    def _by_upstream(self) -> None:
        self.enforces = self.settings.mode == "enforce"
        self.replay_of = {one.name: one.replay or self.settings.replay for one in self.settings.upstreams}
        self.concurrency_of = {one.name: self.settings.concurrency_of(one) for one in self.settings.upstreams}

    @classmethod
    def fresh(cls, settings: Settings, key: bytes = b"") -> State:
        return cls(
            settings=settings,
            surfaces=Surfaces(settings.upstreams),
            recogniser=Recogniser(settings.signatures),
            breakers=Breakers(settings),
            windows=SharedWindows(settings.windows),
            key=key,
            evidence=Evidence(key=key),
        )

    def breaker(self, call: Call) -> Breaker:
        return self.breakers.of(call.surface.upstream, call.account)

    def blocked_seconds(self, call: Call) -> float:
        upstream = self.surfaces.upstream(call.surface.upstream)
        return ((upstream and upstream.breaker) or self.settings.breaker).blocked_seconds

    def hashed(self, text: str) -> str:
        """Keyed hash, 16 hex digits: the only form in which a credential or token is kept."""
        return hashlib.blake2b(text.encode("utf8", "surrogateescape"), key=self.key, digest_size=8).hexdigest()

    def take(self, settings: Settings, now: float) -> list[Transition]:
        """Follow new settings; nothing that was learnt or counted is lost."""
        changed, self.settings = settings != self.settings, settings
        self.surfaces = Surfaces(settings.upstreams)
        self.recogniser = Recogniser(settings.signatures)
        self.windows.configure(settings.windows)
        self._by_upstream()
        transitions = self.breakers.update(settings, now)
        if changed:  # a reload of the addon brings the same ones, and whoever waits goes on waiting
            self.line.update(settings.queue, now)
        return transitions
