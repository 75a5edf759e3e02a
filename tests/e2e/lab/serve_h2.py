"""The HTTP/2 side of the scripted upstream, on the `h2` library that mitmproxy brings."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions

from tests.e2e.lab.script import Gate, Hit, Place, Reply

if TYPE_CHECKING:
    from tests.e2e.lab.upstream import Upstream

FRAME_BYTES = 16384


async def serve_h2(upstream: Upstream, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
    await _Session(upstream, reader, writer, number).run()


class _Session:
    """One connection; every stream is answered by a task of its own."""

    def __init__(self, upstream: Upstream, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        self._upstream, self._reader, self._writer, self._number = upstream, reader, writer, number
        configuration = h2.config.H2Configuration(
            client_side=False, header_encoding=None, validate_outbound_headers=False, normalize_outbound_headers=False
        )
        self._h2 = h2.connection.H2Connection(configuration)
        self._heads: dict[int, tuple[Any, bytearray]] = {}
        self._answers: dict[int, tuple[asyncio.Task[None], Place, Hit]] = {}
        self._window = asyncio.Event()

    async def run(self) -> None:
        self._h2.initiate_connection()
        await self._flush()
        try:
            while data := await self._reader.read(65536):
                for event in self._h2.receive_data(data):
                    self._received(event)
                await self._flush()
        finally:
            for stream in list(self._answers):
                self._left(stream)

    def _received(self, event: Any) -> None:
        if isinstance(event, h2.events.RequestReceived):
            self._heads[event.stream_id] = (event.headers, bytearray())
        elif isinstance(event, h2.events.DataReceived):
            self._heads[event.stream_id][1].extend(event.data)
            self._h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, h2.events.StreamEnded):
            self._requested(event.stream_id)
        elif isinstance(event, h2.events.StreamReset):
            self._left(event.stream_id)
        elif isinstance(event, h2.events.WindowUpdated | h2.events.RemoteSettingsChanged):
            self._window.set()

    def _requested(self, stream: int) -> None:
        headers, body = self._heads.pop(stream)
        known = dict(headers)
        host = known[b":authority"].decode("latin1").partition(":")[0]
        method, path = known[b":method"].decode(), known[b":path"].decode("latin1")
        plain = tuple((name, value) for name, value in headers if not name.startswith(b":"))
        hit = Hit(host, method, path, plain, bytes(body), self._number, "2", tls=True)
        place, reply = self._upstream.received(hit)
        self._answers[stream] = asyncio.ensure_future(self._answer(stream, place, hit, reply)), place, hit

    def _left(self, stream: int) -> None:
        if stream in self._answers:
            task, place, hit = self._answers.pop(stream)
            if not task.done():
                task.cancel()
                place.mark(hit, left=True)

    async def _answer(self, stream: int, place: Place, hit: Hit, reply: Reply) -> None:
        try:
            await self._write(stream, hit, reply)
        except (ConnectionError, h2.exceptions.ProtocolError):
            place.mark(hit, left=True)
            return
        except asyncio.CancelledError:
            raise
        except Exception as fault:  # noqa: BLE001 - a fault of the lab must fail the test, not vanish in a task
            self._upstream.faults.append(fault)
        place.mark(hit)
        self._answers.pop(stream, None)

    async def _write(self, stream: int, hit: Hit, reply: Reply) -> None:
        if reply.before:
            await reply.before.passed()
        bodiless = reply.framing == "none" or hit.method == "HEAD"
        headers = [(b":status", b"%d" % reply.status), *((name.lower(), value) for name, value in reply.head())]
        if reply.framing == "length" and not any(name == b"content-length" for name, _ in headers):
            headers.append((b"content-length", b"%d" % reply.length))
        self._h2.send_headers(stream, headers, end_stream=bodiless)
        await self._flush()
        if not bodiless:
            await self._body(stream, reply)

    async def _body(self, stream: int, reply: Reply) -> None:
        for index, chunk in enumerate(reply.chunks):
            if isinstance(chunk, Gate):
                await chunk.passed()
            else:
                if index and reply.pace:
                    await asyncio.sleep(reply.pace)
                await self._data(stream, chunk)
        if reply.end == "hang":
            await asyncio.Event().wait()
        elif reply.end == "cut":
            self._h2.reset_stream(stream, h2.errors.ErrorCodes.INTERNAL_ERROR)
        elif reply.end == "abort":
            self._writer.transport.abort()
        else:
            self._h2.end_stream(stream)
        await self._flush()

    async def _data(self, stream: int, chunk: bytes) -> None:
        while chunk:
            room = min(self._h2.local_flow_control_window(stream), FRAME_BYTES, len(chunk))
            if room <= 0:
                self._window.clear()
                await self._window.wait()
                continue
            self._h2.send_data(stream, chunk[:room])
            chunk = chunk[room:]
            await self._flush()

    async def _flush(self) -> None:
        if data := self._h2.data_to_send():
            self._writer.write(data)
        await self._writer.drain()
