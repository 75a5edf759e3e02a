"""The HTTP/1.1 side of the scripted upstream, written by hand so that a reply can break every rule of it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from tests.e2e.lab.script import Gate, Headers, Hit, Place, Reply

if TYPE_CHECKING:
    from tests.e2e.lab.upstream import Upstream


class Inbox:
    """What the other side has sent, and whether it is still there."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._buffer = bytearray()
        self._more = asyncio.Event()
        self.gone = asyncio.Event()
        self._pump = asyncio.ensure_future(self._read())

    async def _read(self) -> None:
        try:
            with contextlib.suppress(OSError):  # a TLS error is one too: a reset just after the last bytes
                while data := await self._reader.read(65536):
                    self._buffer += data
                    self._more.set()
        finally:
            self.gone.set()
            self._more.set()

    def stop(self) -> None:
        self._pump.cancel()

    async def _grow(self) -> None:
        if self.gone.is_set():
            raise ConnectionResetError
        self._more.clear()
        await self._more.wait()

    async def until(self, mark: bytes) -> bytes:
        while (at := self._buffer.find(mark)) < 0:
            await self._grow()
        return await self.exactly(at + len(mark))

    async def exactly(self, count: int) -> bytes:
        while len(self._buffer) < count:
            await self._grow()
        taken = bytes(self._buffer[:count])
        del self._buffer[:count]
        return taken


async def serve_h1(upstream: Upstream, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
    inbox = Inbox(reader)
    try:
        while True:
            hit = await _request(inbox, number, tls=writer.get_extra_info("ssl_object") is not None)
            place, reply = upstream.received(hit)
            if not await _answer(inbox, writer, place, hit, reply):
                return
    finally:
        inbox.stop()


async def _request(inbox: Inbox, number: int, *, tls: bool) -> Hit:
    lines = (await inbox.until(b"\r\n\r\n")).split(b"\r\n")
    method, path, _version = lines[0].decode("latin1").split(" ", 2)
    pairs = [line.partition(b":") for line in lines[1:] if line]
    headers: Headers = tuple((name, value.strip()) for name, _, value in pairs)
    known = {name.lower(): value for name, value in headers}
    body = b""
    if b"content-length" in known:
        body = await inbox.exactly(int(known[b"content-length"]))
    elif known.get(b"transfer-encoding") == b"chunked":
        while size := int(await inbox.until(b"\r\n"), 16):
            body += (await inbox.exactly(size + 2))[:-2]
        await inbox.until(b"\r\n")
    host = known.get(b"host", b"").decode("latin1").partition(":")[0]
    return Hit(host, method, path, headers, body, number, "1.1", tls)


async def _answer(inbox: Inbox, writer: asyncio.StreamWriter, place: Place, hit: Hit, reply: Reply) -> bool:
    """Write the reply; False where the connection ends with it."""
    writing = asyncio.ensure_future(_write(writer, hit, reply))
    gone = asyncio.ensure_future(inbox.gone.wait())
    try:
        await asyncio.wait([writing, gone], return_when=asyncio.FIRST_COMPLETED)
        if not writing.done():
            place.mark(hit, left=True)
            return False
        with contextlib.suppress(ConnectionError):
            writing.result()
        place.mark(hit)
    finally:
        await _drop(writing, gone)
    if reply.end == "abort":
        writer.transport.abort()
    return reply.keep and reply.end == "whole" and reply.framing in ("length", "chunked", "none")


async def _drop(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _write(writer: asyncio.StreamWriter, hit: Hit, reply: Reply) -> Coroutine[Any, Any, None]:
    return _Writing(writer, hit, reply).run()


class _Writing:
    def __init__(self, writer: asyncio.StreamWriter, hit: Hit, reply: Reply) -> None:
        self._writer, self._reply = writer, reply
        self._bodiless = reply.framing == "none" or hit.method == "HEAD"

    async def run(self) -> None:
        reply = self._reply
        if reply.before:
            await reply.before.passed()
        if reply.framing != "raw":
            await self._send(self._head())
        for index, chunk in enumerate(reply.chunks):
            if isinstance(chunk, Gate):
                await chunk.passed()
            elif not self._bodiless:
                if index and reply.pace:
                    await asyncio.sleep(reply.pace)
                await self._send(b"%x\r\n%b\r\n" % (len(chunk), chunk) if reply.framing == "chunked" else chunk)
        if reply.end == "hang":
            await asyncio.Event().wait()
        if reply.framing == "chunked" and reply.end == "whole" and not self._bodiless:
            await self._send(b"0\r\n\r\n")

    def _head(self) -> bytes:
        reply = self._reply
        headers = reply.head()
        if reply.framing == "chunked":
            headers.append((b"transfer-encoding", b"chunked"))
        elif reply.framing == "length" and not any(name.lower() == b"content-length" for name, _ in headers):
            headers.append((b"content-length", b"%d" % reply.length))
        if not reply.keep or reply.framing == "close":
            headers.append((b"connection", b"close"))
        lines = [b"HTTP/1.1 %d Scripted" % reply.status, *(b"%b: %b" % pair for pair in headers)]
        return b"\r\n".join(lines) + b"\r\n\r\n"

    async def _send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()
