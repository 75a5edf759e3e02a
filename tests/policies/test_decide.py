"""What the client is told for each kind of finding: status, wait and headers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from policies.decisions import Answer, Decision, Forward, Refuse, Replace
from policies.exchange import Exchange
from policies.judge import Judge
from policies.kinds import Head
from tests.policies.exchanges import MTOP, Controller, added
from tests.rows import over

OVERLOAD = b'{"error":{"code":"1305","message":"The service may be temporarily overloaded"}}'
LIMITED: dict[str, Any] = {"error": {"code": "1302", "message": "Rate limit reached for requests"}}


def told(decision: Decision) -> Answer:
    assert isinstance(decision, Replace), decision
    return decision.answer


def header(answer: Answer, name: str) -> str | None:
    return {k.lower(): v for k, v in answer.headers}.get(name)


def reply(controller: Controller, ex: Exchange, status: int, body: bytes, received: float | None, **headers: str) -> Decision:
    fields = {"content-type": "application/json"} | {k.replace("_", "-"): v for k, v in headers.items()}
    judge = Judge(ex, Head(status, tuple(fields.items()), received), controller.now)
    decision = judge.feed(body, controller.now, controller.wall)
    return decision or judge.finish(cut=False, now=controller.now, wall=controller.wall)


class TestAnOverloadThatIsToldAlready:
    @pytest.mark.parametrize("wait", ["1", "30", "59"])
    def test_passes_with_a_wait_that_clients_keep(self, wait: str) -> None:
        controller = Controller()
        assert added(controller.reply(controller.sent("zai"), OVERLOAD, 529, retry_after=wait)) == ()

    @pytest.mark.parametrize(
        ("headers", "seconds"),
        [
            ({}, "30"),
            ({"retry_after": "0"}, "30"),
            ({"retry_after": "60"}, "59"),
            ({"retry_after": "3600"}, "59"),
            ({"retry_after_ms": "20000"}, "20"),
            ({"retry_after": "Wed, 21 Oct 2026 07:28:20 GMT", "date": "Wed, 21 Oct 2026 07:28:00 GMT"}, "20"),
        ],
    )
    def test_is_told_again_with_one_that_they_do_not(self, headers: dict[str, str], seconds: str) -> None:
        controller = Controller()
        answer = told(reply(controller, controller.sent("zai"), 529, OVERLOAD, None, **headers))
        assert (answer.status, header(answer, "retry-after")) == (529, seconds)


def test_a_date_counts_from_when_the_answer_came_where_it_has_no_date_of_its_own() -> None:
    controller = Controller()
    ex = controller.sent("zai-openai")
    answer = told(
        reply(controller, ex, 200, json.dumps(LIMITED).encode(), 1792567680.0, retry_after="Wed, 21 Oct 2026 07:28:20 GMT")
    )
    assert (answer.status, header(answer, "retry-after")) == (429, "20")


def test_an_account_that_is_blocked_on_a_path_beside_is_refused_here_from_then_on() -> None:
    controller = Controller()
    ex = controller.sent("zcode", path="/api/v1/zcode-plan/anthropic/v1/messages/count_tokens")
    blocked = b'{"code":3012,"msg":"request has been blocked due to unusual activity"}'
    answer = told(controller.reply(ex, blocked, 405))
    assert (answer.status, header(answer, "retry-after")) == (529, "59")
    _, admission = controller.ask("zcode")
    assert isinstance(admission, Refuse)
    assert admission.answer.reason == "account_blocked"
    assert isinstance(controller.ask("zcode", account="b")[1], Forward)


def test_a_large_body_that_is_challenged_inside_its_stream_is_no_strike_and_is_not_sent_again() -> None:
    controller = Controller("breaker: {strikes: 1}\nqwen_web: {body_limit_bytes: 1000}")
    ex = controller.sent("qwen-chat", "x" * 1000)
    judge = controller.begin(ex)
    answer = b'data: {"choices":[{"delta":{"content":"Hi"}}]}\n\n'
    assert added(judge.feed(answer, controller.now, controller.wall)) == ()
    _, end = judge.tap(b"data: " + MTOP + b"\n\n", controller.now, controller.wall)
    assert end
    controller.settle(ex)
    assert b"smaller body" in end.frame
    _, admission = controller.ask("qwen-chat", "x" * 1000)
    assert isinstance(admission, Refuse)
    assert admission.answer.status == 413
    assert isinstance(controller.ask("qwen-chat", "short")[1], Forward)


@over(
    ("body", "status"),
    [
        (b'{"code":401,"msg":"unauthorized"}', 529),
        (b'{"code":9999,"msg":"no"}', 529),
        (b"", 529),
        (b'{"code":1005,"msg":"exceed quota limit"}', None),
        (b'{"code":1261,"msg":"Prompt exceeds max length"}', None),
    ],
)
def test_a_captcha_named_in_a_header_hides_no_spent_quota(body: bytes, status: int | None) -> None:
    controller = Controller()
    decision = controller.reply(controller.sent("zcode"), body, 403, x_aliyun_captcha_verify_param="CHALLENGE")
    assert (decision.answer.status if isinstance(decision, Replace) else None) == status


def test_a_spent_quota_or_an_overflow_with_a_short_wait_is_still_what_it_is() -> None:
    controller = Controller()
    spent = b'{"error":{"code":"1310","message":"Weekly/Monthly Limit Exhausted."}}'
    assert added(controller.reply(controller.sent("zai"), spent, 503, retry_after="10")) == (("x-should-retry", "false"),)
    over = b'{"error":{"code":"context_length_exceeded","message":"maximum context length is 65536 tokens"}}'
    ex = controller.sent("dashscope")
    assert added(controller.reply(ex, over, 503, retry_after="10")) == ()
    assert ex.finding
    assert not ex.finding.honest
