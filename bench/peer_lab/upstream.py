"""The upstream that all gateways have: the OpenAI wire on one loopback port, lean, in the loop of the client that measures."""

from __future__ import annotations

import asyncio
import json
from typing import Literal

from tests.e2e.lab import wires as lab

Refusal = Literal["json", "frame", "page", "wait", "overflow"]
"""A challenge in a 200 (JSON, first frame of a stream, page), an overload that asks for 120 s, a prompt too long."""
FRAMES = 60
STATED_SECONDS = 120
_BASE = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "glm-4.6"}
_USAGE = {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11}


def _head(kind: str, *more: str, status: int = 200) -> bytes:
    lines = [f"HTTP/1.1 {status} Scripted", f"content-type: {kind}", *more]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def _whole(kind: str, body: bytes, *more: str, status: int = 200) -> bytes:
    return _head(kind, f"content-length: {len(body)}", *more, status=status) + body


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _delta(delta: dict[str, str], finish: str | None = None) -> bytes:
    return lab.event({**_BASE, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})


_MIDDLE = [
    _delta({"content": f"word {number} of a streamed answer, about as long as they come "}) for number in range(FRAMES - 3)
]
_STREAM = [_delta({"role": "assistant", "content": ""}), *_MIDDLE, _delta({}, "stop"), b"data: [DONE]\n\n"]
_SSE_HEAD = _head("text/event-stream", "transfer-encoding: chunked")
_SMALL = _whole("application/json", lab.compact({**lab.openai_message(), "model": "glm-4.6", "usage": _USAGE}))
_OVERFLOW = {"error": {"code": "1261", "message": "Prompt exceeds max length"}}
_LIMITED = {"error": {"code": "1302", "message": "Rate limit reached for requests"}}
_LIMIT_ANSWER = _whole("application/json", lab.compact(_LIMITED), status=429)
_REFUSALS: dict[Refusal, bytes] = {
    "json": _whole("application/json", lab.compact(lab.MTOP)),
    "frame": _SSE_HEAD + _chunk(lab.event(lab.MTOP)) + b"0\r\n\r\n",
    "page": _whole("text/html; charset=utf-8", lab.PAGE),
    "wait": _whole("application/json", lab.compact(lab.OVERLOAD_1305), f"retry-after: {STATED_SECONDS}", status=429),
    "overflow": _whole("application/json", lab.compact(_OVERFLOW), status=400),
}


class PeerUpstream:
    """What it answers can be changed while gateways run before it."""

    def __init__(self) -> None:
        self.refusing: Refusal | None = None
        self.plan: int | None = None
        """How many calls at a time it takes."""
        self.call_seconds = 0.0
        """How long each of them lasts."""
        self.sends = self.refused = self.under_way = 0

    def reset(self, refusing: Refusal | None = None, plan: int | None = None, call_seconds: float = 0.0) -> None:
        self.refusing, self.plan, self.call_seconds = refusing, plan, call_seconds
        self.sends = self.refused = 0

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Serving(self), "127.0.0.1", 0, backlog=256)
        self.port = int(self._server.sockets[0].getsockname()[1])

    def stop(self) -> None:
        self._server.close()


class _Serving(asyncio.Protocol):
    """One connection of a gateway."""

    def __init__(self, upstream: PeerUpstream) -> None:
        self._upstream = upstream
        self._buffer = bytearray()
        self._calling = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._loop = asyncio.get_running_loop()

    def connection_lost(self, _exc: Exception | None) -> None:
        self._leave()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        at = self._buffer.find(b"\r\n\r\n")
        if at < 0:
            return
        head, begin = bytes(self._buffer[:at]).lower(), at + 4
        if b"transfer-encoding: chunked" in head:
            if not self._buffer.endswith(b"0\r\n\r\n"):
                return
        elif len(self._buffer) - begin < _length(head):
            return
        streamed = b'"stream":true' in self._buffer or b'"stream": true' in self._buffer
        self._buffer.clear()
        self._answer(streamed=streamed)

    def _answer(self, *, streamed: bool) -> None:
        upstream = self._upstream
        upstream.sends += 1
        if upstream.refusing:
            upstream.refused += 1
            self._transport.write(_REFUSALS[upstream.refusing])
        elif upstream.plan is not None and upstream.under_way >= upstream.plan:
            upstream.refused += 1
            self._transport.write(_LIMIT_ANSWER)
        else:
            upstream.under_way += 1
            self._calling = True
            if upstream.call_seconds:
                self._loop.call_later(upstream.call_seconds, self._content, streamed)
            else:
                self._content(streamed)

    def _content(self, streamed: bool) -> None:
        if self._transport.is_closing():
            return
        if streamed:
            self._transport.write(_SSE_HEAD)
            self._next(0)
        else:
            self._transport.write(_SMALL)
            self._leave()

    def _next(self, index: int) -> None:
        """Write one frame in each turn of the loop, so that frames arrive as chunks of their own."""
        if self._transport.is_closing():
            return
        if index < len(_STREAM):
            self._transport.write(_chunk(_STREAM[index]))
            self._loop.call_soon(self._next, index + 1)
        else:
            self._transport.write(b"0\r\n\r\n")
            self._leave()

    def _leave(self) -> None:
        if self._calling:
            self._calling = False
            self._upstream.under_way -= 1


def _length(head: bytes) -> int:
    return next((int(line[15:]) for line in head.split(b"\r\n") if line.startswith(b"content-length:")), 0)


def asked(text: str = "hi", *, stream: bool = False, filler_bytes: int = 0, title: bool = False) -> bytes:
    """A request on the OpenAI wire; `filler_bytes` of history on top; a title has no tools and a small budget."""
    schema = {"type": "object", "properties": {}}
    tool = {"type": "function", "function": {"name": "read", "description": "Reads a file.", "parameters": schema}}
    line = 'def total(prices: list[int]) -> int:\n    """Sum of them."""\n    return sum(prices)  # 42\n'
    history = [
        {"role": ("assistant", "user")[turn % 2], "content": line * 40}
        for turn in range(filler_bytes // (len(json.dumps(line)) * 40))
    ]
    more: dict[str, object] = {"max_tokens": 64} if title else {"max_tokens": 32000, "tools": [tool]}
    messages = [*history, {"role": "user", "content": text}]
    return json.dumps({"model": "glm-4.6", "stream": stream, **more, "messages": messages}).encode()
