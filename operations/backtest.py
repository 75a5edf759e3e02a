"""Backtest: the rules over flows read from a file. Nothing is sent, no response is set, no live state moves."""

from __future__ import annotations

import secrets
from collections import Counter, OrderedDict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mitmproxy import connection, http

from operations.flow_adapter import METADATA, describe, exchange_of, printable
from operations.held import head_of
from policies import decide
from policies.decisions import End, Refuse, Replace, Resend
from policies.exchange import Exchange
from policies.judge import Judge, reads
from policies.kinds import Finding, Kind, Reason
from policies.research import report
from policies.research.evidence import Record
from policies.rules import Rules
from policies.settings import QueueSettings, Settings
from policies.state import State

EAGER_SECONDS = 3.0
"""Before its first request, that an upstream is connected to by mitmproxy's eager strategy."""
CONNECTIONS = 10_000
HOSTS_AT_MOST, HOST_CHARACTERS = 10, 80
"""Of hosts that no upstream names."""
TOLD: Mapping[str, Finding] = {
    **{kind.value: Finding(kind) for kind in Kind},
    **{reason.value: Finding(Kind.CHALLENGE, challenge=challenge) for challenge, reason in decide.CHALLENGES.items()},
    Reason.CUT.value: Finding(Kind.NOTHING),
}
"""What an upstream had answered, by the reason of our answer in its place; of no other reason was it asked."""


class Backtest:
    """Rules with a state of their own, on the clock of the flows themselves (Unix seconds of their timestamps).

    The evidence is taken by rules that only look on, so that what these rules would have refused still counts as the
    exchange that it was.
    """

    def __init__(self, settings: Settings, *, evidence: bool = True) -> None:
        key = secrets.token_bytes(32)
        settings = replace(settings, queue=QueueSettings(seconds=0), concurrency="off")  # nobody can wait in a recording
        self._rules = Rules(State.fresh(settings, key))
        self._onlooker = Rules(State.fresh(replace(settings, mode="observe", evidence=True), key)) if evidence else None
        self._connections: OrderedDict[str, None] = OrderedDict()
        self.outcomes: Counter[str] = Counter()
        self.seen = 0
        self.guarded = 0
        """Flows that went to a configured host."""
        self._others: Counter[str] = Counter()

    @property
    def evidence(self) -> tuple[Record, ...]:
        return self._onlooker.state.evidence.records() if self._onlooker else ()

    def judge(self, flow: http.HTTPFlow) -> None:
        """Mark one flow with what would have become of it."""
        self.seen += 1
        start = flow.request.timestamp_start
        ex = exchange_of(flow, self._rules.state, start)
        if ex is None and self._rules.state.surfaces.at(flow.request.host, flow.request.port, flow.client_conn.sni) is None:
            self._others[printable(flow.request.host)[:HOST_CHARACTERS] if len(self._others) < CONNECTIONS else "…"] += 1
            return
        self.guarded += 1
        if ex is None:
            return
        if self._onlooker is not None:
            self._note(self._onlooker, flow, ex)
        admission, end = self._rules.admit(ex, start, start), start
        if isinstance(admission, Refuse):
            self._mark(flow, ex, f"refused here: {admission.reason}", "would have waited, or been refused here")
        elif flow.response is not None:
            end = flow.response.timestamp_end or start
            _play(ex, flow.response, end, None if flow.response.raw_content else then(flow))
            self._describe(flow, ex)
        self._rules.settle(ex, end, end)

    def _describe(self, flow: http.HTTPFlow, ex: Exchange) -> None:
        decision = ex.decision
        if isinstance(decision, Resend):
            self._mark(flow, ex, "sent again", "would have been sent again in place")
        elif isinstance(decision, Replace):
            self._mark(flow, ex, f"answered {decision.answer.status}: {decision.reason}", "would have been replaced")
        elif isinstance(decision, End):
            self._mark(flow, ex, f"ended in its stream: {decision.reason}", "would have been ended in its stream")

    def _mark(self, flow: http.HTTPFlow, ex: Exchange, outcome: str, words: str) -> None:
        self.outcomes[f"{ex.call.surface.upstream}: {outcome}"] += 1
        describe(flow, ex, words)
        flow.metadata[METADATA]["backtest"] = True

    def _note(self, rules: Rules, flow: http.HTTPFlow, judged: Exchange) -> None:
        """Keep the evidence of one flow, where it was sent and answered."""
        start, fresh, known = judged.started, self._fresh(flow.server_conn, judged.started), then(flow)
        response = flow.response
        if response is None or (known is None and _replaced(response)):
            return
        ex = Exchange(rules.state, flow.id, judged.call, start, judged.site, new_connection=fresh)
        rules.admit(ex, start, start)
        end, attempts = response.timestamp_end or start, _known(flow).get("attempts")
        _play(ex, response, end, known)
        if rules.settle(ex, end, end):
            rules.note(ex, start, attempts if isinstance(attempts, int) and attempts > 1 else 1)

    def _fresh(self, wire: connection.Server, asked: float) -> bool | None:
        """Tell whether the upstream connection was made for this request; None where the flow does not say."""
        seen = wire.id in self._connections
        self._connections[wire.id] = None
        if len(self._connections) > CONNECTIONS:
            self._connections.popitem(last=False)
        if seen or wire.timestamp_start is None:
            return False if seen else None
        return wire.timestamp_start >= asked - EAGER_SECONDS

    def summary(self) -> str:
        otherwise = f"{sum(self.outcomes.values())} would have gone otherwise"
        lines = [f"Breakwater: {self.seen} flows read, {self.guarded} of them to guarded hosts; {otherwise}"]
        lines += [f"  {number:6} {outcome}" for outcome, number in self.outcomes.most_common()]
        if self._others:
            hosts = [f"{host} ({number})" for host, number in self._others.most_common(HOSTS_AT_MOST)]
            hosts += [f"and {len(self._others) - HOSTS_AT_MOST} more"] if len(self._others) > HOSTS_AT_MOST else []
            lines.append(f"  not guarded: {', '.join(hosts)}")
        return "\n".join(lines)

    def report(self) -> str:
        return report.as_text(report.report(self.evidence))


def _play(ex: Exchange, response: http.Response, end: float, known: Finding | None) -> None:
    """Judge a recorded answer; ``known``: what it was, where its body is not in the recording."""
    head = head_of(response)
    if not reads(ex, head):
        return
    judge = Judge(ex, head, end)
    if known is not None:
        judge.decide(known, end, end)
        return
    for data in (response.raw_content or b"", b""):
        judge.look_on(data, end, end)


def _replaced(response: http.Response) -> bool:
    """Tell an answer of our own; one with a number of attempts in the header is the upstream's, passed on."""
    header = response.headers.get("X-Breakwater", "")
    return bool(header) and ";" not in header


def _known(flow: http.HTTPFlow) -> Mapping[str, Any]:
    """Metadata noted while a flow was live; what an earlier look at the recording noted never happened."""
    known = flow.metadata.get(METADATA)
    return known if isinstance(known, Mapping) and not known.get("backtest") else {}


def then(flow: http.HTTPFlow) -> Finding | None:
    """Finding of when the flow was live, where the upstream's body is not in the recording: replaced, or streamed."""
    if flow.response is None:
        return None
    if flow.response.raw_content and not _replaced(flow.response):
        return None
    known, reason = _known(flow), flow.response.headers.get("X-Breakwater", "").partition(";")[0].strip()
    found = TOLD.get(reason or str(known.get("reason", "")))
    return found and replace(found, row=str(known.get("row", "")))
