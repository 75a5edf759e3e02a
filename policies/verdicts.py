"""What a finding means for the client: let it through, answer in its place, or send the request again.

Permanent refusals are asked for before anything transient, so that a "try again" in one never causes a retry: the
recogniser already tells them apart, and here only the kinds marked transient can be sent again.
"""

from __future__ import annotations

from dataclasses import replace

from policies import ledger
from policies.breaker import tell
from policies.calls import Family, Role
from policies.decisions import Commit, Decision, Reason, Replace, Resend
from policies.exchange import Exchange
from policies.findings import Challenge, Finding, Kind
from policies.memory import Memory
from policies.replays import Again, Attempt
from policies.wire import answers, messages
from policies.wire.meanings import HIDDEN_STATUS

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


def decide(memory: Memory, ex: Exchange, found: Finding, now: float, wall: float) -> Decision:
    """Decide over one upstream answer whose headers are still held."""
    finding = _by_body_size(memory, ex, found) if found.kind is Kind.CHALLENGE else found
    ex.finding, ex.reason = finding, reason_of(finding).value
    if not ex.generation:
        return _aside(memory, ex, finding, now)
    if finding.kind is Kind.ANSWER or finding.ends_answer:
        return _let_through(memory, ex, finding, now)
    again = _again(memory, ex, finding, now)
    if again is not None:
        return again
    if finding.honest:
        return _let_through(memory, ex, finding, now)
    ledger.account_for(memory, ex, finding, now, wall)
    return _settled(memory, ex, finding, now)


def _settled(memory: Memory, ex: Exchange, finding: Finding, now: float) -> Decision:
    """A refusal, or no answer at all, that is not sent again."""
    if finding.challenge is Challenge.BODY_SIZE:
        return _body_size(memory, ex, finding, now)
    if finding.kind in WAITING:
        return _overloaded(memory, ex, finding, now)
    if finding.kind is Kind.NOTHING:
        return _cut(ex) if finding.cut else _commit(ex)
    if ex.head is not None and ex.head.status < 400:
        return _hidden(memory, ex, finding, now)
    return _passed(memory, ex, finding)


def final(memory: Memory, ex: Exchange, finding: Finding, now: float) -> Replace:
    """The honest answer to a refusal whose re-send failed to reach the upstream."""
    ledger.account_for(memory, ex, finding, now, 0.0)
    if finding.kind in WAITING:
        return _overloaded(memory, ex, finding, now)
    return _hidden(memory, ex, replace(finding, status=finding.status or (ex.head.status if ex.head else None)), now)


def tapped(memory: Memory, ex: Exchange, finding: Finding, now: float) -> bytes:
    """Account for a refusal in a running stream; the frame that ends it."""
    finding = _by_body_size(memory, ex, finding)
    ex.tapped, ex.reason = finding, reason_of(finding).value
    ledger.account_for(memory, ex, finding, now, 0.0)
    first = memory.settings.retry_after.rate_limit if finding.kind is Kind.RATE_LIMIT else None
    wait = ledger.wait_for(memory, ex, finding, now, first)
    ex.comment = f"The stream was ended at {_described(finding)}; told to wait {wait} s."
    message = _message(ex, finding, wait)
    if finding.challenge is Challenge.BODY_SIZE:
        message = _hopeless_size(memory, ex, finding, now)
    return answers.error_frame(
        ex.call.surface.wire, finding, message=message, wait=wait, request_id=ex.request_id
    )


# -- the kinds ------------------------------------------------------------------------------------------------


def _by_body_size(memory: Memory, ex: Exchange, finding: Finding) -> Finding:
    """On chat.qwen.ai a body at or above the limit is challenged each time: Rfym21/Qwen2API#147, 3 of 3 from 129 KB."""
    sized = (
        finding.kind is Kind.CHALLENGE
        and finding.challenge is not Challenge.BLOCKED
        and ex.generation
        and ex.call.surface.family is Family.QWEN_WEB
        and ex.call.size >= memory.settings.qwen_web.body_limit_bytes
    )
    return replace(finding, challenge=Challenge.BODY_SIZE, transient=False) if sized else finding


def _aside(memory: Memory, ex: Exchange, finding: Finding, now: float) -> Decision:
    """Not a generation: a challenge is told truthfully, on a preparation step any refusal hidden in a 200; no strike."""
    hides = ex.head is not None and ex.head.status < 400
    if finding.challenge is Challenge.BLOCKED and not finding.honest:
        ledger.account_for(memory, ex, finding, now, 0.0)  # the account is blocked whatever it asked
        return _replace(ex, finding, memory.settings.retry_after.cap)
    if finding.kind is Kind.CHALLENGE and not finding.honest:
        wait = tell(finding.wait or memory.settings.retry_after.challenge, memory.settings.retry_after.cap)
        return _replace(ex, finding, wait)
    preparation = ex.call.surface.role is Role.PREPARATION
    if not (preparation and hides) or finding.ends_answer or finding.kind in (Kind.ANSWER, Kind.NOTHING):
        return Commit()
    if finding.kind is Kind.OVERLOAD:
        return _replace(ex, finding, tell(finding.wait or memory.settings.retry_after.overload, memory.settings.retry_after.cap))
    return _hidden(memory, ex, finding, None)


def _let_through(memory: Memory, ex: Exchange, finding: Finding, now: float) -> Commit:
    if finding.kind is Kind.ANSWER or finding.ends_answer:
        ledger.answered(memory, ex, now)
        if ex.first is not None:
            ex.comment = f"{_described(ex.first).capitalize()} was sent again in place and answered{_tries(ex)}."
        return _commit(ex)
    ledger.ended(ex, now)
    return _commit(ex, _attempts(ex, finding))


def _again(memory: Memory, ex: Exchange, finding: Finding, now: float) -> Resend | None:
    if memory.settings.mode == "observe" or not finding.transient or not ex.replay:
        return None
    call, settings = ex.call, memory.replay_settings(ex.call)
    attempt = Attempt(
        replay=ex.replay,
        sends=ex.sends,
        started=ex.started,
        account=call.account,
        digest=call.digest,
        one_time_token=call.one_time_token is not None,
        breaker_closed=memory.breaker(call).closed,
        committed=ex.committed,
        settings=settings,
    )
    step = memory.replays.next(attempt, finding, now)
    if not isinstance(step, Again):
        ex.kept_from_sending = step.why.value
        return None
    ex.first, ex.waiting = ex.first or finding, True
    ex.sends = step.attempt
    ex.waits.append(step.after)
    ex.notes.append(f"{_described(finding)}: sent again in {step.after:g} s, attempt {step.attempt} of {step.of}")
    return Resend(step.after, step.attempt, step.of)


def _body_size(memory: Memory, ex: Exchange, finding: Finding, now: float) -> Replace:
    answer = answers.too_large(
        ex.call.surface.wire,
        reason=Reason.BODY_SIZE,
        message=_hopeless_size(memory, ex, finding, now),
        code=answers.BODY_SIZE_CODE,
    )
    limit = memory.settings.qwen_web.body_limit_bytes
    ex.comment = (
        f"A challenge for a body of {ex.call.size} bytes: from {limit} on it comes each time, so a retry is hopeless."
    )
    return Replace(answer, ex.comment)


def _hopeless_size(memory: Memory, ex: Exchange, finding: Finding, now: float) -> str:
    """Remember that this body is challenged each time; what to say of it."""
    call = ex.call
    memory.refusals.hopeless(call.account, call.digest, now, "body_size", **ledger.facts(ex, finding))
    limit = memory.settings.qwen_web.body_limit_bytes
    return messages.body_size(size=call.size, limit=limit, site=ex.site, code=finding.code)


def _overloaded(memory: Memory, ex: Exchange, finding: Finding, now: float) -> Replace:
    return _replace(ex, finding, ledger.wait_for(memory, ex, finding, now))


def _replace(ex: Exchange, finding: Finding, wait: int) -> Replace:
    answer = answers.overloaded(
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


def _hidden(memory: Memory, ex: Exchange, finding: Finding, now: float | None) -> Replace:
    """An error dressed up as a success leaves with a real status, its code and text kept. ``now`` None: no memory."""
    wait: int | None = None
    if finding.kind is Kind.RATE_LIMIT:
        first = memory.settings.retry_after.rate_limit
        cap = memory.settings.retry_after.cap
        wait = tell(finding.wait or first, cap) if now is None else ledger.wait_for(memory, ex, finding, now, first)
    status = finding.status if finding.status is not None and finding.status >= 400 else HIDDEN_STATUS[finding.kind]
    answer = answers.hidden(
        ex.call.surface.wire,
        finding,
        reason=reason_of(finding),
        status=status,
        message=messages.hidden(finding, wait=finding.wait, attempts=ex.sends),
        wait=wait,
        should_retry=False if finding.kind in (Kind.QUOTA, Kind.ACCOUNT) else None,
        request_id=ex.request_id,
    )
    ex.told = wait
    shown = ex.head.status if ex.head else 200
    ex.comment = f"{_described(finding).capitalize()} inside a {shown} became a {status}{_tries(ex)}."
    return Replace(answer, ex.comment, wait)


def _passed(memory: Memory, ex: Exchange, finding: Finding) -> Commit:
    """An honest status of the upstream's own: passes, with at most a header that clients need to act on it."""
    headers = list(_attempts(ex, finding))
    if finding.kind is Kind.RATE_LIMIT and finding.wait and finding.wait_source in ("body", "text"):
        headers.append(("Retry-After", str(tell(finding.wait, memory.settings.retry_after.cap))))
    if finding.kind in (Kind.QUOTA, Kind.ACCOUNT):
        headers.append(("x-should-retry", "false"))
    ex.comment = f"{_described(finding).capitalize()}: passed on{_tries(ex)}." if finding.row else ""
    return _commit(ex, tuple(headers))


def _cut(ex: Exchange) -> Replace:
    answer = answers.bad_gateway(
        ex.call.surface.wire, reason=Reason.CUT, message=messages.bad_gateway(ex.site, attempts=ex.sends), request_id=ex.request_id
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
        return messages.overload(finding, site=ex.site, attempts=ex.sends, wait=true_wait)
    if finding.kind is not Kind.CHALLENGE:
        return messages.hidden(finding, attempts=ex.sends, wait=true_wait)
    spent = ex.call.one_time_token is not None
    return messages.challenge(finding, site=ex.site, attempts=ex.sends, wait=true_wait, token_spent=spent)


def _described(finding: Finding) -> str:
    name = finding.kind.value.replace("_", " ")
    if finding.challenge is not None:
        name = f"challenge ({finding.challenge.value})"
    article = "an" if name[0] in "aeiou" else "a"
    return f"{article} {name}" + (f" [{finding.row}]" if finding.row else "")


def _tries(ex: Exchange) -> str:
    return f" after {ex.sends} attempts" if ex.sends > 1 else ""
