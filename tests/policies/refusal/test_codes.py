from __future__ import annotations

import itertools
import zlib
from typing import Any

from policies.kinds import Challenge, Family, Finding, Head, Kind
from policies.refusal.codes import Row
from policies.refusal.error_kinds import HIDDEN_STATUS, TABLES
from policies.refusal.recogniser import Recogniser
from tests.policies.refusal.envelope_forms import FORMS, answering, answers, dump
from tests.policies.refusal.replies import read, surface
from tests.rows import over

PLAIN = "some words of the upstream"
ROWS = [
    (family, code, row)
    for family, tables in TABLES.items()
    if family is not None
    for number, (_, rows) in enumerate(tables)
    for row in rows
    if not row.text
    for code in row.codes.split()
    if not any(code.lower() in known.codes.lower().split() for _, earlier in tables[:number] for known in earlier)
]
TEXTS = [
    (family, row)
    for family, tables in TABLES.items()
    if family is not None
    for _, rows in tables
    for row in rows
    if not row.codes
]
SPOKEN = {
    "text-1303": ["High frequency usage of this API, please", "您当前使用该API的频率过高，请"],
    "text-1300": ["API call blocked by policy"],
    "text-security": ["Content Security Warning: The content may contain inappropriate content."],
    "text-plan-concurrency": ["concurrency allocated quota exceeded, please try again later"],
    "text-plan-agents": ["Coding Plan is currently only available for Coding Agents"],
    "text-in-progress": ["The chat is in progress!", "Chat is still in progress"],
    "text-1308": [
        "Usage limit reached for 5 hour. Your limit",
        "已达到 5 小时的使用上限。",
        "Weekly/Monthly Limit Exhausted. Your limit",
    ],
    "text-1304": ["Daily call limit for this API reached. For more"],
    "text-1313": ["Your account's current usage pattern does not comply with the Fair Usage Policy"],
    "text-1113": [
        "Insufficient balance or no resource package. Please recharge.",
        "余额不足或无可用资源包,请充值。",
        "您的账户已欠费，请充值后重试",
    ],
    "text-1302": [
        "Rate limit reached for requests",
        "High concurrency usage of this API, please",
        "您的账户已达到速率限制，请您控制请求频率",
        "您当前使用该API的并发数过高，请",
    ],
    "text-1305": [
        "The service may be temporarily overloaded, please try again later",
        "该模型当前访问量过大，请您稍后再试",
    ],
    "text-3012": ["request has been blocked due to unusual activity"],
    "text-3007": ["captcha verify failed"],
    "text-1005": ["exceed quota limit"],
    "text-3009": ["model concurrency limit exceeded"],
    "text-captcha": ["人机验证失败，请重新验证后再试"],
    "text-daily": [
        "You've reached the upper limit for today's usage.",
        "You have reached the daily usage limit.",
        "今日使用次数已达上限",
        "Sorry, you have reached the upper limit for today.",
        "Oops! You've reached the upper limit for today's usage.",
        "You have hit the upper limit for today",
        "Image generation has reached the upper limit",
    ],
    "text-chat": ["chat 0a1b is not exist"],
    "text-free": [
        "Free allocated quota exceeded.",
        "The free quota has been exhausted. To",
        "The free tier of the model has been exhausted. If",
    ],
    "text-plan-window": [
        "hour allocated quota exceeded",
        "week allocated quota exceeded.",
        "month allocated quota exceeded. Please retry after the reset time",
    ],
    "text-arrears": ["Access denied, please make sure your account is in good standing."],
    "text-token": ["invalid access token or token expired"],
    "text-inspection": [
        "Input data may contain inappropriate content.",
        "Output data may contain inappropriate content.",
    ],
    "text-capacity": [
        "Too many requests. Batch requests are being throttled due to system capacity limits. Please try again later.",
        "Too many requests. Your requests are being throttled due to system capacity limits. Please try again later.",
        "Model is unavailable, please try again later.",
    ],
    "text-plan-burst": [
        "usage allocated quota exceeded. please try again later.",
    ],
    "text-rate": [
        "Requests rate limit exceeded, please try again later.",
        "You have exceeded your request limit.",
        "Requests throttling triggered.",
        "You exceeded your current requests list.",
        "Request rate increased too quickly. To ensure",
        "Too many requests in route. Please try",
        "Allocated quota exceeded, please increase your quota limit.",
        "You exceeded your current quota, please check your plan",
    ],
}


def found(family: Family, status: int, body: bytes) -> Finding:
    return read(Recogniser(), surface(family), Head(status, (("content-type", "application/json"),)), body)[0]


@over(("family", "code", "row"), ROWS, ids=[f"{family}-{code}" for family, code, _ in ROWS])
def test_a_code_has_its_tables_class_in_every_envelope_and_status(family: Family, code: str, row: Row) -> None:
    """Forms, statuses and spellings take turns: each code comes in every third form, with one status and one spelling."""
    spellings = (code, code.lower(), code.upper())
    statuses = (200, 400, 403, 200, 429, 500, 200)
    first = zlib.crc32(code.encode())
    for number, (name, form) in enumerate(list(FORMS[family].items())[first % 3 :: 3], first // 3):
        if name.startswith("brackets") and not code.isdigit():
            continue
        status, spelling = statuses[number % 7], spellings[number % 3]
        finding = found(family, status, form(spelling, PLAIN))
        assert (finding.kind, finding.challenge) == (row.kind, row.challenge), (name, status, finding)
        hidden = status == 200 and row.kind not in (Kind.CHALLENGE, Kind.OVERLOAD)
        assert finding.status == ((row.status or HIDDEN_STATUS[row.kind]) if hidden else None), (name, finding)
        assert (finding.code or "").lower() == spelling.lower(), (name, finding)


@over(("family", "code", "row"), ROWS, ids=[f"{family}-{code}" for family, code, _ in ROWS])
def test_a_code_that_a_model_wrote_is_an_answer(family: Family, code: str, row: Row) -> None:
    """Forms and answers take turns: each code comes in every third form, and each form in each of the answers."""
    first = zlib.crc32(code.encode())
    for number, form in enumerate(list(FORMS[family].values())[first % 3 :: 3], first // 3):
        makers = list(answering(form(code, PLAIN).decode()).items())
        name, make = makers[number % len(makers)]
        assert found(family, 200, make()).kind is Kind.ANSWER, name


@over("family", Family)
def test_no_form_that_a_model_wrote_is_anything_but_an_answer(family: Family) -> None:
    for code, form in itertools.product(("1302", "Throttling.RateQuota", "3007"), FORMS[family].values()):
        for name, body in answers(form(code, PLAIN).decode()).items():
            assert found(family, 200, body).kind is Kind.ANSWER, (code, name)


UNKNOWN = ["9999", "Weird.Code", "something_new", "130", "13021"]


@over("family", Family)
@over("code", UNKNOWN)
def test_an_unknown_code_passes_as_its_status_says(family: Family, code: str) -> None:
    """The forms take turns: over all families each comes with numbers and with words."""
    first = (UNKNOWN.index(code) + list(Family).index(family)) % 3
    for name, form in list(FORMS[family].items())[first::3]:
        if name == "native event" or (name.startswith("brackets") and not code.isdigit()):
            continue
        kinds = {status: found(family, status, form(code, PLAIN)) for status in (200, 400, 422, 429, 500, 503)}
        assert kinds[400].kind is Kind.CALLER_ERROR, name
        assert kinds[422].kind is Kind.CALLER_ERROR, name
        assert kinds[500].kind is Kind.UPSTREAM_ERROR, name
        if name == "brackets":  # its type names it
            assert (kinds[200].kind, kinds[200].status) == (Kind.RATE_LIMIT, 429)
        else:
            assert kinds[503].kind is Kind.UPSTREAM_ERROR, name
            assert (kinds[200].kind, kinds[200].status, kinds[200].transient) == (Kind.UPSTREAM_ERROR, 502, False), name
        assert kinds[429].kind is Kind.RATE_LIMIT
        assert not any(finding.status for status, finding in kinds.items() if status >= 400)


@over(("family", "row"), TEXTS, ids=[f"{family}-{row.name}" for family, row in TEXTS])
def test_words_without_a_code_have_their_class(family: Family, row: Row) -> None:
    """Under every status; the three bodies take turns."""
    for number, (words, status) in enumerate(itertools.product(SPOKEN[row.name], (200, 400, 429, 503)), len(row.name)):
        bodies: tuple[dict[str, Any], ...] = (
            {"error": {"message": words}},
            {"type": "error", "error": {"type": "api_error", "message": words}},
            {"error": words},
        )
        finding = found(family, status, dump(bodies[number % 3]))
        assert (finding.kind, finding.challenge) == (row.kind, row.challenge), (words, status, finding)


@over(("family", "row"), TEXTS, ids=[f"{family}-{row.name}" for family, row in TEXTS])
def test_the_same_words_behind_others_say_nothing(family: Family, row: Row) -> None:
    for words in SPOKEN[row.name]:
        finding = found(family, 400, dump({"error": {"code": "9999", "message": f"The tool said: {words}"}}))
        assert finding.kind is Kind.CALLER_ERROR, words


@over("code", ["Throttling.AllocationQuota", "insufficient_quota", "Throttling", "Throttling.RateQuota"])
@over("family", [Family.DASHSCOPE, Family.QWEN_WEB])
def test_one_dashscope_code_is_told_apart_by_its_words(family: Family, code: str) -> None:
    for row_name, kind in [
        ("text-free", Kind.QUOTA),
        ("text-plan-window", Kind.QUOTA),
        ("text-capacity", Kind.OVERLOAD),
        ("text-plan-burst", Kind.RATE_LIMIT),
        ("text-rate", Kind.RATE_LIMIT),
    ]:
        forms = list(FORMS[family].values())
        for number, words in enumerate(SPOKEN[row_name]):  # the forms take turns
            for form in forms[number % 4 :: 4]:
                assert found(family, 429, form(code, words)).kind is kind, words


def test_insufficient_quota_is_a_spent_quota_elsewhere() -> None:
    body = dump({"error": {"code": "insufficient_quota", "message": "You exceeded your current quota, please check your plan"}})
    assert found(Family.ZAI, 429, body).kind is Kind.QUOTA
    assert found(Family.DASHSCOPE, 429, body).kind is Kind.RATE_LIMIT


def test_zcode_reads_its_own_table_first() -> None:
    body = dump({"code": 1005, "msg": "exceed quota limit"})
    assert found(Family.ZCODE, 429, body).kind is Kind.QUOTA
    assert found(Family.ZAI, 429, body).kind is Kind.ACCOUNT


def test_only_3007_of_the_challenges_may_be_tried_again() -> None:
    for family, code, row in ROWS:
        if row.kind is Kind.CHALLENGE:
            finding = found(family, 400, dump({"code": code, "msg": PLAIN}))
            assert finding.transient == (code == "3007")
    blocked = found(Family.ZCODE, 405, dump({"code": 3012, "msg": "method not allowed, please try again"}))
    assert (blocked.challenge, blocked.transient) == (Challenge.BLOCKED, False)


@over(
    "words",
    ["captcha verify failed", "Risk Control", "触发风控", "rate limit hit", "Too Many Requests", "please try again"],
)
def test_a_plain_4xx_with_a_marker_in_its_message_may_be_tried_again(words: str) -> None:
    assert found(Family.ZAI, 400, dump({"error": {"code": "9999", "message": words}})).transient
    assert not found(Family.ZAI, 400, dump({"error": {"code": "9999", "message": "no", "param": words}})).transient
    assert not found(Family.ZAI, 429, dump({"error": {"code": "1113", "message": words}})).transient
    assert not found(Family.ZAI, 400, dump({"error": {"code": "1301", "message": words}})).transient


def test_every_row_names_its_source() -> None:
    rows = [row for tables in TABLES.values() for _, table in tables for row in table]
    assert all(row.source for row in rows)
    assert all(row.codes or row.text for row in rows)
