from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.calls import Family, Role, Wire
from policies.findings import Challenge, Finding, Kind
from policies.wire.frames import parse
from policies.wire.head import Head
from policies.wire.recognise import Recogniser
from tests.policies.wire.envelope_forms import FORMS, dump
from tests.policies.wire.replies import surface

MTOP = {"ret": ["FAIL_SYS_USER_VALIDATE", "RGV587_ERROR::SM::哎哟喂,被挤爆啦,请稍后重试"], "data": {"url": "https://chat.qwen.ai/_____tmd_____/punish?x5secdata=xg"}}
RECOGNISER = Recogniser()


def document(body: object, status: int = 200, family: Family = Family.ZAI, headers: tuple[tuple[str, str], ...] = (), **more: Any) -> Finding:
    data = body if isinstance(body, bytes) else dump(body)
    return RECOGNISER.document(more.pop("where", surface(family)), Head(status, headers), data, whole=more.pop("whole", True))


def frame(raw: str, status: int = 200, family: Family = Family.ZAI) -> Finding | None:
    return RECOGNISER.frame(surface(family), Head(status), parse(raw.encode()))


# -- the mtop frame


@pytest.mark.parametrize("family", Family)
@pytest.mark.parametrize("status", [200, 403, 405])
@pytest.mark.parametrize(
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
    ],
)
def test_the_risk_control_frame_is_a_challenge_in_every_spelling(family: Family, status: int, body: object, challenge: Challenge) -> None:
    for data in (dump(body), b"data: " + dump(body) + b"\n\n", json.dumps(body).encode()):
        finding = document(data, status, family)
        assert (finding.kind, finding.challenge, finding.transient, finding.status) == (Kind.CHALLENGE, challenge, False, None)
    raw = "data:" + dump(body).decode() + "\n\n"
    in_stream = frame(raw, status, family)
    assert in_stream is not None
    assert in_stream.challenge is challenge
    assert RECOGNISER.suspicious(surface(family), raw.encode())


def test_a_success_of_mtop_is_none() -> None:
    assert document({"ret": ["SUCCESS::调用成功"], "data": {"id": "1", "title": "RGV587_ERROR"}}).kind is Kind.ANSWER
    assert document({"ret": 0, "choices": [{"message": {"content": "x"}}]}).kind is Kind.ANSWER


@pytest.mark.parametrize("end", [30, 35, 36, 60, 100])
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
    for status in (302, 307):
        head = Head(status, (("Location", "https://chat.qwen.ai/_____tmd_____/punish?x5secdata=1"),))
        finding = RECOGNISER.head(surface(Family.QWEN_WEB), head)
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


@pytest.mark.parametrize("status", [503, 529])
@pytest.mark.parametrize(("wait", "honest"), [("1", True), ("59", True), ("60", False), ("0", False), ("", False)])
def test_a_503_or_529_with_a_wait_in_range_is_honest(status: int, wait: str, *, honest: bool) -> None:
    body = {"type": "error", "error": {"type": "overloaded_error", "message": "x"}}
    assert document(body, status, headers=(("Retry-After", wait),)).honest is honest
    assert not document(MTOP, status, headers=(("Retry-After", wait),)).honest
    assert not document(body, 429, headers=(("Retry-After", wait),)).honest


def test_an_answer_of_our_own_kind_is_honest_and_not_sent_again() -> None:
    finding = document(MTOP, 503, headers=(("X-Breakwater", "challenge_busy"), ("Retry-After", "30")))
    assert (finding.honest, finding.transient) == (True, False)


# -- odds and ends of bodies


@pytest.mark.parametrize("family", Family)
def test_empty_bodies_are_read_by_their_status(family: Family) -> None:
    for body in (b"", b" \r\n"):
        assert document(body, 200, family).kind is Kind.NOTHING
        assert document(body, 204, family).kind is Kind.NOTHING
        assert (document(body, 429, family).kind, document(body, 429, family).transient) == (Kind.RATE_LIMIT, True)
        assert document(body, 400, family).kind is Kind.CALLER_ERROR
        assert document(body, 413, family).window is None
        assert document(body, 500, family).kind is Kind.UPSTREAM_ERROR
        assert document(body, 529, family).kind is Kind.OVERLOAD


@pytest.mark.parametrize(
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


@pytest.mark.parametrize("body", [b"[]", b"null", b"1", b'"text"', b"{}", b"plain words", b"\xff\xfe\x00", {"choices": []}, {"foo": 1}])
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
    body = {"type": "error", "error": {"type": "overloaded_error", "message": f"All 2 attempts failed. Last error: HTTP 400 Bad Request: {nested}"}}
    finding = document(body, 429)
    assert (finding.kind, finding.transient) == (Kind.CALLER_ERROR, False)


def test_a_long_wait_under_an_unknown_429_is_a_spent_quota() -> None:
    assert document({"error": {"message": "x"}}, 429, headers=(("retry-after", "277403"),)).kind is Kind.QUOTA
    assert document({"error": {"message": "x. Resets at 2026-09-08 14:29:33"}}, 429).kind is Kind.QUOTA
    assert document({"error": {"message": "x"}}, 429, headers=(("retry-after", "20"),)).kind is Kind.RATE_LIMIT
    assert document({"error": {"code": "1302", "message": "x"}}, 429, headers=(("retry-after", "277403"),)).kind is Kind.RATE_LIMIT


def test_a_plain_4xx_is_the_callers() -> None:
    assert document({"error": {"message": "no such thing"}}, 404).kind is Kind.CALLER_ERROR
    assert document(b"not found", 404).kind is Kind.CALLER_ERROR
    assert document({"message": "method not allowed"}, 405, Family.ZCODE).kind is Kind.CALLER_ERROR
    assert document({"detail": "Unauthorized"}, 401).kind is Kind.ACCOUNT


# -- frames


@pytest.mark.parametrize(
    "raw",
    [
        ": keep-alive\n\n", "\n\n", 'event: ping\ndata: {"type": "ping"}\n\n', "event: ping\ndata: {}\n\n", "data: [DONE]\n\n", "data: {}\n\n",
        'event: message_start\ndata: {"type":"message_start","message":{"content":[],"error":null}}\n\n',
        'data: {"type":"response.created","response":{"status":"in_progress","error":null}}\n\n',
        'data: {"type":"response.in_progress","response":{"error":null}}\n\n',
        'data: {"response.created":{"chat_id":"C","parent_id":"P","response_id":"R"}} \n\n',
        'data: {"response.info":{"action":"keep_alive","chat_id":"C","timestamp":1}}\n\n',
        'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}\n\n',
        'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":null,"tool_calls":null}}],"error":null}\n\n',
        'data: {"choices":[{"delta":{"role":"assistant","content":"","phase":"think","status":"typing"}}]}\n\n',
        'data: {"choices":[],"usage":{"prompt_tokens":1}}\n\n',
        "retry: 1000\n\n",
    ],
)
@pytest.mark.parametrize("family", Family)
def test_preamble_is_no_answer_yet(raw: str, family: Family) -> None:
    assert frame(raw, 200, family) is None


@pytest.mark.parametrize(
    "raw",
    [
        'data: {"choices":[{"index":0,"delta":{"content":"H"}}]}\n\n',
        'data: {"choices":[{"index":0,"delta":{"role":"assistant","tool_calls":[{"index":0}]}}]}\n\n',
        'data: {"choices":[{"delta":{"content":"","phase":"thinking_summary","extra":{"summary_title":{"content":["x"]}},"status":"typing"}}]}\n\n',
        'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n',
        'event: content_block_start\ndata: {"type":"content_block_start","index":0}\n\n',
        'data: {"type":"response.output_item.added","item":{}}\n\n',
        'id:1\nevent:result\n:HTTP_STATUS/200\ndata:{"output":{"text":"","finish_reason":"null"},"request_id":"r"}\n\n',
        'data: {"type":"chat:completion","data":{"delta_content":"x","phase":"answer"}}\n\n',
        "data: hello\n\n", "data: {broken\n\n", "data: [1]\n\n", 'data: {"unknown":1}\n\n',
    ],
)
@pytest.mark.parametrize("family", Family)
def test_anything_else_that_is_no_refusal_is_an_answer(raw: str, family: Family) -> None:
    finding = frame(raw, 200, family)
    assert finding is not None
    assert finding.kind is Kind.ANSWER


@pytest.mark.parametrize(
    ("reason", "kind"),
    [("sensitive", Kind.FILTER), ("network_error", Kind.UPSTREAM_ERROR), ("model_context_window_exceeded", Kind.OVERFLOW)],
)
def test_a_finish_reason_ends_an_answer(reason: str, kind: Kind) -> None:
    for raw in (
        f'data: {{"choices":[{{"index":0,"delta":{{"content":""}},"finish_reason":"{reason}"}}]}}\n\n',
        f'event: message_delta\ndata: {{"type":"message_delta","delta":{{"stop_reason": "{reason}"}},"usage":{{}}}}\n\n',
        f'data: {{"output":{{"choices":[{{"finish_reason":"{reason}","message":{{"content":""}}}}]}}}}\n\n',
    ):
        finding = frame(raw)
        assert finding is not None
        assert (finding.kind, finding.ends_answer, finding.window, finding.transient) == (kind, True, None, False)
        assert RECOGNISER.suspicious(surface(Family.ZAI), raw.encode())
    whole = document({"type": "message", "role": "assistant", "content": [{"type": "text", "text": "x"}], "stop_reason": reason})
    assert (whole.kind, whole.ends_answer) == (kind, True)


def test_the_status_of_a_native_stream_stands_in_a_comment() -> None:
    for status in (429, 400, 500, 503):
        finding = frame(f'id:1\nevent:error\n:HTTP_STATUS/{status}\ndata:{{"code":"Odd","message":"x","request_id":"r"}}\n\n', family=Family.DASHSCOPE)
        assert finding is not None
        assert finding.status == status
    alone = frame("id:1\nevent:error\n:HTTP_STATUS/500\n\n", family=Family.DASHSCOPE)
    assert alone is not None
    assert (alone.kind, alone.status) == (Kind.UPSTREAM_ERROR, 500)
    known = frame('id:1\nevent:error\n:HTTP_STATUS/400\ndata:{"code":"Arrearage","message":"x"}\n\n', 400, Family.DASHSCOPE)
    assert known is not None
    assert (known.kind, known.status) == (Kind.ACCOUNT, None)


def test_a_bare_document_in_a_stream_is_read() -> None:
    finding = frame(dump(MTOP).decode() + "\n\n")
    assert finding is not None
    assert finding.kind is Kind.CHALLENGE


def test_every_refusal_that_a_frame_may_hold_makes_its_bytes_suspicious() -> None:
    for family, forms in FORMS.items():
        for form in forms.values():
            body = form("1302", "x")
            raw = body if body.startswith((b"data", b"event", b"id")) else b"data: " + body + b"\n\n"
            assert RECOGNISER.suspicious(surface(family), raw), raw


# -- odd input


JSON_LIKE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
    | st.sampled_from(["error", "1302", "3007", "[1302][x][y]", '{"error":{"code":3007}}', "FAIL_SYS_USER_VALIDATE", "\ud800", "data:{"]),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(
        st.sampled_from(["error", "code", "type", "message", "msg", "data", "ret", "success", "choices", "detail", "details", "response",
                         "status", "retry-after", "num", "url", "output", "delta", "finish_reason", "metadata", "object", "Error", "n_ctx"]),
        inner, max_size=5),
    max_leaves=20,
)


@given(JSON_LIKE, st.sampled_from([200, 204, 302, 400, 429, 500, 529]), st.sampled_from(list(Family)), st.booleans())
def test_no_document_raises(value: object, status: int, family: Family, whole: bool) -> None:
    body = json.dumps(value).encode("utf-8", "replace")
    finding = document(body, status, family, whole=whole)
    assert isinstance(finding, Finding)
    assert len(finding.text) <= 500
    finding.text.encode()
    document(body[: len(body) // 2], status, family, whole=False)
    frame("event: error\ndata: " + body.decode("ascii") + "\n\n", status, family)
    frame("data: " + body.decode("ascii") + "\n\n", status, family)


@given(st.binary(max_size=300), st.sampled_from([200, 400, 503]), st.sampled_from(list(Family)))
def test_no_bytes_raise(data: bytes, status: int, family: Family) -> None:
    for start in (b"", b"{", b'{"error":', b"data: ", b"<", b'{"ret":["'):
        for whole in (True, False):
            RECOGNISER.document(surface(family), Head(status), start + data, whole=whole)
    RECOGNISER.frame(surface(family), Head(status), parse(b"data: " + data + b"\n\n"))
    RECOGNISER.suspicious(surface(family), data)


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b'{"a":' * 50_000,
        b'{"error":' * 50_000 + b"1" + b"}" * 50_000,
        b'{"error":{"code":' + b"9" * 5000 + b"}}",
        b'{"error":{"code":1e999,"message":NaN}}',
        b'{"error":{"code":"\\ud800","message":"\\udfff"}}',
        b'{"error":null,"error":{"code":"1302"}}',
        b'{"error":{"message":"' + b"x" * 300_000 + b'"}}',
        b'{"error":{"message":"' + b"{" * 100_000 + b'"}}',
        b'{"error":{"message":"' + b"[1302]" * 50_000 + b'"}}',
        b'{"error":{"message":"error: ' + b"error - " * 30_000 + b'"}}',
        b'"' * 200_000,
        b"data: " * 40_000,
        b"data: {}\n\n" * 20_000,
        b'{"code":"\xff\xfe","msg":"\xc3"}',
    ],
)
def test_hostile_bodies_are_read_in_time(body: bytes) -> None:
    for status in (200, 400):
        for whole in (True, False):
            assert isinstance(document(body, status, whole=whole), Finding)


def test_invalid_utf8_hides_no_code() -> None:
    assert document(b'{"error":{"code":"1305","message":"\xff\xfe"}}', 429).kind is Kind.OVERLOAD
    assert document(b'{"ret":["FAIL_SYS_USER_VALIDATE","\xb0\xae"]}').kind is Kind.CHALLENGE
    assert document("﻿".encode() + dump(MTOP)).kind is Kind.CHALLENGE


def test_what_follows_the_first_value_changes_nothing() -> None:
    assert document(dump(MTOP) + b"\n\n\x00trailing").kind is Kind.CHALLENGE


def test_secrets_are_cut_from_what_is_kept() -> None:
    words = "Invalid key sk-abcdefghij123 and Bearer abcdefghijkl, see https://x/_____tmd_____/punish?x5secdata=SECRETDATA"
    finding = document({"error": {"code": "9999", "message": words}, "captcha_verify_param": "SECRETPARAM"}, 400)
    for kept in (finding.text, finding.excerpt.decode()):
        assert "SECRET" not in kept
        assert "abcdefghij" not in kept
