"""The evidence in a recording: what its exchanges were, whatever these rules would have made of them."""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mitmproxy import connection, http

from operations.annotations import METADATA
from operations.controller import Controller
from operations.held import head_of
from policies import decide
from policies.calls import Call
from policies.exchange import Exchange
from policies.findings import Finding
from policies.kinds import Challenge, Kind, Reason
from policies.research.evidence import Record
from policies.settings import Settings

NEVER_SENT = frozenset({
    Reason.BREAKER_OPEN, Reason.PROBE_OUT, Reason.REMEMBERED_WAIT, Reason.ACCOUNT_BLOCKED, Reason.REMEMBERED_OVERFLOW,
    Reason.REMEMBERED_BODY_SIZE, Reason.SIDE_REQUEST,
})  # fmt: skip
"""Reasons of answers that were given without asking the upstream."""
EAGER_SECONDS = 3.0
"""Before its first request, that an upstream is connected to by mitmproxy's eager strategy."""
CONNECTIONS = 10_000
_CHALLENGES: Mapping[str, Challenge] = {reason.value: challenge for challenge, reason in decide.CHALLENGES.items()}


class Recorded:
    """Rules that only look on, so that what they would have refused still counts as the exchange that it was."""

    def __init__(self, settings: Settings) -> None:
        self._desk = Controller(replace(settings, mode="observe"), {})
        self._connections: OrderedDict[str, None] = OrderedDict()

    @property
    def evidence(self) -> tuple[Record, ...]:
        return self._desk.state.evidence.records()

    def note(self, flow: http.HTTPFlow, call: Call) -> None:
        """Keep the evidence of one flow, where it was sent and answered."""
        start, rules = flow.request.timestamp_start, self._desk.rules
        fresh = self._fresh(flow.server_conn, start)
        if flow.response is None or _reason(flow.response) in NEVER_SENT:
            return
        ex = Exchange(flow.id, call, start, flow.request.host, new_connection=fresh)
        rules.admit(ex, start, start)
        end = flow.response.timestamp_end or start
        known = _known(flow)
        head, body = head_of(flow.response), flow.response.raw_content or b""
        if not ex.generation or not rules.reads(ex, head):
            return
        rules.begin(ex, head, end)
        assert ex.reader
        finding = then(flow) or ex.reader.feed(body) or ex.reader.finish(cut=False)
        rules.decide(ex, finding, end, end)
        if ex.committed and (tapped := ex.reader.tap(body).finding) is not None:
            rules.tapped(ex, tapped, end)
        attempts = known.get("attempts")
        ex.sends = attempts if isinstance(attempts, int) and attempts > 1 else 1
        if rules.settle(ex, end, end):
            rules.note(ex, start)

    def _fresh(self, wire: connection.Server, asked: float) -> bool | None:
        """Whether the upstream connection was made for this request; None where the flow does not say."""
        seen = wire.id in self._connections
        self._connections[wire.id] = None
        if len(self._connections) > CONNECTIONS:
            self._connections.popitem(last=False)
        if seen or wire.timestamp_start is None:
            return False if seen else None
        return wire.timestamp_start >= asked - EAGER_SECONDS


def _reason(response: http.Response) -> str:
    """The reason code of an answer of our own, empty for an upstream's."""
    return str(response.headers.get("X-Breakwater", "")).partition(";")[0].strip()


def _known(flow: http.HTTPFlow) -> Mapping[str, Any]:
    """What was noted while it was live; what an earlier look at the recording noted never happened."""
    known = flow.metadata.get(METADATA)
    return known if isinstance(known, Mapping) and not known.get("backtest") else {}


def then(flow: http.HTTPFlow) -> Finding | None:
    """What was found while it was live, where the upstream's body is not in the recording: replaced, or streamed."""
    assert flow.response
    known, header = _known(flow), str(flow.response.headers.get("X-Breakwater", ""))
    replaced = header and ";" not in header  # with the number of attempts it is the upstream's own, passed on
    if flow.response.raw_content and not replaced:
        return None
    reason, row = _reason(flow.response) or str(known.get("reason", "")), str(known.get("row", ""))
    if challenge := _CHALLENGES.get(reason):
        return Finding(Kind.CHALLENGE, row=row, challenge=challenge)
    with contextlib.suppress(ValueError):
        return Finding(Kind(reason), row=row)
    return None
