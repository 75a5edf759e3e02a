"""Every dialect by its path, and the paths that no rule may touch."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.e2e.lab.client import Connection, ask
from tests.e2e.lab.proxy import Proxy
from tests.e2e.lab.script import Gate, Place, Reply
from tests.e2e.lab.wires import (
    JSON,
    MESSAGES,
    MTOP,
    QWEN_WEB,
    SSE,
    account,
    anthropic_message,
    asked,
    compact,
    event,
    openai,
    page,
    qwen_web,
    streamed,
    whole,
)

Places = Callable[..., Place]
RESPONSES = "/compatible-mode/v1/responses"
NATIVE = "/api/v1/services/aigc/text-generation/generation"
IMAGES = "/api/paas/v4/images/generations"
VIDEOS = "/api/paas/v4/videos/generations"

DIALECTS = {
    "responses": (
        "dashscope",
        RESPONSES,
        [
            event({"type": "response.created", "sequence_number": 0, "response": {"id": "r", "status": "in_progress"}}),
            event({"type": "response.output_text.delta", "sequence_number": 1, "delta": "Hi"}),
        ],
    ),
    "native": (
        "dashscope",
        NATIVE,
        [b'id:1\nevent:result\n:HTTP_STATUS/200\ndata:{"output":{"text":"Hi","finish_reason":"null"}}\n\n'],
    ),
    "zai-web": (
        "zai-web",
        QWEN_WEB,
        [event({"type": "chat:completion", "data": {"delta_content": "Hi", "phase": "answer"}}, named=False)],
    ),
    "qwen-web": ("qwen-web", QWEN_WEB, qwen_web()[:2]),
    "openai": ("dashscope", "/compatible-mode/v1/chat/completions", openai()[:2]),
}
ENDS = {
    "responses": b"event: response.failed\n",
    "native": b"event:error\n:HTTP_STATUS/503\n",
    "zai-web": b"data: [DONE]\n\n",
    "qwen-web": b"data: [DONE]\n\n",
    "openai": b"data: [DONE]\n\n",
}


@pytest.mark.parametrize("wire", [*DIALECTS, "images", "videos"])
def test_a_challenge_is_told_in_the_dialect_of_its_path(guarded: Proxy, place: Places, wire: str) -> None:
    family, path, _ = DIALECTS.get(wire) or ("zai", IMAGES if wire == "images" else VIDEOS, [])
    here = place(family).then(whole(MTOP))
    answer = ask(guarded, here.url(path), asked(), account(here.host))
    told = answer.json()
    assert (answer.status, answer.retry_after) == (503, 30)
    if wire == "native":
        assert set(told) == {"code", "message", "request_id"}
        assert told["code"] == "upstream_unavailable"
    else:
        code = "upstream_waf_challenge" if wire in ("qwen-web", "zai-web") else "upstream_unavailable"
        error = told["error"]
        assert (set(told), set(error)) == ({"error"}, {"message", "type", "param", "code"})
        assert (error["type"], error["param"], error["code"]) == ("server_error", None, code)


@pytest.mark.parametrize("wire", DIALECTS)
def test_a_running_stream_ends_in_its_dialect(guarded: Proxy, place: Places, wire: str) -> None:
    family, path, frames = DIALECTS[wire]
    here = place(family).then(streamed([*frames, event(MTOP), event({"never": "seen"})]))
    answer = ask(guarded, here.url(path), asked(), account(here.host))
    passed, ours = answer.body[: len(b"".join(frames))], answer.body[len(b"".join(frames)) :]
    assert (answer.status, passed, answer.whole) == (200, b"".join(frames), True)
    assert b'"retry_after":30' in ours
    assert ENDS[wire] in ours
    assert b"x5secdata" not in ours
    assert b"never" not in ours


def test_a_stream_beside_the_generation_paths_is_never_held(guarded: Proxy, place: Places) -> None:
    gate = Gate()
    here = place().then(streamed([b": hello\n\n", gate, event(MTOP)]))
    with Connection(guarded, here.url("/api/mcp/web_search_prime/mcp")) as connection:
        connection.send(b"{}", account(here.host))
        answer = connection.head()
        assert connection.piece(answer) == b": hello\n\n"
        gate.open()
        connection.rest(answer)
    assert (answer.status, answer.body) == (200, b": hello\n\n" + event(MTOP))


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/", [("sec-fetch-mode", "navigate")]),
        ("/_____tmd_____/punish?x5secdata=1", []),
        ("/a/_____tmd_____/slide", []),
    ],
)
def test_a_person_sees_the_page_as_it_is_also_while_the_breaker_is_open(
    guarded: Proxy, place: Places, path: str, headers: list[tuple[str, str]]
) -> None:
    here = place("qwen-web").always(page())
    for number in range(4):
        ask(guarded, here.url(QWEN_WEB), asked(f"opens {number}"), account(here.host))
    sent = len(here.hits)
    answer = ask(guarded, here.url(path), None, headers, "GET")
    assert (answer.status, answer.body) == (200, page().chunks[0])
    assert len(here.hits) == sent + 1 == 4


def test_polling_a_task_is_neither_gated_nor_counted(guarded: Proxy, place: Places) -> None:
    here = place("dashscope").always(page())
    told = [ask(guarded, here.url("/api/v1/tasks/t1"), None, account(here.host), "GET").status for _ in range(4)]
    here.always(whole({"output": {"task_id": "t1", "task_status": "FAILED", "code": "InternalError", "message": "x"}}))
    polled = ask(guarded, here.url("/api/v1/tasks/t1"), None, account(here.host), "GET")
    assert (told, polled.status) == ([503] * 4, 200)
    here.always(whole({"output": {"task_id": "t2", "task_status": "PENDING"}, "request_id": "r"}))
    made = ask(guarded, here.url("/api/v1/services/aigc/text2image/image-synthesis"), asked(), account(here.host))
    assert (made.status, len(here.hits)) == (200, 6)


def test_a_preparation_step_tells_a_refusal_and_counts_for_nothing(guarded: Proxy, place: Places) -> None:
    here = place("qwen-web").always(whole(MTOP))
    steps = ["/api/v2/chats/new", "/api/v2/files/getstsToken", "/api/v2/files/parse", "/api/v2/chats/new"]
    assert [ask(guarded, here.url(step), b"{}", account(here.host)).status for step in steps] == [503] * 4
    here.always(whole({"success": False, "data": {"code": "RateLimited", "details": "enough", "num": 3}}))
    limited = ask(guarded, here.url(steps[0]), b"{}", account(here.host))
    assert (limited.status, limited.header("retry-after"), limited.header("x-should-retry")) == (429, None, "false")
    here.always(streamed(qwen_web()))
    assert ask(guarded, here.url(QWEN_WEB), asked(), account(here.host)).status == 200


def test_a_body_that_is_challenged_for_its_size_is_refused_for_good(guarded: Proxy, place: Places) -> None:
    here = place("qwen-web").always(whole(MTOP))
    large = asked("x" * 131072)
    answers = [ask(guarded, here.url(QWEN_WEB), large, account(here.host)) for _ in range(2)]
    for answer in answers:
        assert (answer.status, answer.header("x-should-retry"), answer.header("retry-after")) == (413, "false", None)
    assert len(here.hits) == 1


@pytest.mark.parametrize("status", [503, 529])
def test_what_another_proxy_told_already_is_not_told_again(guarded: Proxy, place: Places, status: int) -> None:
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "paused"}, "request_id": "r"}
    headers = [JSON, ("Retry-After", "44"), ("X-Breakwater", "challenge_captcha")]
    here = place().always(Reply(status, headers, [compact(error)]))
    for number in range(4):
        answer = ask(guarded, here.url(MESSAGES), asked(f"{number}"), account(here.host))
        assert (answer.status, answer.retry_after, answer.body) == (status, 44, compact(error))
    here.always(whole(anthropic_message()))
    assert ask(guarded, here.url(MESSAGES), asked(), account(here.host)).status == 200


def test_bare_json_of_a_success_is_an_answer_under_any_type(guarded: Proxy, place: Places) -> None:
    here = place().then(Reply(200, [SSE], [compact(anthropic_message())]))
    assert ask(guarded, here.url(MESSAGES), asked(), account(here.host)).json() == anthropic_message()
