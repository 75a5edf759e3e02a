"""The kinds of recorded answers, over wires, carriers, wrappers and spellings of their codes."""

from __future__ import annotations

import itertools
import json

import pytest

from policies.answer.reader import Reader
from policies.kinds import Challenge, Family, Head, Kind, Role, Wire
from tests.policies.refusal.envelope_forms import FORMS, dump
from tests.policies.refusal.judged import MTOP, RECOGNISER, document, frame
from tests.policies.refusal.replies import corpus, surface
from tests.rows import over

ZAI = (Family.ZAI, Family.ZAI_WEB, Family.ZCODE)
HOLLOW = {"id": "", "object": "", "created": 0, "model": "", "system_fingerprint": None, "choices": None, "usage": None}
SERVING = next(reply for reply in corpus() if reply.id == "t2-d-serving-nested-200")
SERVED = json.loads(SERVING.body.removeprefix(b"data: "))["error"]["message"]


# -- what says nothing


@over("family", Family)
@over(
    "value",
    [
        HOLLOW,
        {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": None},
        {"id": "c", "object": "chat.completion.chunk", "choices": [], "usage": {"total_tokens": 3}},
        {"choices": [{"index": 0, "delta": None, "finish_reason": None}]},
        {"choices": [{"index": 0, "delta": {}}]},
        {"anything": [[], {}, {"a": [None, "", 0, False]}]},
        None,
        "",
        [],
        0,
    ],
)
def test_what_says_nothing_is_no_answer_whatever_its_keys(family: Family, value: object) -> None:
    assert frame(f"data: {json.dumps(value)}\n\n", family=family) is None
    assert document(value, family=family).kind is Kind.NOTHING


def test_a_message_that_says_nothing_is_no_answer() -> None:
    hollow: list[object] = [
        {"choices": [{"index": 0, "message": {"role": "assistant", "content": ""}, "finish_reason": None}]},
        {"id": "m", "type": "message", "role": "assistant", "model": "x", "content": [], "stop_reason": None},
    ]
    for empty in hollow:
        assert document(empty).kind is Kind.NOTHING
    for ended in (
        {"choices": [{"index": 0, "message": {"role": "assistant", "content": ""}, "finish_reason": "stop"}]},
        {"choices": [{"index": 0, "message": {"content": None, "tool_calls": [{"id": "t"}]}, "finish_reason": None}]},
        {"id": "m", "type": "message", "role": "assistant", "content": [], "stop_reason": "end_turn"},
    ):
        assert document(ended).kind is Kind.ANSWER


def test_a_document_of_nothing_within_nothing_is_read() -> None:
    deep = b'{"a":' * 900 + b"null" + b"}" * 900
    assert document(deep).kind is Kind.NOTHING


def test_a_refusal_behind_hollow_chunks_is_still_told() -> None:
    for refusal in ({"error": {"code": "1305", "message": "x"}}, MTOP):
        own = Reader(surface(Family.ZAI), Head(200, (("content-type", "text/event-stream"),)), RECOGNISER)
        for _ in range(3):
            assert own.feed(b"data: " + dump(HOLLOW) + b"\n\n") is None
        assert not own.answered
        finding = own.feed(b"data: " + dump(refusal) + b"\n\n")
        assert finding is not None
        assert finding.kind in (Kind.OVERLOAD, Kind.CHALLENGE)


# -- the name of an event


@over("name", ["error", "response.failed", "response.error", " response.failed "])
@over("body", [{"code": "c9", "message": "x"}, {"error": {"code": "c9", "message": "x"}}, {"detail": "x"}])
def test_an_event_named_failed_is_a_refusal_whatever_its_data(name: str, body: dict[str, object]) -> None:
    for data in (body, {"response": {"id": "r", **body}}, {"type": "", "response": {"error": body, "id": "r"}}):
        raw = f"event:{name}\ndata: {json.dumps(data)}\n\n"
        finding = frame(raw)
        assert finding is not None
        assert finding.kind is Kind.UPSTREAM_ERROR
        assert "detail" in body or finding.code == "c9"
        assert RECOGNISER.suspicion(surface(Family.ZAI))(raw.encode())


@pytest.mark.parametrize("name", ["error", "response.failed", "response.error"])
def test_words_under_a_name_that_says_failed_are_an_errors_words(name: str) -> None:
    finding = frame(f"event: {name}\ndata: Rate limit reached. Please try again in 7s.\n\n")
    assert finding is not None
    assert (finding.kind, finding.wait, finding.wait_source) == (Kind.RATE_LIMIT, 7, "text")


@over(
    "raw",
    [
        'event: response.created\ndata: {"id":"r","object":"response","status":"in_progress"}\n\n',
        'event: response.in_progress\ndata: {"response":{"id":"r","output":[],"error":null}}\n\n',
        'event: message_start\ndata: {"message":{"id":"m","content":[]}}\n\n',
        "event: ping\ndata: {}\n\n",
    ],
)
def test_an_event_named_like_preamble_is_none_of_the_answer(raw: str) -> None:
    assert frame(raw) is None


@over(
    "raw",
    [
        'event: response.output_text.delta\ndata: {"delta":"429 Too Many Requests"}\n\n',
        'event: response.code_interpreter_call_code.done\ndata: {"code":"1305","item_id":"i"}\n\n',
        'event: response.mcp_call.failed\ndata: {"item_id":"i","output_index":0}\n\n',
        'event: content_block_delta\ndata: {"index":0,"delta":{"text":"1305"}}\n\n',
    ],
)
def test_an_event_named_like_an_answer_is_one(raw: str) -> None:
    finding = frame(raw)
    assert finding is not None
    assert finding.kind is Kind.ANSWER


def test_an_event_named_message_says_nothing_of_its_data() -> None:
    finding = frame('event: message\ndata: {"code":1302,"msg":"x","success":false}\n\n')
    assert finding is not None
    assert finding.kind is Kind.RATE_LIMIT


def test_a_whole_response_that_failed_without_an_error_is_no_answer() -> None:
    failed = {"id": "r", "object": "response", "status": "failed", "error": None, "output": [{"type": "message"}]}
    assert document(failed).kind is Kind.UPSTREAM_ERROR
    assert document({**failed, "status": "completed"}).kind is Kind.ANSWER


# -- an overload one layer deeper


@over("family", [Family.DASHSCOPE, Family.QWEN_WEB])
@over("status", [200, 500, 503])
def test_an_overload_nested_in_a_message_is_told_in_every_envelope(family: Family, status: int) -> None:
    spellings = [SERVED, SERVED.replace("[{", "{").replace("}]", "}"), SERVED.replace('"', '\\"')]
    spellings += [SERVED.replace('"', "'"), f"litellm.APIError: OpenAIException - {SERVED}"]
    for (name, form), words in itertools.product(FORMS[family].items(), spellings):
        finding = document(form("internal_server_error", words), status, family)
        assert finding.kind is Kind.OVERLOAD, (name, words, finding)


def test_another_error_nested_there_is_what_it_is() -> None:
    for inner, kind in (
        ('{"status_code":500,"status_message":"x"}', Kind.UPSTREAM_ERROR),
        ('{"code":"DataInspectionFailed","message":"x"}', Kind.FILTER),
        ("nothing that can be read", Kind.UPSTREAM_ERROR),
    ):
        words = "<5000202> InternalError.Algo.ModelServingError.ModelServingUnknownError: The error message it sent us is "
        body = {"error": {"message": f"{words}[{inner}]", "code": "internal_server_error"}}
        assert document(body, 200, Family.DASHSCOPE).kind is kind, inner


def test_an_error_as_python_prints_it_is_read() -> None:
    printed = "Error code: 429 - {'error': {'code': '1302', 'message': \"it's\", 'param': None, 'x': True}}"
    assert document({"error": {"message": printed}}, 429).code == "1302"
    quoted = "Invalid tool arguments: {'error': {'code': '1302', 'message': 'x'}}"
    assert document({"error": {"code": "c9", "message": quoted}}, 400).kind is Kind.CALLER_ERROR


def test_brackets_are_read_behind_a_wrappers_words() -> None:
    words = "litellm.RateLimitError: AnthropicException - [1302][Rate limit reached][202606102042010000]"
    finding = document({"error": {"message": words, "code": "429"}}, 429)
    assert (finding.row, finding.text) == ("zai:1302", "Rate limit reached")


# -- codes and words


def test_1300_1231_and_1100_have_the_status_of_what_they_say() -> None:
    for (code, status, kind), family in itertools.product(
        [("1300", 400, Kind.FILTER), ("1231", 400, Kind.CALLER_ERROR), ("1100", 401, Kind.ACCOUNT)], ZAI
    ):
        for form in FORMS[family].values():
            finding = document(form(code, "x"), 200, family)
            assert (finding.kind, finding.status) == (kind, status)


@over(
    ("words", "kind", "status"),
    [
        ("This call violates our usage policy", Kind.FILTER, 400),
        ("您的账户无权使用该模型", Kind.ACCOUNT, 401),
        ("your account is not allowed to use this", Kind.ACCOUNT, 401),
        ("The parameter top_p is wrong", Kind.CALLER_ERROR, 400),
        ("参数错误", Kind.CALLER_ERROR, 400),
        ("Parameter service: internal error", Kind.UPSTREAM_ERROR, 502),
        ("Your account is busy, please try again later", Kind.UPSTREAM_ERROR, 502),
        ("something else", Kind.UPSTREAM_ERROR, 502),
    ],
)
@over("family", Family)
def test_an_unknown_code_in_a_success_says_by_its_status_whose_fault_it_is(
    family: Family, words: str, kind: Kind, status: int
) -> None:
    for body in ({"error": {"code": "9999", "message": words}}, {"code": 9999, "msg": words}):
        hidden = document(body, 200, family)
        assert (hidden.kind, hidden.status) == (kind, status)
        assert document(body, 500, family).kind is Kind.UPSTREAM_ERROR
        assert document(body, 400, family).kind is Kind.CALLER_ERROR


def test_words_of_a_success_without_an_error_make_none() -> None:
    body = {"message": "your account is ready", "plan": 1, "seats": 2, "more": 3}
    assert document(body, where=surface(Family.ZAI, Wire.OTHER, Role.OTHER)).kind is Kind.ANSWER
    assert document(body).kind is Kind.NOTHING


def test_chat_z_ais_content_warning_is_the_filters_in_every_carrier() -> None:
    words = "Content Security Warning: The content may contain inappropriate content."
    error = {"detail": words, "content": words}
    for body in (
        {"type": "chat:completion", "data": {"error": error, "done": True}},
        {"error": error},
        {"detail": words},
    ):
        framed = frame(f"data: {json.dumps(body)}\n\n", family=Family.ZAI_WEB)
        for finding in (document(body, 200, Family.ZAI_WEB), document(body, 400, Family.ZAI_WEB), framed):
            assert finding is not None
            assert finding.kind is Kind.FILTER, body


@over("family", ZAI)
@over("code", ["3007", 3007, None])
@over("status", [200, 400, 403])
def test_3007_means_the_captcha_on_every_host_of_z_ai(family: Family, code: object, status: int) -> None:
    error = {"code": code, "message": "captcha verify failed"}
    for body in (
        {"error": error},
        {"type": "error", "error": error},
        {"success": False, "msg": error["message"], "code": code},
    ):
        finding = document(body, status, family)
        assert (finding.challenge, finding.transient) == (Challenge.CAPTCHA, True)


@pytest.mark.parametrize("words", ["[503] no capacity", "Error from upstream: [503] no capacity", "失败：[503] no"])
def test_a_status_in_brackets_is_the_errors_own(words: str) -> None:
    finding = document({"error": {"message": words}}, 200)
    assert (finding.kind, finding.status) == (Kind.UPSTREAM_ERROR, 503)
    assert document({"error": {"message": "see [503] in the log"}}, 200).status == 502


@pytest.mark.parametrize("words", ["[503] The request queue is full", "upstream: [503] The request queue is full"])
def test_a_full_queue_is_an_overload(words: str) -> None:
    assert document({"error": {"message": words}}, 200).kind is Kind.OVERLOAD


def test_a_kept_object_that_tells_of_its_own_failure_is_an_answer() -> None:
    beside = surface(Family.DASHSCOPE, Wire.OTHER, Role.OTHER)
    for name in ("batch", "fine_tuning.job", "file", "vector_store.file"):
        body = {"id": "b", "object": name, "status": "failed", "errors": {"data": [{"code": "c9", "message": "x"}]}}
        assert document(body, where=beside).kind is Kind.ANSWER
        refused = {**body, "errors": {"code": "Arrearage", "message": "x"}}
        assert document(refused, 400, where=beside).kind is Kind.ACCOUNT
        assert document(refused, where=beside).kind is Kind.ANSWER
