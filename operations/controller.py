"""Controller between flows and rules: takes exchanges from flows, carries decisions out, and keeps what is shown of them."""

from __future__ import annotations

import contextlib
import secrets
import weakref
from collections import deque

from mitmproxy import http

import hold
from operations import log, state_file
from operations.clock import clock
from operations.flow_adapter import describe, exchange_of, keep_answer
from operations.held import HeldResponse, RequestGate, Unheld, Watched, head_of, respond
from operations.metrics import Counters
from operations.notify import Notifier
from operations.shared_state import SharedState
from operations.state_file import StateFile
from operations.status import DecisionRow, decision_row
from operations.timeline import Timeline
from operations.waiting import RELEASED, Waiting
from policies.breaker import BreakerState, Transition
from policies.decisions import Admission, Commit, Decision, End, Forward, Queue, Refuse, Replace, Resend, Said
from policies.exchange import Exchange
from policies.judge import Judge, reads
from policies.kinds import Kind
from policies.patience import Patience
from policies.research.report import Report
from policies.rules import Rules
from policies.settings import Settings
from policies.state import State

DECISIONS_KEPT = 200
TEACHES = frozenset({Kind.CHALLENGE, Kind.OVERFLOW, Kind.RATE_LIMIT, Kind.OVERLOAD})
"""Kinds that change what the state file keeps."""


class Controller:
    """Controller of a run; handed on whole when mitmproxy reloads the addon."""

    def __init__(self, settings: Settings, store: StateFile | None = None, *, live: bool = False) -> None:
        """``store``: where the state is kept, nowhere without one; ``live``: this proxy will write there."""
        self.token = secrets.token_urlsafe(24)
        self.store = store or StateFile()
        saved = self.store.load(create=live)
        self.state = State.fresh(settings, self.store.key)
        self.rules = Rules(self.state)
        state_file.restore(saved, self.state)
        self.counters = Counters()
        self.timeline = Timeline()
        self.decisions: deque[DecisionRow] = deque(maxlen=DECISIONS_KEPT)
        self.log = log.Log()
        self.live: weakref.WeakKeyDictionary[http.HTTPFlow, Exchange] = weakref.WeakKeyDictionary()
        self._unread: weakref.WeakSet[http.HTTPFlow] = weakref.WeakSet()
        """Flows whose request no rule could read: their answers stream on."""
        self._whole: dict[str, HeldResponse] = {}
        """By flow id: answers that nothing can hold or tap, judged when all of their body is here."""
        self.can_hold = True
        self.unsaved = False
        self.report: tuple[float, Report | None] = (0.0, None)
        """When the evidence was last counted, and what came out."""
        self.shared: SharedState | None = None
        """Follows the settings while the proxy runs (operations/shared_state.py)."""
        self.waiting = Waiting(self.state.line, self.counters.waited, self.fault)
        self.evidence_log = log.EvidenceLog(self.rules, self.fault)
        self.notify = Notifier(lambda: self.state.settings)

    # -- one exchange -----------------------------------------------------------------------------------------

    def request(self, flow: http.HTTPFlow) -> None:
        """Take a request that is complete; other addons may still change where it goes, so its stream asks when that is known."""
        gated = self.can_hold and not flow.request.stream and hold.gate(flow, RequestGate(self, flow))
        if not gated and isinstance(self.turn(flow, waits=False), Forward) and (ex := self.live.get(flow)):
            self.sent(ex)

    def turn(self, flow: http.HTTPFlow, *, waits: bool = True) -> Forward | Refuse | None:
        """Refuse a request here, pace it, let it go, or for None let it wait until it is woken; then it is asked again."""
        ex, (now, wall) = self.live.get(flow), clock()
        if ex is not None:
            return self._follow(flow, ex, self.rules.turn(ex, now, wall))
        ex = exchange_of(flow, self.state, now)
        if ex is None:
            return Forward()
        self.live[flow] = ex
        if not waits:
            ex.patience = Patience(ex.patience.limit, 0.0)
        admission = self.rules.admit(ex, now, wall)
        if flow.request.stream:  # stream_large_bodies: it is upstream already, and its body is not kept
            ex.replay, ex.admission = False, (admission := Forward())
        return self._follow(flow, ex, admission)

    def _follow(self, flow: http.HTTPFlow, ex: Exchange, admission: Admission) -> Forward | Refuse | None:
        upstream = ex.call.surface.upstream
        if isinstance(admission, Queue):
            self._wait(flow, ex, admission)
            return None
        if isinstance(admission, Refuse):
            respond(flow, admission.answer)
            count = self.counters.replaced if admission.finding else self.counters.avoided
            count(upstream, admission.reason)
            self._show(flow, ex, admission, admission.answer.status)
            return admission
        if admission.comment:
            self._show(flow, ex, admission, None)
        if admission.after > 0:
            self._log(flow, ex, f"sent {admission.after:.2f} s later", "paced")
        return admission

    def _wait(self, flow: http.HTTPFlow, ex: Exchange, queued: Queue) -> None:
        assert ex.place
        describe(flow, ex)
        self._log(flow, ex)
        self.waiting.add(ex.place, flow, queued.reason)

    def sent(self, ex: Exchange) -> None:
        """A request goes out, the first time or again."""
        if ex.generation:
            self.counters.sent(ex.call.surface.upstream)

    def responseheaders(self, flow: http.HTTPFlow) -> None:
        """Take the upstream's headers: hold them, watch the stream, or let both go."""
        if flow.response is None:
            return
        ex = self.live.get(flow)
        asked = ex is not None or flow in self._unread
        if not asked and (ex := self._unasked(flow)) is None:
            return
        streams = (asked or bool(flow.request.stream)) and flow.is_replay is None  # else another addon has answered here
        can_hold = self.can_hold and self.state.enforces and streams and hold.can_hold(flow)
        if callable(flow.response.stream) and not can_hold:
            self.log.once("streamed", "another addon streams an answer in a way of its own: it is not judged")
            return
        try:
            assert ex, "no rule could read its request"
            self._hold(flow, flow.response, ex, can_hold=can_hold, streams=streams)
        except Exception as fault:  # noqa: BLE001 - the border: the answer streams on unchanged
            flow.response.stream = flow.response.status_code != 101
            if flow not in self._unread:
                self.fault("responseheaders", flow, fault)

    def _unasked(self, flow: http.HTTPFlow) -> Exchange | None:
        """An exchange that nobody was asked about: its request is still on its way up, or another addon has answered."""
        ex = exchange_of(flow, self.state, clock().now)
        if ex is None:
            return None
        ex.replay, ex.admission = False, Forward()
        self.live[flow] = ex
        if flow.request.stream:
            self.sent(ex)
        return ex

    def _hold(self, flow: http.HTTPFlow, response: http.Response, ex: Exchange, *, can_hold: bool, streams: bool) -> None:
        if ex.refused_here or ex.committed or ex.settled:
            return
        if ex.new_connection is None:
            ex.new_connection = (flow.server_conn.timestamp_start or 0.0) >= flow.request.timestamp_start
        head = head_of(response)
        if not reads(ex, head):
            response.stream = response.status_code != 101
            return
        judge = Judge(ex, head, clock().now)
        view_bytes = self.state.settings.view_bytes if ex.generation else 0
        if not self.state.enforces:
            response.stream = Watched(self, flow, judge, view_bytes)
        elif can_hold:
            hold.hold(flow, HeldResponse(self, flow, judge, view_bytes))
        elif head.media_type == "text/event-stream" and streams:
            response.stream = Unheld(self, flow, judge, view_bytes)
            ex.decision = Commit()
        else:
            ex.replay = False  # nothing can be sent again from there
            self._whole[flow.id] = HeldResponse(self, flow, judge, 0)

    def response(self, flow: http.HTTPFlow) -> None:
        """End an exchange."""
        ex = self.live.get(flow)
        if ex is None or flow.response is None:
            return
        whole = self._whole.get(flow.id)
        if whole is not None and not flow.response.stream and whole.feed(flow.response.raw_content or b"") is None:
            whole.finish(cut=False)
        self._settle(flow, ex)
        # Nothing comes any more. Hold and flow know each other: a circle that only the garbage collector could undo.
        flow.response.stream, ex.reader = bool(flow.response.stream), None

    def error(self, flow: http.HTTPFlow) -> None:
        if ex := self.live.get(flow):
            self._settle(flow, ex)

    def _settle(self, flow: http.HTTPFlow, ex: Exchange) -> None:
        self._whole.pop(flow.id, None)
        if ex.settled:
            return
        try:
            now, wall = clock()
            noteworthy = self.rules.settle(ex, now, wall)
            describe(flow, ex)
            keep_answer(flow)
            self.unsaved = self.unsaved or bool(ex.news)  # a window was taken back
            self._log(flow, ex)
            self.waiting.leave(ex.place)
            if noteworthy:
                self.evidence_log.add(ex, wall - (now - ex.started))
        except Exception as fault:  # noqa: BLE001 - the border: whatever it is, a probe must not stay out
            self.fault("settle", flow, fault)
        self.live.pop(flow, None)

    # -- reports of the hold ----------------------------------------------------------------------------------

    def decided(self, flow: http.HTTPFlow, ex: Exchange, decision: Decision | End) -> None:
        """Count and show a decision over an answer."""
        upstream, finding = ex.call.surface.upstream, decision.finding
        self.notify.found(ex, decision)
        if isinstance(decision, End):
            assert finding
            self.counters.refused_in_stream(upstream, finding.kind.value)
            self._show(flow, ex, decision, 200)
            return
        if finding is not None:
            self.counters.found(upstream, finding.kind)
            self.unsaved = self.unsaved or finding.kind in TEACHES
        if isinstance(decision, Resend):
            self.counters.resent(upstream)
            self._log(flow, ex, str(decision.comment), decision.reason)
            return
        if isinstance(decision, Queue):
            self._wait(flow, ex, decision)
            return
        self.waiting.look()
        self.counters.held(upstream, ex.held or 0.0)
        if isinstance(decision, Replace):
            self.counters.replaced(upstream, decision.reason)
            self._show(flow, ex, decision, decision.answer.status)
        elif decision.comment or decision.attempts > 1:
            self._show(flow, ex, decision, flow.response.status_code if flow.response else None)

    def fault(self, kind: str, flow: http.HTTPFlow | None, fault: Exception) -> None:
        """Count a fault of ours, and log it once per kind with the flow's id; the traffic has gone on unchanged."""
        if flow is not None and kind == "request":
            self._unread.add(flow)
        if flow is not None and (ex := self.live.get(flow)):
            with contextlib.suppress(Exception):  # the breaker itself may be what failed: then its lease ends the probe
                ex.turn_over(clock().now)
            self.waiting.leave(ex.place, RELEASED)
        self.log.fault(kind, flow.id if flow else None, fault)
        self.counters.fault(kind)

    # -- what is seen of it -----------------------------------------------------------------------------------

    def _show(self, flow: http.HTTPFlow, ex: Exchange, said: Said, status: int | None) -> None:
        """Put a decision on the page, on its flow and into the log."""
        self.decisions.appendleft(decision_row(clock().wall, flow.id, ex.call, said, status))
        describe(flow, ex)
        self._log(flow, ex, str(said.comment or ""), said.reason)

    def _log(self, flow: http.HTTPFlow, ex: Exchange, comment: str = "", reason: str = "") -> None:
        if not (ex.news or comment):
            return
        news, ex.news = ex.news, []
        said = [(log.LEARNT, each) for each in news if isinstance(each, str)] + ([(reason, comment)] if comment else [])
        for why, words in said:
            log.of_flow(ex.call.surface.upstream, why, words, ex.call.path, flow.id)
        self.log_transitions([each for each in news if isinstance(each, Transition)], flow.id)

    def log_transitions(self, transitions: list[Transition], flow_id: str = "") -> None:
        self.unsaved = self.unsaved or bool(transitions)
        for moved in transitions:
            if moved.after is BreakerState.OPEN:
                self.counters.opened(moved.upstream)
        log.transitions(transitions, flow_id, observing=not self.state.enforces)
        self.notify.moved(transitions)

    def look(self) -> None:
        """Note in the timeline what has come since the last look."""
        now, wall = clock()
        breakers = self.state.breakers.all()
        paused = {breaker.upstream for breaker in breakers if breaker.current(now) is BreakerState.OPEN}
        self.timeline.look(self.counters.freeze(), paused, self.waiting.numbers(), wall)

    def save(self, path: str, *, tries: int = 1) -> None:
        """Write the state file and take up what other proxies left there; what fails is tried again at the next look."""
        if path != self.store.path:  # the config names another one now
            self.store = StateFile(path, self.store.key)
        self.unsaved = not self.store.save(self.state, tries=tries)
