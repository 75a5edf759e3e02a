import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.decisions import Answer
from policies.kinds import Challenge, Finding, Kind, Wire
from policies.reply import dialects
from tests.rows import over

CHALLENGE = Finding(Kind.CHALLENGE, code="FAIL_SYS_USER_VALIDATE", challenge=Challenge.BUSY)
LIMITED = Finding(Kind.RATE_LIMIT, code="1302", text="Rate limit reached")
OPENAI_LIKE = [wire for wire in Wire if wire not in {Wire.ANTHROPIC, Wire.DASHSCOPE_NATIVE}]


def overloaded(wire: Wire, wait: float = 30.0, challenge: bool = True, reason: str = "challenge.busy") -> Any:
    return dialects.overloaded(wire, reason=reason, message="busy", wait=wait, challenge=challenge, request_id="req_1")


def hidden(wire: Wire, finding: Finding, status: int = 429, **more: Any) -> Any:
    return dialects.hidden(wire, finding, reason="r", status=status, message="m", request_id="req_1", **more)


def header(answer: Answer, name: str) -> Any:
    return next((value for key, value in answer.headers if key.lower() == name), None)


def error(answer: Answer) -> Any:
    body = json.loads(answer.body)
    return body.get("error", body)


EVERY = [
    *(overloaded(wire) for wire in Wire),
    *(dialects.too_large(wire, reason="side", message="m") for wire in Wire),
    *(hidden(wire, LIMITED, wait=5) for wire in Wire),
    *(dialects.bad_gateway(wire, reason="cut", message="m", request_id="req_1") for wire in Wire),
]


@over("answer", EVERY)
def test_every_answer_is_json_with_its_reason_and_no_coding(answer: Answer) -> None:
    assert header(answer, "content-type") == "application/json"
    assert header(answer, "x-breakwater") == answer.reason
    assert header(answer, "content-encoding") is None
    assert header(answer, "retry-after-ms") is None
    assert json.loads(answer.body)


@over("wire", Wire)
def test_a_passing_cause_is_529_on_the_anthropic_wire_and_503_on_the_others(wire: Wire) -> None:
    assert overloaded(wire).status == (529 if wire is Wire.ANTHROPIC else 503)


def test_the_anthropic_body_is_an_overloaded_error() -> None:
    assert json.loads(overloaded(Wire.ANTHROPIC).body) == {
        "type": "error",
        "error": {"type": "overloaded_error", "message": "busy"},
        "request_id": "req_1",
    }


@over("wire", [Wire.OPENAI, Wire.RESPONSES, Wire.IMAGES, Wire.VIDEOS])
def test_the_openai_body_is_a_server_error(wire: Wire) -> None:
    assert json.loads(overloaded(wire).body) == {
        "error": {"message": "busy", "type": "server_error", "param": None, "code": "upstream_unavailable"}
    }


@pytest.mark.parametrize("wire", [Wire.QWEN_WEB, Wire.ZAI_WEB, Wire.OTHER])
def test_web_wires_name_a_challenge_as_their_bridges_know_it(wire: Wire) -> None:
    assert error(overloaded(wire))["code"] == "upstream_waf_challenge"
    assert error(overloaded(wire, challenge=False))["code"] == "upstream_unavailable"


def test_the_native_body_has_its_fields_at_the_top() -> None:
    assert json.loads(overloaded(Wire.DASHSCOPE_NATIVE).body) == {
        "code": "upstream_unavailable",
        "message": "busy",
        "request_id": "req_1",
    }


@given(st.floats(-10, 1e6))
def test_retry_after_is_whole_seconds_from_1_to_59(wait: float) -> None:
    assert 1 <= int(header(overloaded(Wire.OPENAI, wait), "retry-after")) <= 59


@over(("wait", "told"), [(0, "1"), (0.2, "1"), (29.1, "30"), (59, "59"), (59.5, "59"), (3600, "59")])
def test_a_wait_is_rounded_up_and_capped(wait: float, told: Any) -> None:
    assert header(overloaded(Wire.OPENAI, wait), "retry-after") == told


def test_a_side_request_on_the_anthropic_wire_is_refused_for_good() -> None:
    answer = dialects.too_large(Wire.ANTHROPIC, reason="side", message="m")
    assert answer.status == 413
    assert json.loads(answer.body) == {
        "type": "error",
        "error": {
            "type": "invalid_request_error",
            "code": "side_request_payload_too_large",
            "retryable": False,
            "message": "m",
        },
    }
    assert header(answer, "x-should-retry") == "false"
    assert header(answer, "retry-after") is None
    assert b"request_too_large" not in answer.body


def test_a_side_request_on_the_native_wire_has_code_and_message_at_the_top_too() -> None:
    body = json.loads(dialects.too_large(Wire.DASHSCOPE_NATIVE, reason="side", message="m").body)
    assert body["code"] == body["error"]["code"] == "side_request_payload_too_large"
    assert body["message"] == body["error"]["message"] == "m"


def test_a_body_size_challenge_has_a_code_of_its_own() -> None:
    answer = dialects.too_large(Wire.QWEN_WEB, reason="size", message="m", code=dialects.BODY_SIZE_CODE)
    assert error(answer)["code"] == dialects.BODY_SIZE_CODE


@over("wire", Wire)
def test_a_bad_gateway_has_no_retry_after(wire: Wire) -> None:
    answer = dialects.bad_gateway(wire, reason="cut", message="m", request_id="req_1")
    assert answer.status == 502
    assert header(answer, "retry-after") is None


@pytest.mark.parametrize("wire", [Wire.ANTHROPIC, Wire.DASHSCOPE_NATIVE])
def test_a_hidden_error_keeps_the_upstreams_code(wire: Wire) -> None:
    assert error(hidden(wire, LIMITED))["code"] == "1302"


@over("wire", OPENAI_LIKE)
def test_a_numeric_code_becomes_a_word_and_stays_beside_it(wire: Wire) -> None:
    found = error(hidden(wire, LIMITED))
    assert (found["code"], found["upstream_code"]) == ("rate_limit_exceeded", "1302")


@over(
    ("kind", "code", "told"),
    [
        (Kind.RATE_LIMIT, "insufficient_quota", "rate_limit_exceeded"),
        (Kind.RATE_LIMIT, "Throttling.AllocationQuota", "rate_limit_exceeded"),
        (Kind.RATE_LIMIT, "limit_requests", "limit_requests"),
        (Kind.QUOTA, "RateLimited", "RateLimited"),
        (Kind.QUOTA, "1308", "insufficient_quota"),
        (Kind.UPSTREAM_ERROR, "1234", "upstream_error"),
        (Kind.OVERFLOW, "1261", "context_length_exceeded"),
        (Kind.FILTER, "data_inspection_failed", "data_inspection_failed"),
        (Kind.CALLER_ERROR, None, "invalid_request"),
        (Kind.CALLER_ERROR, "https://x/?token=1", "invalid_request"),
    ],
)
def test_no_code_on_the_openai_wire_misleads_a_client(kind: Kind, code: Any, told: Any) -> None:
    assert error(hidden(Wire.OPENAI, Finding(kind, code=code)))["code"] == told


@over(
    ("status", "anthropic", "openai"),
    [
        (400, "invalid_request_error", "invalid_request_error"),
        (401, "authentication_error", "authentication_error"),
        (403, "permission_error", "permission_error"),
        (429, "rate_limit_error", "rate_limit_error"),
        (500, "api_error", "server_error"),
        (502, "api_error", "server_error"),
    ],
)
def test_a_hidden_error_has_the_type_of_its_status(status: int, anthropic: str, openai: str) -> None:
    assert error(hidden(Wire.ANTHROPIC, LIMITED, status))["type"] == anthropic
    assert error(hidden(Wire.OPENAI, LIMITED, status))["type"] == openai


def test_a_hidden_quota_is_not_tried_again() -> None:
    answer = hidden(Wire.ANTHROPIC, Finding(Kind.QUOTA, code="1308"), should_retry=False)
    assert header(answer, "x-should-retry") == "false"
    assert header(answer, "retry-after") is None


def test_a_hidden_rate_limit_carries_its_wait_only_where_there_is_one() -> None:
    assert header(hidden(Wire.OPENAI, LIMITED, wait=504641), "retry-after") == "59"
    assert header(hidden(Wire.OPENAI, LIMITED), "retry-after") is None


def test_a_header_value_is_never_more_than_plain_ascii() -> None:
    answer = overloaded(Wire.OPENAI, reason="a\r\nSet-Cookie: 繁忙")
    assert header(answer, "x-breakwater") == "a__Set-Cookie: __"


def frame(wire: Wire, finding: Finding = CHALLENGE, wait: float = 30.0) -> Any:
    return dialects.error_frame(wire, finding, message="busy", wait=wait, request_id="req_1").decode()


def data(text: str) -> Any:
    return [json.loads(line[5:]) for line in text.splitlines() if line.startswith("data:") and "[DONE]" not in line]


@over("wire", Wire)
@over("wait", [0, 12.5, 3600])
def test_every_error_frame_is_whole_and_says_its_wait(wire: Wire, wait: float) -> None:
    text = frame(wire, wait=wait)
    assert text.endswith("\n\n")
    assert f'"retry_after":{dialects.retry_after(wait)}' in text


def test_a_client_that_sends_again_only_what_just_ends_gets_no_frame() -> None:
    for agent, wire, bare in (
        ("QwenCode/0.14.1 (linux; x64)", Wire.OPENAI, True),
        ("QwenCode/0.14.1 (linux; x64)", Wire.ANTHROPIC, False),
        ("opencode/1.0 QwenCode/0.14", Wire.OPENAI, False),
        ("", Wire.OPENAI, False),
    ):
        assert dialects.ends_bare(wire, agent) is bare
        sent = dialects.error_frame(wire, CHALLENGE, message="m", wait=1, request_id="r", user_agent=agent)
        assert (sent == b"") is bare


def test_an_anthropic_error_frame_is_an_error_event() -> None:
    text = frame(Wire.ANTHROPIC)
    assert text.startswith("event: error\n")
    (value,) = data(text)
    assert value["type"] == "error"
    assert value["error"] == {"type": "overloaded_error", "message": "busy", "retry_after": 30}
    assert data(frame(Wire.ANTHROPIC, LIMITED))[0]["error"]["type"] == "rate_limit_error"


@pytest.mark.parametrize("wire", [Wire.OPENAI, Wire.QWEN_WEB, Wire.ZAI_WEB])
def test_an_openai_error_frame_is_followed_by_done(wire: Wire) -> None:
    text = frame(wire)
    assert text.endswith("data: [DONE]\n\n")
    (value,) = data(text)
    assert value["error"]["code"] == ("upstream_unavailable" if wire is Wire.OPENAI else "upstream_waf_challenge")
    assert data(frame(wire, LIMITED))[0]["error"]["code"] == "rate_limit_exceeded"


def test_a_responses_stream_fails_in_the_words_that_codex_waits_for() -> None:
    text = frame(Wire.RESPONSES)
    assert text.startswith("event: response.failed\n")
    (value,) = data(text)
    assert value["type"] == "response.failed"
    assert value["response"]["status"] == "failed"
    assert value["response"]["error"]["code"] == "rate_limit_exceeded"
    assert "try again in 30s" in value["response"]["error"]["message"]


def test_a_native_error_frame_has_its_status_in_a_comment() -> None:
    text = frame(Wire.DASHSCOPE_NATIVE, LIMITED)
    assert text.startswith("event:error\n:HTTP_STATUS/429\ndata:{")
    (value,) = data(text)
    assert {"code", "message", "request_id", "retry_after"} == set(value)
