"""What a request that is not sent is told: the words and the wait of each refusal here."""

from __future__ import annotations

from policies.breaker import Refused, tell
from policies.decisions import Refuse
from policies.exchange import Exchange
from policies.kinds import Reason
from policies.refusal_memory import Remembered
from policies.reply import dialects, wording
from policies.state import State


def told_again(state: State, ex: Exchange, found: Remembered) -> Refuse:
    wait = tell(found.left, state.settings.retry_after.cap)
    blocked = found.kind == "blocked"
    reason = Reason.ACCOUNT_BLOCKED if blocked else Reason.REMEMBERED_WAIT
    text = (
        wording.blocked(ex.site, left=found.left)
        if blocked
        else wording.remembered_wait(ex.site, wait=found.left)
    )
    answer = dialects.overloaded(
        ex.call.surface.wire, reason=reason, message=text, wait=wait, challenge=False, request_id=ex.request_id
    )
    what = "this account is blocked upstream" if blocked else "the same request was refused and its wait is not over"
    return Refuse(answer, f"Refused here: {what}, {wait} s left to wait.", wait)


def hopeless(state: State, ex: Exchange, found: Remembered) -> Refuse:
    if found.kind == "body_size":
        reason, code = Reason.REMEMBERED_BODY_SIZE, dialects.BODY_SIZE_CODE
        text = wording.body_size(
            size=ex.call.size,
            limit=state.settings.qwen_web.body_limit_bytes,
            site=ex.site,
            code=found.code,
        )
    else:
        reason, code = Reason.REMEMBERED_OVERFLOW, dialects.SIDE_REQUEST_CODE
        text = wording.remembered_overflow(model=ex.call.model)
    answer = dialects.too_large(ex.call.surface.wire, reason=reason, message=text, code=code)
    return Refuse(answer, "Refused here: the upstream refused the same request minutes ago, and it cannot pass.")


def breaker_open(state: State, ex: Exchange, refused: Refused) -> Refuse:
    wait = tell(refused.left, state.settings.retry_after.cap)
    reason = Reason.PROBE_OUT if refused.probe_out else Reason.BREAKER_OPEN
    answer = dialects.overloaded(
        ex.call.surface.wire,
        reason=reason,
        message=wording.breaker_open(ex.site, wait=wait),
        wait=wait,
        challenge=False,
        request_id=ex.request_id,
    )
    why = "one probe is finding out whether the upstream answers again" if refused.probe_out else "the breaker is open"
    return Refuse(answer, f"Refused here: {why}; told to wait {wait} s.", wait)
