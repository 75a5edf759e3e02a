"""Codes of DashScope and Model Studio, native and compatible, of the coding plan, and of chat.qwen.ai.

``insufficient_quota`` and AllocationQuota are a throttle of tokens per minute here; only the words tell a spent quota.
"""

from __future__ import annotations

from policies.kinds import Crowd, Kind
from policies.refusal.codes import Row

DOCS = "help.aliyun.com error-code"
PLAN = "help.aliyun.com coding plan FAQ"

ROWS = (
    Row("AllocationQuota.FreeTierOnly", Kind.QUOTA, DOCS, "AllocationQuota.FreeTierOnly", status=403),
    Row("NotPurchased", Kind.ACCOUNT, DOCS, "CommodityNotPurchased PrepaidBillOverdue PostpaidBillOverdue", status=429),
    Row("AccessDenied", Kind.ACCOUNT, DOCS, "AccessDenied AccessDenied.Unpurchased Model.AccessDenied Workspace.AccessDenied",
        status=403),
    Row("Arrearage", Kind.ACCOUNT, DOCS, "Arrearage", status=400),
    Row("InvalidApiKey", Kind.ACCOUNT, DOCS, "InvalidApiKey invalid_api_key"),
    Row("DataInspectionFailed", Kind.FILTER, DOCS, "DataInspectionFailed data_inspection_failed"),
    Row("RateQuota", Kind.RATE_LIMIT, DOCS, "Throttling.RateQuota LimitRequests limit_requests", words_tell=True),
    Row("BurstRate", Kind.RATE_LIMIT, DOCS, "Throttling.BurstRate limit_burst_rate", words_tell=True),
    Row("AllocationQuota", Kind.RATE_LIMIT, DOCS, "Throttling.AllocationQuota insufficient_quota", words_tell=True),
    Row("Throttling", Kind.RATE_LIMIT, DOCS, "Throttling", words_tell=True),
    Row("ModelServingUnknownError", Kind.UPSTREAM_ERROR,
        "QwenLM/qwen-code#1641: what the model's server sent is nested in its message",
        "ModelServingError.ModelServingUnknownError ModelServingUnknownError", status=500, words_tell=True),
    Row("ModelServingError", Kind.OVERLOAD, DOCS, "ModelServingError ModelUnavailable"),
    Row("InternalError", Kind.UPSTREAM_ERROR, DOCS,
        "InternalError InternalError.Algo InternalError.Timeout SystemError ModelServiceFailed RequestTimeOut", status=500,
        words_tell=True),
    Row("InvalidParameter", Kind.CALLER_ERROR, DOCS, "InvalidParameter invalid_parameter_error BadRequest BadRequest.TooLarge"),
    Row("ModelNotFound", Kind.CALLER_ERROR, DOCS, "ModelNotFound model_not_found", status=404),
    Row("text-free", Kind.QUOTA, DOCS,
        text=r"(?:the |your )?free (?:allocated )?quota (?:exceeded|has been (?:exhausted|used up))"
        r"|the free tier of the model has been exhausted|(?:您的|该模型的?)?免费(?:额度|配额)"),
    Row("text-plan-window", Kind.QUOTA, PLAN,
        text=r"(?:your |the |you have exceeded (?:your|the) )?(?:\d+[\s-]?)?(?:hour|week|month)(?:ly)? (?:allocated )?quota (?:has been |is )?(?:exceeded|exhausted)"),
    Row("text-arrears", Kind.ACCOUNT, DOCS, text=r"Access denied, please make sure your account is in good standing",
        status=400),
    Row("text-plan-agents", Kind.ACCOUNT, "egoist/chatwise-releases#1349",
        text=r"Coding Plan is currently only available for Coding Agents", status=405),
    Row("text-token", Kind.ACCOUNT, PLAN, text=r"invalid access token or token expired"),
    Row("text-inspection", Kind.FILTER, DOCS, text=r"(?:Input|Output) (?:data|text|image) may contain inappropriate content"),
    Row("text-capacity", Kind.OVERLOAD, DOCS,
        text=r"Too many requests\. (?:Batch|Your) requests are being throttled due to system capacity limits"
        r"|Model is unavailable, please try again later"),
    Row("text-plan-burst", Kind.RATE_LIMIT, PLAN, text=r"usage allocated quota exceeded"),
    Row("text-plan-concurrency", Kind.RATE_LIMIT, PLAN, text=r"concurrency allocated quota exceeded", crowd=Crowd.ALWAYS),
    Row("text-rate", Kind.RATE_LIMIT, DOCS,
        text=r"Requests rate limit exceeded|You have exceeded your request limit|You exceeded your current requests list"
        r"|Request rate increased too quickly|Requests throttling triggered|Too many requests in route"
        r"|Allocated quota exceeded|You exceeded your current quota"),
)  # fmt: skip


# -- chat.qwen.ai: RateLimited is its daily quota, with the hours to wait in ``num``

WEB = "chat.qwen.ai, Rfym21/Qwen2API"

WEB_ROWS = (
    Row("RateLimited", Kind.QUOTA, WEB, "RateLimited"),
    Row("quota_limit", Kind.QUOTA, WEB, "quota_limit"),
    Row("Bad_Request-internal", Kind.UPSTREAM_ERROR, WEB, "Bad_Request", text=r"Internal error", status=502),
    Row("Bad_Request", Kind.CALLER_ERROR, WEB, "Bad_Request", words_tell=True),
    Row("Not_Found", Kind.CALLER_ERROR, "named like Bad_Request", "Not_Found", status=404),
    Row("text-daily", Kind.QUOTA, WEB,
        text=r"[^\n:：]{0,60}?(?:reached the (?:upper limit|daily usage limit)|upper limit for today|已达上限)"),
    Row("text-in-progress", Kind.RATE_LIMIT, "AppsGanin/ai-free-vscode: one generation at a time in a chat",
        text=r"(?:the )?chat is (?:still )?in progress", crowd=Crowd.WITH_OTHERS),
    Row("text-chat", Kind.CALLER_ERROR, "FreeQwenApi#59", text=r"chat \S{1,64} is not exist"),
)  # fmt: skip
