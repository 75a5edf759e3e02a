"""The order of the rules for one exchange: admit, judge, decide, settle.

    request   admit    side-request guard, remembered refusals, breaker, replay pacing
    response  hold     how long its headers may wait
              decide   decide.py: what a finding means for the client
              tapped   the same for a refusal in a stream that is already running
    end       settle   what came of it: strikes, probe, windows, sessions, evidence

The side-request guard comes first, since a request that cannot fit is its caller's own fault and must cost no probe.
"""

from __future__ import annotations

from collections.abc import Callable

from policies import accounting, decide, local_refusals, side_requests
from policies.answer.head import Head
from policies.answer.reader import Reader
from policies.breaker import Refused
from policies.calls import Surface
from policies.decisions import Admission, Commit, Decision, Forward, Refuse, Replace
from policies.exchange import Exchange
from policies.findings import Finding
from policies.kinds import Kind, Reason, Role
from policies.replays import is_replay, pace
from policies.reply import dialects, wording
from policies.request import message_list
from policies.research import evidence
from policies.state import State

LONGEST_HOLD_SECONDS = 100.0
"""After the request, re-sends included: Qwen Code gives up at 120 s (measured)."""
LONGEST_LENGTH = 18
"""Digits of a content-length that are read; more are no shorter body."""
FIRST_LOOK_SECONDS = 1.0
"""After headers that came later than that, in which their first bytes are still judged."""
BODILESS = frozenset({101, 204, 304})
SAYS_BETTER = frozenset({Kind.ANSWER, Kind.CHALLENGE, Kind.QUOTA, Kind.OVERFLOW})
"""In a body, against the sign of a captcha in its headers: what no wait cures is not told as if one did."""


class Rules:
    """The rules, applied. Every ``now`` is monotonic seconds, every ``wall`` Unix seconds."""

    def __init__(self, state: State) -> None:
        self.state = state

    def recognise(self, host: str, port: int, method: str, path: str, header: Callable[[str], str]) -> Surface | None:
        return self.state.surfaces.recognise(host, port, method, path, header)

    # -- before it is sent ------------------------------------------------------------------------------------

    def admit(self, ex: Exchange, now: float, wall: float) -> Admission:
        """Whether a request goes upstream. In ``mode: observe`` everything does."""
        refusal = self._admit(ex, now, wall)
        if refusal is not None:
            ex.reason, ex.comment, ex.told = refusal.answer.reason, refusal.comment, refusal.wait
            if self.state.settings.mode == "enforce":
                ex.refused_here = True
                return refusal
        self._observed(ex)
        paced = ex.replay and self.state.settings.mode == "enforce"
        ex.paced = pace(ex.gap, self.state.replay_settings(ex.call)) if paced else 0.0
        return Forward(ex.paced)

    def _admit(self, ex: Exchange, now: float, wall: float) -> Refuse | None:
        if not ex.generation:
            return self._admit_aside(ex, now)
        self._place(ex, now)
        refusal = self._oversize(ex, wall) or self._remembered(ex, now)
        if refusal is not None:
            return refusal
        breaker = ex.breaker = self.state.breaker(ex.call)
        ex.breaker_before = breaker.current(now).value
        permit = breaker.admit(now)
        if isinstance(permit, Refused):
            return local_refusals.breaker_open(self.state, ex, permit)
        ex.permit = permit
        return None

    def _admit_aside(self, ex: Exchange, now: float) -> Refuse | None:
        """Of a blocked account nothing is sent at all; a preparation step waits for the breaker, without taking its probe."""
        call = ex.call
        blocked = self.state.refusals.blocked(call.account, call.surface.upstream, now)
        if blocked is not None:
            return local_refusals.told_again(self.state, ex, blocked)
        if call.surface.role is not Role.PREPARATION:
            return None
        refused = self.state.breaker(call).preparation(now)
        return None if refused is None else local_refusals.breaker_open(self.state, ex, refused)

    def _place(self, ex: Exchange, now: float) -> None:
        """Where the request stands among the earlier ones of its session."""
        state, call = self.state, ex.call
        ex.side = side_requests.is_side(call, state.settings.side_requests)
        ex.gap = state.sessions.gap(call.session, now)
        ex.account_gap = state.sessions.account_gap(call.account, now)
        ex.replay = not ex.side and is_replay(ex.gap, state.replay_settings(call))

    def _oversize(self, ex: Exchange, wall: float) -> Refuse | None:
        call, settings = ex.call, self.state.settings.side_requests
        if not (settings.enabled and ex.side):
            return None
        surface = call.surface
        window = self.state.windows.effective(
            surface.upstream, surface.family, call.model, call.thinking, call.long_context, wall
        )
        oversize = side_requests.check(call, settings, window.tokens if window else None)
        if oversize is None:
            return None
        message = wording.side_request(estimate=oversize.estimate, window=oversize.window, model=oversize.model)
        answer = dialects.too_large(surface.wire, reason=Reason.SIDE_REQUEST, message=message)
        comment = (
            f"Side request refused here: about {oversize.estimate} tokens against a window of "
            f"{oversize.effective_window} ({oversize.model})."
        )
        return Refuse(answer, comment)

    def _remembered(self, ex: Exchange, now: float) -> Refuse | None:
        refusals, call = self.state.refusals, ex.call
        found = refusals.blocked(call.account, call.surface.upstream, now)
        if found is None and refusals.any_for(call.account):
            found = refusals.waiting(call.account, call.digest, now, call.surface.upstream)
        if found is None or (found.kind == "wait" and not self.state.settings.retry_after.enforce):
            return None
        if found.kind in ("wait", "blocked"):
            return local_refusals.told_again(self.state, ex, found)
        if found.kind == "overflow" and not (ex.side and self.state.settings.side_requests.enabled):
            return None
        return local_refusals.hopeless(self.state, ex, found)

    # -- while it is held -------------------------------------------------------------------------------------

    def reads(self, ex: Exchange, head: Head) -> bool:
        """Whether the body of this answer is looked at at all."""
        role = ex.call.surface.role
        if role is Role.PERSON or ex.call.method == "HEAD" or head.status in BODILESS:
            return False
        if role is Role.GENERATION:
            return True
        if head.media_type not in ("", "application/json", "text/html", "text/json", "text/plain"):
            return False
        length = head.get("content-length")
        return not (length.isdecimal() and int(length[:LONGEST_LENGTH]) > self.state.settings.hold.bytes)

    def begin(self, ex: Exchange, head: Head, now: float) -> None:
        """The upstream's headers have come."""
        ex.head, ex.headers_at, ex.preamble_at, ex.waiting = head, now, None, False
        self.heard(ex, now)
        state = self.state
        endless = ex.call.surface.role is not Role.GENERATION and not head.get("content-length")
        ex.reader = Reader(
            ex.call.surface, head, state.recogniser, state.settings.hold.bytes, first_only=endless
        )

    def heard(self, ex: Exchange, now: float) -> None:
        """A byte came from the upstream: the probe's lease goes on."""
        if ex.breaker is not None and ex.permit is not None and ex.permit.probe:
            ex.breaker.heard(ex.permit, now)
        if ex.preamble_at is None and ex.reader is not None and ex.reader.preamble:
            ex.preamble_at = now

    def deadline(self, ex: Exchange) -> float:
        """When held headers go out at the latest."""
        hold = self.state.settings.hold
        first = ex.headers_at + hold.silence_seconds if ex.preamble_at is None else ex.preamble_at + hold.seconds
        latest = max(ex.started + LONGEST_HOLD_SECONDS, ex.headers_at + FIRST_LOOK_SECONDS)
        return min(first, latest)

    def decide(self, ex: Exchange, finding: Finding, now: float, wall: float) -> Decision:
        """What the client gets. What the headers alone say counts, unless the body is an answer or says it better."""
        early = ex.reader.early if ex.reader else None
        if early is not None and (finding.kind not in SAYS_BETTER or self._is_filler(ex, finding)):
            finding = early
        decision = decide.decide(self.state, ex, finding, now, wall)
        if isinstance(decision, Replace):
            self._observed(ex)
        return decision

    @staticmethod
    def _is_filler(ex: Exchange, finding: Finding) -> bool:
        """Off the generation paths every page passes as an answer; beside such headers it is the server's own filler."""
        redirects = ex.head is not None and 300 <= ex.head.status < 400
        return finding.kind is Kind.ANSWER and (finding.row == "html" or redirects)

    def expire(self, ex: Exchange, now: float, wall: float) -> Decision:
        """The hold has lasted long enough: the headers go out, unless what has come is a refusal for certain."""
        assert ex.reader
        finding = ex.reader.cap()
        if finding.kind in (Kind.ANSWER, Kind.NOTHING):
            ex.committed = True
            return Commit()
        return self.decide(ex, finding, now, wall)

    def due(self, ex: Exchange, now: float) -> Decision | None:
        """The wait before a re-send is over; where the breaker has left closed meanwhile, the refusal before it stands."""
        if self.state.breaker(ex.call).closed:
            ex.waiting = False
            return None
        ex.sends, ex.waiting = ex.sends - 1, False
        return self.unsent(ex, now)

    def unsent(self, ex: Exchange, now: float) -> Decision | None:
        """A re-send could not reach the upstream: the refusal before it stands, told after the sends there were."""
        if ex.finding is None or ex.committed:
            return None
        return decide.final(self.state, ex, ex.finding, now)

    def streams(self, ex: Exchange, now: float) -> None:
        """Bytes of a running answer: the lease goes on, and the first answer frame may have come after the commit."""
        self.heard(ex, now)
        if not ex.answered and ex.generation and ex.tapped is None and ex.reader is not None and ex.reader.answered:
            accounting.answered(self.state, ex, now)

    def tapped(self, ex: Exchange, finding: Finding, now: float) -> bytes:
        """The frame that ends a stream in which a refusal was seen."""
        frame = decide.tapped(self.state, ex, finding, now)
        self._observed(ex)
        return frame

    def _observed(self, ex: Exchange) -> None:
        """What was noted is not what was done."""
        if ex.comment and self.state.settings.mode == "observe":
            ex.comment = f"Only observed: {ex.comment}"

    # -- afterwards -------------------------------------------------------------------------------------------

    def settle(self, ex: Exchange, now: float, wall: float) -> bool:
        """What came of it; True where there is evidence to note. Later calls for the same exchange change nothing."""
        if ex.settled or not ex.generation:
            return False
        ex.settled = True
        state, call = self.state, ex.call
        if ex.waiting and ex.finding is not None:
            ex.sends -= 1  # the client left before the next send went out: the refusal before it is what came of it
            accounting.account_for(state, ex, ex.finding, now, wall)
        reader = ex.reader
        if reader is not None and ex.committed and not ex.answered and ex.tapped is None and reader.answered:
            accounting.answered(state, ex, now)
        accounting.ended(ex, now)
        ex.breaker_after = state.breaker(call).current(now).value
        if ex.answered and not ex.side and ex.tapped is None:
            state.sessions.finished(call.session, now, call.account)
        if ex.answered and reader is not None and reader.usage_input:
            self._fits(ex, reader.usage_input, wall)
        return not ex.refused_here and ex.finding is not None

    def _fits(self, ex: Exchange, tokens: int, wall: float) -> None:
        call = ex.call
        if self.state.windows.succeeded(
            call.surface.upstream, call.model, call.thinking, tokens, wall, long_context=call.long_context
        ):
            self.state.refusals.forget_overflows(call.surface.upstream, call.model)
            ex.notes.append(f"learnt window of {call.model} taken back: {tokens} input tokens were answered")

    def note(self, ex: Exchange, wall: float) -> evidence.Record:
        """Keep the evidence of a settled exchange: several passes over its body."""
        finding = ex.tapped or ex.finding
        assert finding
        call = ex.call
        wire = call.surface.wire
        told = call.history
        facts = evidence.Facts(
            wall=wall,
            upstream=call.surface.upstream,
            wire=wire.value,
            model=call.model,
            session=call.session,
            account=call.account,
            size=call.size,
            digest=call.digest,
            prefix=told.prefix,
            roles=told.roles,
            markers=message_list.markers(call.body),
            gap_session=None if ex.gap is None else ex.gap + ex.paced,
            gap_account=ex.account_gap,
            new_connection=ex.new_connection,
            token=call.one_time_token,
            attempt=ex.sends,
            first=ex.first,
            side=ex.side,
        )
        return self.state.evidence.note(facts, finding)
