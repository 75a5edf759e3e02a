"""What a test says to the scripted upstream, and what the upstream tells it back."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

Headers = tuple[tuple[bytes, bytes], ...]
Framing = Literal["chunked", "length", "close", "none", "raw"]
End = Literal["whole", "cut", "abort", "hang"]

PATIENCE_SECONDS = 20.0
"""How long a test waits for something that must happen before it fails."""


class Gate:
    """A point in a reply that the upstream passes only once the test has opened it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open = False
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []
        self._reached = threading.Event()

    def open(self) -> None:
        with self._lock:
            self._open = True
            for loop, event in self._waiting:
                loop.call_soon_threadsafe(event.set)

    def wait_reached(self) -> None:
        """Block until everything before the gate has been written."""
        assert self._reached.wait(PATIENCE_SECONDS), "the upstream never came to this gate"

    async def passed(self) -> None:
        event = asyncio.Event()
        with self._lock:
            if self._open:
                event.set()
            self._waiting.append((asyncio.get_running_loop(), event))
        self._reached.set()
        await event.wait()


@dataclass(frozen=True)
class Reply:
    """One scripted answer. `chunks` of framing raw are the exact bytes on the wire, head included."""

    status: int = 200
    headers: Sequence[tuple[str | bytes, str | bytes]] = ()
    chunks: Sequence[bytes | Gate] = ()
    framing: Framing = "length"
    end: End = "whole"
    before: Gate | None = None
    """Opened by the test before the headers go out."""
    keep: bool = True
    """Keep the connection open for another request."""
    pace: float = 0.0
    """Seconds between two chunks."""

    @property
    def length(self) -> int:
        return sum(len(chunk) for chunk in self.chunks if isinstance(chunk, bytes))

    def head(self) -> list[tuple[bytes, bytes]]:
        return [(_octets(name), _octets(value)) for name, value in self.headers]


@dataclass
class Hit:
    """One request that reached the upstream."""

    host: str
    method: str
    path: str
    headers: Headers
    body: bytes
    connection: int
    """Number of the TCP connection it came on."""
    protocol: Literal["1.1", "2"]
    tls: bool
    at: float = field(default_factory=time.monotonic)
    """Monotonic seconds when the request was complete."""
    finished_at: float | None = None
    """When the reply was written to its end."""
    left_at: float | None = None
    """When the other side went away before that."""

    def header(self, name: str) -> str | None:
        wanted = name.lower().encode()
        return next((value.decode("latin1") for key, value in self.headers if key.lower() == wanted), None)


Script = Callable[[Hit], Reply]


class Place:
    """One host name of the scripted upstream: what it answers, and what reached it."""

    def __init__(self, host: str, changed: threading.Condition) -> None:
        self.host = host
        self._changed = changed
        self._hits: list[Hit] = []
        self._queue: deque[Reply] = deque()
        self._otherwise: Script = lambda _hit: Reply(599, chunks=[b"no reply was scripted"])

    def then(self, *replies: Reply) -> Place:
        """Answer the next requests with these, in this order."""
        self._queue.extend(replies)
        return self

    def always(self, reply: Reply | Script) -> Place:
        """Answer so when nothing is queued."""
        self._otherwise = (lambda _hit: reply) if isinstance(reply, Reply) else reply
        return self

    def url(self, path: str, scheme: str = "http", port: int | None = None) -> str:
        return f"{scheme}://{self.host}{f':{port}' if port else ''}{path}"

    @property
    def hits(self) -> list[Hit]:
        with self._changed:
            return list(self._hits)

    def wait_hits(self, count: int) -> list[Hit]:
        self._until(lambda: len(self._hits) >= count, f"{count} requests at {self.host}")
        return self.hits

    def wait_left(self, hit: Hit) -> float:
        """Block until the other side has gone away from this request; when that was."""
        self._until(lambda: hit.left_at is not None, "the proxy going away")
        assert hit.left_at is not None
        return hit.left_at

    def wait_finished(self, hit: Hit) -> float:
        self._until(lambda: hit.finished_at is not None, "the reply being written")
        assert hit.finished_at is not None
        return hit.finished_at

    def wait_ended(self, hit: Hit) -> None:
        """Block until this request is over, one way or the other."""
        self._until(lambda: hit.left_at is not None or hit.finished_at is not None, f"the end of {hit.body[-80:]!r}")

    def _until(self, true: Callable[[], bool], what: str) -> None:
        with self._changed:
            assert self._changed.wait_for(true, PATIENCE_SECONDS), f"waited in vain for {what}"

    def received(self, hit: Hit) -> Reply:
        with self._changed:
            self._hits.append(hit)
            self._changed.notify_all()
            if self._queue:
                return self._queue.popleft()
        return self._otherwise(hit)

    def mark(self, hit: Hit, *, left: bool = False) -> None:
        with self._changed:
            if left:
                hit.left_at = time.monotonic()
            else:
                hit.finished_at = time.monotonic()
            self._changed.notify_all()


def _octets(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode("latin1")
