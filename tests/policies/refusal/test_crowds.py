"""Which refusals mean too many calls at a time."""

from __future__ import annotations

from policies.kinds import Crowd, Family
from tests.policies.refusal.envelope_forms import FORMS
from tests.policies.refusal.judged import document
from tests.policies.refusal.replies import corpus
from tests.rows import over


@over(
    ("family", "code", "words", "crowd"),
    [
        (Family.ZAI, "1302", "Rate limit reached for requests", Crowd.ALWAYS),
        (Family.ZAI, "1302", "您的账户已达到速率限制，请您控制请求频率", Crowd.ALWAYS),
        (Family.ZAI, "", "High concurrency usage of this API, please", Crowd.ALWAYS),
        (Family.ZAI, "", "您当前使用该API的并发数过高，请", Crowd.ALWAYS),
        (Family.ZAI, "1303", "High frequency usage of this API", None),
        (Family.ZAI, "1305", "x", Crowd.WITH_OTHERS),
        (Family.ZAI, "", "The service may be temporarily overloaded, please", Crowd.WITH_OTHERS),
        (Family.ZAI, "1312", "x", None),
        (Family.ZAI, "1308", "Usage limit reached for 5 hour.", None),
        (Family.ZAI, "1308", "High concurrency usage of this API, please", None),
        (Family.ZCODE, "3009", "model concurrency limit exceeded", Crowd.ALWAYS),
        (Family.ZCODE, "1005", "exceed quota limit", None),
        (Family.DASHSCOPE, "Throttling.AllocationQuota", "concurrency allocated quota exceeded", Crowd.ALWAYS),
        (Family.DASHSCOPE, "rate_limit_exceeded", "concurrency allocated quota exceeded", Crowd.ALWAYS),
        (Family.DASHSCOPE, "", "usage allocated quota exceeded. please try again later.", None),
        (Family.DASHSCOPE, "Throttling.RateQuota", "Requests rate limit exceeded", None),
        (Family.DASHSCOPE, "ModelServingError", "Too many requests. Your requests are being throttled due to", None),
        (Family.QWEN_WEB, "Bad_Request", "The chat is in progress!", Crowd.WITH_OTHERS),
        (Family.QWEN_WEB, "Too_Many_Requests", "x", None),
        (Family.DASHSCOPE, "c9", "Too many concurrent requests for this model", Crowd.ALWAYS),
        (Family.ZAI, "rate_limit_error", "Concurrency limit exceeded for user, please retry later", Crowd.ALWAYS),
    ],
)
@over("status", [200, 429])
def test_which_refusals_mean_too_many_at_a_time(
    family: Family, code: str, words: str, crowd: Crowd | None, status: int
) -> None:
    for name, form in FORMS[family].items():
        if code == "c9" and status == 200:
            continue  # nothing says that it is a rate limit
        finding = document(form(code, words), status, family)
        assert name.startswith("brackets") or finding.crowd is crowd, (name, finding)


def test_the_corpus_names_the_crowd() -> None:
    found = {
        reply.id: document(reply.body, reply.head.status, where=reply.surface).crowd
        for reply in corpus()
        if reply.id in ("t2-z-1305-429", "zo-1305-zh", "zc-3009", "d-plan-conc", "d-plan-usage", "zo-1303", "q-inprogress")
    }
    assert found == {
        "t2-z-1305-429": Crowd.WITH_OTHERS,
        "zo-1305-zh": Crowd.WITH_OTHERS,
        "zc-3009": Crowd.ALWAYS,
        "d-plan-conc": Crowd.ALWAYS,
        "d-plan-usage": None,
        "zo-1303": None,
        "q-inprogress": Crowd.WITH_OTHERS,
    }
