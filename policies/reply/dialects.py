"""Answers of our own, in the dialect that the client of a path expects. ``request_id`` comes from outside."""

from __future__ import annotations

import math
import re
from typing import Any

import msgspec

from policies.decisions import Answer
from policies.kinds import Finding, Kind, Wire
from policies.reply.wording import CAP, plain_code

SIDE_REQUEST_CODE = "side_request_payload_too_large"
BODY_SIZE_CODE = "request_body_challenged"
UNAVAILABLE = "upstream_unavailable"
WAF_CHALLENGE = "upstream_waf_challenge"
"""The name that bridges of chat.qwen.ai know for a challenge."""

_WAF_WIRES = frozenset({Wire.QWEN_WEB, Wire.ZAI_WEB, Wire.OTHER})
_UNSAFE = re.compile(r"[^\x20-\x7e]")
_NUMERIC = re.compile(r"[\d.\-\s]*")

ANTHROPIC_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "invalid_request_error",  # request_too_large makes clients cut the main conversation
    429: "rate_limit_error",
    503: "overloaded_error",
    529: "overloaded_error",
}
"""docs.anthropic.com errors: ``error.type`` by status; others by class."""

OPENAI_TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
"""``error.type`` by status on openai-like wires; others by class."""

WORDS: dict[Kind, str] = {
    Kind.CHALLENGE: UNAVAILABLE,
    Kind.OVERLOAD: UNAVAILABLE,
    Kind.RATE_LIMIT: "rate_limit_exceeded",
    Kind.QUOTA: "insufficient_quota",
    Kind.ACCOUNT: "account_error",
    Kind.FILTER: "content_filter",
    Kind.OVERFLOW: "context_length_exceeded",
    Kind.CALLER_ERROR: "invalid_request",
}
"""``error.code`` where the upstream's own would mislead. A number is taken for a status by Qwen Code (1234 is then no
retryable 500), and ``insufficient_quota`` makes Codex give up, though DashScope says it of a limit per minute."""

BARE_ENDS = (("QwenCode/", Wire.OPENAI, "measured: 2 of 2 turns end in the answer so, none after an error frame"),)
"""Clients by the beginning of their User-Agent, and the wire on which they send a stream again that just ends."""

_TRANSIENT = frozenset({Kind.CHALLENGE, Kind.OVERLOAD, Kind.RATE_LIMIT})


def retry_after(wait: float) -> int:
    """Whole seconds that every client keeps: 1 to 59."""
    return max(1, min(CAP, math.ceil(wait)))


def _answer(status: int, body: dict[str, Any], reason: str, wait: float | None = None, *, retry: bool | None = None) -> Answer:
    headers = [("content-type", "application/json"), ("X-Breakwater", _UNSAFE.sub("_", reason))]
    if wait is not None:
        headers.append(("Retry-After", str(retry_after(wait))))
    if retry is not None:
        headers.append(("x-should-retry", str(retry).lower()))
    return Answer(status, tuple(headers), msgspec.json.encode(body), reason)


def _body(wire: Wire, request_id: str, *, kind: str, code: str | None, message: str, **more: Any) -> dict[str, Any]:
    """The error object of a wire: ``kind`` is its ``type``, ``more`` goes beside it."""
    if wire is Wire.DASHSCOPE_NATIVE:
        return {"code": code or UNAVAILABLE, "message": message, "request_id": request_id, **more}
    if wire is Wire.ANTHROPIC:
        coded = {"code": code} if code else {}
        return {"type": "error", "error": {"type": kind, **coded, "message": message, **more}, "request_id": request_id}
    return {"error": {"message": message, "type": kind, "param": None, "code": code or UNAVAILABLE, **more}}


def _kind(wire: Wire, status: int) -> str:
    own, server = (ANTHROPIC_TYPES, "api_error") if wire is Wire.ANTHROPIC else (OPENAI_TYPES, "server_error")
    return own.get(status) or (server if status >= 500 else "invalid_request_error")


def overloaded(  # noqa: PLR0913 - each is said by another rule
    wire: Wire, *, reason: str, message: str, wait: float, challenge: bool = False, request_id: str
) -> Answer:
    """Not now: 529 on the anthropic wire, 503 on the others, with what is left of the wait in seconds."""
    status = 529 if wire is Wire.ANTHROPIC else 503
    code = WAF_CHALLENGE if challenge and wire in _WAF_WIRES else None
    return _answer(status, _body(wire, request_id, kind=_kind(wire, status), code=code, message=message), reason, wait)


def limited(wire: Wire, *, reason: str, message: str, wait: float, request_id: str) -> Answer:
    """429: as many calls as the account is given are under way; with the wait in seconds."""
    code = WORDS[Kind.RATE_LIMIT]
    return _answer(429, _body(wire, request_id, kind=_kind(wire, 429), code=code, message=message), reason, wait)


def too_large(wire: Wire, *, reason: str, message: str, code: str = SIDE_REQUEST_CODE) -> Answer:
    """413, whose request would be refused however often it came."""
    body: dict[str, Any] = {"type": "error"} if wire is Wire.ANTHROPIC else {}
    if wire is Wire.DASHSCOPE_NATIVE:
        body = {"code": code, "message": message}
    body["error"] = {"type": "invalid_request_error", "code": code, "retryable": False, "message": message}
    return _answer(413, body, reason, retry=False)


def _word(finding: Finding) -> str:
    """``error.code`` on openai-like wires: the upstream's own where clients read it rightly, else a word for the kind."""
    code = plain_code(finding.code)
    misleads = not code or _NUMERIC.fullmatch(code) or (finding.kind in _TRANSIENT and "quota" in code.lower())
    return WORDS.get(finding.kind, "upstream_error") if misleads else code


def hidden(  # noqa: PLR0913 - each is said by another rule
    wire: Wire,
    finding: Finding,
    *,
    reason: str,
    status: int,
    message: str,
    request_id: str,
    wait: float | None = None,
    should_retry: bool | None = None,
) -> Answer:
    """An error that hid in a 200, with the status that it should have had.

    The upstream's code stays as it is on the anthropic and native wires. On the others ``error.code`` is a word, and
    the upstream's own is ``error.upstream_code`` where it had to make room.
    """
    own, kind, more = plain_code(finding.code), _kind(wire, status), {}
    code = own or (None if wire is Wire.ANTHROPIC else _word(finding))
    if wire not in (Wire.ANTHROPIC, Wire.DASHSCOPE_NATIVE):
        code = _word(finding)
        more = {"upstream_code": own} if own and own != code else {}
        kind = "insufficient_quota" if finding.kind is Kind.QUOTA else kind
    body = _body(wire, request_id, kind=kind, code=code, message=message, **more)
    return _answer(status, body, reason, wait, retry=should_retry)


def bad_gateway(wire: Wire, *, reason: str, message: str, request_id: str) -> Answer:
    """The upstream went away before any answer. No Retry-After: SDKs try again by themselves."""
    return _answer(502, _body(wire, request_id, kind=_kind(wire, 502), code=None, message=message), reason)


def ends_bare(wire: Wire, user_agent: str) -> bool:
    """True for a client that sends a turn again where its stream ends without frame and finish, and not after an error."""
    return any(wire is known and user_agent.startswith(name) for name, known, _ in BARE_ENDS)


def error_frame(  # noqa: PLR0913 - each is said by another rule
    wire: Wire, finding: Finding, *, message: str, wait: float, request_id: str, user_agent: str = ""
) -> bytes:
    """What closes a stream that has begun; ``retry_after`` in whole seconds is in the error object.

    Empty for a client of ``BARE_ENDS``: the stream just ends.
    """
    if ends_bare(wire, user_agent):
        return b""
    seconds = retry_after(wait)
    limited = finding.kind is Kind.RATE_LIMIT
    if wire is Wire.RESPONSES:
        return _failed(message, seconds, request_id)
    status = 429 if limited else 503
    if wire is Wire.ANTHROPIC:
        body = _body(wire, request_id, kind=_kind(wire, status), code=None, message=message, retry_after=seconds)
        return b"event: error\ndata: %b\n\n" % msgspec.json.encode(body)
    if wire is Wire.DASHSCOPE_NATIVE:
        code = "Throttling" if limited else UNAVAILABLE
        body = _body(wire, request_id, kind="", code=code, message=message, retry_after=seconds)
        return b"event:error\n:HTTP_STATUS/%d\ndata:%b\n\n" % (status, msgspec.json.encode(body))
    challenged = finding.kind is Kind.CHALLENGE and wire in _WAF_WIRES
    code = WAF_CHALLENGE if challenged else WORDS.get(finding.kind, UNAVAILABLE)
    body = _body(wire, request_id, kind=_kind(wire, status), code=code, message=message, retry_after=seconds)
    return b"data: %b\n\ndata: [DONE]\n\n" % msgspec.json.encode(body)


def _failed(message: str, seconds: int, request_id: str) -> bytes:
    """Codex keeps a wait for this code and these words only, and gives up at once on ``server_is_overloaded``."""
    error = {"code": "rate_limit_exceeded", "message": f"{message} Please try again in {seconds}s.", "retry_after": seconds}
    response: dict[str, Any] = {"id": f"resp_{request_id}", "object": "response", "status": "failed", "error": error}
    response |= {"incomplete_details": None, "output": [], "usage": None}
    event = {"type": "response.failed", "sequence_number": 0, "response": response}
    return b"event: response.failed\ndata: %b\n\n" % msgspec.json.encode(event)
