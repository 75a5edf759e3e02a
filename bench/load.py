"""The client that measures: raw HTTP/1.1 through a proxy, on kept connections."""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections.abc import Callable
from typing import Self

PATH = "/api/anthropic/v1/messages"
LIMIT = 2**22


def body(text: str = "hi", *, stream: bool = False, filler_bytes: int = 0) -> bytes:
    """A main request of a coding agent; `filler_bytes` of history on top."""
    tool = {"name": "read", "description": "Reads a file.", "input_schema": {"type": "object", "properties": {}}}
    line = 'def total(prices: list[int]) -> int:\n    """Sum \\u2013 of them."""\n    return sum(prices)  # 42\n'
    history = [
        {"role": ("assistant", "user")[turn % 2], "content": [{"type": "text", "text": line * 40}]}
        for turn in range(filler_bytes // (len(json.dumps(line)) * 40))
    ]
    messages = [*history, {"role": "user", "content": text}]
    asked = {"model": "glm-5.2", "max_tokens": 32000, "stream": stream, "tools": [tool], "messages": messages}
    return json.dumps(asked).encode()


def request(host: str, kind: str, data: bytes, account: str = "bench", agent: str = "bench/1.0") -> bytes:
    head = f"POST http://{host}{PATH}?{kind} HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer sk-{account}\r\n"
    head += f"user-agent: {agent}\r\n"
    return f"{head}content-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n".encode() + data


class Line:
    """One connection to a proxy."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port, limit=LIMIT)
        return self

    async def __aexit__(self, *_exc: object) -> None:
        self._writer.close()

    async def exchange(self, data: bytes) -> tuple[float, float, int]:
        """Send and read to the end: seconds it took, monotonic seconds of the status line, and the status."""
        began = time.monotonic()
        self._writer.write(data)
        head = await self._reader.readuntil(b"\r\n\r\n")
        headed = time.monotonic()
        lines = head.lower().split(b"\r\n")
        lengths = [int(line[15:]) for line in lines if line.startswith(b"content-length:")]
        if lengths:
            await self._reader.readexactly(lengths[0])
        else:
            await self._reader.readuntil(b"\r\n0\r\n\r\n")
        return time.monotonic() - began, headed, int(head[9:12])

    async def head(self, data: bytes, look: Callable[[], int]) -> int:
        """Send, and look when the headers are there; the rest is not read."""
        self._writer.write(data)
        await self._reader.readuntil(b"\r\n\r\n")
        return look()


async def one_by_one(port: int, data: bytes, count: int, status: int = 200) -> list[float]:
    """Seconds of each of `count` requests, one after the other."""
    async with Line(port) as line:
        taken = []
        for _ in range(count):
            seconds, _, got = await line.exchange(data)
            assert got == status, f"status {got} instead of {status}"
            taken.append(seconds)
    return taken


async def at_once(port: int, data: bytes, count: int, lines: int) -> float:
    """Requests a second, `lines` connections at a time."""
    began = time.monotonic()
    await asyncio.gather(*(one_by_one(port, data, count // lines) for _ in range(lines)))
    return count // lines * lines / (time.monotonic() - began)


def p50(values: list[float]) -> float:
    return statistics.median(values)
