"""Exchange under way: what is known of it so far, and what is written down of it in the state."""

from __future__ import annotations

import msgspec

from policies.answer.reader import Reader
from policies.breaker import Transition
from policies.calls import Call
from policies.decisions import Admission, Commit, Decision, End, Refuse, Resend
from policies.hurdles import Refusal, Refused
from policies.kinds import Challenge, Crowd, Finding, Head, Kind, Role
from policies.patience import UNKNOWN_SECONDS, Patience
from policies.queue import Place, Standing
from policies.refusal import retry_hints
from policies.state import State


class Exchange(msgspec.Struct):
    """Request of a client and what became of it: the only mutable value of the rules. Times are monotonic seconds."""

    state: State
    flow_id: str
    call: Call
    started: float
    site: str = ""
    """Host name of the upstream, for words to the client."""
    new_connection: bool | None = None
    """True where the upstream connection was made for this request, None where that is unknown."""
    placed: bool = False
    """Its place in its session is known: ``gap``, ``account_gap``, ``side`` and ``replay``."""
    gap: float | None = None
    """Seconds since the previous answer of the session ended; None where there was none."""
    account_gap: float | None = None
    side: bool = False
    replay: bool = False
    patience: Patience = Patience(UNKNOWN_SECONDS, 0.0)
    """What its client bears, in seconds after the request."""
    agent: str = ""
    """Its User-Agent."""
    place: Place | None = None
    """Its place in the line; None where it needs no turn."""
    breaker_before: str = ""
    breaker_after: str = ""
    admission: Admission | None = None
    decision: Decision | End | None = None
    """The latest one; of an answer that nobody holds ``Commit()`` from its headers on."""
    resends: list[Resend] = []
    waiting: bool = False
    """The next send was decided, and nothing is under way upstream."""
    turns: int = 0
    """Sends after a refusal that was waited out in the line."""
    head: Head | None = None
    """Of the latest answer; ``reader`` reads its body."""
    reader: Reader | None = None
    held: float | None = None
    """Seconds that its headers waited, once they are out."""
    answered: bool = False
    """The first answer frame has come."""
    settled: bool = False
    news: list[Transition | str] = []
    """What this exchange moved, not yet logged."""
    generation: bool = False
    """True of a call that asks a model."""

    def __post_init__(self) -> None:
        self.generation = self.call.surface.role is Role.GENERATION

    @property
    def request_id(self) -> str:
        """An id of our own for bodies that carry one."""
        return "req_" + self.flow_id.replace("-", "")[:24]

    @property
    def refused_here(self) -> bool:
        return isinstance(self.admission, Refuse)

    @property
    def committed(self) -> bool:
        return isinstance(self.decision, Commit | End)

    @property
    def ended(self) -> bool:
        """True once its stream was ended at a refusal in it."""
        return isinstance(self.decision, End)

    @property
    def finding(self) -> Finding | None:
        return None if self.decision is None else self.decision.finding

    @property
    def sends(self) -> int:
        return 1 + len(self.resends) + self.turns

    # -- what is written down: the breaker, blocked accounts, windows, the wait that is told ----------------------

    def heard(self, now: float) -> None:
        """Hear a byte of the upstream: the lease of a probe goes on."""
        place = self.place
        if place is not None and place.permit is not None and place.permit.probe:
            self.state.line.heard(place, now)

    def answer_began(self, now: float) -> None:
        self.answered = True
        if self.place is not None:
            self._moved(self.state.line.answered(self.place, now))
        self.state.refusals.answered(self.call)

    @property
    def probes(self) -> bool:
        """True while it is the probe of its breaker."""
        return self.place is not None and self.place.permit is not None and self.place.permit.probe

    @property
    def waits_in_line(self) -> bool:
        return self.place is not None and self.place.standing is Standing.WAITING

    def turn_over(self, now: float) -> None:
        """Hand back permit and slot: nothing that still comes of this request moves the breaker."""
        if self.place is not None:
            self._moved(self.state.line.ended(self.place, now))

    def crowds(self, finding: Finding) -> bool:
        """True where it was refused as one call too many."""
        line, place = self.state.line, self.place
        others = place is not None and finding.crowd is Crowd.WITH_OTHERS and line.others(place) > 0
        return finding.crowd is Crowd.ALWAYS or others

    def account_for(self, finding: Finding, now: float, wall: float, *, told: int = 0, over: bool = False) -> None:
        """Write down a refusal: strikes, the probe, slots, blocked accounts and windows.

        ``told``: seconds of Retry-After, before which the request is not sent again. ``over``: its headers are with the
        client, so it cannot wait here. ``wall`` is Unix seconds.
        """
        call, state = self.call, self.state
        refused = self._refused(finding)
        if refused is not None:
            curable = not over and finding.challenge is not Challenge.BODY_SIZE
            if self.place is not None:
                refusal = Refusal(refused, float(told), _stated(finding, wall), curable)
                self._moved(state.line.refused(self.place, refusal, now))
            return
        self.turn_over(now)
        if finding.challenge is Challenge.BLOCKED:
            state.refusals.block(call, finding.code, now, state.blocked_seconds(call))
        elif finding.kind is Kind.OVERFLOW:
            if finding.window is not None and state.windows.learn(call, finding.window, finding.row, wall):
                self.news.append(f"learnt a window of {finding.window} tokens for {call.model}")
            if self.side:
                state.refusals.hopeless(call, "overflow", finding.code, now)

    def _refused(self, finding: Finding) -> Refused | None:
        """What a refusal means for the line; None where no waiting cures it."""
        if self.crowds(finding):
            return Refused.CROWD
        if finding.kind is Kind.CHALLENGE:
            passing = finding.challenge in (Challenge.BUSY, Challenge.CAPTCHA)
            return Refused.CHALLENGE if passing else None
        if finding.kind is Kind.QUOTA:
            return Refused.RATE_LIMIT if finding.wait or finding.reset else None
        return {Kind.OVERLOAD: Refused.OVERLOAD, Kind.RATE_LIMIT: Refused.RATE_LIMIT}.get(finding.kind)

    def fits(self, tokens: int, wall: float) -> None:
        """Take back a learnt window that is smaller than the input ``tokens`` that were answered, with its overflows."""
        call = self.call
        if self.state.windows.succeeded(call, tokens, wall):
            self.state.refusals.forget_overflows(call.surface.upstream, call.model)
            self.news.append(f"learnt window of {call.model} taken back: {tokens} input tokens were answered")

    def wait_for(self, finding: Finding, now: float) -> int:
        """Seconds to tell, remembered for this request: the open window, the upstream's own wait, or ours, doubled each time."""
        call, settings = self.call, self.state.settings.retry_after
        if finding.challenge is Challenge.BLOCKED:
            return settings.cap
        first, stated = settings.challenge, finding.wait
        if finding.kind is Kind.OVERLOAD:
            first = settings.overload
        elif finding.kind is Kind.RATE_LIMIT:
            first = settings.rate_limit
            stated = stated or float(first)  # as long the next time: it is no challenge that a repetition deepens
        breaker = self.state.breaker(call)
        left = breaker.state(now).left
        if finding.kind is Kind.CHALLENGE and self.place is not None and self.place.permit is not None:
            left = max(left, breaker.opens_for(self.place.permit))
        if left > 0:
            stated = max(left, stated or 0.0)
        said = finding.code
        return self.state.refusals.refused(call, said, now, first=first, cap=settings.cap, stated=stated, sent=self.started)

    def _moved(self, transition: Transition | None) -> None:
        if transition is not None:
            self.news.append(transition)


def _stated(finding: Finding, wall: float) -> float | None:
    """Seconds that the upstream itself asks for."""
    if finding.wait is not None or finding.reset is None:
        return finding.wait
    return retry_hints.until(finding.reset, wall)
