"""The order of the rules for one exchange.

    request    admit        side-request guard, remembered refusals, breaker, replay pacing
    response   judge.py     how long its headers may wait, what has come so far
               decide.py    what a finding means for the client
    end        settle       what came of it: strikes, probe, windows, sessions

The side-request guard comes first, since a request that cannot fit is its caller's own fault and must cost no probe.
"""

from __future__ import annotations

from collections.abc import Callable

from policies import comments, windows
from policies.breaker import tell
from policies.comments import Comment
from policies.decide import Ruling
from policies.decisions import Admission, Answer, Forward, Queue, Refuse
from policies.exchange import Exchange
from policies.kinds import Reason, Role
from policies.queue import Asking, Standing, Told
from policies.refusal_memory import Remembered
from policies.replays import pace
from policies.reply import dialects, wording
from policies.request.body import markers
from policies.research import evidence
from policies.state import State
from policies.windows import Oversize

WORDS: dict[Reason, Callable[..., str]] = {
    Reason.ACCOUNT_BLOCKED: wording.blocked,
    Reason.REMEMBERED_WAIT: wording.remembered_wait,
    Reason.BREAKER_OPEN: wording.breaker_open,
    Reason.PROBE_OUT: wording.breaker_open,
    Reason.STATED_WAIT: wording.stated_wait,
    Reason.NO_SLOT: wording.no_slot,
    Reason.SLOW_START: wording.queued,
    Reason.QUEUE_FULL: wording.queued,
    Reason.CLOSING: wording.closing,
}
"""Messages for the client."""


class Rules:
    """The rules, applied. Every ``now`` is monotonic seconds, every ``wall`` Unix seconds."""

    def __init__(self, state: State) -> None:
        self.state = state

    # -- before it is sent ------------------------------------------------------------------------------------

    def admit(self, ex: Exchange, now: float, wall: float) -> Admission:
        """Whether a request goes upstream, waits for its turn, or is refused here. In ``mode: observe`` all of them go."""
        remembered = self.state.refusals.standing(ex.call, now) if ex.generation else None
        refusal = self._refusal(ex, remembered, now, wall)
        if refusal is not None:
            return self._admitted(ex, refusal)
        if ex.generation:
            ex.breaker_before = self.state.breaker(ex.call).current(now)
            ex.place = self.state.line.arrive(self._asking(ex, remembered, now), now)
        return self.turn(ex, now, wall)

    def turn(self, ex: Exchange, now: float, wall: float) -> Admission:
        """Whether its turn has come; asked again each time that it is woken."""
        place = ex.place
        if place is not None and place.standing is Standing.WAITING:
            why = self.state.line.why(place, now)
            ex.admission = Queue(reason=why.why if why else "")
            return ex.admission
        if place is not None and place.told is not None and place.standing is Standing.TOLD:
            return self._admitted(ex, self._told(ex, place.told, now, wall))
        after = pace(ex.gap, self.state.replay_of[ex.call.surface.upstream]) if ex.replay and self.state.enforces else 0.0
        said = ex.decision if isinstance(ex.decision, Queue) else ex.admission
        ex.turns += isinstance(ex.decision, Queue)
        waited, reason = place.waited if place else 0.0, said.reason if said else ""
        ex.admission = Forward(after)
        if waited:
            ex.admission = Forward(after, reason=reason, comment=comments.say(comments.WAITED, waited=waited))
        return ex.admission

    def _admitted(self, ex: Exchange, refusal: Refuse) -> Admission:
        ex.admission = refusal
        if not self.state.enforces:
            ex.admission = Forward(reason=refusal.reason, comment=refusal.comment, wait=refusal.wait)
        return ex.admission

    @staticmethod
    def _told(ex: Exchange, told: Told, now: float, wall: float) -> Refuse:
        """What a request is told that cannot wait any longer: the upstream's own refusal of it, where there is one."""
        if isinstance(ex.decision, Queue) and ex.finding is not None:
            said = Ruling(ex, ex.finding, now, wall).waited(told.left)
            return Refuse(
                said.answer, reason=said.reason, comment=said.comment, finding=said.finding, wait=said.wait, attempts=ex.sends
            )
        return told_here(ex, told.why, told.left)

    def _asking(self, ex: Exchange, remembered: Remembered | None, now: float) -> Asking:
        state, call = self.state, ex.call
        waits = remembered is not None and remembered.kind == "wait" and state.settings.retry_after.enforce
        return Asking(
            call.surface.upstream,
            call.account,
            call.model,
            lambda: call.digest,
            call.session,
            side=ex.side,
            patience=ex.patience.waits if state.enforces else 0.0,
            not_before=now + remembered.left if waits and remembered else 0.0,
            holdable=call.one_time_token is None,
        )

    def _refusal(self, ex: Exchange, remembered: Remembered | None, now: float, wall: float) -> Refuse | None:
        """Why it is refused, whatever its turn."""
        if not ex.generation:
            return self._refusal_aside(ex, now)
        if not ex.placed:
            self._place(ex, now)
        return self._oversize(ex, wall) or (self._hopeless(ex, remembered) if remembered else None)

    def _refusal_aside(self, ex: Exchange, now: float) -> Refuse | None:
        """Of a blocked account nothing is sent at all; a preparation step waits for the breaker, without taking its probe."""
        call = ex.call
        blocked = self.state.refusals.blocked(call.account, call.surface.upstream, now)
        if blocked is not None:
            return told_here(ex, Reason.ACCOUNT_BLOCKED, blocked.left)
        if call.surface.role is not Role.PREPARATION:
            return None
        refused = self.state.breaker(call).preparation(now)
        if refused is None:
            return None
        return told_here(ex, Reason.PROBE_OUT if refused.probe_out else Reason.BREAKER_OPEN, refused.left)

    def _place(self, ex: Exchange, now: float) -> None:
        """Find out where the request stood among the earlier ones of its session when it came."""
        state, call = self.state, ex.call
        ex.placed, ex.side = True, windows.is_side(call, state.settings.side_requests)
        replay = state.replay_of.get(call.surface.upstream, state.settings.replay)
        ex.gap, ex.account_gap, again = state.sessions.place(call.session, call.account, now, replay)
        ex.replay = again and not ex.side

    def _oversize(self, ex: Exchange, wall: float) -> Refuse | None:
        call, settings = ex.call, self.state.settings.side_requests
        if not (settings.enabled and ex.side):
            return None
        window = self.state.windows.effective(call, wall)
        over = windows.oversize(call, settings, window.tokens if window else None)
        if over is None:
            return None
        return too_large(ex, over)

    def _hopeless(self, ex: Exchange, found: Remembered) -> Refuse | None:
        if found.kind == "blocked":
            return told_here(ex, Reason.ACCOUNT_BLOCKED, found.left)
        if found.kind == "wait" or (found.kind == "overflow" and not (ex.side and self.state.settings.side_requests.enabled)):
            return None
        return hopeless(ex, found)

    # -- afterwards -------------------------------------------------------------------------------------------

    def settle(self, ex: Exchange, now: float, wall: float) -> bool:
        """Write down what came of an exchange, once; True where there is evidence to note."""
        if ex.settled or not ex.generation:
            return False
        ex.settled = True
        state, call, reader = self.state, ex.call, ex.reader
        if ex.waiting and ex.finding is not None:
            ex.resends.pop()  # the client left before the next send went out: the refusal before it is what came of it
            ex.account_for(ex.finding, now, wall, over=True)
        ex.turn_over(now)
        ex.breaker_after = str(state.breaker(call).current(now))
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
            markers=markers(call.body),
            gap_session=None if ex.gap is None else ex.gap + (ex.admission.after if isinstance(ex.admission, Forward) else 0.0),
            gap_account=ex.account_gap,
            new_connection=ex.new_connection,
            token=call.one_time_token,
            attempt=attempts or ex.sends,
            first=ex.resends[0].finding if ex.resends else None,
            side=ex.side,
        )
        return self.state.evidence.note(facts, finding)


# -- what a request is told that is refused here, with nothing sent ------------------------------------------------


def told_here(ex: Exchange, reason: Reason, left: float) -> Refuse:
    """The refusal of a request that need only wait: 529 or 503, 429 for want of a slot, with the seconds that are ``left``."""
    wait = tell(left, ex.state.settings.retry_after.cap)
    make = dialects.limited if reason is Reason.NO_SLOT else dialects.overloaded
    shown = left if reason is Reason.ACCOUNT_BLOCKED else wait
    message = WORDS[reason](ex.site, wait=shown)
    answer = make(ex.call.surface.wire, reason=reason, message=message, wait=wait, request_id=ex.request_id)
    return _refuse(answer, comments.TOLD.say(ex.state.enforces, why=comments.WHY[reason], wait=wait), wait)


def too_large(ex: Exchange, over: Oversize) -> Refuse:
    """The 413 of a side request that its window cannot hold."""
    model = ex.call.model
    message = wording.side_request(estimate=over.estimate, window=over.window, model=model)
    answer = dialects.too_large(ex.call.surface.wire, reason=Reason.SIDE_REQUEST, message=message)
    said = comments.OVERSIZE.say(ex.state.enforces, estimate=over.estimate, window=over.effective_window, model=model)
    return _refuse(answer, said)


def hopeless(ex: Exchange, found: Remembered) -> Refuse:
    """The 413 of a request that the upstream refused minutes ago and would refuse again."""
    reason, code = Reason.REMEMBERED_OVERFLOW, dialects.SIDE_REQUEST_CODE
    text = wording.remembered_overflow(model=ex.call.model)
    if found.kind == "body_size":
        reason, code = Reason.REMEMBERED_BODY_SIZE, dialects.BODY_SIZE_CODE
        limit = ex.state.settings.qwen_web.body_limit_bytes
        text = wording.body_size(size=ex.call.size, limit=limit, site=ex.site, code=found.code)
    answer = dialects.too_large(ex.call.surface.wire, reason=reason, message=text, code=code)
    return _refuse(answer, comments.HOPELESS.say(ex.state.enforces))


def _refuse(answer: Answer, comment: Comment, wait: int | None = None) -> Refuse:
    return Refuse(answer, reason=answer.reason, comment=comment, wait=wait)
