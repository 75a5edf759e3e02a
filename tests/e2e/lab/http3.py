"""HTTP/3 (QUIC over UDP), on the `aioquic` library that mitmproxy brings: an upstream with one answer, and a client."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Sequence
from typing import Any

from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.asyncio.server import serve
from aioquic.h3.connection import H3Connection
from aioquic.h3.events import DataReceived, H3Event, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import QuicEvent

from tests.e2e.lab.certificates import Authority

TIMEOUT_SECONDS = 20.0
Pairs = Sequence[tuple[str, str]]


def _encoded(pairs: Pairs) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode()) for name, value in pairs]


def free_port() -> int:
    """A port of 127.0.0.1 on which nobody listens for UDP."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class _Serving(QuicConnectionProtocol):
    """One connection of the upstream."""

    headers: Pairs = ()
    body = b""
    hits = 0

    def quic_event_received(self, event: QuicEvent) -> None:
        self.http: Any = getattr(self, "http", None) or H3Connection(self._quic)
        for each in self.http.handle_event(event):
            if isinstance(each, HeadersReceived | DataReceived) and each.stream_ended:
                type(self).hits += 1
                self.http.send_headers(each.stream_id, _encoded([(":status", "200"), *self.headers]))
                self.http.send_data(each.stream_id, self.body, end_stream=True)
                self.transmit()


class Upstream3:
    """Answers every request with these headers and this body, from `start` to `stop`."""

    def __init__(self, authority: Authority, headers: Pairs, body: bytes) -> None:
        self.serving: Any = type("Serving", (_Serving,), {"headers": headers, "body": body})
        self._configuration = QuicConfiguration(is_client=False, alpn_protocols=["h3"])
        self._configuration.load_cert_chain(authority.chain_path)
        self._loop, self._ready = asyncio.new_event_loop(), threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.port = free_port()

    @property
    def hits(self) -> int:
        return int(self.serving.hits)

    def start(self) -> Upstream3:
        self._thread.start()
        assert self._ready.wait(TIMEOUT_SECONDS)
        return self

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(TIMEOUT_SECONDS)

    def _run(self) -> None:
        made = serve("127.0.0.1", self.port, configuration=self._configuration, create_protocol=self.serving)
        server = self._loop.run_until_complete(made)
        self._ready.set()
        self._loop.run_forever()
        server.close()  # type: ignore[no-untyped-call]
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()


class _Asking(QuicConnectionProtocol):
    """One connection of the client."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.http, self.seen = H3Connection(self._quic), asyncio.Queue[H3Event]()

    def quic_event_received(self, event: QuicEvent) -> None:
        for each in self.http.handle_event(event):
            self.seen.put_nowait(each)

    async def ask(self, host: str, path: str, body: bytes, headers: Pairs) -> tuple[int, bytes]:
        number, status, got = self._quic.get_next_available_stream_id(), 0, b""
        head = [(":method", "POST"), (":scheme", "https"), (":authority", host), (":path", path), *headers]
        self.http.send_headers(number, _encoded([*head, ("content-length", str(len(body)))]))
        self.http.send_data(number, body, end_stream=True)
        self.transmit()
        while True:
            each = await self.seen.get()
            if isinstance(each, HeadersReceived):
                status = int(dict(each.headers)[b":status"])
            elif isinstance(each, DataReceived):
                got += each.data
            if isinstance(each, HeadersReceived | DataReceived) and each.stream_ended:
                return status, got


def ask_http3(port: int, host: str, path: str, body: bytes, headers: Pairs) -> tuple[int, bytes]:
    """Status and body of one request; `host` is named in the ClientHello."""
    configuration = QuicConfiguration(is_client=True, alpn_protocols=["h3"], server_name=host, verify_mode=ssl.CERT_NONE)

    async def run() -> tuple[int, bytes]:
        async with connect("127.0.0.1", port, configuration=configuration, create_protocol=_Asking) as client:
            assert isinstance(client, _Asking)
            return await client.ask(host, path, body, headers)

    return asyncio.run(asyncio.wait_for(run(), TIMEOUT_SECONDS))
