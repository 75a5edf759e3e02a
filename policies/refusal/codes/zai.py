"""Codes of z.ai and bigmodel on every wire of theirs, of the zcode plan and of chat.z.ai."""

from __future__ import annotations

from policies.kinds import Challenge, Crowd, Kind
from policies.refusal.codes import Row

DOCS = "docs.z.ai api-code"
PARALLEL = "docs.z.ai api-code; openclaw/openclaw#98101, NousResearch/hermes-agent#93507: seven of ten at once"
OLD = "older table, brunogama/dotfiles"

ROWS = (
    Row("1100", Kind.ACCOUNT, DOCS, "1100"),
    Row("1000", Kind.ACCOUNT, DOCS, "1000 1001 1002 1003 1004 1005"),
    Row("1110", Kind.ACCOUNT, OLD, "1110 1111 1112 1120 1121", status=429),
    Row("1113", Kind.ACCOUNT, DOCS, "1113", status=429),
    Row("1220", Kind.ACCOUNT, DOCS, "1220", status=403),
    Row("1309", Kind.ACCOUNT, DOCS, "1309 1311 1314 1315", status=429),
    Row("1304", Kind.QUOTA, OLD, "1304"),
    Row("1308", Kind.QUOTA, DOCS, "1308 1310"),
    Row("1313", Kind.QUOTA, "docs.z.ai api-code: fair use, never retried", "1313"),
    Row("1316", Kind.QUOTA, DOCS, "1316 1317 1318 1319 1320 1321"),
    Row("1261", Kind.OVERFLOW, DOCS, "1261"),
    Row("1301", Kind.FILTER, DOCS, "1300 1301"),
    Row("1302", Kind.RATE_LIMIT, DOCS, "1302", crowd=Crowd.ALWAYS),
    Row("1303", Kind.RATE_LIMIT, OLD, "1303"),
    Row("1305", Kind.OVERLOAD, PARALLEL, "1305", crowd=Crowd.WITH_OTHERS),
    Row("1312", Kind.OVERLOAD, "relay code lists", "1312"),
    Row("1200", Kind.UPSTREAM_ERROR, DOCS, "1200 1230 1234", status=500),
    Row("1210", Kind.CALLER_ERROR, DOCS, "1210 1211 1212 1213 1214 1215 1221 1222 1231"),
    Row("text-1308", Kind.QUOTA, DOCS, text=r"Usage limit reached for |已达到.{0,30}使用上限|Weekly/Monthly Limit Exhausted"),
    Row("text-1304", Kind.QUOTA, OLD, text=r"Daily call limit for this API reached"),
    Row("text-1313", Kind.QUOTA, DOCS, text=r"Your account's current usage pattern does not comply with the Fair Usage"),
    Row("text-1113", Kind.ACCOUNT, DOCS, text=r"Insufficient balance or no resource package|余额不足或无可用资源包|您的账户已欠费", status=429),
    Row("text-1302", Kind.RATE_LIMIT, DOCS, text=r"Rate limit reached for requests|High concurrency usage of this API"
        r"|您的账户已达到速率限制|您当前使用该API的并发数过高", crowd=Crowd.ALWAYS),
    Row("text-1303", Kind.RATE_LIMIT, OLD, text=r"High frequency usage of this API|您当前使用该API的频率过高"),
    Row("text-1305", Kind.OVERLOAD, DOCS, text=r"The service may be temporarily overloaded|该模型当前访问量过大",
        crowd=Crowd.WITH_OTHERS),
    Row("text-1300", Kind.FILTER, DOCS, text=r"API call blocked by policy"),
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

WEB_ROWS = (
    Row("FRONTEND_CAPTCHA_REQUIRED", Kind.CHALLENGE, SEEN, "FRONTEND_CAPTCHA_REQUIRED F003 missing_param verify_failed",
        challenge=Challenge.CAPTCHA),
    Row("text-captcha", Kind.CHALLENGE, SEEN, text=r"人机验证失败", challenge=Challenge.CAPTCHA),
    Row("text-security", Kind.FILTER, "ZyphrZero/z.ai2api_python#58", text=r"Content Security Warning"),
)  # fmt: skip
