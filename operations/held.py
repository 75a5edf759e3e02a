"""The hold of one response: bytes to the rules, decisions to the layer, faults to the log."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol, TypeVar

from mitmproxy import http

from policies.answer.head import Head
from policies.decisions import Answer, Commit, Decision, Replace
from policies.exchange import Exchange
from policies.rules import Rules

KEPT_HEADERS = ("date", "request-id", "x-request-id", "x-log-id", "set-cookie", "access-control-", "vary")
"""Of a replaced answer; a name that ends in a dash is a prefix. All else spoke of a body that is gone."""

Result = TypeVar("Result")
Other = TypeVar("Other")
LET_THROUGH = Commit()


class Controller(Protocol):
    """Where a hold reports to."""

    rules: Rules

    def fault(self, kind: str, flow: http.HTTPFlow, fault: Exception) -> None: ...

    def decided(self, flow: http.HTTPFlow, ex: Exchange, decision: Decision) -> None: ...

    def streamed(self, flow: http.HTTPFlow, ex: Exchange) -> None: ...


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


class HeldResponse:
    """A ``hold.Hold``. Whatever goes wrong in here lets the upstream's bytes through unchanged."""

    held = True

    def __init__(self, controller: Controller, flow: http.HTTPFlow, ex: Exchange, view_bytes: int) -> None:
        self.controller, self.flow, self.ex = controller, flow, ex
        self.ended = False
        self.severed = False
        self.view = bytearray()
        self._view_bytes = view_bytes
        self._blind = False
        """A rule failed: from here on nothing is read any more."""
        self._passes: Callable[[bytes], bool] | None = None
        """The short way of a chunk with nothing in it to be looked at, once the answer has begun."""

    def feed(self, data: bytes) -> Decision | None:
        return self._safely("judge", lambda: self._feed(data), LET_THROUGH)

    def finish(self, *, cut: bool) -> Decision:
        return self._safely("judge", lambda: self._finish(cut=cut), LET_THROUGH)

    def tick(self) -> Decision | None:
        return self._safely("judge", self._tick, LET_THROUGH)

    def pause(self) -> float:
        return self._safely("clock", lambda: self.controller.rules.deadline(self.ex) - time.monotonic(), 0.0)

    def due(self) -> Decision | None:
        return self._safely("due", self._due, None)

    def unsent(self) -> Decision | None:
        return self._safely("unsent", self._unsent, None)

    def __call__(self, data: bytes) -> list[bytes]:
        if self.ended or self.severed:
            return []
        chunks, kept_back = [data] if data else [], b""
        if self._blind:
            return chunks
        try:
            if self._passes is None or not self._passes(data):
                kept_back = self.ex.reader.kept_back if self.ex.reader else b""
                chunks = self._tap(data)
        except Exception as fault:  # noqa: BLE001 - as in _safely; this runs for every chunk
            self._blind = True
            self.controller.fault("tap", self.flow, fault)
            chunks = [kept_back, *chunks] if kept_back else chunks
        if len(self.view) < self._view_bytes:
            self._keep(chunks)
        return chunks

    def _keep(self, chunks: list[bytes]) -> None:
        for chunk in chunks:
            self.view += chunk[: self._view_bytes - len(self.view)]

    def _feed(self, data: bytes) -> Decision | None:
        reader, now = self.ex.reader, time.monotonic()
        assert reader
        finding = reader.feed(data)
        self.controller.rules.heard(self.ex, now)
        return None if finding is None else self._decided(self.controller.rules.decide(self.ex, finding, now, time.time()))

    def _finish(self, *, cut: bool) -> Decision:
        assert self.ex.reader
        finding = self.ex.reader.finish(cut=cut)
        return self._decided(self.controller.rules.decide(self.ex, finding, time.monotonic(), time.time()))

    def _tick(self) -> Decision | None:
        now = time.monotonic()
        if now < self.controller.rules.deadline(self.ex):
            return None
        return self._decided(self.controller.rules.expire(self.ex, now, time.time()))

    def _due(self) -> Decision | None:
        decision = self.controller.rules.due(self.ex, time.monotonic())
        return None if decision is None else self._decided(decision)

    def _unsent(self) -> Decision | None:
        decision = self.controller.rules.unsent(self.ex, time.monotonic())
        return None if decision is None else self._decided(decision)

    def _decided(self, decision: Decision) -> Decision:
        self.controller.decided(self.flow, self.ex, decision)
        if isinstance(decision, Replace):
            respond(self.flow, decision.answer)
        elif isinstance(decision, Commit):
            amend(self.flow, decision)
        return decision

    def _tap(self, data: bytes) -> list[bytes]:
        ex, reader, rules = self.ex, self.ex.reader, self.controller.rules
        assert reader
        tapped = reader.tap(data) if data else reader.tap_finish()
        if not ex.answered or (ex.permit is not None and ex.permit.probe):
            rules.streams(ex, time.monotonic())
        elif self._passes is None:
            self._passes = reader.passes
        chunks = list(tapped.passed)
        if tapped.finding is not None:
            frame = rules.tapped(ex, tapped.finding, time.monotonic())
            self._end(chunks, frame, withheld=tapped.withheld)
            self.controller.streamed(self.flow, self.ex)
        return chunks

    def _end(self, chunks: list[bytes], frame: bytes, *, withheld: bool) -> None:
        """End the client's stream: with an error frame where plain text can be put in, else by a cut."""
        assert self.flow.response
        if withheld or "content-length" in self.flow.response.headers:
            self.severed = True
        else:
            chunks.append(frame)
            self.ended = True

    def _safely(self, kind: str, act: Callable[[], Result], otherwise: Other) -> Result | Other:
        if self._blind:
            return otherwise
        try:
            return act()
        except Exception as fault:  # noqa: BLE001 - a rule's fault must not cost the client its answer
            self._blind = True
            self.controller.fault(kind, self.flow, fault)
            return otherwise


class Tapped(HeldResponse):
    """Where the layer cannot hold: the status is out, and a refusal is told inside the stream."""

    held = False


class Watched(HeldResponse):
    """In ``mode: observe``: bytes pass as they come, and what would have been decided is noted."""

    held = False

    def __init__(self, controller: Controller, flow: http.HTTPFlow, ex: Exchange, view_bytes: int) -> None:
        super().__init__(controller, flow, ex, view_bytes)
        self._judged: list[bytes] = []
        """What came before the finding; the reader gives one at ``hold.bytes`` at the latest."""

    def __call__(self, data: bytes) -> list[bytes]:
        if not self._blind:
            self._safely("watch", lambda: self._watch(data), None)
        self._keep([data])
        return [data] if data else []

    def _watch(self, data: bytes) -> None:
        ex, reader, rules, now = self.ex, self.ex.reader, self.controller.rules, time.monotonic()
        if reader is None or ex.tapped is not None:
            return
        if ex.finding is None:
            self._judged.append(data)
            finding = reader.feed(data) if data else reader.finish(cut=False)
            rules.heard(ex, now)
            if finding is None:
                return
            self.controller.decided(self.flow, ex, rules.decide(ex, finding, now, time.time()))
            data, self._judged = b"".join(self._judged), []  # the tap reads from the first byte on
        if data and ex.committed:
            tapped = reader.tap(data)
            rules.streams(ex, now)
            if tapped.finding is not None:
                rules.tapped(ex, tapped.finding, now)
                self.controller.streamed(self.flow, ex)
