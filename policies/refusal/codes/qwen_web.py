"""Codes of chat.qwen.ai. RateLimited is its daily quota, with the hours to wait in ``num``."""

from __future__ import annotations

from policies.kinds import Crowd, Kind
from policies.refusal.codes.rows import Row

WEB = "chat.qwen.ai, Rfym21/Qwen2API"

ROWS = (
    Row("RateLimited", Kind.QUOTA, WEB, ("RateLimited",)),
    Row("quota_limit", Kind.QUOTA, WEB, ("quota_limit",)),
    Row("Bad_Request-internal", Kind.UPSTREAM_ERROR, WEB, ("Bad_Request",), text=r"Internal error", status=502),
    Row("Bad_Request", Kind.CALLER_ERROR, WEB, ("Bad_Request",), words_tell=True),
    Row("Not_Found", Kind.CALLER_ERROR, "named like Bad_Request", ("Not_Found",), status=404),
)

TEXTS = (
    Row(
        "text-daily",
        Kind.QUOTA,
        WEB,
        text=r"[^\n:：]{0,60}?(?:reached the (?:upper limit|daily usage limit)|upper limit for today|已达上限)",
    ),
    Row(
        "text-in-progress",
        Kind.RATE_LIMIT,
        "AppsGanin/ai-free-vscode: one generation at a time in a chat",
        text=r"(?:the )?chat is (?:still )?in progress",
        crowd=Crowd.WITH_OTHERS,
    ),
    Row("text-chat", Kind.CALLER_ERROR, "FreeQwenApi#59", text=r"chat \S{1,64} is not exist"),
)
