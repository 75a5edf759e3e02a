"""Everything that the rules remember, and the settings they follow: one value that outlives any exchange."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from policies.breaker import Breaker, Transition
from policies.breakers import Breakers
from policies.calls import Call
from policies.refusal.recogniser import Recogniser
from policies.replays import Replays, Sessions
from policies.request.surfaces import Surfaces
from policies.research.evidence import Evidence
from policies.settings import Concurrency, ReplaySettings, Settings
from policies.shared_rows import SharedRefusals, SharedWindows
from policies.turns import Line


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
