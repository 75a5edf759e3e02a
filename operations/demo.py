"""The built-in demo upstream: a loopback server that plays a fixed sequence, so that everything can be seen without an account."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Literal

from policies.kinds import Family
from policies.settings import BreakerSettings, Upstream

HOST = "demo.breakwater.internal"
PAUSE_SECONDS = 15.0
"""Of its breaker: shorter than what curl is thought to bear, so that a request is seen to wait and to be answered."""
UPSTREAM = Upstream("demo", (HOST,), Family.ZCODE, BreakerSettings(open_seconds=PAUSE_SECONDS))

Dialect = Literal["anthropic", "openai"]

PATHS: dict[str, Dialect] = {"/v1/messages": "anthropic", "/v1/chat/completions": "openai"}
"""Each path keeps its own place in the sequence."""

BODY_BYTES_AT_MOST = 16 * 1024 * 1024
"""Of a request; more is refused with a 413."""

WORDS = ("This ", "answer ", "comes ", "frame ", "by frame.")

_MTOP = {
    "ret": ["FAIL_SYS_USER_VALIDATE", "RGV587_ERROR::SM::哎哟喂,被挤爆啦,请稍后重试"],
    "data": {"url": f"https://{HOST}/_____tmd_____/punish?x5secdata=DEMO&x5step=2&action=captcha"},
}
_PAGE = (
    '<!doctypehtml><html><head><meta name="aliyun_waf_aa" content="demo"><meta name="aliyun_waf_bb" content="demo">'
    '<title>Verification</title></head><body><div id="captcha-element"></div></body></html>'
)


@dataclass(frozen=True, slots=True)
class Step:
    """One refusal of the sequence, as the upstreams of this family send it."""

    name: str
    status: int
    content_type: str
    body: str


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


_OVERLOAD = {"code": "1305", "message": "The service may be temporarily overloaded, please try again later"}

SEQUENCE: tuple[Step | None, ...] = (
    None,
    Step("challenge-json", 200, "application/json;charset=utf-8", _compact(_MTOP)),
    Step("challenge-sse", 200, "text/event-stream", f"data: {_compact(_MTOP)}\n\n"),
    Step("challenge-html", 200, "text/html; charset=utf-8", _PAGE),
    None,
    Step("3007", 400, "application/json", _compact({"code": 3007, "msg": "captcha verify failed"})),
    Step("1305", 429, "application/json", _compact({"error": _OVERLOAD})),
)
"""What the requests to one path get, in order; None, and everything after the end, is an answer."""


class Demo:
    """Serves on a port of 127.0.0.1 that the system chooses, from `start` to `stop`."""

    def __init__(self, frame_seconds: float = 0.4) -> None:
        """`frame_seconds`: pause between two parts of a streamed answer, which has about seven."""
        self._frame_seconds = frame_seconds
        self._next = dict.fromkeys(PATHS, 0)
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[Any]] = set()

    async def start(self) -> tuple[str, int]:
        """Listen; the address to connect to."""
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()[:2]
        return str(host), int(port)

    async def stop(self) -> None:
        """Stop listening and end what is being served."""
        if self._server is None:
            return
        self._server.close()
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)
        await self._server.wait_closed()
        self._server = None

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task:
            self._serving.add(task)
            task.add_done_callback(self._serving.discard)
        # A client that leaves, or sends what is no request, ends its own connection and nothing else. A cancelled
        # task (only `stop` does that) must end quietly: asyncio would log it as a fault.
        with contextlib.suppress(ConnectionError, EOFError, ValueError, asyncio.LimitOverrunError, asyncio.CancelledError):
            await self._serve(reader, writer)
        writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        method, path, length = _request_line(await reader.readuntil(b"\r\n\r\n"))
        if length > BODY_BYTES_AT_MOST:
            await _send(writer, 413, "application/json", _compact({"error": {"message": "The demo takes 16 MiB."}}))
            return
        body = await reader.readexactly(length)
        if method == "POST" and path == "/reset":
            self._next = dict.fromkeys(PATHS, 0)
            await _send(writer, 200, "application/json", _compact({"reset": True}))
        elif method == "POST" and path in PATHS:
            await self._play(writer, path, body)
        else:
            hint = {"error": {"message": f"The demo answers POST {', '.join(PATHS)} and /reset."}}
            await _send(writer, 404, "application/json", _compact(hint))

    async def _play(self, writer: asyncio.StreamWriter, path: str, body: bytes) -> None:
        position = self._next[path]
        self._next[path] += 1
        step = SEQUENCE[position] if position < len(SEQUENCE) else None
        if step:
            await _send(writer, step.status, step.content_type, step.body)
        elif _streams(body):
            await _stream(writer, self._paced(_FRAMES[PATHS[path]]))
        else:
            await _send(writer, 200, "application/json", _compact(_WHOLE[PATHS[path]]))

    async def _paced(self, frames: list[str]) -> AsyncIterator[str]:
        for index, frame in enumerate(frames):
            if index:
                await asyncio.sleep(self._frame_seconds)
            yield frame


def _request_line(head: bytes) -> tuple[str, str, int]:
    """Method, path without its query, and the body's length; ValueError where it is no HTTP."""
    first, *lines = head.decode("latin1").split("\r\n")
    method, target, _version = first.split(" ")
    lengths = [line.partition(":")[2] for line in lines if line.lower().startswith("content-length:")]
    return method, target.partition("?")[0], int(lengths[0]) if lengths else 0


def _streams(body: bytes) -> bool:
    try:
        asked = json.loads(body)
    except ValueError:
        return False
    return isinstance(asked, dict) and asked.get("stream") is True


async def _send(writer: asyncio.StreamWriter, status: int, content_type: str, body: str) -> None:
    data = body.encode()
    head = f"HTTP/1.1 {status} Demo\r\ncontent-type: {content_type}\r\ncontent-length: {len(data)}\r\n"
    writer.write(head.encode() + b"connection: close\r\n\r\n" + data)
    await writer.drain()


async def _stream(writer: asyncio.StreamWriter, frames: AsyncIterator[str]) -> None:
    head = "HTTP/1.1 200 Demo\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n"
    writer.write(head.encode())
    async for frame in frames:
        data = frame.encode()
        writer.write(b"%x\r\n%b\r\n" % (len(data), data))
        await writer.drain()
    writer.write(b"0\r\n\r\n")
    await writer.drain()


_TEXT = "".join(WORDS)
_USAGE: dict[str, object] = {"input_tokens": 12, "output_tokens": 5}
_MESSAGE: dict[str, object] = {
    "id": "msg_demo",
    "type": "message",
    "role": "assistant",
    "model": "demo",
    "stop_sequence": None,
}
_CHUNK: dict[str, object] = {"id": "chatcmpl-demo", "object": "chat.completion.chunk", "created": 0, "model": "demo"}


def _anthropic_frames() -> list[str]:
    start = {**_MESSAGE, "content": [], "stop_reason": None, "usage": _USAGE}
    block: dict[str, object] = {
        "type": "content_block_start",
        "index": 0,
        "content_block": {"type": "text", "text": ""},
    }
    deltas = [{"type": "text_delta", "text": word} for word in WORDS]
    end: dict[str, object] = {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn", "stop_sequence": None},
        "usage": _USAGE,
    }
    groups: list[list[dict[str, object]]] = [
        [{"type": "message_start", "message": start}, block],
        *([{"type": "content_block_delta", "index": 0, "delta": delta}] for delta in deltas),
        [{"type": "content_block_stop", "index": 0}, end, {"type": "message_stop"}],
    ]
    return ["".join(f"event: {value['type']}\ndata: {_compact(value)}\n\n" for value in group) for group in groups]


def _openai_frames() -> list[str]:
    deltas = [{"role": "assistant", "content": ""}, *({"content": word} for word in WORDS)]
    choices: list[dict[str, object]] = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": "stop"})
    return [*(f"data: {_compact({**_CHUNK, 'choices': [choice]})}\n\n" for choice in choices), "data: [DONE]\n\n"]


_ANSWERED = {"index": 0, "message": {"role": "assistant", "content": _TEXT}, "finish_reason": "stop"}
_CONTENT: dict[str, object] = {"content": [{"type": "text", "text": _TEXT}], "stop_reason": "end_turn", "usage": _USAGE}
_WHOLE: dict[Dialect, dict[str, object]] = {
    "anthropic": _MESSAGE | _CONTENT,
    "openai": _CHUNK | {"object": "chat.completion", "choices": [_ANSWERED]},
}
_FRAMES: dict[Dialect, list[str]] = {"anthropic": _anthropic_frames(), "openai": _openai_frames()}
