"""Where flows meet the rules: builds a call from a flow, carries decisions out, and keeps what is shown of them."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import secrets
import time
import traceback
import weakref
from collections import deque
from collections.abc import Mapping
from typing import Any

from mitmproxy import http

import hold
from operations import keeping
from operations.annotations import describe, keep_answer
from operations.evidence_log import EvidenceLog
from operations.flow_adapter import call_of, headers_of
from operations.held import HeldResponse, Tapped, Watched, head_of, respond
from operations.status import Counters, DecisionRow
from policies import accounting
from policies.breaker import Transition
from policies.decisions import Decision, Forward, Refuse, Replace, Resend
from policies.exchange import Exchange
from policies.kinds import Kind, Role
from policies.rules import Rules
from policies.settings import Settings
from policies.state import State

logger = logging.getLogger("breakwater")

DECISIONS_KEPT = 200


class Controller:
    """One per run; handed on whole when mitmproxy reloads the addon."""

    def __init__(self, settings: Settings, state: Mapping[str, Any]) -> None:
        """``state``: what the state file held, empty at a first start."""
        self.key = keeping.key_of(state)
        self.token = secrets.token_urlsafe(24)
        self.rules = Rules(State.fresh(settings, self.key))
        keeping.restore(state, self.state)
        self.counters = Counters()
        self.decisions: deque[DecisionRow] = deque(maxlen=DECISIONS_KEPT)
        self.faults: dict[str, str] = {}
        self.live: weakref.WeakKeyDictionary[http.HTTPFlow, Exchange] = weakref.WeakKeyDictionary()
        self._unread: weakref.WeakSet[http.HTTPFlow] = weakref.WeakSet()
        """Flows whose request no rule could read: their answers stream on."""
        self.can_hold = True
        self.unsaved = False
        self.report: tuple[float, str] = (0.0, "")
        """When the evidence was last counted, and what came out."""
        self._said: set[str] = set()
        self.evidence_log = EvidenceLog(self)

    @property
    def state(self) -> State:
        return self.rules.state

    # -- one exchange -----------------------------------------------------------------------------------------

    def request(self, flow: http.HTTPFlow) -> None:
        """A request is complete: refuse it here, pace it, or let it go."""
        ex = self.exchange(flow, time.monotonic())
        if ex is None:
            return
        self.live[flow] = ex
        admission = self.rules.admit(ex, ex.started, time.time())
        if flow.request.stream:  # stream_large_bodies: it is upstream already, and its body is not kept
            ex.refused_here = ex.replay = False
            ex.comment, admission = "", Forward()
        if isinstance(admission, Refuse):
            respond(flow, admission.answer)
            self.counters.avoided(ex.call.surface.upstream, admission.answer.reason)
            self._decided(flow, ex, admission.answer.status)
        else:
            assert isinstance(admission, Forward)
            self._forward(flow, ex, admission)

    def exchange(self, flow: http.HTTPFlow, now: float) -> Exchange | None:
        """The exchange that a request begins; None for a host that is not configured, and for a person's page."""
        asked = flow.request
        if self.state.surfaces.at(asked.host, asked.port) is None:
            return None
        header = headers_of(asked)
        surface = self.rules.recognise(asked.host, asked.port, asked.method, asked.path, header)
        if surface is None or surface.role is Role.PERSON:
            return None
        return Exchange(flow.id, call_of(self, flow, surface, header), now, asked.host)

    def _forward(self, flow: http.HTTPFlow, ex: Exchange, admission: Forward) -> None:
        if ex.generation:
            self.counters.sent(ex.call.surface.upstream)
        if admission.after > 0 and hold.can_hold(flow):
            hold.admit(flow, None, admission.after)
            ex.notes.append(f"paced: sent {admission.after:.2f} s later")
        self._log(flow, ex)

    def hashed(self, text: str) -> str:
        """Keyed hash, 16 hex digits: the only form in which a credential or token is kept."""
        return hashlib.blake2b(text.encode("utf8", "surrogateescape"), key=self.key, digest_size=8).hexdigest()

    def responseheaders(self, flow: http.HTTPFlow) -> None:
        """The upstream's headers are here: hold them, watch the stream, or let both go."""
        if flow.response is None or (flow not in self.live and flow not in self._unread):
            return
        can_hold = self.can_hold and hold.can_hold(flow) and self.state.settings.mode == "enforce"
        if callable(flow.response.stream) and not can_hold:
            self.once("streamed", "another addon streams an answer in a way of its own: it is not judged")
            return
        try:
            self._hold(flow, self.live[flow])
        except Exception as fault:  # noqa: BLE001 - the border: the answer streams on unchanged
            flow.response.stream = flow.response.status_code != 101
            if flow not in self._unread:
                self.fault("responseheaders", flow, fault)

    def _hold(self, flow: http.HTTPFlow, ex: Exchange) -> None:
        assert flow.response
        if ex.refused_here:
            return
        if ex.committed or ex.settled:
            return
        if ex.new_connection is None:
            ex.new_connection = (flow.server_conn.timestamp_start or 0.0) >= flow.request.timestamp_start
        head = head_of(flow.response)
        if not self.rules.reads(ex, head):
            flow.response.stream = flow.response.status_code != 101
            return
        settings = self.state.settings
        self.rules.begin(ex, head, time.monotonic())
        view_bytes = settings.view_bytes if ex.generation else 0
        if settings.mode == "observe":
            flow.response.stream = Watched(self, flow, ex, view_bytes)
        elif self.can_hold and hold.can_hold(flow):
            hold.hold(flow, HeldResponse(self, flow, ex, view_bytes))
        elif head.media_type == "text/event-stream":
            flow.response.stream = Tapped(self, flow, ex, view_bytes)
            ex.committed = True

    def response(self, flow: http.HTTPFlow) -> None:
        """The exchange is over. Where nothing could be held, this is where a whole body is judged."""
        ex = self.live.get(flow)
        if ex is None or flow.response is None:
            return
        if self._is_unheld(flow, ex):
            ex.replay = False  # nothing can be sent again from here
            hold = HeldResponse(self, flow, ex, 0)
            hold.feed(flow.response.raw_content or b"")
            if ex.finding is None:
                hold.finish(cut=False)
        self._settle(flow, ex)
        # Nothing comes any more. Hold and flow know each other: a circle that only the garbage collector could undo.
        flow.response.stream, ex.reader = bool(flow.response.stream), None

    def _is_unheld(self, flow: http.HTTPFlow, ex: Exchange) -> bool:
        assert flow.response
        return ex.reader is not None and ex.finding is None and not ex.refused_here and not flow.response.stream

    def error(self, flow: http.HTTPFlow) -> None:
        ex = self.live.get(flow)
        if ex is not None:
            self._settle(flow, ex)

    def _settle(self, flow: http.HTTPFlow, ex: Exchange) -> None:
        if ex.settled:
            return
        try:
            self._settled(flow, ex)
        except Exception as fault:  # noqa: BLE001 - the border: whatever it is, a probe must not stay out
            self.fault("settle", flow, fault)
        self.live.pop(flow, None)

    def _settled(self, flow: http.HTTPFlow, ex: Exchange) -> None:
        now, wall = time.monotonic(), time.time()
        noteworthy = self.rules.settle(ex, now, wall)
        describe(flow, ex)
        keep_answer(flow)
        self.unsaved = self.unsaved or bool(ex.notes)  # a window was taken back
        self._log(flow, ex)
        if noteworthy:
            self.evidence_log.add(ex, wall - (now - ex.started))

    # -- reports of the hold ----------------------------------------------------------------------------------

    def decided(self, flow: http.HTTPFlow, ex: Exchange, decision: Decision) -> None:
        """A held answer was decided over."""
        upstream, finding = ex.call.surface.upstream, ex.finding
        if finding is not None:
            self.counters.found(upstream, finding.kind.value)
            self.unsaved = self.unsaved or finding.kind in (Kind.CHALLENGE, Kind.OVERFLOW)
        if isinstance(decision, Resend):
            self.counters.resent(upstream)
            self.counters.sent(upstream)
            self._log(flow, ex)
            return
        ex.held = time.monotonic() - ex.headers_at
        self.counters.held(upstream, ex.held)
        if isinstance(decision, Replace):
            self.counters.replaced(upstream, decision.answer.reason)
            self._decided(flow, ex, decision.answer.status)
        elif ex.comment or ex.sends > 1:
            self._decided(flow, ex, flow.response.status_code if flow.response else None)

    def streamed(self, flow: http.HTTPFlow, ex: Exchange) -> None:
        """A running stream was ended at a refusal."""
        assert ex.tapped
        self.counters.refused_in_stream(ex.call.surface.upstream, ex.tapped.kind.value)
        self._decided(flow, ex, 200)

    def fault(self, kind: str, flow: http.HTTPFlow | None, fault: Exception) -> None:
        """A fault of ours: counted, logged once per kind with the flow's id; the traffic has gone on unchanged."""
        if flow is not None and kind == "request":
            self._unread.add(flow)
        if flow is not None and (ex := self.live.get(flow)):
            with contextlib.suppress(Exception):  # the breaker itself may be what failed: then its lease ends the probe
                accounting.ended(ex, time.monotonic())
        words = f"{type(fault).__name__} in {kind}" + (f" (flow {flow.id})" if flow else "")
        if kind not in self.faults:
            logger.warning("Breakwater: %s: traffic goes on unchanged; further ones are only counted", words)
            # Where, but not the exception's own words: they may quote what was being read.
            logger.debug("Breakwater: %s, at\n%s", words, "".join(traceback.format_tb(fault.__traceback__)))
        self.faults.setdefault(kind, words)
        self.counters.fault(kind)

    # -- what is seen of it -----------------------------------------------------------------------------------

    def _decided(self, flow: http.HTTPFlow, ex: Exchange, status: int | None) -> None:
        finding = ex.tapped or ex.finding
        surface = ex.call.surface
        row = DecisionRow(
            wall=time.time(),
            flow_id=flow.id,
            upstream=surface.upstream,
            wire=surface.wire.value,
            path=ex.call.path,
            finding=finding.kind.value if finding else "",
            reason=ex.reason,
            comment=ex.comment,
            wait=ex.told,
            attempts=0 if ex.refused_here else ex.sends,
            status=status,
        )
        self.decisions.appendleft(row)
        describe(flow, ex)
        if ex.comment:
            ex.notes.append(ex.comment)
        self._log(flow, ex)

    def _log(self, flow: http.HTTPFlow, ex: Exchange) -> None:
        for line in ex.notes:
            logger.info("Breakwater: %s %s %s: %s", flow.id, ex.call.surface.upstream, ex.call.path, line)
        ex.notes.clear()
        self.log_transitions(ex.transitions)
        ex.transitions.clear()

    def log_transitions(self, transitions: list[Transition]) -> None:
        for transition in transitions:
            self.unsaved = True
            if transition.level == "debug":
                continue
            if transition.level == "warning":
                self.counters.opened(transition.upstream)
            logger.log(
                logging.WARNING if transition.level == "warning" else logging.INFO,
                "Breakwater: breaker of %s: %s -> %s (%s)",
                transition.upstream,
                transition.before.value,
                transition.after.value,
                transition.reason,
            )

    def once(self, kind: str, words: str) -> None:
        """Log one line per run of its kind."""
        if kind not in self._said:
            self._said.add(kind)
            logger.info("Breakwater: %s", words)

    def save(self, path: str) -> None:
        """Write the state file; a failure is one WARNING."""
        keeping.save(path, self.key, self.state)
        self.unsaved = False
