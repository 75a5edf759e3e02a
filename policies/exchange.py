"""Exchange under way: what is known of it so far, and what is written down of it in the state."""

from __future__ import annotations

from typing import Literal

import msgspec

from policies.answer.head import Head
from policies.answer.reader import Reader
from policies.breaker import Breaker, Permit, Transition
from policies.calls import Call
from policies.decisions import Admission, Commit, Decision, End, Refuse, Resend
from policies.findings import Finding
from policies.kinds import Challenge, Kind, Role
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
    breaker: Breaker | None = None
    """The one that was asked; None where none was."""
    permit: Permit | None = None
    """What it gave; None where it refused."""
    breaker_before: str = ""
    breaker_after: str = ""
    admission: Admission | None = None
    decision: Decision | End | None = None
    """The latest one; of an answer that nobody holds ``Commit()`` from its headers on."""
    resends: list[Resend] = []
    waiting: bool = False
    """The next send was decided, and nothing is under way upstream."""
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

    @property
    def generation(self) -> bool:
        return self.call.surface.role is Role.GENERATION

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
        return 1 + len(self.resends)

    def observed(self, comment: str) -> str:
        """Comment on what is done; in ``mode: observe`` it is only noted, and says so."""
        return comment if self.state.enforces else f"Only observed: {comment}"

    # -- what is written down: the breaker, blocked accounts, windows, the wait that is told ----------------------

    def heard(self, now: float) -> None:
        """Hear a byte of the upstream: the lease of a probe goes on."""
        if self.breaker is not None and self.permit is not None and self.permit.probe:
            self.breaker.heard(self.permit, now)

    def answer_began(self, now: float) -> None:
        self.answered = True
        if self.breaker is not None and self.permit is not None:
            self._moved(self.breaker.answered(self.permit, now))
        refusals = self.state.refusals
        if refusals.any_for(self.call.account):
            refusals.answered(self.call.account, self.call.digest)

    def permit_over(self, now: float) -> None:
        """Hand the permit back: nothing that still comes of this request moves the breaker."""
        if self.breaker is not None and self.permit is not None:
            self._moved(self.breaker.ended(self.permit, now))

    def account_for(self, finding: Finding, now: float, wall: float) -> None:
        """Write down a refusal: strikes, the probe, blocked accounts and windows; ``wall`` is Unix seconds."""
        call, state = self.call, self.state
        if finding.kind is Kind.CHALLENGE and finding.challenge in (Challenge.BUSY, Challenge.CAPTCHA):
            if self.breaker is not None and self.permit is not None:
                self._moved(self.breaker.challenged(self.permit, now))
            return
        self.permit_over(now)
        if finding.challenge is Challenge.BLOCKED:
            seconds = state.blocked_seconds(call)
            state.refusals.block(call.surface.upstream, call.account, now, seconds, call.model, finding.code)
        elif finding.kind is Kind.OVERFLOW:
            if finding.window is not None and self._learnt(finding.window, finding.row, wall):
                self.news.append(f"learnt a window of {finding.window} tokens for {call.model}")
            if self.side:
                self.hopeless("overflow", finding, now)

    def hopeless(self, kind: Literal["overflow", "body_size"], finding: Finding, now: float) -> None:
        """Remember that the request cannot succeed as it is: it is refused here for some minutes."""
        call = self.call
        self.state.refusals.hopeless(
            call.account, call.digest, now, kind, upstream=call.surface.upstream, model=call.model, code=finding.code
        )

    def _learnt(self, window: int, source: str, wall: float) -> bool:
        call = self.call
        return self.state.windows.learn(
            call.surface.upstream,
            call.model,
            call.thinking,
            window,
            source,
            wall,
            family=call.surface.family,
            long_context=call.long_context,
        )

    def fits(self, tokens: int, wall: float) -> None:
        """Take back a learnt window that is smaller than the input ``tokens`` that were answered, with its overflows."""
        call = self.call
        if self.state.windows.succeeded(
            call.surface.upstream, call.model, call.thinking, tokens, wall, long_context=call.long_context
        ):
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
        left = self.state.breaker(call).state(now).left
        if left > 0:
            stated = max(left, stated or 0.0)
        return self.state.refusals.refused(
            call.account,
            call.digest,
            now,
            first=first,
            cap=settings.cap,
            stated=stated,
            sent=self.started,
            upstream=call.surface.upstream,
            model=call.model,
            code=finding.code,
        )

    def _moved(self, transition: Transition | None) -> None:
        if transition is not None:
            self.news.append(transition)
