"""What a row of a code table says, and the rows of the dialects themselves, whoever speaks them; a family's own tables are read first."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from policies.kinds import Challenge, Crowd, Kind


@dataclass(frozen=True, slots=True)
class Row:
    """One fact: codes and, where the code alone does not tell, how the message begins."""

    name: str
    kind: Kind
    source: str
    codes: str = ""
    """Separated by blanks, compared without regard to case. Empty: the message alone tells."""
    text: str = ""
    """Regular expression that the message begins with; empty: any message."""
    status: int | None = None
    """The status that the answer has where it does not hide in another; None: the usual one of its kind."""
    challenge: Challenge | None = None
    words_tell: bool = False
    """A row by text may say otherwise: one code for a throttle, a spent quota and an overload."""
    crowd: Crowd | None = None
    """Too many calls at a time."""
    transient: bool = False
    """For a challenge: a slower repetition may pass."""

    def begins(self, words: str) -> bool:
        return not self.text or _compiled(self.text).match(words) is not None


@cache
def _compiled(text: str) -> re.Pattern[str]:
    return re.compile(text, re.IGNORECASE)


ANTHROPIC = "docs.anthropic.com errors"
OPENAI = "platform.openai.com error-codes"
MTOP = "Aliyun mtop"
GATEWAY = "gateways in public reports"

ROWS = (
    Row("own-413", Kind.CALLER_ERROR, "this project", "side_request_payload_too_large", status=413),
    Row("waf", Kind.CHALLENGE, "Rfym21/Qwen2API", "upstream_waf_challenge", challenge=Challenge.CAPTCHA),
    Row("quota", Kind.QUOTA, OPENAI, "insufficient_quota quota_exceeded QuotaExceeded"),
    Row("usage-limit", Kind.QUOTA, "opencode Go", "GoUsageLimitError usage_limit_reached"),
    Row("authentication", Kind.ACCOUNT, ANTHROPIC, "authentication_error invalid_api_key unauthorized UNAUTHENTICATED"),
    Row("mtop-session", Kind.ACCOUNT, MTOP, "FAIL_SYS_TOKEN_EXPIRED FAIL_SYS_TOKEN_EXOIRED FAIL_SYS_SESSION_EXPIRED"),
    Row("permission", Kind.ACCOUNT, ANTHROPIC, "permission_error PERMISSION_DENIED", status=403),
    Row("billing", Kind.ACCOUNT, OPENAI, "billing_error billing_hard_limit_reached insufficient_balance", status=402),
    Row("content-filter", Kind.FILTER, OPENAI, "content_filter content_policy_violation"),
    Row("overloaded", Kind.OVERLOAD, ANTHROPIC, "overloaded_error overloaded server_is_overloaded engine_overloaded_error"),
    Row("rate-limit", Kind.RATE_LIMIT, OPENAI,
        "rate_limit_error rate_limit_exceeded too_many_requests RESOURCE_EXHAUSTED ThrottlingException"),
    Row("caller", Kind.CALLER_ERROR, ANTHROPIC, "invalid_request_error BadRequestError INVALID_ARGUMENT bad_request"),
    Row("not-found", Kind.CALLER_ERROR, ANTHROPIC, "not_found_error model_not_found NOT_FOUND", status=404),
    Row("too-large", Kind.CALLER_ERROR, ANTHROPIC, "request_too_large", status=413),
    Row("text-crowded", Kind.CHALLENGE, "Rfym21/Qwen2API: the verdict as a bridge's message",
        text=r"(?:FAIL_SYS_USER_VALIDATE\W{1,4})?(?:FAIL_SYS_)?RGV587|哎哟喂.{0,3}被挤爆", challenge=Challenge.BUSY),
    Row("text-verdict", Kind.CHALLENGE, MTOP, text=r"FAIL_SYS_USER_VALIDATE\b", challenge=Challenge.CAPTCHA),
    Row("text-concurrency", Kind.RATE_LIMIT, "QwenLM/qwen-code#3409, Wei-Shaw/sub2api#435, Wei-Shaw/claude-relay-service#773",
        text=r"Too many concurrent requests|(?:\w+ ){0,2}concurrency limit (?:exceeded|reached)|Concurrent \w+ limit",
        crowd=Crowd.ALWAYS),
    Row("text-queue", Kind.OVERLOAD, "agentscope-ai/QwenPaw#6708", text=r"The request queue is full"),
    Row("text-per-day", Kind.QUOTA, "Bedrock", text=r"Too many tokens per day"),
    Row("text-quota", Kind.QUOTA, GATEWAY,
        text=r"(?:your )?(?:daily |usage )?quota (?:is |has been )?exceeded|You (?:have )?exceeded your \w{0,10} ?quota|Usage limit reached"),
    Row("text-long-context", Kind.ACCOUNT, ANTHROPIC, text=r"Extra usage is required for long context", status=429),
    Row("text-balance", Kind.ACCOUNT, GATEWAY, text=r"insufficient (?:balance|credits?|funds)\b", status=402),
    Row("text-key", Kind.ACCOUNT, OPENAI, text=r"(?:Incorrect|Invalid) API key\b"),
    Row("text-rate", Kind.RATE_LIMIT, GATEWAY, text=r"Too many requests\b|Rate limit (?:reached|exceeded)\b"),
    Row("text-overloaded", Kind.OVERLOAD, ANTHROPIC, text=r"Overloaded\s*\.?\s*$"),
)  # fmt: skip

HIDDEN = "docs.z.ai api-code: what its unlisted codes are about"
HIDDEN_WORDS = (
    Row("policy", Kind.FILTER, HIDDEN, text=r"\bpolicy\b|\bpolicies\b|inappropriate content|违规|敏感"),
    Row("account", Kind.ACCOUNT, HIDDEN,
        text=r"\b(?:your|the|this|user) (?:account|subscription)\b|\baccount (?:is|has|not)\b|\bapi[ _-]?key\b|账户|账号|密钥"),
    Row("parameter", Kind.CALLER_ERROR, HIDDEN, text=r"\bparameters?\b|\binvalid request\b|参数"),
)  # fmt: skip
"""Anywhere in the message of an error that hides in a success, whose code no row knows: the status that it should have."""
PASSING = re.compile(
    r"try again|retry|later|time[sd]? ?out|temporar|internal|unavailable|overload|busy|繁忙|稍后|重试|超时|异常", re.IGNORECASE
)
"""Beside these words an unknown error stays one of the upstream's own, which clients send again."""

HIDDEN_ONLY = frozenset({"caller", "not-found", "too-large"})
"""Rows that give a status to an error in a 200; under an error status that status tells more."""

MARKERS = ("verify failed", "risk control", "风控", "rate limit", "too many requests", "try again")
"""In the message of a 4xx that no row knows: a slower repetition may pass."""
