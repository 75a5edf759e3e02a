"""Codes of chat.qwen.ai. RateLimited is its daily quota, with the hours to wait in ``num``."""

from __future__ import annotations

from policies.kinds import Challenge, Crowd, Kind
from policies.refusal.codes.rows import Row

WEB = "chat.qwen.ai, Rfym21/Qwen2API"
DANY = "danyapi tests"
IN_PROGRESS = r"(?:the )?chat is (?:still )?in progress"

ROWS = (
    Row("RateLimited", Kind.QUOTA, WEB, ("RateLimited",), status=429),
    Row("quota_limit", Kind.QUOTA, WEB, ("quota_limit",), status=429),
    Row("unauthorized", Kind.ACCOUNT, DANY, ("unauthorized",), status=401),
    Row("Too_Many_Requests", Kind.RATE_LIMIT, DANY, ("Too_Many_Requests",), status=429),
    Row("ContextLengthExceeded", Kind.OVERFLOW, DANY, ("ContextLengthExceeded", "TokenLimit"), status=400),
    Row("Bad_Request-internal", Kind.UPSTREAM_ERROR, WEB, ("Bad_Request",), text=r"Internal error", status=502),
    Row(
        "Bad_Request-in-progress",
        Kind.RATE_LIMIT,
        "clients of chat.qwen.ai: one generation at a time in a chat",
        ("Bad_Request",),
        text=IN_PROGRESS,
        status=429,
        crowd=Crowd.WITH_OTHERS,
    ),
    Row("Bad_Request", Kind.CALLER_ERROR, WEB, ("Bad_Request",), status=400),
    Row("Not_Found", Kind.CALLER_ERROR, "named like Bad_Request", ("Not_Found",), status=404),
    Row("captcha", Kind.CHALLENGE, WEB, ("upstream_waf_challenge",), status=503, challenge=Challenge.CAPTCHA),
)

TEXTS = (
    Row(
        "text-daily",
        Kind.QUOTA,
        WEB,
        text=r"[^\n:：]{0,60}?(?:reached the (?:upper limit|daily usage limit)|upper limit for today|已达上限)",
        status=429,
    ),
    Row(
        "text-in-progress",
        Kind.RATE_LIMIT,
        "clients of chat.qwen.ai: one generation at a time in a chat",
        text=IN_PROGRESS,
        status=429,
        crowd=Crowd.WITH_OTHERS,
    ),
    Row("text-chat", Kind.CALLER_ERROR, "FreeQwenApi#59", text=r"chat \S{1,64} is not exist", status=400),
)
