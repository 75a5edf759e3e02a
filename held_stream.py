"""Holds a response's headers back, waits, and re-sends a request in place: the only file that knows mitmproxy's inside.

mitmproxy sends the status line as soon as an addon asks for streaming, so its public hooks cannot turn a first-frame
challenge into a real status. ``adopt`` makes the HTTP layers of a connection build a ``HeldStream``: where
``flow.response.stream`` is a ``Hold``, its headers and first bytes stay here until the hold decides

    Commit    the headers, what was kept, and then chunk by chunk what comes
    Replace   an answer of our own, already placed in ``flow.response``
    Resend    the same request once more, after a pause, on a fresh stream id

Every wait is a state of the layer, never a hook that sleeps: a client that leaves is noticed at once.
Written against mitmproxy 11.0.2 and 12.x; self_test.py says at start-up whether that still holds.
"""

from __future__ import annotations

import itertools
import time
import weakref
from typing import Any, cast

from mitmproxy import flow, http
from mitmproxy.connection import Client
from mitmproxy.proxy import commands, events, layer
from mitmproxy.proxy.context import Context
from mitmproxy.proxy.layers import http as proto

from hold import Hold
from policies.decisions import Commit, Decision, Replace

_codes: Any = getattr(proto, "ErrorCode", None)  # an enum in mitmproxy 12; mitmproxy 11 has status codes
CANCEL: Any = _codes.CANCEL if _codes else 499
BROKEN: Any = _codes.GENERIC_SERVER_ERROR if _codes else 502

RESPONSE_EVENTS: tuple[type[Any], ...] = tuple(
    getattr(proto, f"Response{name}") for name in ("Headers", "Data", "Trailers", "EndOfMessage", "ProtocolError")
)
FRESH_IDS = itertools.count(2**32, 2)  # of re-sends: even, and above anything a client can use
LOOK_SECONDS = 1.0
"""How often a wait looks whether its flow was killed."""

_held_clients: weakref.WeakSet[Client] = weakref.WeakSet()
_pauses: weakref.WeakKeyDictionary[http.HTTPFlow, float] = weakref.WeakKeyDictionary()


def adopt(next_layer: layer.NextLayer) -> None:
    """Make the HTTP layer that was chosen for a connection build held streams."""
    found: Any = next_layer.layer
    while found is not None:
        if type(found) is proto.HttpLayer:
            found.__class__ = HeldHttpLayer
            _held_clients.add(found.context.client)
        found = getattr(found, "child_layer", None)


def holds(held: http.HTTPFlow) -> bool:
    """Tell whether this flow runs on a layer that can hold; a flow replayed by mitmproxy does not."""
    return held.client_conn in _held_clients


def pause(paced: http.HTTPFlow, seconds: float) -> None:
    """Delay the first send of a request, without keeping its client from being noticed."""
    _pauses[paced] = seconds


class HeldHttpLayer(proto.HttpLayer):
    """mitmproxy's HTTP layer, with our streams in it."""

    def make_stream(self, stream_id: int) -> layer.CommandGenerator[None]:
        self.streams[stream_id] = HeldStream(self.context.fork(), stream_id)
        yield from self.event_to_child(self.streams[stream_id], events.Start())


class HeldStream(proto.HttpStream):
    """One exchange whose response headers can wait."""

    def __init__(self, context: Context, stream_id: int) -> None:
        super().__init__(context, stream_id)
        # Stream id whose response events count; None while no request of ours is under way upstream.
        self._attempt: int | None = stream_id
        self._reached = False  # whether there is an upstream to tell that its response is given up
        self._kept: list[bytes] = []
        self._timer: commands.RequestWakeup | None = None
        self._due = 0.0  # when it is really due, in monotonic seconds
        self._stores = False  # store_streamed_bodies of mitmproxy 12

    def _handle_event(self, event: events.Event) -> layer.CommandGenerator[None]:
        if isinstance(event, RESPONSE_EVENTS):
            if event.stream_id != self._attempt:
                return  # late words of an upstream response that was given up
            event.stream_id = self.stream_id
        if isinstance(event, proto.ResponseData):
            if event.data:  # an empty frame of HTTP/2 says nothing, and would read as the end
                yield from self.server_state(event)
        elif isinstance(event, events.Wakeup):
            if event.command is self._timer:
                self._timer = None
                yield from self._woken()
        else:
            yield from super()._handle_event(event)
        if self.client_state == self.state_errored:  # mitmproxy keeps a stream that was killed or refused
            yield from self._drop(self._attempt)
            yield proto.DropStream(self.stream_id)

    def make_server_connection(self) -> layer.CommandGenerator[bool]:
        seconds = _pauses.pop(self.flow, 0.0) if _pauses else 0.0
        if seconds > 0 and self.client_state == self.state_done:
            self._attempt = None
            self.server_state = self.state_waiting
            yield from self._wake_in(seconds)
            return False
        self._reached = yield from super().make_server_connection()
        return self._reached

    def state_waiting(self, _: events.Event) -> layer.CommandGenerator[None]:
        yield from ()  # until the timer: nothing is under way upstream

    def _send(self) -> layer.CommandGenerator[None]:
        """Send the request on a fresh id: HTTP/2 maps ids one to one, an old one cannot be used again."""
        attempt = self._attempt = next(FRESH_IDS)
        cast("proto.HttpLayer", self.context.layers[self.context.layers.index(self) - 1]).streams[attempt] = self
        self.server_state = self.state_wait_for_response_headers
        self._reached = yield from super().make_server_connection()
        if not self._reached or (yield from self.check_killed(emit_error_hook=True)):
            return
        request, content, server = self.flow.request, self.flow.request.raw_content, self.context.server
        parts: list[Any] = [proto.RequestHeaders(attempt, request, not (content or request.trailers))]
        parts += [proto.RequestData(attempt, content)] if content else []
        parts += [proto.RequestTrailers(attempt, request.trailers)] if request.trailers else []
        for part in (*parts, proto.RequestEndOfMessage(attempt)):
            yield proto.SendHttp(part, server)

    @property
    def _hold(self) -> Hold | None:
        stream = getattr(getattr(self.flow, "response", None), "stream", None)
        return stream if getattr(stream, "held", False) else None

    @property
    def _more_is_here(self) -> bool:
        """More of this response came during a hook, and mostly the decision with it: no timer is worth its while."""
        return any(getattr(event, "stream_id", None) == self._attempt for event in self._paused_event_queue)

    def start_response_stream(self) -> layer.CommandGenerator[None]:
        if (hold := self._hold) is None:
            yield from super().start_response_stream()
            return
        self._kept, self.server_state = [], self.state_hold_response
        if not self._more_is_here:
            yield from self._wake_in(hold.pause())

    def state_consume_response_body(self, event: events.Event) -> layer.CommandGenerator[None]:
        if self._hold is not None and isinstance(event, proto.ResponseEndOfMessage) and not self.response_body_buf:
            yield from self._obey(self._hold.finish(cut=False), whole=True)  # a response that never had a body
        else:
            yield from super().state_consume_response_body(event)

    def state_hold_response(self, event: events.Event) -> layer.CommandGenerator[None]:
        """Keep what comes until the hold has decided."""
        hold: Any = self._hold
        if isinstance(event, proto.ResponseData):
            self._kept.append(event.data)
            decision = hold.feed(event.data)
            nearer = self._timer is None or time.monotonic() + hold.pause() < self._due - 0.01
            if decision is None and nearer and not self._more_is_here:
                yield from self._wake_in(hold.pause())
            yield from self._obey(decision, whole=False)
        elif isinstance(event, proto.ResponseTrailers):
            self.flow.response.trailers = event.trailers  # type: ignore[union-attr]
        elif isinstance(event, proto.ResponseEndOfMessage):
            yield from self._obey(hold.finish(cut=False), whole=True)

    def _obey(self, decision: Decision | None, *, whole: bool) -> layer.CommandGenerator[None]:
        """Carry out a decision; ``whole``: the upstream's response has ended."""
        if decision is None:
            return
        self._timer = None
        if isinstance(decision, Commit):
            yield from self._commit(whole=whole)
            return
        self._kept = []
        yield from self._abandon(ended=whole)
        if isinstance(decision, Replace):
            yield from self.send_response()
        else:
            self.server_state = self.state_waiting
            yield from self._wake_in(decision.after)

    def _commit(self, *, whole: bool) -> layer.CommandGenerator[None]:
        (kept, self._kept), response = (self._kept, []), cast("http.Response", self.flow.response)
        if whole:  # all of it is here: it goes at once, and the flow keeps it, as it does where nothing is streamed
            content = response.data.content = b"".join(kept)
            ended = not (content or response.trailers)
            yield proto.SendHttp(proto.ResponseHeaders(self.stream_id, response, ended), self.context.client)
            if content:
                yield proto.SendHttp(proto.ResponseData(self.stream_id, content), self.context.client)
            yield from self.send_response(already_streamed=True)
            return
        self._stores = getattr(self.context.options, "store_streamed_bodies", False)
        yield from super().start_response_stream()
        for chunk in kept:
            if self._attempt is None:
                return
            yield from self.state_stream_response_body(proto.ResponseData(self.stream_id, chunk))

    def state_stream_response_body(self, event: events.Event) -> layer.CommandGenerator[None]:
        hold, whole = self._hold, not isinstance(event, proto.ResponseData)
        if hold is None or isinstance(event, proto.ResponseTrailers):
            yield from super().state_stream_response_body(event)
            return
        for chunk in hold(b"" if whole else event.data):  # type: ignore[attr-defined]
            if self._stores:
                self.response_body_buf += chunk
            yield proto.SendHttp(proto.ResponseData(self.stream_id, chunk), self.context.client)
        if whole and not hold.severed:
            yield from super().state_stream_response_body(event)  # asks the hold once more, which has nothing left
        if not (hold.severed or (hold.ended and not whole)):
            return
        yield from self._abandon(ended=whole)
        if hold.severed:
            yield from super().handle_protocol_error(
                proto.ResponseProtocolError(self.stream_id, "Breakwater cut the stream at a refusal.", BROKEN)
            )
        else:
            yield from super().state_stream_response_body(proto.ResponseEndOfMessage(self.stream_id))

    def check_killed(self, emit_error_hook: bool) -> layer.CommandGenerator[bool]:
        """Nobody waits for it any more: the upstream hears of it too. mitmproxy lets that one run on."""
        killed: bool = yield from super().check_killed(emit_error_hook)
        if killed and self.flow.response is not None and self._reached:
            yield from self._abandon(ended=False)
        return killed

    def _abandon(self, *, ended: bool) -> layer.CommandGenerator[None]:
        """Forget the current attempt; one that has not ended is cancelled (closes HTTP/1.1, resets an HTTP/2 stream)."""
        attempt, self._attempt = self._attempt, None
        if attempt is not None and not ended:
            yield proto.SendHttp(proto.RequestProtocolError(attempt, "given up by Breakwater", CANCEL), self.context.server)
        yield from self._drop(attempt)

    def _wake_in(self, seconds: float) -> layer.CommandGenerator[None]:
        self._due = time.monotonic() + seconds
        self._timer = commands.RequestWakeup(min(max(seconds, 0.0), LOOK_SECONDS))
        yield self._timer

    def _woken(self) -> layer.CommandGenerator[None]:
        left = self._due - time.monotonic()
        if self.flow.error and self.flow.error.msg == flow.Error.KILLED_MESSAGE:  # in mitmweb, while it was held
            yield from self.check_killed(emit_error_hook=True)
        elif self.server_state == self.state_waiting and left > 0.001:
            yield from self._wake_in(left)
        elif self.server_state == self.state_waiting:
            decision = self._hold.due() if self._hold else None
            yield from (self._obey(decision, whole=True) if decision else self._send())
        elif self.server_state == self.state_hold_response and self._hold is not None:
            decision = self._hold.tick()
            if decision is None:
                yield from self._wake_in(self._hold.pause())
            yield from self._obey(decision, whole=False)

    def handle_protocol_error(self, event: Any) -> layer.CommandGenerator[None]:
        self._timer = None
        if isinstance(event, proto.RequestProtocolError):
            return (yield from self._client_left(event))
        attempt, decision = self._attempt, self._on_broken_upstream()
        if isinstance(decision, Replace):
            yield from self._obey(decision, whole=True)
            return
        if isinstance(decision, Commit):
            yield from self._commit(whole=False)
        if self.server_state == self.state_stream_response_body and (hold := self._hold):
            for chunk in hold(b""):  # what was kept back of an unfinished frame
                yield proto.SendHttp(proto.ResponseData(self.stream_id, chunk), self.context.client)
        if decision is None or self._attempt is not None:
            yield from super().handle_protocol_error(event)
        yield from self._drop(attempt)

    def _on_broken_upstream(self) -> Decision | None:
        hold = self._hold
        if hold and self.server_state == self.state_hold_response:
            return hold.finish(cut=True)
        unanswered = self.server_state == self.state_wait_for_response_headers  # it is the hold of the attempt before
        return hold.unsent() if hold and unanswered else None

    def _client_left(self, event: proto.RequestProtocolError) -> layer.CommandGenerator[None]:
        attempt, self._attempt = self._attempt, None
        if attempt is None and self.server_state == self.state_waiting:
            self.client_state = self.state_uninitialized  # else mitmproxy tells an upstream that nobody has asked
        if attempt is not None:
            event.stream_id = attempt
        yield from super().handle_protocol_error(event)
        yield from self._drop(attempt)

    def flow_done(self) -> layer.CommandGenerator[None]:
        yield from super().flow_done()
        yield from self._drop(self._attempt)

    def _drop(self, attempt: int | None) -> layer.CommandGenerator[None]:
        if attempt is not None and attempt != self.stream_id:
            yield proto.DropStream(attempt)
