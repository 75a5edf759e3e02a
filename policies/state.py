"""Everything that the rules remember, and the settings they follow: one value that outlives any exchange."""

from __future__ import annotations

from dataclasses import dataclass, field

from policies.breaker import Breaker, Transition
from policies.breakers import Breakers
from policies.calls import Call
from policies.refusal.recogniser import Recogniser
from policies.refusal_memory import RefusalMemory
from policies.replays import Replays, Sessions
from policies.request.surfaces import Surfaces
from policies.research.evidence import Evidence
from policies.settings import ReplaySettings, Settings
from policies.windows import Windows


@dataclass
class State:
    """State of the rules. Handed on whole when mitmproxy reloads the addon."""

    settings: Settings
    surfaces: Surfaces
    recogniser: Recogniser
    breakers: Breakers
    windows: Windows
    refusals: RefusalMemory = field(default_factory=RefusalMemory)
    replays: Replays = field(default_factory=Replays)
    sessions: Sessions = field(default_factory=Sessions)
    evidence: Evidence = field(default_factory=Evidence)

    @classmethod
    def fresh(cls, settings: Settings, key: bytes = b"") -> State:
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
