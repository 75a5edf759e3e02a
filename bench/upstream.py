"""A lean upstream for measuring: canned bytes by path, in the loop of the client that measures."""

from __future__ import annotations

import asyncio
import json
import time
from typing import ClassVar

CHUNKS = 60
PACE_SECONDS = 0.005
"""Between two frames of a paced stream; a model takes several times that."""
PIECE_BYTES = 8192
PIECES = 128

_MESSAGE = {"id": "msg_1", "type": "message", "role": "assistant", "model": "glm-5.2", "stop_reason": "end_turn"}
_SMALL = json.dumps({**_MESSAGE, "content": [{"type": "text", "text": "Hello"}], "usage": {"input_tokens": 9}}).encode()
_MTOP = (
    b'data: {"ret":["FAIL_SYS_USER_VALIDATE","RGV587_ERROR::SM::busy"],'
    b'"data":{"url":"https://bench.test/_____tmd_____/punish?x5secdata=BENCH"}}\n\n'
)


def _whole(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)


def _frame(value: dict[str, object]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (str(value["type"]).encode(), json.dumps(value).encode())


def _delta(index: int) -> bytes:
    text = f"word {index} of a streamed answer, about as long as they come "
    return _frame({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}})


_START = _frame({"type": "message_start", "message": {**_MESSAGE, "content": [], "usage": {"input_tokens": 9}}})
_FRAMES = [_START, *(_delta(index) for index in range(CHUNKS - 2)), _frame({"type": "message_stop"})]
_SSE_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


_PAGE_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: %d\r\n\r\n" % (PIECE_BYTES * PIECES)


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


class Serving(asyncio.Protocol):
    """One connection. By query: small (whole), sse (back to back), paced, challenge (after a preamble), page (a long one)."""

    challenged_at: ClassVar[float] = 0.0
    """When the newest challenge frame was written: monotonic seconds."""
    page_bytes: ClassVar[int] = 0
    """How much of the newest long page has been written."""

    def __init__(self) -> None:
        self._buffer = b""
        self._left = 0
        self._path = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._loop = asyncio.get_running_loop()

    def data_received(self, data: bytes) -> None:
        if self._left:
            self._left -= len(data)
        else:
            self._buffer += data
            if not self._headers():
                return
        if self._left <= 0:
            self._answer()

    def _headers(self) -> bool:
        head, mark, body = self._buffer.partition(b"\r\n\r\n")
        if not mark:
            return False
        lines = head.lower().split(b"\r\n")
        lengths = [int(line[15:]) for line in lines if line.startswith(b"content-length:")]
        self._path = head.split(b" ", 2)[1].rpartition(b"?")[2]
        self._left, self._buffer = (lengths[0] if lengths else 0) - len(body), b""
        return True

    def _answer(self) -> None:
        self._left = 0
        if self._path == b"sse":
            self._transport.write(_SSE_HEAD)
            self._next(0)
        elif self._path == b"paced":
            self._transport.write(_SSE_HEAD)
            self._next(0, PACE_SECONDS)
        elif self._path == b"page":
            self._transport.write(_PAGE_HEAD)
            Serving.page_bytes = 0
            self._piece()
        elif self._path == b"challenge":
            self._transport.write(_SSE_HEAD + _chunk(_START))
            self._loop.call_later(0.01, self._challenge)
        else:
            self._transport.write(_whole(_SMALL))

    def _next(self, index: int, pause: float = 0.0) -> None:
        """Write one frame in each turn of the loop, so that frames arrive as chunks of their own."""
        if self._transport.is_closing():
            return
        if index < len(_FRAMES):
            self._transport.write(_chunk(_FRAMES[index]))
            self._loop.call_later(pause, self._next, index + 1, pause)
        else:
            self._transport.write(b"0\r\n\r\n")

    def _piece(self) -> None:
        """A page that no rule can decide over, slowly enough for the proxy to have read each piece before the next."""
        if self._transport.is_closing() or Serving.page_bytes >= PIECE_BYTES * PIECES:
            return
        Serving.page_bytes += PIECE_BYTES
        self._transport.write(b" " * PIECE_BYTES)
        self._loop.call_later(PACE_SECONDS, self._piece)

    def _challenge(self) -> None:
        Serving.challenged_at = time.monotonic()
        self._transport.write(_chunk(_MTOP) + b"0\r\n\r\n")


class BenchUpstream:
    """Listens on one loopback port; TLS is not measured."""

    tls_port = h2_port = clear_port = 0

    async def start(self) -> None:
        self._server = await asyncio.get_running_loop().create_server(Serving, "127.0.0.1", 0)
        self.clear_port = self._server.sockets[0].getsockname()[1]

    def stop(self) -> None:
        self._server.close()
