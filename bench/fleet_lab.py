"""Processes with a shared breaker, their server and the ways between them, all on paper: no network, no clock."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import msgspec

from policies.breaker import BreakerState, Permit
from policies.settings import BreakerSettings
from policies.shared import SharedBreaker, Told, offered
from policies.shared_rows import Value, later, read


@dataclass
class PaperServer:
    """The server: one text, replaced only by whoever knows what it replaces. ``now`` is its clock, in seconds."""

    now: float = 1.7e9
    text: str = ""
    writes: int = 0
    messages: int = 0
    listeners: list[PaperProcess] = field(default_factory=list)

    def swap(self, old: str, new: str) -> bool:
        if old != self.text:
            return False
        self.text, self.writes = new, self.writes + 1
        for listener in self.listeners:
            listener.inbox.append(new)
            self.messages += 1
        return True


class PaperProcess:
    """One Breakwater: its breaker, what it has to tell, and what was said to it and may still be lost."""

    def __init__(self, name: str, server: PaperServer, settings: BreakerSettings, clock: float, behind: float) -> None:
        """``clock``: what its own clock shows when the server's shows 1.7e9; ``behind``: seconds of its idea of the server's."""
        self.owner, self.server, self.behind, self._skew = name, server, behind, clock - 1.7e9
        self.connected = True
        self.outbox: deque[Told] = deque()
        self.inbox: list[str] = []
        self.known = ""
        self.breaker = SharedBreaker(settings, 59, upstream="u")
        self.breaker.link = self
        server.listeners.append(self)

    @property
    def now(self) -> float:
        return self.server.now + self._skew

    @property
    def server_now(self) -> float:
        return self.server.now - self.behind

    def told(self, breaker: SharedBreaker, told: Told) -> None:
        breaker.pending += 1
        self.outbox.append(told)

    def ask(self) -> Permit | None:
        """Leave to send, where there is one now; a probe is asked for first."""
        if self.breaker.asks_until(self.now) is not None:
            return None
        answer = self.breaker.admit(self.now)
        return answer if isinstance(answer, Permit) else None

    def tell(self) -> None:
        """The oldest outcome reaches the server, and its answer comes back."""
        told = self.outbox.popleft()
        self.breaker.pending -= 1
        for _ in range(2):
            value = offered(self.breaker, told, self._read(self.known), self.now, self.server_now)
            if value is not None and self.server.swap(self.known, text := msgspec.json.encode(value).decode()):
                self.known = text
                break
            self.known = self.server.text
        self._adopt(self.known, sure=True)

    def hear(self, number: int) -> None:
        """One of the messages that are under way arrives."""
        self._adopt(self.inbox.pop(number), sure=False)

    def look(self) -> None:
        self.known = self.server.text
        if self.known:
            self._adopt(self.known, sure=False)
        self.breaker.give_back(self.now)

    def lose(self) -> None:
        """The server does not answer any more: on by itself."""
        self.connected = False
        self.outbox.clear()
        self.inbox.clear()
        self.breaker.alone()

    def join(self) -> None:
        """The server is back: the later end wins."""
        self.connected, self.known = True, self.server.text
        own, theirs = self.breaker.value(self.now, self.server_now), self._read(self.known)
        merged = own if theirs is None else later(own, theirs)
        if merged != theirs:
            merged = msgspec.structs.replace(merged, version=merged.next_version(self.server_now))
            text = msgspec.json.encode(merged).decode()
            assert self.server.swap(self.known, text)
            self.known = text
        self._adopt(self.known, sure=True)

    def probing(self) -> bool:
        """A probe of its own is out."""
        state = self.breaker.current(self.now)
        return state is BreakerState.PROBING and self.breaker.owns_probe

    def _read(self, text: str) -> Value | None:
        return read(text, Value, self.server_now) if text else None

    def _adopt(self, text: str, *, sure: bool) -> None:
        value = self._read(text)
        if value is not None:
            self.breaker.adopt(value, self.now, self.server_now, sure=sure)
