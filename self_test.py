"""The start-up test of the hold: one exchange through the layers in memory, without a socket."""

from __future__ import annotations

import time
from typing import Any

from mitmproxy import http
from mitmproxy.connection import Client, ConnectionState
from mitmproxy.options import Options

from held_stream import LOOK_SECONDS, HeldHttpLayer, commands, context, events, proto
from hold import hold
from policies.decisions import Answer, Commit, Decision, Replace


class _Probe:
    """The hold of the self-test: holds the first byte, then puts a 529 in its place."""

    ended, severed = False, False

    def __init__(self, probed: http.HTTPFlow) -> None:
        self.flow = probed

    def __call__(self, data: bytes) -> list[bytes]:
        return [data] if data else []

    def feed(self, data: bytes) -> Decision | None:
        self.flow.response = http.Response.make(529, data)
        return Replace(Answer(529, (), data, "self-test"))

    def finish(self, *, cut: bool) -> Decision:  # noqa: ARG002
        return Commit()

    def tick(self) -> Decision | None:
        return None

    def pause(self) -> float:
        return LOOK_SECONDS

    def due(self) -> Decision | None:
        return None

    def unsent(self) -> Decision | None:
        return None


class _Options:
    """mitmproxy's options, but for those of a user that would stream or refuse the bytes of the self-test."""

    stream_large_bodies = body_size_limit = None

    def __init__(self, options: Options) -> None:
        self._options = options

    def __getattr__(self, name: str) -> Any:
        return getattr(self._options, name)


def self_test(options: Options) -> str:
    """Drive one exchange through the layers in memory, without a socket; what is wrong with the hold, or empty."""
    client = Client(peername=("127.0.0.1", 1), sockname=("127.0.0.1", 2), timestamp_start=time.time())
    client.state = ConnectionState.OPEN
    own: Any = _Options(options)
    root, sent = HeldHttpLayer(context.Context(client, own), proto.HTTPMode.regular), b""
    try:
        upstream = _drive(root, events.Start())[1]
        upstream = _drive(root, events.DataReceived(client, b"GET http://self.test/ HTTP/1.1\r\n\r\n"))[1]
        early = _drive(root, events.DataReceived(upstream, b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n"))[0]
        if early:
            return "headers left before the hold had decided"
        sent = _drive(root, events.DataReceived(upstream, b"challenge"))[0]
    except Exception as fault:  # noqa: BLE001 - whatever a new mitmproxy does here, it means the same
        return f"{type(fault).__name__}: {fault}"
    return "" if sent.startswith(b"HTTP/1.1 529") else f"the client was sent {sent[:20]!r}"


def _drive(root: HeldHttpLayer, first: events.Event) -> tuple[bytes, Any]:
    """Feed one event and answer every hook and connection; bytes for the client, and the upstream's connection."""
    queue, out, upstream = [first], b"", None
    while queue:
        for command in root.handle_event(queue.pop(0)):
            if isinstance(command, commands.OpenConnection):
                upstream = command.connection
                upstream.state = ConnectionState.OPEN
                queue.append(events.OpenConnectionCompleted(command, None))
            elif isinstance(command, commands.StartHook):
                if command.name == "responseheaders":
                    hold(command.args()[0], _Probe(command.args()[0]))
                queue.append(events.HookCompleted(command, None))
            elif isinstance(command, commands.SendData) and command.connection is not upstream:
                out += command.data
    return out, upstream
