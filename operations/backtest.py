"""What would have happened: the rules over flows read from a file. Nothing is sent, no response is set, no live state moves."""

from __future__ import annotations

from collections import Counter

from mitmproxy import http

from operations.annotations import METADATA, describe
from operations.controller import Controller
from operations.held import head_of
from operations.recorded import Recorded, then
from policies.answer.reader import Reader
from policies.decisions import Decision, Refuse, Replace, Resend
from policies.exchange import Exchange
from policies.research import report
from policies.research.evidence import Record
from policies.settings import Settings
from policies.state import State


class Backtest:
    """Its own memory, on the clock of the flows themselves (Unix seconds of their timestamps)."""

    def __init__(self, settings: Settings) -> None:
        self._desk = Controller(settings, {})
        self._recorded = Recorded(settings)
        self.outcomes: Counter[str] = Counter()
        self.seen = 0

    @property
    def state(self) -> State:
        return self._desk.state

    @property
    def evidence(self) -> tuple[Record, ...]:
        return self._recorded.evidence

    def judge(self, flow: http.HTTPFlow) -> None:
        """Mark one flow with what would have become of it."""
        self.seen += 1
        ex = self._desk.exchange(flow, flow.request.timestamp_start)
        if ex is None:
            return
        self._recorded.note(flow, ex.call)
        rules, start = self._desk.rules, flow.request.timestamp_start
        admission = rules.admit(ex, start, start)
        if isinstance(admission, Refuse):
            self._note(flow, ex, f"refused here: {admission.answer.reason}", "would have been refused here")
            rules.settle(ex, start, start)
            return
        if flow.response is None:
            rules.settle(ex, start, start)
            return
        end = flow.response.timestamp_end or start
        decision = self._decide(flow, ex, end)
        if isinstance(decision, Resend):
            self._note(flow, ex, "sent again", "would have been sent again in place")
        elif isinstance(decision, Replace):
            self._note(flow, ex, f"answered {decision.answer.status}: {decision.answer.reason}", "would have been replaced")
        elif ex.tapped is not None:
            self._note(flow, ex, f"ended in its stream: {ex.reason}", "would have been ended in its stream")
        rules.settle(ex, end, end)

    def _decide(self, flow: http.HTTPFlow, ex: Exchange, end: float) -> Decision | None:
        assert flow.response
        rules, head, body = self._desk.rules, head_of(flow.response), flow.response.raw_content or b""
        if not rules.reads(ex, head):
            return None
        rules.begin(ex, head, end)
        reader = ex.reader
        assert isinstance(reader, Reader)
        streamed = None if body else then(flow)
        finding = streamed or reader.feed(body) or reader.finish(cut=False)
        decision = rules.decide(ex, finding, end, end)
        if ex.committed and (tapped := reader.tap(body).finding) is not None:
            rules.tapped(ex, tapped, end)
        return decision

    def _note(self, flow: http.HTTPFlow, ex: Exchange, outcome: str, words: str) -> None:
        self.outcomes[f"{ex.call.surface.upstream}: {outcome}"] += 1
        ex.comment = f"{words}. {ex.comment}"
        describe(flow, ex)
        flow.metadata[METADATA]["backtest"] = True

    def summary(self) -> str:
        lines = [f"Breakwater: {self.seen} flows read, {sum(self.outcomes.values())} would have gone otherwise"]
        lines += [f"  {number:6} {outcome}" for outcome, number in self.outcomes.most_common()]
        return "\n".join(lines)

    def report(self) -> str:
        return report.as_text(report.report(self.evidence))
