"""mitmproxy's HTTP layers in memory, with our streams in them: a client, upstreams, hooks and a clock that a test moves."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import pytest
from mitmproxy import http
from mitmproxy.addonmanager import Loader
from mitmproxy.addons.proxyserver import Proxyserver
from mitmproxy.connection import Client, ConnectionState, Server
from mitmproxy.options import Options

import held_stream
from held_stream import HeldHttpLayer, commands, context, events, proto
from hold import STREAM, gate, hold
from policies.decisions import Answer, Commit, Decision, Forward, Queue, Refuse, Replace, Resend

CLOSED = ConnectionState.CLOSED
OURS = Answer(529, (), b"ours", "test")


class Clock:
    """Stands in for the clock of held_stream.py."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@dataclass
class ScriptedHold:
    """A hold that decides by the first letter that it is fed: C commit, R replace, A again, Q queue, else go on."""

    flow: http.HTTPFlow
    again: float = 1.0
    ended: bool = False
    severed: bool = False
    most: int = 0
    fed: list[bytes] = field(default_factory=list)
    last: Decision | None = None
    """What to say at the end; None: by the bytes, else commit."""

    def __call__(self, data: bytes) -> list[bytes]:
        if self.ended or self.severed:
            return []
        if b"E" in data:
            self.ended = True
            return [data.partition(b"E")[0] + b"!error!"]
        if b"S" in data:
            self.severed = True
            return []
        return [data] if data else []

    def feed(self, data: bytes) -> Decision | None:
        self.fed.append(data)
        return self._by(data)

    def _by(self, data: bytes) -> Decision | None:
        if b"C" in data:
            return Commit()
        if b"R" in data:
            return self._replace()
        if b"Q" in data:
            return Queue()
        return Resend(self.again) if b"A" in data else None

    def _replace(self) -> Replace:
        self.flow.response = http.Response.make(OURS.status, OURS.body)
        return Replace(OURS)

    def finish(self, *, cut: bool) -> Decision:
        return self._replace() if cut else Commit()

    def tick(self) -> Decision | None:
        return Commit()

    def pause(self) -> float:
        return 2.0

    def due(self) -> Decision | None:
        return None

    def unsent(self) -> Decision | None:
        return self._replace()


@dataclass
class ScriptedGate:
    """A gate that says what it was told to say, and counts."""

    flow: http.HTTPFlow
    first: list[Forward | None]
    """What it says when it is first asked."""
    says: str = ""
    """go, refuse, else wait on."""
    asked: int = 0
    sends: int = 0

    def turn(self) -> Forward | Refuse | None:
        if self.first:
            return self.first.pop()
        self.asked += 1
        if self.says == "refuse":
            self.flow.response = http.Response.make(OURS.status, OURS.body)
            return Refuse(OURS)
        return Forward() if self.says == "go" else None

    def sent(self) -> None:
        self.sends += 1


class Peer:
    """The other end of one connection: takes what the layers send, and says what it is told to."""

    def __init__(self, layers: Layers, connection: Any, *, h2_side: bool | None) -> None:
        self.layers, self.connection = layers, connection
        self.received = b""
        self.seen: list[Any] = []
        self.h2: h2.connection.H2Connection | None = None
        if h2_side is not None:
            configuration = h2.config.H2Configuration(client_side=h2_side, header_encoding="latin1")
            self.h2 = h2.connection.H2Connection(configuration)
            self.h2.initiate_connection()

    @property
    def open(self) -> bool:
        return bool(self.connection.state & ConnectionState.CAN_READ)

    def take(self, data: bytes) -> None:
        self.received += data
        if self.h2:
            self.seen += self.h2.receive_data(data)

    def say(self, data: bytes) -> None:
        if self.open and data:
            self.layers.handle(events.DataReceived(self.connection, data))

    def flush(self) -> None:
        assert self.h2
        self.say(self.h2.data_to_send())

    def leave(self) -> None:
        if self.open:
            self.connection.state = CLOSED
            self.layers.handle(events.ConnectionClosed(self.connection))


class Layers:
    """One client connection. Hooks run at once, unless ``slow`` names them: then ``finish_hooks`` ends them."""

    def __init__(
        self,
        clock: Clock,
        *,
        client_h2: bool = False,
        upstream_h2: bool = False,
        slow: Sequence[str] = (),
        options: Any = None,
        hold: Callable[[http.HTTPFlow], Any] = ScriptedHold,
        after: float | None = 0.0,
        foreign: Any = None,
    ) -> None:
        self.foreign = foreign
        self.clock, self.upstream_h2, self.slow, self.hold, self.after = clock, upstream_h2, slow, hold, after
        self.gates: list[ScriptedGate] = []
        self.client_connection = Client(
            peername=("127.0.0.1", 1), sockname=("127.0.0.1", 2), timestamp_start=time.time(), state=ConnectionState.OPEN
        )
        if client_h2:
            self.client_connection.alpn = b"h2"
        self.connects, self.opening = True, []  # type: bool | None, list[Any]
        """connects: True at once, False refuses at once, None when ``connected`` is called."""
        self.left: set[int] = set()
        self.timers: list[tuple[float, Any]] = []
        self.pending: list[Any] = []
        self.flows: list[http.HTTPFlow] = []
        self.hooks: list[str] = []
        self.upstreams: list[Peer] = []
        self._queue: list[Any] = []
        self._busy = False
        self.client = Peer(self, self.client_connection, h2_side=True if client_h2 else None)
        self.root = HeldHttpLayer(context.Context(self.client_connection, options), proto.HTTPMode.regular)
        self.handle(events.Start())

    # -- what a test does -------------------------------------------------------------------------------------

    def request(self, body: bytes = b"asked") -> None:
        self.client.received = b""
        if self.client.h2:
            number = self.client.h2.get_next_available_stream_id()
            pairs = [(":method", "POST"), (":scheme", "http"), (":authority", "up.test"), (":path", "/")]
            self.client.h2.send_headers(number, [*pairs, ("content-length", str(len(body)))])
            self.client.h2.send_data(number, body, end_stream=True)
            self.client.flush()
        else:
            self.client.say(
                b"POST http://up.test/ HTTP/1.1\r\nhost: up.test\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
            )

    @property
    def upstream(self) -> Peer:
        return self.upstreams[-1]

    def asked(self) -> int:
        """The newest stream that the newest upstream was asked on."""
        return max((e.stream_id for e in self.upstream.seen if isinstance(e, h2.events.RequestReceived)), default=1)

    def frames(self, act: Callable[[h2.connection.H2Connection], object]) -> None:
        """Let the newest upstream, one with HTTP/2, send what ``act`` says; nothing where its connection cannot."""
        assert self.upstream.h2
        with contextlib.suppress(h2.exceptions.ProtocolError):
            act(self.upstream.h2)
        self.upstream.flush()

    def answer_head(self, length: int | None = None) -> None:
        if self.upstream.h2:
            pairs = [(":status", "200")] + ([] if length is None else [("content-length", str(length))])
            self.frames(lambda peer: peer.send_headers(self.asked(), pairs))
        else:
            framing = b"transfer-encoding: chunked" if length is None else b"content-length: %d" % length
            self.upstream.say(b"HTTP/1.1 200 OK\r\n%b\r\n\r\n" % framing)

    def answer_data(self, data: bytes, *, length: bool = False) -> None:
        if self.upstream.h2:
            self.frames(lambda peer: peer.send_data(self.asked(), data))
        elif data:
            self.upstream.say(data if length else b"%x\r\n%b\r\n" % (len(data), data))

    def answer_end(self) -> None:
        if self.upstream.h2:
            self.frames(lambda peer: peer.end_stream(self.asked()))
        else:
            self.upstream.say(b"0\r\n\r\n")

    def cancel(self) -> None:
        """The client leaves: closes, or resets its newest stream."""
        if self.client.h2:
            with contextlib.suppress(h2.exceptions.StreamClosedError):  # answered already
                newest = self.client.h2.highest_outbound_stream_id
                self.client.h2.reset_stream(newest, 8)
                self.left.add(newest)
            self.client.flush()
        else:
            self.client.leave()

    def pass_time(self, seconds: float) -> None:
        """Move the clock, firing every timer that becomes due on the way."""
        end = self.clock.now + seconds
        while due := [timer for timer in self.timers if timer[0] <= end]:
            timer = min(due, key=lambda each: each[0])
            self.timers.remove(timer)
            self.clock.now = max(self.clock.now, timer[0])
            self.handle(events.Wakeup(timer[1]))
        self.clock.now = end

    def gate_of(self, held: http.HTTPFlow) -> ScriptedGate:
        first = None if self.after is None else Forward(self.after)
        self.gates.append(ScriptedGate(held, [first]))
        return self.gates[-1]

    def wake(self, says: str = "", number: int = -1) -> None:
        """Wake a request, the newest where ``number`` does not say which; its gate then ``says`` so."""
        gate = self.gates[number]
        gate.says = says
        if stream := getattr(gate.flow, STREAM)():
            self.handle(stream.woken(stream))

    def connected(self, error: str | None = None) -> None:
        """Finish the connections that are being made."""
        opening, self.opening = self.opening, []
        for command in opening:
            self._opened(command, error)
        self._run()

    def finish_hooks(self) -> None:
        pending, self.pending = self.pending, []
        for command in pending:
            self._ran(command)
        self._run()

    # -- what is seen -----------------------------------------------------------------------------------------

    @property
    def streams(self) -> dict[int, Any]:
        return self.root.streams

    @property
    def client_status(self) -> int | None:
        if self.client.h2:
            heads = [e for e in self.client.seen if isinstance(e, h2.events.ResponseReceived)]
            return int(dict[Any, Any](heads[-1].headers)[":status"]) if heads else None
        return int(self.client.received.split(b" ")[1]) if self.client.received else None

    @property
    def client_body(self) -> bytes:
        if self.client.h2:
            return b"".join(e.data for e in self.client.seen if isinstance(e, h2.events.DataReceived))
        head, _, rest = self.client.received.partition(b"\r\n\r\n")
        return _unchunked(rest) if b"chunked" in head else rest

    @property
    def client_ended(self) -> bool:
        """The client was answered to the end, or cut off."""
        if self.client.h2:
            ends = {e.stream_id for e in self.client.seen if isinstance(e, h2.events.StreamEnded | h2.events.StreamReset)}
            return all(number in ends | self.left for number in range(1, self.client.h2.highest_outbound_stream_id + 1, 2))
        head, _, rest = self.client.received.partition(b"\r\n\r\n")
        whole = rest.endswith(b"0\r\n\r\n") if b"chunked" in head else f"length: {len(rest)}\r".encode() in head + b"\r"
        return not self.client.open or bool(head and whole)

    # -- the machine ------------------------------------------------------------------------------------------

    def handle(self, event: Any) -> None:
        self._queue.append(event)
        self._run()

    def _run(self) -> None:
        if self._busy:
            return
        self._busy = True
        try:
            while self._queue:
                for command in self.root.handle_event(self._queue.pop(0)):
                    self._obey(command)
        finally:
            self._busy = False

    def _obey(self, command: Any) -> None:
        if isinstance(command, commands.OpenConnection):
            if self.connects is None:
                self.opening.append(command)
            else:
                self._opened(command, None if self.connects else "refused")
        elif isinstance(command, commands.StartHook):
            if command.name in self.slow:
                self.pending.append(command)
            else:
                self._ran(command)
        elif isinstance(command, commands.SendData):
            if command.connection.state & ConnectionState.CAN_WRITE:
                self._peer(command.connection).take(command.data)
        elif isinstance(command, commands.CloseConnection):
            command.connection.state = CLOSED
        elif isinstance(command, commands.RequestWakeup):
            self.timers.append((self.clock.now + command.delay, command))

    def _opened(self, command: Any, error: str | None) -> None:
        server: Server = command.connection
        if error is None:
            server.state = ConnectionState.OPEN
            if self.upstream_h2:
                server.alpn = b"h2"
            self.upstreams.append(Peer(self, server, h2_side=False if self.upstream_h2 else None))
        else:
            server.error = error
        self._queue.append(events.OpenConnectionCompleted(command, error))

    def _ran(self, command: Any) -> None:
        held: http.HTTPFlow = command.args()[0]
        self.hooks.append(command.name)
        if command.name == "requestheaders":
            self.flows.append(held)
        elif command.name == "request":
            gate(held, self.gate_of(held))
        elif command.name == "responseheaders" and held.response and not held.response.stream:
            hold(held, self.hold(held))
            held.response.stream = self.foreign or held.response.stream
        self._queue.append(events.HookCompleted(command, None))

    def _peer(self, connection: Any) -> Peer:
        if connection is self.client_connection:
            return self.client
        return next(peer for peer in self.upstreams if peer.connection is connection)


def _unchunked(data: bytes) -> bytes:
    body = b""
    while data:
        size, _, data = data.partition(b"\r\n")
        body, data = body + data[: int(size or b"0", 16)], data[int(size or b"0", 16) + 2 :]
    return body


def options_of(**values: Any) -> Any:
    """mitmproxy's options with those of its proxy server, without a master: that would leave its log handlers behind."""
    options = Options(**values)
    Proxyserver().load(Loader(SimpleNamespace(options=options)))  # type: ignore[no-untyped-call]
    return options


def killed(held: http.HTTPFlow) -> None:
    if held.killable:
        held.kill()  # type: ignore[no-untyped-call]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(held_stream, "time", made)
    return made
