from __future__ import annotations

from typing import Any

import pytest

from policies.answer.reader import Reader
from policies.kinds import Family, Head, Kind
from policies.refusal.recogniser import FRAMES, Recogniser
from tests.policies.refusal.envelope_forms import FORMS, dump
from tests.policies.refusal.judged import MTOP, RECOGNISER, document, frame
from tests.policies.refusal.replies import surface
from tests.policies.refusal.test_pages import CHALLENGES
from tests.rows import over

# -- frames


@over(
    "raw",
    [
        ": keep-alive\n\n",
        "\n\n",
        'event: ping\ndata: {"type": "ping"}\n\n',
        "event: ping\ndata: {}\n\n",
        "data: [DONE]\n\n",
        "data: {}\n\n",
        'event: message_start\ndata: {"type":"message_start","message":{"content":[],"error":null}}\n\n',
        'data: {"type":"response.created","response":{"status":"in_progress","error":null}}\n\n',
        'data: {"type":"response.in_progress","response":{"error":null}}\n\n',
        'data: {"response.created":{"chat_id":"C","parent_id":"P","response_id":"R"}} \n\n',
        'data: {"response.info":{"action":"keep_alive","chat_id":"C","timestamp":1}}\n\n',
        'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}\n\n',
        'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":null,"tool_calls":null}}],"error":null}\n\n',
        'data: {"choices":[{"delta":{"role":"assistant","content":"","phase":"think","status":"typing"}}]}\n\n',
        'id:1\nevent:result\ndata:{"output":{"choices":[{"message":{"content":"","role":"assistant"},"finish_reason":"null"}]}}\n\n',
        'id:1\nevent:result\n:HTTP_STATUS/200\ndata:{"output":{"text":"","finish_reason":"null"},"request_id":"r"}\n\n',
        'data: {"choices":[],"usage":{"prompt_tokens":1}}\n\n',
        "retry: 1000\n\n",
    ],
)
@over("family", Family)
def test_preamble_is_no_answer_yet(raw: str, family: Family) -> None:
    assert frame(raw, 200, family) is None


@over(
    "raw",
    [
        'data: {"choices":[{"index":0,"delta":{"content":"H"}}]}\n\n',
        'data: {"choices":[{"index":0,"delta":{"role":"assistant","tool_calls":[{"index":0}]}}]}\n\n',
        'data:{"output":{"choices":[{"message":{"content":"","role":"assistant"},"finish_reason":"stop"}]}}\n\n',
        'data:{"output":{"choices":[{"message":{"content":"","reasoning_content":"x"},"finish_reason":"null"}]}}\n\n',
        'data:{"output":{"task_id":"t","task_status":"PENDING"},"request_id":"r"}\n\n',
        'data: {"choices":[{"delta":{"content":"","phase":"thinking_summary","extra":{"summary_title":{"content":["x"]}},"status":"typing"}}]}\n\n',
        'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n',
        'event: content_block_start\ndata: {"type":"content_block_start","index":0}\n\n',
        'data: {"type":"response.output_item.added","item":{}}\n\n',
        'id:1\nevent:result\n:HTTP_STATUS/200\ndata:{"output":{"text":"H","finish_reason":"null"},"request_id":"r"}\n\n',
        'data: {"type":"chat:completion","data":{"delta_content":"x","phase":"answer"}}\n\n',
        "data: hello\n\n",
        "data: {broken\n\n",
        "data: [1]\n\n",
        'data: {"unknown":1}\n\n',
    ],
)
@over("family", Family)
def test_anything_else_that_is_no_refusal_is_an_answer(raw: str, family: Family) -> None:
    finding = frame(raw, 200, family)
    assert finding is not None
    assert finding.kind is Kind.ANSWER


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("sensitive", Kind.FILTER),
        ("network_error", Kind.UPSTREAM_ERROR),
        ("model_context_window_exceeded", Kind.OVERFLOW),
    ],
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
        assert RECOGNISER.suspicion(surface(Family.ZAI))(raw.encode())
    whole = document(
        {"type": "message", "role": "assistant", "content": [{"type": "text", "text": "x"}], "stop_reason": reason}
    )
    assert (whole.kind, whole.ends_answer) == (kind, True)


def test_the_status_of_a_native_stream_stands_in_a_comment() -> None:
    for status in (429, 400, 500, 503):
        finding = frame(
            f'id:1\nevent:error\n:HTTP_STATUS/{status}\ndata:{{"code":"Odd","message":"x","request_id":"r"}}\n\n',
            family=Family.DASHSCOPE,
        )
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


@pytest.mark.parametrize("lead", [b": ping\n\n", b'data: {"response.created":{"chat_id":"C"}}\n\n'])
def test_a_bare_document_with_events_right_behind_it_is_one(lead: bytes) -> None:
    own = Reader(surface(Family.QWEN_WEB), Head(200, (("content-type", "text/event-stream"),)), RECOGNISER)
    own.feed(lead + dump(MTOP) + b"\ndata: [DONE]\n\n")
    assert own.finish(cut=False).kind is Kind.CHALLENGE


@over("size", [1, 9, 5000, None], ids=str)
@over("name", ["punish-config", "punish-location", "aliyun-captcha", "cookie"])
def test_a_page_with_blank_lines_in_its_script_after_the_answer_is_one(name: str, size: int | None) -> None:
    """``size`` None: a chunk ends where a blank line does."""
    answer = b'data: {"choices":[{"delta":{"content":"hi"}}]}\n\n'
    page = CHALLENGES[name].encode().replace(b"<script>", b"<script>\n\n  /* one */\n\n") + b"\n\n"
    own = Reader(surface(Family.QWEN_WEB), Head(200, (("content-type", "text/event-stream"),)), RECOGNISER)
    assert own.feed(answer)
    passed, found = b"", None
    if size is None:
        chunks = [piece + b"\n\n" for piece in page.split(b"\n\n")[:-1]]
    else:
        chunks = [page[at : at + size] for at in range(0, len(page), size)]
    for data in (answer, *chunks):
        tapped = own.tap(data)
        passed, found = passed + b"".join(tapped.passed), found or tapped.finding
    assert found is not None
    assert found.kind is Kind.CHALLENGE
    assert passed.startswith(answer)
    assert not any(sign in passed for sign in (b"_config_", b"location", b"AliyunCaptcha", b"acw_sc"))


def test_an_answer_after_a_page_that_is_no_challenge_passes_whole() -> None:
    answer = b'data: {"choices":[{"delta":{"content":"hi"}}]}\n\n'
    page = b"<html><body>\n\nmaintenance\n\n</body></html>\n\n"
    own = Reader(surface(Family.QWEN_WEB), Head(200, (("content-type", "text/event-stream"),)), RECOGNISER)
    assert own.feed(answer)
    chunks = [answer, page, answer, answer]
    assert [own.tap(chunk).passed for chunk in chunks] == [(chunk,) for chunk in chunks]


def test_white_space_is_what_json_calls_so() -> None:
    near = RECOGNISER.suspicion(surface(Family.ZAI))
    assert near(b'data: {"detail": \x85[]}\n\n')
    assert not near(b'data: {"code"\x1f:3009}\n\n')
    assert near(b'data: {"code" :\t3009}\n\n')


def test_every_refusal_that_a_frame_may_hold_makes_its_bytes_suspicious() -> None:
    for family, forms in FORMS.items():
        for form in forms.values():
            body = form("1302", "x")
            raw = body if body.startswith((b"data", b"event", b"id")) else b"data: " + body + b"\n\n"
            assert RECOGNISER.suspicion(surface(family))(raw), raw


def test_of_a_body_of_events_only_the_first_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[object] = []
    judge = Recogniser.frame

    def counted(recogniser: Recogniser, *given: Any) -> object:
        looked.append(given)
        return judge(recogniser, *given)

    monkeypatch.setattr(Recogniser, "frame", counted)
    body = b"event: ping\ndata: {}\n\n" * 1000 + b'event: error\ndata: {"error": {"code": "1302"}}\n\n'
    found = Recogniser().document(surface(Family.ZAI), Head(200), body, whole=True)
    assert (found.kind, len(looked)) == (Kind.NOTHING, FRAMES)
