"""Everything that the rules remember, and the settings they follow: one value that outlives any exchange."""

from __future__ import annotations

from dataclasses import dataclass, field

from policies.breaker import Breaker, Transition
from policies.breakers import Breakers
from policies.calls import Call
from policies.evidence import Evidence
from policies.refusals import Refusals
from policies.replays import Replays, Sessions
from policies.settings import ReplaySettings, Settings
from policies.windows import Windows
from policies.wire.recognise import Recogniser
from policies.wire.surfaces import Surfaces


@dataclass
class Memory:
    """State of the rules. Handed on whole when mitmproxy reloads the addon."""

    settings: Settings
    surfaces: Surfaces
    recogniser: Recogniser
    breakers: Breakers
    windows: Windows
    refusals: Refusals = field(default_factory=Refusals)
    replays: Replays = field(default_factory=Replays)
    sessions: Sessions = field(default_factory=Sessions)
    evidence: Evidence = field(default_factory=Evidence)

    @classmethod
    def fresh(cls, settings: Settings, key: bytes = b"") -> Memory:
        """``key``: of the hashes in the evidence."""
        return cls(
            settings=settings,
            surfaces=Surfaces(settings.upstreams),
            recogniser=Recogniser(settings.signatures),
            breakers=Breakers(settings),
            windows=Windows(settings.windows),
            evidence=Evidence(key=key),
        )

    def breaker(self, call: Call) -> Breaker:
        return self.breakers.of(call.surface.upstream, call.account)

    def replay_settings(self, call: Call) -> ReplaySettings:
        upstream = self.surfaces.upstream(call.surface.upstream)
        return (upstream.replay if upstream else None) or self.settings.replay

    def take(self, settings: Settings, now: float) -> list[Transition]:
        """Follow new settings; nothing that was learnt or counted is lost."""
        self.settings = settings
        self.surfaces = Surfaces(settings.upstreams)
        self.recogniser = Recogniser(settings.signatures)
        self.windows.configure(settings.windows)
        return self.breakers.update(settings, now)
