"""Streams that hold a response's headers back, let a request wait, and re-send it in place: the only file that knows mitmproxy's inside.

mitmproxy sends the status line as soon as an addon asks for streaming, so its public hooks cannot turn a first-frame
challenge into a real status. ``adopt`` makes the HTTP layers of a connection build a ``HeldStream``: where it has a hold,
the headers and first bytes of its response stay here until the hold decides

    Commit    the headers, what was kept, and then chunk by chunk what comes
    Replace   an answer of our own, already placed in ``flow.response``
    Resend    the request once more, after a pause, on a fresh stream id
    Queue     the request once more, when it is woken and its gate says so

Every wait is a state of the layer, never a hook that sleeps: a client that leaves is noticed. For mitmproxy 11.0.2 and 12.x.
"""

from __future__ import annotations

import itertools
import time
import weakref
from dataclasses import make_dataclass
from typing import Any, cast

from mitmproxy import http
from mitmproxy.proxy import commands, context, events, layer
from mitmproxy.proxy.layers import http as proto

from hold import STREAM, Gate, Hold
from operations.together import together
from policies.decisions import Commit, Decision, Forward, Refuse, Replace, Resend

_codes: Any = getattr(proto, "ErrorCode", None)  # of mitmproxy 12; mitmproxy 11 has status codes
CANCEL, BROKEN = cast("Any", (_codes.CANCEL, _codes.GENERIC_SERVER_ERROR) if _codes else (499, 502))
_PARTS = ("Headers", "Data", "Trailers", "EndOfMessage", "ProtocolError")
RESPONSE_EVENTS: tuple[type[Any], ...] = tuple(getattr(proto, f"Response{part}") for part in _PARTS)
FRESH_IDS = itertools.count(2**32, 2)  # of re-sends: even, and above anything a client can use
LOOK_SECONDS = 1.0  # of a timer at most: while it runs, its stream lives on with all the bytes in it


def adopt(next_layer: layer.NextLayer) -> None:
    """Make the HTTP layer that was chosen for a connection build held streams."""
    found: Any = next_layer.layer
    while found is not None:
        if type(found) is proto.HttpLayer:
            found.__class__ = HeldHttpLayer
        found = getattr(found, "child_layer", None)


class HeldHttpLayer(proto.HttpLayer):
    """mitmproxy's HTTP layer, with our streams in it."""

    def make_stream(self, stream_id: int) -> layer.CommandGenerator[None]:
        self.streams[stream_id] = HeldStream(self.context.fork(), stream_id)
        yield from self.event_to_child(self.streams[stream_id], events.Start())

    def _handle_event(self, event: Any) -> layer.CommandGenerator[None]:
        return together(self._step(event), commands.SendData)

    def _step(self, event: Any) -> layer.CommandGenerator[None]:
        if type(event) is HeldStream.woken:
            path = event.stream.context.layers  # down the path of layers to its stream, through the stream of a CONNECT too
            return (yield from self.event_to_child(path[path.index(self) + 1], event))
        yield from super()._handle_event(event)
        for stream in [one for one in cast("list[HeldStream]", self.streams.values()) if one.looks_at_the_end()]:
            yield from self.event_to_child(stream, HeldStream.woken(stream))


class HeldStream(proto.HttpStream):
    """One exchange whose request and whose response headers can wait. ``woken``: the event that lets it ask its gate."""

    woken: Any = make_dataclass("Woken", ["stream"], bases=(events.Event,))

    def __init__(self, of: context.Context, stream_id: int) -> None:
        super().__init__(of, stream_id)
        self.gate: Gate | None = None
        self.hold: Hold | None = None
        self._attempt: int | None = None  # whose response events count; None while nothing is under way upstream
        self._kept: list[bytes] = []
        self._came: list[bytes] = []  # in this step: what came in one packet, or while a hook ran, is looked at as one
        self._timer: commands.RequestWakeup | None = None
        self._due = 0.0  # of the timer, in monotonic seconds

    def _handle_event(self, event: Any) -> layer.CommandGenerator[None]:
        holds = self.server_state == self.state_hold_response
        if self.hold and type(event) is proto.ResponseData and (holds or self.server_state == self.state_stream_response_body):
            self._came += [event.data] if event.stream_id == self._attempt and event.data else []
            return
        if self.hold and self._came:
            came, self._came = self._came, []
            self._kept += came if holds else []
            yield from (self._obey(self.hold.feed(b"".join(came)), whole=False) if holds else self._stream(came))
        if isinstance(event, RESPONSE_EVENTS):
            if event.stream_id != self._attempt or (type(event) is proto.ResponseData and not event.data):
                return  # late words of a response that was given up; an empty frame of HTTP/2, which would read as the end
            event.stream_id = self.stream_id
            yield from super()._handle_event(event)
        elif isinstance(event, events.Wakeup):
            yield from (self._looked() if event.command is self._timer else ())
        else:
            yield from (self._woken() if isinstance(event, self.woken) else super()._handle_event(event))
        if self.client_state == self.state_errored:  # mitmproxy keeps a stream that was killed or refused
            yield from self._drop(self._attempt)
            yield proto.DropStream(self.stream_id)

    def looks_at_the_end(self) -> bool:
        """Whether it wants to be woken when all that came in one step is here."""
        return bool(self._came or (self.server_state == self.state_hold_response and not self._timer))

    def check_invalid(self, request: bool) -> layer.CommandGenerator[bool]:
        setattr(self.flow, STREAM, weakref.ref(self))  # this is asked first when a flow has been made
        return (yield from super().check_invalid(request))

    def make_server_connection(self) -> layer.CommandGenerator[bool]:
        turn = self.gate.turn() if self.gate and self.client_state == self.state_done else Forward()  # the hooks are over
        if isinstance(turn, Forward) and turn.after <= 0:
            return (yield from self._connect(self.stream_id))
        self.server_state = self.state_waiting
        yield from self._follow(turn)
        return False

    def _connect(self, attempt: int) -> layer.CommandGenerator[bool]:
        if reached := (yield from super().make_server_connection()):
            self._attempt = attempt
            if self.gate:
                self.gate.sent()
        return reached

    def state_waiting(self, _: events.Event) -> layer.CommandGenerator[None]:
        yield from ()  # until its timer, or else until it is woken

    def _woken(self) -> layer.CommandGenerator[None]:
        if self.server_state in (self.state_done, self.state_errored) or (yield from self.check_killed(emit_error_hook=True)):
            return
        if self.server_state == self.state_waiting and self._timer is None and self.gate:
            yield from self._follow(self.gate.turn())
        elif self.server_state == self.state_hold_response and self.hold:
            yield from self._wake_in(self.hold.pause())

    def _follow(self, turn: Forward | Refuse | None) -> layer.CommandGenerator[None]:
        if isinstance(turn, Forward):
            yield from (self._wake_in(turn.after) if turn.after > 0 else self._send())
        elif isinstance(turn, Refuse):
            if self.hold is None:
                yield proto.HttpResponseHeadersHook(self.flow)  # as mitmproxy does with an answer that a hook has set
            if not (yield from self.check_killed(emit_error_hook=True)):
                yield from self.send_response()

    def _send(self) -> layer.CommandGenerator[None]:
        attempt = next(FRESH_IDS)  # HTTP/2 maps ids one to one: an old one cannot be used again
        self.server_state = self.state_wait_for_response_headers
        if not (yield from self._connect(attempt)) or (yield from self.check_killed(emit_error_hook=True)):
            return
        cast("proto.HttpLayer", self.context.layers[self.context.layers.index(self) - 1]).streams[attempt] = self
        request, content, trailers = self.flow.request, self.flow.request.raw_content, self.flow.request.trailers
        parts: list[Any] = [proto.RequestHeaders(attempt, request, not (content or trailers))]
        parts += [proto.RequestData(attempt, content)] if content else []
        parts += [*([proto.RequestTrailers(attempt, trailers)] if trailers else []), proto.RequestEndOfMessage(attempt)]
        yield from (proto.SendHttp(part, self.context.server) for part in parts)

    def start_response_stream(self) -> layer.CommandGenerator[None]:
        if self.hold is None:
            return (yield from super().start_response_stream())
        self._kept, self.server_state = [], self.state_hold_response

    def state_consume_response_body(self, event: events.Event) -> layer.CommandGenerator[None]:
        if self.hold is not None and isinstance(event, proto.ResponseEndOfMessage):
            body = bytes(self.response_body_buf)  # empty, or wanted whole by another addon
            decision = (self.hold.feed(body) if body else None) or self.hold.finish(cut=False)
            if not body or not isinstance(decision, Commit):
                self.response_body_buf.clear()  # type: ignore[no-untyped-call]
                return (yield from self._obey(decision, whole=True))
        yield from super().state_consume_response_body(event)

    def state_hold_response(self, event: events.Event) -> layer.CommandGenerator[None]:
        if isinstance(event, proto.ResponseTrailers):
            self.flow.response.trailers = event.trailers  # type: ignore[union-attr]
        elif isinstance(event, proto.ResponseEndOfMessage):
            yield from self._obey(cast("Hold", self.hold).finish(cut=False), whole=True)

    def _obey(self, decision: Decision | None, *, whole: bool) -> layer.CommandGenerator[None]:
        """Carry out a decision; ``whole``: the upstream's response has ended."""
        if decision is None:
            return
        self._timer = None
        if isinstance(decision, Commit):
            return (yield from self._commit(whole=whole))
        self._kept = []
        yield from self._abandon(ended=whole)
        self.server_state = self.state_waiting
        if isinstance(decision, Replace):
            yield from self.send_response()
        elif isinstance(decision, Resend):
            yield from self._wake_in(decision.after)

    def _commit(self, *, whole: bool) -> layer.CommandGenerator[None]:
        (kept, self._kept), response = (self._kept, []), cast("http.Response", self.flow.response)
        if whole and response.stream is self.hold:  # it goes at once, and the flow keeps it, as where nothing is streamed
            content = response.data.content = b"".join(kept)
            head = proto.ResponseHeaders(self.stream_id, response, not (content or response.trailers))
            yield from (proto.SendHttp(head, self.context.client), *self._passed_on([content] if content else []))
            yield from self.send_response(already_streamed=True)
            return
        yield from super().start_response_stream()
        if kept:
            yield from self._stream(kept)

    def state_stream_response_body(self, event: events.Event) -> layer.CommandGenerator[None]:
        if self.hold and isinstance(event, proto.ResponseEndOfMessage):
            yield from self._stream([])
        if not (self.hold and self.hold.severed):
            yield from super().state_stream_response_body(event)  # asks the stream once more, for what it kept back

    def _stream(self, chunks: list[bytes]) -> layer.CommandGenerator[None]:
        """Read chunks in one go, none at the body's end; each goes on as it came."""
        hold, data = cast("Hold", self.hold), b"".join(chunks)
        yield from self._passed_on(chunks if (passed := hold(data)) == [data] else passed)
        if hold.severed:
            yield from self._abandon(ended=not chunks)
            error = proto.ResponseProtocolError(self.stream_id, "Breakwater cut the stream at a refusal.", BROKEN)
            yield from super().handle_protocol_error(error)
        elif hold.ended and chunks:
            yield from self._abandon(ended=False)
            yield from super().state_stream_response_body(proto.ResponseEndOfMessage(self.stream_id))

    def _passed_on(self, chunks: list[bytes]) -> list[commands.Command]:
        response, client = cast("http.Response", self.flow.response), self.context.client
        if (stream := response.stream) is not self.hold and callable(stream):  # another's
            chunks = [piece for some in map(stream, chunks) for piece in ([some] if isinstance(some, bytes) else some)]
        if getattr(self.context.options, "store_streamed_bodies", False):  # of mitmproxy 12
            self.response_body_buf += b"".join(chunks)
        if (client.alpn or b"")[:2] in (b"h2", b"h3") or "chunked" not in response.headers.get("transfer-encoding", "").lower():
            return [proto.SendHttp(proto.ResponseData(self.stream_id, chunk), client) for chunk in chunks if chunk]
        framed = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks if chunk)
        return [commands.SendData(client, framed)] if framed else []  # as mitmproxy does it chunk by chunk

    def check_killed(self, emit_error_hook: bool) -> layer.CommandGenerator[bool]:
        killed: bool = yield from super().check_killed(emit_error_hook)
        if killed:  # mitmproxy lets an upstream run on whose answer nobody waits for
            yield from self._abandon(ended=False)
            yield proto.DropStream(self.stream_id)
        return killed

    def _abandon(self, *, ended: bool) -> layer.CommandGenerator[None]:
        """Forget the current attempt; one that has not ended is cancelled (closes HTTP/1.1, resets an HTTP/2 stream)."""
        attempt, self._attempt = self._attempt, None
        if attempt is not None and not ended:
            yield proto.SendHttp(proto.RequestProtocolError(attempt, "given up by Breakwater", CANCEL), self.context.server)
        yield from self._drop(attempt)

    def _wake_in(self, seconds: float) -> layer.CommandGenerator[None]:
        due = time.monotonic() + seconds
        if self._timer is None or due < self._due - 0.01:
            self._due, self._timer = due, commands.RequestWakeup(min(max(seconds, 0.0), LOOK_SECONDS))
            yield self._timer

    def _looked(self) -> layer.CommandGenerator[None]:
        self._timer, left, hold = None, self._due - time.monotonic(), self.hold
        if self.server_state == self.state_waiting and left > 0.001:
            yield from self._wake_in(left)
        elif self.server_state == self.state_waiting:
            yield from (self._obey(decision, whole=True) if (decision := hold.due() if hold else None) else self._send())
        elif self.server_state == self.state_hold_response and hold:
            yield from self._obey(hold.tick(), whole=False)

    def handle_protocol_error(self, event: Any) -> layer.CommandGenerator[None]:
        self._timer = None
        if isinstance(event, proto.RequestProtocolError):
            return (yield from self._client_left(event))
        attempt, hold, decision = self._attempt, self.hold, None
        if hold and self.server_state == self.state_hold_response:
            decision = hold.finish(cut=True)
        elif hold and self.server_state == self.state_wait_for_response_headers:  # it is the hold of the attempt before
            decision = hold.unsent()
        if isinstance(decision, Replace):
            return (yield from self._obey(decision, whole=True))
        if isinstance(decision, Commit):
            yield from self._commit(whole=False)
        if self.server_state == self.state_stream_response_body and hold:
            yield from self._passed_on(hold(b""))  # what was kept back of an unfinished frame
        if decision is None or self._attempt is not None:
            yield from super().handle_protocol_error(event)
        yield from self._drop(attempt)

    def _client_left(self, event: proto.RequestProtocolError) -> layer.CommandGenerator[None]:
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            event.stream_id = attempt
        elif self.server_state == self.state_waiting:
            self.client_state = self.state_uninitialized  # else mitmproxy tells an upstream that nobody has asked
        yield from super().handle_protocol_error(event)
        self.server_state = self.state_errored
        yield from self._drop(attempt)

    def flow_done(self) -> layer.CommandGenerator[None]:
        yield from super().flow_done()
        self.gate = self.hold = None  # they know the flow, and it knows them
        yield from self._drop(self._attempt)

    def _drop(self, attempt: int | None) -> layer.CommandGenerator[None]:
        if attempt not in (None, self.stream_id):
            yield proto.DropStream(attempt)
