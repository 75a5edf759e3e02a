"""The hold of one response: bytes to the rules, decisions to the layer, faults to the log."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

from mitmproxy import http

from operations.clock import clock
from policies.decisions import Answer, Commit, Decision, Forward, Refuse, Replace
from policies.judge import Judge
from policies.kinds import Head

if TYPE_CHECKING:
    from operations.controller import Controller

KEPT_HEADERS = ("date", "request-id", "x-request-id", "x-log-id", "set-cookie", "access-control-", "vary")
"""Of a replaced answer; a name that ends in a dash is a prefix. All else spoke of a body that is gone."""

Ruled = TypeVar("Ruled", Decision, Decision | None)
Method = TypeVar("Method", bound=Callable[..., Any])
LET_THROUGH = Commit()


def head_of(response: http.Response) -> Head:
    return Head(response.status_code, tuple(pairs(response)), response.timestamp_start)


def pairs(message: http.Message) -> list[tuple[str, str]]:
    """Every header field, a repeated name as often as it came."""
    fields = message.headers.fields
    return [(k.decode("utf8", "surrogateescape"), v.decode("utf8", "surrogateescape")) for k, v in fields]


def respond(flow: http.HTTPFlow, answer: Answer) -> None:
    """Put an answer of our own in place, with what an upstream's replaced answer has to keep."""
    kept = []
    if flow.response is not None:
        for name, value in pairs(flow.response):
            if any(name.lower() == k or (k[-1] == "-" and name.lower().startswith(k)) for k in KEPT_HEADERS):
                kept.append((name, value))
    fields = [(k.encode("utf8", "surrogateescape"), v.encode("utf8", "surrogateescape")) for k, v in (*answer.headers, *kept)]
    flow.response = http.Response.make(answer.status, answer.body, http.Headers(fields))


def amend(flow: http.HTTPFlow, commit: Commit) -> None:
    assert flow.response
    for name, value in commit.headers:
        if value is None:
            flow.response.headers.pop(name, None)
        else:
            flow.response.headers[name] = value


def safely(kind: str, otherwise: object) -> Callable[[Method], Method]:
    """Make a method of a hold unable to raise: a rule's fault must not cost the client its answer."""

    def guarded(method: Method) -> Method:
        @wraps(method)
        def call(hold: HeldResponse, *given: Any, **named: Any) -> Any:
            if hold.blind:
                return otherwise
            try:
                return method(hold, *given, **named)
            except Exception as fault:  # noqa: BLE001 - the border: the upstream's bytes go on unchanged
                hold.blind = True
                hold.controller.fault(kind, hold.flow, fault)
                return otherwise

        return cast("Method", call)

    return guarded


class RequestGate:
    """A ``hold.Gate``. Whatever goes wrong in here lets the request go."""

    def __init__(self, controller: Controller, flow: http.HTTPFlow) -> None:
        self.controller, self.flow = controller, flow

    def turn(self) -> Forward | Refuse | None:
        try:
            return self.controller.turn(self.flow)
        except Exception as fault:  # noqa: BLE001 - the border: the request goes on unchanged, counted, logged once
            self.controller.fault("request", self.flow, fault)
            return Forward()

    def sent(self) -> None:
        if ex := self.controller.live.get(self.flow):
            self.controller.sent(ex)


class HeldResponse:
    """Hold of one response (``hold.Hold``). Whatever goes wrong in here lets the upstream's bytes through unchanged."""

    def __init__(self, controller: Controller, flow: http.HTTPFlow, judge: Judge, view_bytes: int) -> None:
        self.controller, self.flow, self.judge = controller, flow, judge
        self.ended = False
        self.severed = False
        self.blind = False
        """A rule failed: from here on nothing is read any more."""
        self.view = bytearray()
        self._view_bytes = view_bytes
        self._passes: Callable[[bytes], bool] | None = None

    @safely("judge", LET_THROUGH)
    def feed(self, data: bytes) -> Decision | None:
        return self._carry_out(self.judge.feed(data, *clock()))

    @safely("judge", LET_THROUGH)
    def finish(self, *, cut: bool) -> Decision:
        now, wall = clock()
        return self._carry_out(self.judge.finish(cut=cut, now=now, wall=wall))

    @safely("judge", LET_THROUGH)
    def tick(self) -> Decision | None:
        return self._carry_out(self.judge.tick(*clock()))

    @safely("clock", 0.0)
    def pause(self) -> float:
        return self.judge.deadline() - clock().now

    @safely("due", None)
    def due(self) -> Decision | None:
        return self._carry_out(self.judge.due(*clock()))

    @safely("unsent", None)
    def unsent(self) -> Decision | None:
        return self._carry_out(self.judge.unsent(*clock()))

    def __call__(self, data: bytes) -> list[bytes]:
        if self.ended or self.severed:
            return []
        chunks, kept_back = [data] if data else [], b""
        if self.blind:
            return chunks
        try:
            if self._passes is None or not self._passes(data):
                kept_back = self.judge.reader.kept_back
                chunks = self._tap(data)
        except Exception as fault:  # noqa: BLE001 - as in safely; this runs for every chunk
            self.blind = True
            self.controller.fault("tap", self.flow, fault)
            chunks = [kept_back, *chunks] if kept_back else chunks
        if len(self.view) < self._view_bytes:
            self._keep(chunks)
        return chunks

    def _keep(self, chunks: list[bytes]) -> None:
        for chunk in chunks:
            self.view += chunk[: self._view_bytes - len(self.view)]

    def _carry_out(self, decision: Ruled) -> Ruled:
        if decision is not None:
            self.controller.decided(self.flow, self.judge.ex, decision)
        if isinstance(decision, Replace):
            respond(self.flow, decision.answer)
        elif isinstance(decision, Commit):
            amend(self.flow, decision)
        return decision

    def _tap(self, data: bytes) -> list[bytes]:
        before = self.judge.ex.answered
        passed, end = self.judge.tap(data, *clock())
        self._passes = self._passes or self.judge.passes
        if end is not None or self.judge.ex.answered is not before:
            self.controller.waiting.look()
        chunks = list(passed)
        if end is None:
            return chunks
        assert self.flow.response
        if end.withheld or "content-length" in self.flow.response.headers:
            self.severed = True  # no plain text can be put in here: a cut
        else:
            chunks += [end.frame] if end.frame else []  # an empty chunk would end the body before its end
            self.ended = True
        self.controller.decided(self.flow, self.judge.ex, end)
        return chunks


class Unheld(HeldResponse):
    """Stream that the layer cannot hold: the status is out, and a refusal is told inside."""


class Watched(HeldResponse):
    """Stream in ``mode: observe``: bytes pass as they come, and what would have been decided is noted."""

    def __call__(self, data: bytes) -> list[bytes]:
        self._watch(data)
        self._keep([data])
        return [data] if data else []

    @safely("watch", None)
    def _watch(self, data: bytes) -> None:
        for decision in self.judge.look_on(data, *clock()):
            self.controller.decided(self.flow, self.judge.ex, decision)
