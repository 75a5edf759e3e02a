"""What goes to a client in one step of the loop goes in one write: an upstream's frames that arrived together do so.

mitmproxy hands each chunk of a stream to the socket by itself; for a stream of 60 that came in six packets those are 60
system calls, and as many packets for the client to read. The chunks themselves and their order stay as they are.
"""

from __future__ import annotations

import asyncio
from typing import Any

from mitmproxy import ctx
from mitmproxy.connection import Client


class Together:
    """A `StreamWriter` that keeps what is written until this step of the loop is over, or is drained."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._parts: list[bytes] = []
        self._soon = asyncio.get_running_loop().call_soon
        self.is_closing = writer.transport.is_closing  # asked before every write

    def write(self, data: bytes) -> None:
        if not self._parts:
            self._soon(self._flush)
        self._parts.append(data)

    def _flush(self) -> None:
        if self._parts:
            parts, self._parts = self._parts, []
            self._writer.write(parts[0] if len(parts) == 1 else b"".join(parts))

    async def drain(self) -> None:
        self._flush()
        await self._writer.drain()

    def close(self) -> None:
        self._flush()
        self._writer.close()

    def write_eof(self) -> None:
        self._flush()
        self._writer.write_eof()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._writer, name)


class Writers:
    """An addon that gives each client's connection such a writer; a connection of another kind keeps its own."""

    def client_connected(self, client: Client) -> None:
        proxyserver: Any = ctx.master.addons.get("proxyserver")
        handler = next((each for each in reversed(proxyserver.connections.values()) if each.client is client), None)
        way = handler.transports.get(client) if handler else None
        if way is not None and isinstance(way.writer, asyncio.StreamWriter):
            way.writer = Together(way.writer)
