"""The order of the rules for one exchange.

    request    admit        side-request guard, remembered refusals, breaker, replay pacing
    response   judge.py     how long its headers may wait, what has come so far
               decide.py    what a finding means for the client
    end        settle       what came of it: strikes, probe, windows, sessions

The side-request guard comes first, since a request that cannot fit is its caller's own fault and must cost no probe.
"""

from __future__ import annotations

from policies import local_refusals, side_requests
from policies.decide import Ruling
from policies.decisions import Admission, Forward, Queue, Refuse
from policies.exchange import Exchange
from policies.kinds import Reason, Role
from policies.queue import Asking, Standing, Told
from policies.replays import pace
from policies.request.body import markers
from policies.research import evidence
from policies.state import State


class Rules:
    """The rules, applied. Every ``now`` is monotonic seconds, every ``wall`` Unix seconds."""

    def __init__(self, state: State) -> None:
        self.state = state

    # -- before it is sent ------------------------------------------------------------------------------------

    def admit(self, ex: Exchange, now: float, wall: float) -> Admission:
        """Whether a request goes upstream, waits for its turn, or is refused here. In ``mode: observe`` all of them go."""
        refusal = self._refusal(ex, now, wall)
        if refusal is not None:
            return self._admitted(ex, refusal)
        if ex.generation:
            ex.breaker_before = self.state.breaker(ex.call).current(now)
            ex.place = self.state.line.arrive(self._asking(ex, now), now)
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
            ex.admission = Forward(after, reason=reason, comment=f"Waited here unsent for {waited:.1f} s.")
        return ex.admission

    def _admitted(self, ex: Exchange, refusal: Refuse) -> Admission:
        ex.admission = refusal
        if not self.state.enforces:
            ex.admission = Forward(reason=refusal.reason, comment=ex.observed(refusal.comment), wait=refusal.wait)
        return ex.admission

    @staticmethod
    def _told(ex: Exchange, told: Told, now: float, wall: float) -> Refuse:
        """What a request is told that cannot wait any longer: the upstream's own refusal of it, where there is one."""
        if isinstance(ex.decision, Queue) and ex.finding is not None:
            said = Ruling(ex, ex.finding, now, wall).waited(told.left)
            return Refuse(
                said.answer, reason=said.reason, comment=said.comment, finding=said.finding, wait=said.wait, attempts=ex.sends
            )
        return local_refusals.told(ex, told.why, told.left)

    def _asking(self, ex: Exchange, now: float) -> Asking:
        state, call = self.state, ex.call
        found = state.refusals.standing(call, now) if state.settings.retry_after.enforce else None
        return Asking(
            call.surface.upstream,
            call.account,
            call.model,
            lambda: call.digest,
            call.session,
            side=ex.side,
            patience=ex.patience.waits if state.enforces else 0.0,
            not_before=now + found.left if found is not None and found.kind == "wait" else 0.0,
            holdable=call.one_time_token is None,
        )

    def _refusal(self, ex: Exchange, now: float, wall: float) -> Refuse | None:
        """Why it is refused, whatever its turn."""
        if not ex.generation:
            return self._refusal_aside(ex, now)
        if not ex.placed:
            self._place(ex, now)
        return self._oversize(ex, wall) or self._remembered(ex, now)

    def _refusal_aside(self, ex: Exchange, now: float) -> Refuse | None:
        """Of a blocked account nothing is sent at all; a preparation step waits for the breaker, without taking its probe."""
        call = ex.call
        blocked = self.state.refusals.blocked(call.account, call.surface.upstream, now)
        if blocked is not None:
            return local_refusals.told(ex, Reason.ACCOUNT_BLOCKED, blocked.left)
        if call.surface.role is not Role.PREPARATION:
            return None
        refused = self.state.breaker(call).preparation(now)
        if refused is None:
            return None
        return local_refusals.told(ex, Reason.PROBE_OUT if refused.probe_out else Reason.BREAKER_OPEN, refused.left)

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
        window = self.state.windows.effective(call, wall)
        over = side_requests.check(call, settings, window.tokens if window else None)
        if over is None:
            return None
        return local_refusals.oversize(ex, over)

    def _remembered(self, ex: Exchange, now: float) -> Refuse | None:
        found, settings = self.state.refusals.standing(ex.call, now), self.state.settings
        if found is None or found.kind == "wait":
            return None
        if found.kind == "blocked":
            return local_refusals.told(ex, Reason.ACCOUNT_BLOCKED, found.left)
        if found.kind == "overflow" and not (ex.side and settings.side_requests.enabled):
            return None
        return local_refusals.hopeless(ex, found)

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
