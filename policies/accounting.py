"""What is written down of an exchange: strikes, the probe, blocked accounts, windows, and the wait that was told."""

from __future__ import annotations

from policies.breaker import Transition
from policies.exchange import Exchange
from policies.findings import Finding
from policies.kinds import Challenge, Kind
from policies.refusal_memory import Facts, Words
from policies.state import State


def answered(state: State, ex: Exchange, now: float) -> None:
    """The first answer frame has come."""
    ex.answered = True
    if ex.breaker is not None and ex.permit is not None:
        moved(ex, ex.breaker.answered(ex.permit, now))
    if state.refusals.any_for(ex.call.account):
        state.refusals.answered(ex.call.account, ex.call.digest)


def moved(ex: Exchange, transition: Transition | None) -> None:
    if transition is not None:
        ex.transitions.append(transition)


def account_for(state: State, ex: Exchange, finding: Finding, now: float, wall: float) -> None:
    """Strikes, the probe, blocked accounts and windows."""
    call = ex.call
    if finding.kind is Kind.CHALLENGE and finding.challenge in (Challenge.BUSY, Challenge.CAPTCHA):
        if ex.breaker is not None and ex.permit is not None:
            moved(ex, ex.breaker.challenged(ex.permit, now))
        return
    ended(ex, now)
    if finding.challenge is Challenge.BLOCKED:
        upstream = state.surfaces.upstream(call.surface.upstream)
        breaker = (upstream.breaker if upstream else None) or state.settings.breaker
        state.refusals.block(call.surface.upstream, call.account, now, breaker.blocked_seconds, **_words(ex, finding))
    elif finding.kind is Kind.OVERFLOW:
        _overflowed(state, ex, finding, now, wall)


def _overflowed(state: State, ex: Exchange, finding: Finding, now: float, wall: float) -> None:
    call, name = ex.call, ex.call.surface.upstream
    if finding.window is not None and state.windows.learn(
        name,
        call.model,
        call.thinking,
        finding.window,
        finding.row,
        wall,
        family=call.surface.family,
        long_context=call.long_context,
    ):
        ex.notes.append(f"learnt a window of {finding.window} tokens for {call.model}")
    if ex.side:
        state.refusals.hopeless(call.account, call.digest, now, "overflow", **facts(ex, finding))


def ended(ex: Exchange, now: float) -> None:
    if ex.breaker is not None and ex.permit is not None:
        moved(ex, ex.breaker.ended(ex.permit, now))


def wait_for(state: State, ex: Exchange, finding: Finding, now: float, first: int | None = None) -> int:
    """Seconds to tell, remembered for this request: the open window, the upstream's own wait, or ours, doubled each time."""
    settings, call = state.settings.retry_after, ex.call
    if first is None:
        first = settings.overload if finding.kind is Kind.OVERLOAD else settings.challenge
    if finding.challenge is Challenge.BLOCKED:
        return settings.cap
    stated = finding.wait
    if finding.kind is Kind.RATE_LIMIT:
        stated = stated or float(first)  # as long the next time: it is no challenge that a repetition deepens
    left = state.breaker(call).state(now).left
    if left > 0:
        stated = max(left, stated or 0.0)
    ex.told = state.refusals.told(
        call.account,
        call.digest,
        now,
        first=first,
        cap=settings.cap,
        stated=stated,
        sent=ex.started,
        **facts(ex, finding),
    )
    return ex.told


def facts(ex: Exchange, finding: Finding) -> Facts:
    return {"upstream": ex.call.surface.upstream, **_words(ex, finding)}


def _words(ex: Exchange, finding: Finding) -> Words:
    return {"model": ex.call.model, "code": finding.code, "text": finding.text, "window": finding.window}
