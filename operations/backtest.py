"""What would have happened: the rules over flows read from a file. Nothing is sent, no response is set, no live state moves."""

from __future__ import annotations

from collections import Counter

from mitmproxy import http

from operations import notes
from operations.desk import Desk
from operations.held import head_of
from operations.recorded import Recorded, then
from policies import report
from policies.decisions import Decision, Refuse, Replace, Resend
from policies.evidence import Record
from policies.exchange import Exchange
from policies.memory import Memory
from policies.settings import Settings
from policies.wire.reader import Reader


class Backtest:
    """Its own memory, on the clock of the flows themselves (Unix seconds of their timestamps)."""

    def __init__(self, settings: Settings) -> None:
        self._desk = Desk(settings, {})
        self._recorded = Recorded(settings)
        self.outcomes: Counter[str] = Counter()
        self.seen = 0

    @property
    def memory(self) -> Memory:
        return self._desk.memory

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
        guard, start = self._desk.guard, flow.request.timestamp_start
        admission = guard.admit(ex, start, start)
        if isinstance(admission, Refuse):
            self._note(flow, ex, f"refused here: {admission.answer.reason}", "would have been refused here")
            guard.settle(ex, start, start)
            return
        if flow.response is None:
            guard.settle(ex, start, start)
            return
        end = flow.response.timestamp_end or start
        decision = self._decide(flow, ex, end)
        if isinstance(decision, Resend):
            self._note(flow, ex, "sent again", "would have been sent again in place")
        elif isinstance(decision, Replace):
            self._note(flow, ex, f"answered {decision.answer.status}: {decision.answer.reason}", "would have been replaced")
        elif ex.tapped is not None:
            self._note(flow, ex, f"ended in its stream: {ex.reason}", "would have been ended in its stream")
        guard.settle(ex, end, end)

    def _decide(self, flow: http.HTTPFlow, ex: Exchange, end: float) -> Decision | None:
        assert flow.response
        guard, head, body = self._desk.guard, head_of(flow.response), flow.response.raw_content or b""
        if not guard.reads(ex, head):
            return None
        guard.begin(ex, head, end)
        reader = ex.reader
        assert isinstance(reader, Reader)
        streamed = None if body else then(flow)
        finding = streamed or reader.feed(body) or reader.finish(cut=False)
        decision = guard.decide(ex, finding, end, end)
        if ex.committed and (tapped := reader.tap(body).finding) is not None:
            guard.tapped(ex, tapped, end)
        return decision

    def _note(self, flow: http.HTTPFlow, ex: Exchange, outcome: str, words: str) -> None:
        self.outcomes[f"{ex.call.surface.upstream}: {outcome}"] += 1
        ex.comment = f"{words}. {ex.comment}"
        notes.describe(flow, ex)
        flow.metadata[notes.METADATA]["backtest"] = True

    def summary(self) -> str:
        lines = [f"Breakwater: {self.seen} flows read, {sum(self.outcomes.values())} would have gone otherwise"]
        lines += [f"  {number:6} {outcome}" for outcome, number in self.outcomes.most_common()]
        return "\n".join(lines)

    def report(self) -> str:
        return report.as_text(report.report(self.evidence))
