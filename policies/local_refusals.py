"""What a request is told that is refused here, with nothing sent."""

from __future__ import annotations

from collections.abc import Callable

from policies.breaker import tell
from policies.decisions import Answer, Refuse
from policies.exchange import Exchange
from policies.kinds import Reason
from policies.refusal_memory import Remembered
from policies.reply import dialects, wording
from policies.side_requests import Oversize

WORDS: dict[Reason, tuple[Callable[..., str], str]] = {
    Reason.ACCOUNT_BLOCKED: (wording.blocked, "this account is blocked upstream"),
    Reason.REMEMBERED_WAIT: (wording.remembered_wait, "the same request was refused and its wait is not over"),
    Reason.BREAKER_OPEN: (wording.breaker_open, "the breaker is open"),
    Reason.PROBE_OUT: (wording.breaker_open, "one probe is finding out whether the upstream answers again"),
    Reason.STATED_WAIT: (wording.stated_wait, "the upstream has asked for a wait"),
    Reason.NO_SLOT: (wording.no_slot, "the account's calls at a time are all under way"),
    Reason.SLOW_START: (wording.queued, "after a refusal one request goes first, and it has no answer yet"),
    Reason.QUEUE_FULL: (wording.queued, "as many requests wait here as may"),
    Reason.CLOSING: (wording.closing, "this proxy is ending"),
}
"""The message for the client, and the reason in the comment."""


def told(ex: Exchange, reason: Reason, left: float) -> Refuse:
    """The refusal of a request that need only wait: 529 or 503, 429 for want of a slot, with the seconds that are ``left``."""
    wait = tell(left, ex.state.settings.retry_after.cap)
    words, why = WORDS[reason]
    make = dialects.limited if reason is Reason.NO_SLOT else dialects.overloaded
    shown = left if reason is Reason.ACCOUNT_BLOCKED else wait
    answer = make(ex.call.surface.wire, reason=reason, message=words(ex.site, wait=shown), wait=wait, request_id=ex.request_id)
    return _refuse(answer, f"Refused here: {why}; told to wait {wait} s.", wait)


def oversize(ex: Exchange, over: Oversize) -> Refuse:
    """The 413 of a side request that its window cannot hold."""
    model = ex.call.model
    message = wording.side_request(estimate=over.estimate, window=over.window, model=model)
    answer = dialects.too_large(ex.call.surface.wire, reason=Reason.SIDE_REQUEST, message=message)
    figures = f"about {over.estimate} tokens against a window of {over.effective_window} ({model})"
    return _refuse(answer, f"Side request refused here: {figures}.")


def hopeless(ex: Exchange, found: Remembered) -> Refuse:
    """The 413 of a request that the upstream refused minutes ago and would refuse again."""
    reason, code, text = Reason.REMEMBERED_OVERFLOW, dialects.SIDE_REQUEST_CODE, wording.remembered_overflow(model=ex.call.model)
    if found.kind == "body_size":
        reason, code = Reason.REMEMBERED_BODY_SIZE, dialects.BODY_SIZE_CODE
        limit = ex.state.settings.qwen_web.body_limit_bytes
        text = wording.body_size(size=ex.call.size, limit=limit, site=ex.site, code=found.code)
    answer = dialects.too_large(ex.call.surface.wire, reason=reason, message=text, code=code)
    return _refuse(answer, "Refused here: the upstream refused the same request minutes ago, and it cannot pass.")


def _refuse(answer: Answer, comment: str, wait: int | None = None) -> Refuse:
    return Refuse(answer, reason=answer.reason, comment=comment, wait=wait)
