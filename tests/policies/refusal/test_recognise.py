from __future__ import annotations

import json

import pytest

from policies.kinds import Challenge, Family, Head, Kind, Role, Wire
from tests.policies.refusal.envelope_forms import dump
from tests.policies.refusal.judged import MTOP, RECOGNISER, document, frame
from tests.policies.refusal.replies import surface
from tests.policies.refusal.test_pages import CHALLENGES
from tests.rows import over

# -- the mtop frame


@over("family", Family)
@over("status", [200, 403, 405])
@over(
    ("body", "challenge"),
    [
        (MTOP, Challenge.BUSY),
        ({"ret": ["FAIL_SYS_USER_VALIDATE"]}, Challenge.CAPTCHA),
        ({"ret": "FAIL_SYS_USER_VALIDATE::x"}, Challenge.CAPTCHA),
        ({"ret": ["FAIL_SYS_USER_VALIDATE::哎哟喂,被挤爆啦,请稍后重试!"]}, Challenge.BUSY),
        ({"ret": ["fail_sys_user_validate"]}, Challenge.CAPTCHA),
        ({"data": {"ret": ["RGV587_ERROR::SM"]}}, Challenge.BUSY),
        ({"code": "FAIL_SYS_USER_VALIDATE", "msg": "x"}, Challenge.CAPTCHA),
        ({"error": {"code": "RGV587_ERROR"}}, Challenge.BUSY),
        ({"success": False, "data": {"url": "https://x/_____tmd_____/punish?x5secdata=1"}}, Challenge.CAPTCHA),
        ({"rgv587_flag": "sm", "url": "https://x/punish?x5secdata=1"}, Challenge.BUSY),
        ({"error": {"code": "upstream_waf_challenge", "message": "x"}}, Challenge.CAPTCHA),
        ({"error": {"message": "FAIL_SYS_USER_VALIDATE::RGV587_ERROR::SM::x", "code": None}}, Challenge.BUSY),
        ({"error": {"message": "RGV587_ERROR::SM::哎哟喂,被挤爆啦", "code": "qwen_ai_risk_control"}}, Challenge.BUSY),
        ({"error": "哎哟喂,被挤爆啦,请稍后重试"}, Challenge.BUSY),
        ({"detail": "FAIL_SYS_USER_VALIDATE"}, Challenge.CAPTCHA),
    ],
)
def test_the_risk_control_frame_is_a_challenge_in_every_spelling(
    family: Family, status: int, body: object, challenge: Challenge
) -> None:
    for data in (dump(body), b"data: " + dump(body) + b"\n\n", json.dumps(body).encode()):
        finding = document(data, status, family)
        assert (finding.kind, finding.challenge, finding.transient, finding.status) == (
            Kind.CHALLENGE,
            challenge,
            False,
            None,
        )
    raw = "data:" + dump(body).decode() + "\n\n"
    in_stream = frame(raw, status, family)
    assert in_stream is not None
    assert in_stream.challenge is challenge
    assert RECOGNISER.suspicion(surface(family))(raw.encode())


def test_a_success_of_mtop_is_none() -> None:
    assert document({"ret": ["SUCCESS::调用成功"], "data": {"id": "1", "title": "RGV587_ERROR"}}).kind is Kind.ANSWER
    assert document({"ret": 0, "choices": [{"message": {"content": "x"}}]}).kind is Kind.ANSWER


@over("end", [30, 35, 36, 60, 100])
def test_a_cut_frame_whose_verdict_has_come_is_a_challenge(end: int) -> None:
    body = dump(MTOP)
    finding = document(body[:end], whole=False)
    assert finding.kind is (Kind.CHALLENGE if end > 32 else Kind.NOTHING)


def test_an_answer_that_is_cut_is_an_answer_and_an_open_code_is_not_believed() -> None:
    assert document(b'{"id":"c","choices":[{"index":0,"message":{"content":"long', whole=False).kind is Kind.ANSWER
    assert document(b'{"code":30', family=Family.ZCODE, whole=False).kind is Kind.NOTHING
    assert document(b'{"error":{"code":"1305","mess', whole=False).kind is Kind.OVERLOAD


# -- what the head says


def test_a_redirect_to_the_slider_is_a_challenge() -> None:
    for status, link in (
        (302, "https://chat.qwen.ai/_____tmd_____/punish?x5secdata=1"),
        (307, "https://bixi.alicdn.com/punish/default.html?action=deny"),
    ):
        finding = RECOGNISER.head(surface(Family.QWEN_WEB), Head(status, (("Location", link),)))
        assert finding is not None
        assert finding.challenge is Challenge.CAPTCHA
    assert RECOGNISER.head(surface(Family.QWEN_WEB), Head(302, (("location", "/login?from=punish"),))) is None
    assert RECOGNISER.head(surface(Family.QWEN_WEB), Head(200, (("location", "/_____tmd_____/punish"),))) is None


def test_bxpunish_is_a_challenge_and_other_values_are_not() -> None:
    assert RECOGNISER.head(surface(Family.QWEN_WEB), Head(200, (("bxpunish", "1"), ("bxuuid", "x")))) is not None
    for value in ("0", "", "10"):
        assert RECOGNISER.head(surface(Family.QWEN_WEB), Head(200, (("bxpunish", value), ("set-cookie", "acw_tc=1")))) is None


def test_the_captcha_header_of_zcode_counts_on_a_refusal_only() -> None:
    headers = (("X-Aliyun-Captcha-Verify-Param", "x"),)
    assert RECOGNISER.head(surface(Family.ZCODE), Head(400, headers)) is not None
    assert RECOGNISER.head(surface(Family.ZCODE), Head(200, headers)) is None
    assert RECOGNISER.head(surface(Family.ZAI), Head(400, headers)) is None


def test_an_ordinary_head_says_nothing() -> None:
    assert RECOGNISER.head(surface(Family.ZAI), Head(429, (("set-cookie", "acw_tc=1"),))) is None


# -- honest answers


@over("status", [503, 529])
@over(("wait", "honest"), [("1", True), ("59", True), ("60", False), ("0", False), ("", False)])
def test_a_503_or_529_with_a_wait_in_range_is_honest(status: int, wait: str, *, honest: bool) -> None:
    body = {"type": "error", "error": {"type": "overloaded_error", "message": "x"}}
    assert document(body, status, headers=(("Retry-After", wait),)).honest is honest
    assert not document(MTOP, status, headers=(("Retry-After", wait),)).honest
    assert not document(body, 429, headers=(("Retry-After", wait),)).honest


def test_an_answer_of_our_own_kind_is_honest_and_not_sent_again() -> None:
    finding = document(MTOP, 503, headers=(("X-Breakwater", "challenge_busy"), ("Retry-After", "30")))
    assert (finding.honest, finding.transient) == (True, False)


@pytest.mark.parametrize("status", [200, 204, 302])
def test_no_success_is_honest_for_a_header_of_ours(status: int) -> None:
    headers = (
        ("X-Breakwater", "challenge_busy"),
        ("Retry-After", "30"),
        ("bxpunish", "1"),
        ("location", "/_____tmd_____/punish"),
    )
    for body in (MTOP, CHALLENGES["waf-pair"].encode(), {"error": {"code": "1305"}}, {"error": {"code": "1302"}}):
        finding = document(body, status, headers=headers)
        assert not finding.honest
        assert finding.kind is not Kind.ANSWER
        assert finding.transient is (finding.kind is not Kind.CHALLENGE)
    early = RECOGNISER.head(surface(Family.QWEN_WEB), Head(status, headers))
    assert early is not None
    assert not early.honest


@over(("status", "wait", "honest"), [
    (503, "30", True), (529, "1", True), (429, "59", True),
    (503, "60", False), (529, "", False), (429, "0", False), (403, "30", False), (405, "30", False), (400, "30", False),
])  # fmt: skip
def test_another_breakwaters_answer_is_honest_by_its_status_and_wait(status: int, wait: str, *, honest: bool) -> None:
    headers = (("X-Breakwater", "challenge_busy"), ("Retry-After", wait))
    for body in (MTOP, CHALLENGES["waf-pair"].encode()):
        assert document(body, status, headers=headers).honest is honest


# -- odds and ends of bodies


@over("family", Family)
def test_empty_bodies_are_read_by_their_status(family: Family) -> None:
    for body in (b"", b" \r\n"):
        assert document(body, 200, family).kind is Kind.NOTHING
        assert document(body, 204, family).kind is Kind.NOTHING
        assert (document(body, 429, family).kind, document(body, 429, family).transient) == (Kind.RATE_LIMIT, True)
        assert document(body, 400, family).kind is Kind.CALLER_ERROR
        assert document(body, 413, family).window is None
        assert document(body, 500, family).kind is Kind.UPSTREAM_ERROR
        assert document(body, 529, family).kind is Kind.OVERLOAD


@over(
    "body",
    [
        {"created": 1, "data": [{"url": "https://x"}]},
        {"created": 1, "data": [{"b64_json": "x"}]},
        {"model": "cogvideox", "id": "1", "request_id": "r", "task_status": "PROCESSING"},
        {"output": {"task_status": "PENDING", "task_id": "x"}, "request_id": "r"},
        {"success": True, "data": {"task_id": "x"}},
        {"id": "resp", "object": "response", "status": "incomplete", "error": None, "output": []},
        {"choices": [{"delta": {"content": ""}, "finish_reason": "stop"}]},
    ],
)
def test_answers_of_every_surface(body: object) -> None:
    assert document(body).kind is Kind.ANSWER


@over("body", [b"[]", b"null", b"1", b'"text"', b"{}", b"plain words", b"\xff\xfe\x00", {"choices": []}, {"foo": 1}])
def test_a_success_without_an_answer_is_nothing_on_a_generation_path_and_passes_elsewhere(body: object) -> None:
    assert document(body).kind is Kind.NOTHING
    assert document(body, where=surface(Family.ZAI, Wire.OTHER, Role.OTHER)).kind is Kind.ANSWER


def test_an_error_finish_under_a_4xx_is_an_error_that_passes() -> None:
    body = {"choices": [{"delta": {"content": 'data:{"code":"Throttling"}'}, "finish_reason": "error_finish"}]}
    assert document(body, 400, Family.DASHSCOPE).kind is Kind.CALLER_ERROR
    assert document(body, 500, Family.DASHSCOPE).kind is Kind.UPSTREAM_ERROR


def test_hours_are_the_wait_of_a_daily_quota() -> None:
    finding = document({"success": False, "data": {"code": "RateLimited", "details": "x", "num": 10}}, family=Family.QWEN_WEB)
    assert (finding.wait, finding.wait_source, finding.status) == (36000, "body", 429)


def test_a_nested_status_beats_the_type_of_a_relay() -> None:
    nested = '{"error":{"code":400,"message":"thinking.signature: Field required","status":"INVALID_ARGUMENT"}}'
    body = {
        "type": "error",
        "error": {
            "type": "overloaded_error",
            "message": f"All 2 attempts failed. Last error: HTTP 400 Bad Request: {nested}",
        },
    }
    finding = document(body, 429)
    assert (finding.kind, finding.transient) == (Kind.CALLER_ERROR, False)


def test_a_long_wait_under_an_unknown_429_is_a_spent_quota() -> None:
    assert document({"error": {"message": "x"}}, 429, headers=(("retry-after", "277403"),)).kind is Kind.QUOTA
    assert document({"error": {"message": "x. Resets at 2026-09-08 14:29:33"}}, 429).kind is Kind.QUOTA
    assert document({"error": {"message": "x"}}, 429, headers=(("retry-after", "20"),)).kind is Kind.RATE_LIMIT
    assert (
        document({"error": {"code": "1302", "message": "x"}}, 429, headers=(("retry-after", "277403"),)).kind is Kind.RATE_LIMIT
    )


def test_a_plain_4xx_is_the_callers() -> None:
    assert document({"error": {"message": "no such thing"}}, 404).kind is Kind.CALLER_ERROR
    assert document(b"not found", 404).kind is Kind.CALLER_ERROR
    assert document({"message": "method not allowed"}, 405, Family.ZCODE).kind is Kind.CALLER_ERROR
    assert document({"detail": "Unauthorized"}, 401).kind is Kind.ACCOUNT
