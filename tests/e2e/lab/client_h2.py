"""An HTTP/2 client through the proxy, frame by frame, for many streams of one connection."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import h2.config
import h2.connection
import h2.errors
import h2.events

from tests.e2e.lab.client import TIMEOUT_SECONDS, Way, tunnel
from tests.e2e.lab.proxy import Proxy
from tests.e2e.lab.script import PATIENCE_SECONDS


@dataclass
class Stream:
    """What came back on one stream so far."""

    status: int | None = None
    headers: list[tuple[str, str]] = field(default_factory=list)
    head_at: float = 0.0
    pieces: list[tuple[float, bytes]] = field(default_factory=list)
    ended: bool = False
    reset: bool = False

    @property
    def body(self) -> bytes:
        return b"".join(data for _, data in self.pieces)

    @property
    def done(self) -> bool:
        return self.ended or self.reset

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key == name.lower()), None)


class H2Connection:
    """One connection to `host`; nothing is read unless `until` is called."""

    def __init__(self, proxy: Proxy, host: str, port: int = 8443, way: Way = tunnel) -> None:
        plain = socket.create_connection(("127.0.0.1", proxy.port), TIMEOUT_SECONDS)
        self._authority = f"{host}:{port}"
        self._socket = way(plain, proxy, host, port, ["h2"])
        assert self._socket.selected_alpn_protocol() == "h2"
        self._h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True, header_encoding="latin1"))
        self._h2.initiate_connection()
        self._flush()
        self.streams: dict[int, Stream] = {}
        self.closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def open(self, path: str, body: bytes | None, headers: Sequence[tuple[str, str]] = (), method: str = "POST") -> int:
        """Send one request (its body within the initial window of 64 KiB); the stream's number."""
        number: int = self._h2.get_next_available_stream_id()
        pseudo = [(":method", method), (":scheme", "https"), (":authority", self._authority), (":path", path)]
        # Without a length mitmproxy frames no body for an upstream with HTTP/1.1; every known client sends one.
        framing = [] if body is None else [("content-length", str(len(body)))]
        self._h2.send_headers(number, [*pseudo, *headers, *framing], end_stream=body is None)
        self.streams[number] = Stream()
        if body is not None:
            for start in range(0, len(body), 16384):
                self._h2.send_data(number, body[start : start + 16384])
            self._h2.end_stream(number)
        self._flush()
        return number

    def cancel(self, number: int) -> None:
        self._h2.reset_stream(number, h2.errors.ErrorCodes.CANCEL)
        self._flush()

    def until(self, true: Callable[[], bool]) -> None:
        """Read frames until this holds."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not true():
            self._socket.settimeout(max(deadline - time.monotonic(), 0.001))
            data = self._socket.recv(65536)
            if not data:
                self.closed = True
                assert true(), "the proxy closed the HTTP/2 connection"
                return
            for event in self._h2.receive_data(data):
                self._received(event)
            self._flush()

    def finish(self, number: int) -> Stream:
        """Read until this stream is done."""
        self.until(lambda: self.streams[number].done)
        return self.streams[number]

    def close(self) -> None:
        self._socket.close()

    def _received(self, event: Any) -> None:
        stream = self.streams.get(getattr(event, "stream_id", 0) or 0)
        if stream is None:
            return
        if isinstance(event, h2.events.ResponseReceived):
            pairs = [(str(name), str(value)) for name, value in event.headers]
            stream.status, stream.head_at = int(dict(pairs)[":status"]), time.monotonic()
            stream.headers = [pair for pair in pairs if not pair[0].startswith(":")]
        elif isinstance(event, h2.events.DataReceived):
            stream.pieces.append((time.monotonic(), event.data))
            self._h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, h2.events.StreamEnded):
            stream.ended = True
        elif isinstance(event, h2.events.StreamReset):
            stream.reset = True

    def _flush(self) -> None:
        if data := self._h2.data_to_send():
            self._socket.sendall(data)
