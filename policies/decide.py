"""What a finding means for the client: let it through, answer in its place, or send the request again.

Permanent refusals are asked for before anything transient, so that a "try again" in one never causes a retry: the
recogniser already tells them apart, and here only the kinds marked transient can be sent again.
"""

from __future__ import annotations

from dataclasses import replace

from policies import accounting
from policies.breaker import tell
from policies.decisions import Commit, Decision, Replace, Resend
from policies.exchange import Exchange
from policies.findings import Finding
from policies.kinds import Challenge, Family, Kind, Reason, Role
from policies.refusal.error_kinds import HIDDEN_STATUS
from policies.replays import Again, Attempt
from policies.reply import dialects, wording
from policies.state import State

CHALLENGES: dict[Challenge, Reason] = {
    Challenge.BUSY: Reason.BUSY,
    Challenge.CAPTCHA: Reason.CAPTCHA,
    Challenge.BLOCKED: Reason.BLOCKED,
    Challenge.BODY_SIZE: Reason.BODY_SIZE,
}

REASONS = {kind: Reason(kind.value) for kind in Kind if kind is not Kind.CHALLENGE}

WAITING = frozenset({Kind.CHALLENGE, Kind.OVERLOAD})
"""Kinds that are answered with 529 or 503 and a wait."""


def reason_of(finding: Finding) -> Reason:
    if finding.kind is Kind.CHALLENGE:
        return CHALLENGES[finding.challenge or Challenge.CAPTCHA]
    return Reason.CUT if finding.kind is Kind.NOTHING and finding.cut else REASONS[finding.kind]


def decide(state: State, ex: Exchange, found: Finding, now: float, wall: float) -> Decision:
    """Decide over one upstream answer whose headers are still held."""
    finding = _by_body_size(state, ex, found) if found.kind is Kind.CHALLENGE else found
    ex.finding, ex.reason = finding, reason_of(finding).value
    if not ex.generation:
        return _aside(state, ex, finding, now)
    if finding.kind is Kind.ANSWER or finding.ends_answer:
        return _let_through(state, ex, finding, now)
    again = _again(state, ex, finding, now)
    if again is not None:
        return again
    if finding.honest:
        return _let_through(state, ex, finding, now)
    accounting.account_for(state, ex, finding, now, wall)
    return _settled(state, ex, finding, now)


def _settled(state: State, ex: Exchange, finding: Finding, now: float) -> Decision:
    """A refusal, or no answer at all, that is not sent again."""
    if finding.challenge is Challenge.BODY_SIZE:
        return _body_size(state, ex, finding, now)
    if finding.kind in WAITING:
        return _overloaded(state, ex, finding, now)
    if finding.kind is Kind.NOTHING:
        return _cut(ex) if finding.cut else _commit(ex)
    if ex.head is not None and ex.head.status < 400:
        return _hidden(state, ex, finding, now)
    return _passed(state, ex, finding)


def final(state: State, ex: Exchange, finding: Finding, now: float) -> Replace:
    """The honest answer to a refusal whose re-send failed to reach the upstream."""
    accounting.account_for(state, ex, finding, now, 0.0)
    if finding.kind in WAITING:
        return _overloaded(state, ex, finding, now)
    return _hidden(state, ex, replace(finding, status=finding.status or (ex.head.status if ex.head else None)), now)


def tapped(state: State, ex: Exchange, finding: Finding, now: float) -> bytes:
    """Account for a refusal in a running stream; the frame that ends it."""
    finding = _by_body_size(state, ex, finding)
    ex.tapped, ex.reason = finding, reason_of(finding).value
    accounting.account_for(state, ex, finding, now, 0.0)
    first = state.settings.retry_after.rate_limit if finding.kind is Kind.RATE_LIMIT else None
    wait = accounting.wait_for(state, ex, finding, now, first)
    ex.comment = f"The stream was ended at {_described(finding)}; told to wait {wait} s."
    message = _message(ex, finding, wait)
    if finding.challenge is Challenge.BODY_SIZE:
        message = _hopeless_size(state, ex, finding, now)
    return dialects.error_frame(
        ex.call.surface.wire, finding, message=message, wait=wait, request_id=ex.request_id
    )


# -- the kinds ------------------------------------------------------------------------------------------------


def _by_body_size(state: State, ex: Exchange, finding: Finding) -> Finding:
    """On chat.qwen.ai a body at or above the limit is challenged each time: Rfym21/Qwen2API#147, 3 of 3 from 129 KB."""
    sized = (
        finding.kind is Kind.CHALLENGE
        and finding.challenge is not Challenge.BLOCKED
        and ex.generation
        and ex.call.surface.family is Family.QWEN_WEB
        and ex.call.size >= state.settings.qwen_web.body_limit_bytes
    )
    return replace(finding, challenge=Challenge.BODY_SIZE, transient=False) if sized else finding


def _aside(state: State, ex: Exchange, finding: Finding, now: float) -> Decision:
    """Not a generation: a challenge is told truthfully, on a preparation step any refusal hidden in a 200; no strike."""
    hides = ex.head is not None and ex.head.status < 400
    if finding.challenge is Challenge.BLOCKED and not finding.honest:
        accounting.account_for(state, ex, finding, now, 0.0)  # the account is blocked whatever it asked
        return _replace(ex, finding, state.settings.retry_after.cap)
    if finding.kind is Kind.CHALLENGE and not finding.honest:
        wait = tell(finding.wait or state.settings.retry_after.challenge, state.settings.retry_after.cap)
        return _replace(ex, finding, wait)
    preparation = ex.call.surface.role is Role.PREPARATION
    if not (preparation and hides) or finding.ends_answer or finding.kind in (Kind.ANSWER, Kind.NOTHING):
        return Commit()
    if finding.kind is Kind.OVERLOAD:
        return _replace(ex, finding, tell(finding.wait or state.settings.retry_after.overload, state.settings.retry_after.cap))
    return _hidden(state, ex, finding, None)


def _let_through(state: State, ex: Exchange, finding: Finding, now: float) -> Commit:
    if finding.kind is Kind.ANSWER or finding.ends_answer:
        accounting.answered(state, ex, now)
        if ex.first is not None:
            ex.comment = f"{_described(ex.first).capitalize()} was sent again in place and answered{_tries(ex)}."
        return _commit(ex)
    accounting.ended(ex, now)
    return _commit(ex, _attempts(ex, finding))


def _again(state: State, ex: Exchange, finding: Finding, now: float) -> Resend | None:
    if state.settings.mode == "observe" or not finding.transient or not ex.replay:
        return None
    call, settings = ex.call, state.replay_settings(ex.call)
    attempt = Attempt(
        replay=ex.replay,
        sends=ex.sends,
        started=ex.started,
        account=call.account,
        digest=call.digest,
        one_time_token=call.one_time_token is not None,
        breaker_closed=state.breaker(call).closed,
        committed=ex.committed,
        settings=settings,
    )
    step = state.replays.next(attempt, finding, now)
    if not isinstance(step, Again):
        ex.kept_from_sending = step.why.value
        return None
    ex.first, ex.waiting = ex.first or finding, True
    ex.sends = step.attempt
    ex.waits.append(step.after)
    ex.notes.append(f"{_described(finding)}: sent again in {step.after:g} s, attempt {step.attempt} of {step.of}")
    return Resend(step.after, step.attempt, step.of)


def _body_size(state: State, ex: Exchange, finding: Finding, now: float) -> Replace:
    answer = dialects.too_large(
        ex.call.surface.wire,
        reason=Reason.BODY_SIZE,
        message=_hopeless_size(state, ex, finding, now),
        code=dialects.BODY_SIZE_CODE,
    )
    limit = state.settings.qwen_web.body_limit_bytes
    ex.comment = (
        f"A challenge for a body of {ex.call.size} bytes: from {limit} on it comes each time, so a retry is hopeless."
    )
    return Replace(answer, ex.comment)


def _hopeless_size(state: State, ex: Exchange, finding: Finding, now: float) -> str:
    """Remember that this body is challenged each time; what to say of it."""
    call = ex.call
    state.refusals.hopeless(call.account, call.digest, now, "body_size", **accounting.facts(ex, finding))
    limit = state.settings.qwen_web.body_limit_bytes
    return wording.body_size(size=call.size, limit=limit, site=ex.site, code=finding.code)


def _overloaded(state: State, ex: Exchange, finding: Finding, now: float) -> Replace:
    return _replace(ex, finding, accounting.wait_for(state, ex, finding, now))


def _replace(ex: Exchange, finding: Finding, wait: int) -> Replace:
    answer = dialects.overloaded(
        ex.call.surface.wire,
        reason=reason_of(finding),
        message=_message(ex, finding, wait),
        wait=wait,
        challenge=finding.kind is Kind.CHALLENGE,
        request_id=ex.request_id,
    )
    status = ex.head.status if ex.head else 0
    ex.told = wait
    ex.comment = f"{_described(finding).capitalize()} inside a {status} became a {answer.status}: wait {wait} s{_tries(ex)}."
    return Replace(answer, ex.comment, wait)


def _hidden(state: State, ex: Exchange, finding: Finding, now: float | None) -> Replace:
    """An error dressed up as a success leaves with a real status, its code and text kept. ``now`` None: no memory."""
    wait: int | None = None
    if finding.kind is Kind.RATE_LIMIT:
        first = state.settings.retry_after.rate_limit
        cap = state.settings.retry_after.cap
        wait = tell(finding.wait or first, cap) if now is None else accounting.wait_for(state, ex, finding, now, first)
    status = finding.status if finding.status is not None and finding.status >= 400 else HIDDEN_STATUS[finding.kind]
    answer = dialects.hidden(
        ex.call.surface.wire,
        finding,
        reason=reason_of(finding),
        status=status,
        message=wording.hidden(finding, wait=finding.wait, attempts=ex.sends),
        wait=wait,
        should_retry=False if finding.kind in (Kind.QUOTA, Kind.ACCOUNT) else None,
        request_id=ex.request_id,
    )
    ex.told = wait
    shown = ex.head.status if ex.head else 200
    ex.comment = f"{_described(finding).capitalize()} inside a {shown} became a {status}{_tries(ex)}."
    return Replace(answer, ex.comment, wait)


def _passed(state: State, ex: Exchange, finding: Finding) -> Commit:
    """An honest status of the upstream's own: passes, with at most a header that clients need to act on it."""
    headers = list(_attempts(ex, finding))
    if finding.kind is Kind.RATE_LIMIT and finding.wait and finding.wait_source in ("body", "text"):
        headers.append(("Retry-After", str(tell(finding.wait, state.settings.retry_after.cap))))
    if finding.kind in (Kind.QUOTA, Kind.ACCOUNT):
        headers.append(("x-should-retry", "false"))
    ex.comment = f"{_described(finding).capitalize()}: passed on{_tries(ex)}." if finding.row else ""
    return _commit(ex, tuple(headers))


def _cut(ex: Exchange) -> Replace:
    answer = dialects.bad_gateway(
        ex.call.surface.wire, reason=Reason.CUT, message=wording.bad_gateway(ex.site, attempts=ex.sends), request_id=ex.request_id
    )
    ex.comment = "The upstream broke off before it had answered: a real 502."
    return Replace(answer, ex.comment)


def _commit(ex: Exchange, headers: tuple[tuple[str, str | None], ...] = ()) -> Commit:
    ex.committed = True
    return Commit(headers)


def _attempts(ex: Exchange, finding: Finding) -> tuple[tuple[str, str | None], ...]:
    """What a refusal of the upstream's own carries after re-sends."""
    return (("X-Breakwater", f"{reason_of(finding)}; after {ex.sends} attempts"),) if ex.sends > 1 else ()


# -- words ----------------------------------------------------------------------------------------------------


def _message(ex: Exchange, finding: Finding, wait: int) -> str:
    true_wait = max(finding.wait or 0.0, float(wait))
    if finding.kind is Kind.OVERLOAD:
        return wording.overload(finding, site=ex.site, attempts=ex.sends, wait=true_wait)
    if finding.kind is not Kind.CHALLENGE:
        return wording.hidden(finding, attempts=ex.sends, wait=true_wait)
    spent = ex.call.one_time_token is not None
    return wording.challenge(finding, site=ex.site, attempts=ex.sends, wait=true_wait, token_spent=spent)


def _described(finding: Finding) -> str:
    name = finding.kind.value.replace("_", " ")
    if finding.challenge is not None:
        name = f"challenge ({finding.challenge.value})"
    article = "an" if name[0] in "aeiou" else "a"
    return f"{article} {name}" + (f" [{finding.row}]" if finding.row else "")


def _tries(ex: Exchange) -> str:
    return f" after {ex.sends} attempts" if ex.sends > 1 else ""
