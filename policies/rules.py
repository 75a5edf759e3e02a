"""The order of the rules for one exchange.

    request    admit        side-request guard, remembered refusals, breaker, replay pacing
    response   judge.py     how long its headers may wait, what has come so far
               decide.py    what a finding means for the client
    end        settle       what came of it: strikes, probe, windows, sessions

The side-request guard comes first, since a request that cannot fit is its caller's own fault and must cost no probe.
"""

from __future__ import annotations

from policies import side_requests
from policies.breaker import BreakerState, Refused, tell
from policies.decisions import Admission, Answer, Forward, Refuse
from policies.exchange import Exchange
from policies.kinds import Reason, Role
from policies.refusal_memory import Remembered
from policies.replays import pace
from policies.reply import dialects, wording
from policies.request import message_list
from policies.research import evidence
from policies.state import State


class Rules:
    """The rules, applied. Every ``now`` is monotonic seconds, every ``wall`` Unix seconds."""

    def __init__(self, state: State) -> None:
        self.state = state

    # -- before it is sent ------------------------------------------------------------------------------------

    def admit(self, ex: Exchange, now: float, wall: float) -> Admission:
        """Say whether a request goes upstream; may be asked again, and the last answer counts. In ``mode: observe`` all go."""
        refusal = self._refusal(ex, now, wall)
        enforces = self.state.settings.mode == "enforce"
        if refusal is None:
            replay = self.state.replay_of.get(ex.call.surface.upstream, self.state.settings.replay)
            ex.admission = Forward(pace(ex.gap, replay) if ex.replay and enforces else 0.0)
        elif enforces:
            ex.admission = refusal
        else:
            ex.admission = Forward(reason=refusal.reason, comment=ex.observed(refusal.comment), wait=refusal.wait)
        return ex.admission

    def _refusal(self, ex: Exchange, now: float, wall: float) -> Refuse | None:
        """The refusal of a request that is not sent; of one that is, the exchange has the breaker's permit."""
        if ex.call.surface.role is not Role.GENERATION:
            return self._refusal_aside(ex, now)
        if not ex.placed:
            self._place(ex, now)
        return self._oversize(ex, wall) or self._remembered(ex, now) or self._breaker_refuses(ex, now)

    def _refusal_aside(self, ex: Exchange, now: float) -> Refuse | None:
        """The refusal off the generation paths: of a blocked account all, of an open breaker the preparation steps."""
        call = ex.call
        blocked = self.state.refusals.blocked(call.account, call.surface.upstream, now)
        if blocked is not None:
            return self._standing(ex, blocked)
        if call.surface.role is not Role.PREPARATION:
            return None
        refused = self.state.breaker(call).preparation(now)
        return None if refused is None else self._paused(ex, refused)

    def _place(self, ex: Exchange, now: float) -> None:
        """Find out where the request stood among the earlier ones of its session when it came."""
        state, call = self.state, ex.call
        ex.placed, ex.side = True, side_requests.is_side(call, state.settings.side_requests)
        replay = state.replay_of.get(call.surface.upstream, state.settings.replay)
        ex.gap, ex.account_gap, again = state.sessions.place(call.session, call.account, now, replay)
        ex.replay = again and not ex.side

    def _oversize(self, ex: Exchange, wall: float) -> Refuse | None:
        call, settings = ex.call, self.state.settings.side_requests
        if not (settings.enabled and ex.side):
            return None
        surface = call.surface
        window = self.state.windows.effective(
            surface.upstream, surface.family, call.model, call.thinking, call.long_context, wall
        )
        over = side_requests.check(call, settings, window.tokens if window else None)
        if over is None:
            return None
        message = wording.side_request(estimate=over.estimate, window=over.window, model=call.model)
        answer = dialects.too_large(surface.wire, reason=Reason.SIDE_REQUEST, message=message)
        figures = f"about {over.estimate} tokens against a window of {over.effective_window} ({call.model})"
        return _refuse(answer, f"Side request refused here: {figures}.")

    def _remembered(self, ex: Exchange, now: float) -> Refuse | None:
        found, settings = self.state.refusals.standing(ex.call, now), self.state.settings
        if found is None:
            return None
        if found.kind in ("wait", "blocked"):
            return self._standing(ex, found) if found.kind == "blocked" or settings.retry_after.enforce else None
        if found.kind == "overflow" and not (ex.side and settings.side_requests.enabled):
            return None
        return self._hopeless(ex, found)

    def _breaker_refuses(self, ex: Exchange, now: float) -> Refuse | None:
        ex.breaker = self.state.breakers.of(ex.call.surface.upstream, ex.call.account)
        permit = ex.breaker.admit(now)
        if isinstance(permit, Refused):
            ex.breaker_before = BreakerState.PROBING if permit.probe_out else BreakerState.OPEN
            return self._paused(ex, permit)
        ex.breaker_before = BreakerState.HALF_OPEN if permit.probe else BreakerState.CLOSED
        ex.permit = permit
        return None

    # -- what a request that is not sent is told ----------------------------------------------------------------

    def _standing(self, ex: Exchange, found: Remembered) -> Refuse:
        if found.kind == "blocked":
            reason, text = Reason.ACCOUNT_BLOCKED, wording.blocked(ex.site, left=found.left)
            what = "this account is blocked upstream"
        else:
            reason, text = Reason.REMEMBERED_WAIT, wording.remembered_wait(ex.site, wait=found.left)
            what = "the same request was refused and its wait is not over"
        wait = tell(found.left, self.state.settings.retry_after.cap)
        return _wait(ex, reason, text, wait, f"Refused here: {what}, {wait} s left to wait.")

    def _paused(self, ex: Exchange, refused: Refused) -> Refuse:
        wait = tell(refused.left, self.state.settings.retry_after.cap)
        reason = Reason.PROBE_OUT if refused.probe_out else Reason.BREAKER_OPEN
        why = "one probe is finding out whether the upstream answers again" if refused.probe_out else "the breaker is open"
        text = wording.breaker_open(ex.site, wait=wait)
        return _wait(ex, reason, text, wait, f"Refused here: {why}; told to wait {wait} s.")

    def _hopeless(self, ex: Exchange, found: Remembered) -> Refuse:
        if found.kind == "body_size":
            reason, code = Reason.REMEMBERED_BODY_SIZE, dialects.BODY_SIZE_CODE
            limit = self.state.settings.qwen_web.body_limit_bytes
            text = wording.body_size(size=ex.call.size, limit=limit, site=ex.site, code=found.code)
        else:
            reason, code = Reason.REMEMBERED_OVERFLOW, dialects.SIDE_REQUEST_CODE
            text = wording.remembered_overflow(model=ex.call.model)
        answer = dialects.too_large(ex.call.surface.wire, reason=reason, message=text, code=code)
        return _refuse(answer, "Refused here: the upstream refused the same request minutes ago, and it cannot pass.")

    # -- afterwards -------------------------------------------------------------------------------------------

    def settle(self, ex: Exchange, now: float, wall: float) -> bool:
        """Write down what came of an exchange, once; True where there is evidence to note."""
        if ex.settled or not ex.generation:
            return False
        ex.settled = True
        state, call, reader = self.state, ex.call, ex.reader
        if ex.waiting and ex.finding is not None:
            ex.resends.pop()  # the client left before the next send went out: the refusal before it is what came of it
            ex.account_for(ex.finding, now, wall)
        ex.permit_over(now)
        ex.breaker_after = state.breaker(call).current(now).value
        if ex.answered and not ex.side and not ex.ended:
            state.sessions.finished(call.session, now, call.account)
        if ex.answered and reader is not None and reader.usage_input:
            ex.fits(reader.usage_input, wall)
        return state.settings.keeps_evidence and not ex.refused_here and ex.finding is not None

    def note(self, ex: Exchange, wall: float, attempts: int | None = None) -> evidence.Record:
        """Keep the evidence of a settled exchange: several passes over its body. ``attempts``: where others did the sends."""
        call, finding = ex.call, ex.finding
        assert finding
        facts = evidence.Facts(
            wall=wall,
            upstream=call.surface.upstream,
            wire=call.surface.wire.value,
            model=call.model,
            session=call.session,
            account=call.account,
            size=call.size,
            digest=call.digest,
            prefix=call.history.prefix,
            roles=call.history.roles,
            markers=message_list.markers(call.body),
            gap_session=None if ex.gap is None else ex.gap + (ex.admission.after if isinstance(ex.admission, Forward) else 0.0),
            gap_account=ex.account_gap,
            new_connection=ex.new_connection,
            token=call.one_time_token,
            attempt=attempts or ex.sends,
            first=ex.resends[0].finding if ex.resends else None,
            side=ex.side,
        )
        return self.state.evidence.note(facts, finding)


def _refuse(answer: Answer, comment: str, wait: int | None = None) -> Refuse:
    return Refuse(answer, reason=answer.reason, comment=comment, wait=wait)


def _wait(ex: Exchange, reason: Reason, text: str, wait: int, comment: str) -> Refuse:
    answer = dialects.overloaded(
        ex.call.surface.wire, reason=reason, message=text, wait=wait, challenge=False, request_id=ex.request_id
    )
    return _refuse(answer, comment, wait)
