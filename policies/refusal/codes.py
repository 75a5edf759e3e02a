"""Codes and words of refusals as tables: a row is one fact with its source. A family's own tables are read before the dialects'."""

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


# -- the dialects themselves, whoever speaks them

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


# -- DashScope and Model Studio, native and compatible, and the coding plan. ``insufficient_quota`` and AllocationQuota are a
# throttle of tokens per minute here; only the words tell a spent quota.

ALIYUN = "help.aliyun.com error-code"
PLAN = "help.aliyun.com coding plan FAQ"

DASHSCOPE_ROWS = (
    Row("AllocationQuota.FreeTierOnly", Kind.QUOTA, ALIYUN, "AllocationQuota.FreeTierOnly", status=403),
    Row("NotPurchased", Kind.ACCOUNT, ALIYUN, "CommodityNotPurchased PrepaidBillOverdue PostpaidBillOverdue", status=429),
    Row("AccessDenied", Kind.ACCOUNT, ALIYUN, "AccessDenied AccessDenied.Unpurchased Model.AccessDenied Workspace.AccessDenied",
        status=403),
    Row("Arrearage", Kind.ACCOUNT, ALIYUN, "Arrearage", status=400),
    Row("InvalidApiKey", Kind.ACCOUNT, ALIYUN, "InvalidApiKey invalid_api_key"),
    Row("DataInspectionFailed", Kind.FILTER, ALIYUN, "DataInspectionFailed data_inspection_failed"),
    Row("RateQuota", Kind.RATE_LIMIT, ALIYUN, "Throttling.RateQuota LimitRequests limit_requests", words_tell=True),
    Row("BurstRate", Kind.RATE_LIMIT, ALIYUN, "Throttling.BurstRate limit_burst_rate", words_tell=True),
    Row("AllocationQuota", Kind.RATE_LIMIT, ALIYUN, "Throttling.AllocationQuota insufficient_quota", words_tell=True),
    Row("Throttling", Kind.RATE_LIMIT, ALIYUN, "Throttling", words_tell=True),
    Row("ModelServingUnknownError", Kind.UPSTREAM_ERROR,
        "QwenLM/qwen-code#1641: what the model's server sent is nested in its message",
        "ModelServingError.ModelServingUnknownError ModelServingUnknownError", status=500, words_tell=True),
    Row("ModelServingError", Kind.OVERLOAD, ALIYUN, "ModelServingError ModelUnavailable"),
    Row("InternalError", Kind.UPSTREAM_ERROR, ALIYUN,
        "InternalError InternalError.Algo InternalError.Timeout SystemError ModelServiceFailed RequestTimeOut", status=500,
        words_tell=True),
    Row("InvalidParameter", Kind.CALLER_ERROR, ALIYUN, "InvalidParameter invalid_parameter_error BadRequest BadRequest.TooLarge"),
    Row("ModelNotFound", Kind.CALLER_ERROR, ALIYUN, "ModelNotFound model_not_found", status=404),
    Row("text-free", Kind.QUOTA, ALIYUN,
        text=r"(?:the |your )?free (?:allocated )?quota (?:exceeded|has been (?:exhausted|used up))"
        r"|the free tier of the model has been exhausted|(?:您的|该模型的?)?免费(?:额度|配额)"),
    Row("text-plan-window", Kind.QUOTA, PLAN,
        text=r"(?:your |the |you have exceeded (?:your|the) )?(?:\d+[\s-]?)?(?:hour|week|month)(?:ly)? (?:allocated )?quota (?:has been |is )?(?:exceeded|exhausted)"),
    Row("text-arrears", Kind.ACCOUNT, ALIYUN, text=r"Access denied, please make sure your account is in good standing",
        status=400),
    Row("text-plan-agents", Kind.ACCOUNT, "egoist/chatwise-releases#1349",
        text=r"Coding Plan is currently only available for Coding Agents", status=405),
    Row("text-token", Kind.ACCOUNT, PLAN, text=r"invalid access token or token expired"),
    Row("text-inspection", Kind.FILTER, ALIYUN, text=r"(?:Input|Output) (?:data|text|image) may contain inappropriate content"),
    Row("text-capacity", Kind.OVERLOAD, ALIYUN,
        text=r"Too many requests\. (?:Batch|Your) requests are being throttled due to system capacity limits"
        r"|Model is unavailable, please try again later"),
    Row("text-plan-burst", Kind.RATE_LIMIT, PLAN, text=r"usage allocated quota exceeded"),
    Row("text-plan-concurrency", Kind.RATE_LIMIT, PLAN, text=r"concurrency allocated quota exceeded", crowd=Crowd.ALWAYS),
    Row("text-rate", Kind.RATE_LIMIT, ALIYUN,
        text=r"Requests rate limit exceeded|You have exceeded your request limit|You exceeded your current requests list"
        r"|Request rate increased too quickly|Requests throttling triggered|Too many requests in route"
        r"|Allocated quota exceeded|You exceeded your current quota"),
)  # fmt: skip


# -- chat.qwen.ai: RateLimited is its daily quota, with the hours to wait in ``num``

QWEN_CHAT = "chat.qwen.ai, Rfym21/Qwen2API"

QWEN_WEB_ROWS = (
    Row("RateLimited", Kind.QUOTA, QWEN_CHAT, "RateLimited"),
    Row("quota_limit", Kind.QUOTA, QWEN_CHAT, "quota_limit"),
    Row("Bad_Request-internal", Kind.UPSTREAM_ERROR, QWEN_CHAT, "Bad_Request", text=r"Internal error", status=502),
    Row("Bad_Request", Kind.CALLER_ERROR, QWEN_CHAT, "Bad_Request", words_tell=True),
    Row("Not_Found", Kind.CALLER_ERROR, "named like Bad_Request", "Not_Found", status=404),
    Row("text-daily", Kind.QUOTA, QWEN_CHAT,
        text=r"[^\n:：]{0,60}?(?:reached the (?:upper limit|daily usage limit)|upper limit for today|已达上限)"),
    Row("text-in-progress", Kind.RATE_LIMIT, "AppsGanin/ai-free-vscode: one generation at a time in a chat",
        text=r"(?:the )?chat is (?:still )?in progress", crowd=Crowd.WITH_OTHERS),
    Row("text-chat", Kind.CALLER_ERROR, "FreeQwenApi#59", text=r"chat \S{1,64} is not exist"),
)  # fmt: skip


# -- z.ai and bigmodel on every wire of theirs

ZAI_DOCS = "docs.z.ai api-code"
PARALLEL = "docs.z.ai api-code; openclaw/openclaw#98101, NousResearch/hermes-agent#93507: seven of ten at once"
OLD = "older table, brunogama/dotfiles"

ZAI_ROWS = (
    Row("1100", Kind.ACCOUNT, ZAI_DOCS, "1100"),
    Row("1000", Kind.ACCOUNT, ZAI_DOCS, "1000 1001 1002 1003 1004 1005"),
    Row("1110", Kind.ACCOUNT, OLD, "1110 1111 1112 1120 1121", status=429),
    Row("1113", Kind.ACCOUNT, ZAI_DOCS, "1113", status=429),
    Row("1220", Kind.ACCOUNT, ZAI_DOCS, "1220", status=403),
    Row("1309", Kind.ACCOUNT, ZAI_DOCS, "1309 1311 1314 1315", status=429),
    Row("1304", Kind.QUOTA, OLD, "1304"),
    Row("1308", Kind.QUOTA, ZAI_DOCS, "1308 1310"),
    Row("1313", Kind.QUOTA, "docs.z.ai api-code: fair use, never retried", "1313"),
    Row("1316", Kind.QUOTA, ZAI_DOCS, "1316 1317 1318 1319 1320 1321"),
    Row("1261", Kind.OVERFLOW, ZAI_DOCS, "1261"),
    Row("1301", Kind.FILTER, ZAI_DOCS, "1300 1301"),
    Row("1302", Kind.RATE_LIMIT, ZAI_DOCS, "1302", crowd=Crowd.ALWAYS),
    Row("1303", Kind.RATE_LIMIT, OLD, "1303"),
    Row("1305", Kind.OVERLOAD, PARALLEL, "1305", crowd=Crowd.WITH_OTHERS),
    Row("1312", Kind.OVERLOAD, "relay code lists", "1312"),
    Row("1200", Kind.UPSTREAM_ERROR, ZAI_DOCS, "1200 1230 1234", status=500),
    Row("1210", Kind.CALLER_ERROR, ZAI_DOCS, "1210 1211 1212 1213 1214 1215 1221 1222 1231"),
    Row("text-1308", Kind.QUOTA, ZAI_DOCS, text=r"Usage limit reached for |已达到.{0,30}使用上限|Weekly/Monthly Limit Exhausted"),
    Row("text-1304", Kind.QUOTA, OLD, text=r"Daily call limit for this API reached"),
    Row("text-1313", Kind.QUOTA, ZAI_DOCS, text=r"Your account's current usage pattern does not comply with the Fair Usage"),
    Row("text-1113", Kind.ACCOUNT, ZAI_DOCS, text=r"Insufficient balance or no resource package|余额不足或无可用资源包|您的账户已欠费", status=429),
    Row("text-1302", Kind.RATE_LIMIT, ZAI_DOCS, text=r"Rate limit reached for requests|High concurrency usage of this API"
        r"|您的账户已达到速率限制|您当前使用该API的并发数过高", crowd=Crowd.ALWAYS),
    Row("text-1303", Kind.RATE_LIMIT, OLD, text=r"High frequency usage of this API|您当前使用该API的频率过高"),
    Row("text-1305", Kind.OVERLOAD, ZAI_DOCS, text=r"The service may be temporarily overloaded|该模型当前访问量过大",
        crowd=Crowd.WITH_OTHERS),
    Row("text-1300", Kind.FILTER, ZAI_DOCS, text=r"API call blocked by policy"),
    Row("text-3012", Kind.CHALLENGE, "zai-org/feedback#349", text=r"(?:your )?request has been blocked due to unusual activity",
        challenge=Challenge.BLOCKED),
    Row("text-3007", Kind.CHALLENGE, "billion-context#189; other hosts carry it in their own envelopes",
        text=r"captcha verif(?:y|ication) failed", challenge=Challenge.CAPTCHA, transient=True),
)  # fmt: skip


# -- the zcode plan, read before the rows above: 1005 and 1113 mean something else here

PUBLIC = "TriDefender/zcode-api#1, #2"

ZCODE_ROWS = (
    Row("3012", Kind.CHALLENGE, "zai-org/feedback#349: an account penalty that grows", "3012", challenge=Challenge.BLOCKED),
    Row("3007", Kind.CHALLENGE, "billion-context#189: the next human-paced turn passed", "3007", challenge=Challenge.CAPTCHA,
        transient=True),
    Row("3009", Kind.RATE_LIMIT, PUBLIC, "3009", crowd=Crowd.ALWAYS),
    Row("1005", Kind.QUOTA, PUBLIC, "1005 1113"),
    Row("3001", Kind.CALLER_ERROR, PUBLIC, "3001"),
    Row("text-1005", Kind.QUOTA, PUBLIC, text=r"exceed quota limit"),
    Row("text-3009", Kind.RATE_LIMIT, PUBLIC, text=r"model concurrency limit exceeded", crowd=Crowd.ALWAYS),
)  # fmt: skip


# -- chat.z.ai, read before the first rows

SEEN = "OmniRoute#9991"

ZAI_WEB_ROWS = (
    Row("FRONTEND_CAPTCHA_REQUIRED", Kind.CHALLENGE, SEEN, "FRONTEND_CAPTCHA_REQUIRED F003 missing_param verify_failed",
        challenge=Challenge.CAPTCHA),
    Row("text-captcha", Kind.CHALLENGE, SEEN, text=r"人机验证失败", challenge=Challenge.CAPTCHA),
    Row("text-security", Kind.FILTER, "ZyphrZero/z.ai2api_python#58", text=r"Content Security Warning"),
)  # fmt: skip


# -- errors that no row knows

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
