"""A title, warm-up or probe that cannot fit its window is refused here; whatever may fit is not."""

from __future__ import annotations

import base64
import itertools
import struct
import time
from collections.abc import Callable
from typing import Any

import pytest
from mitmproxy.net import encoding

from tests.e2e.conftest import Proxies
from tests.e2e.lab import turns
from tests.e2e.lab.client import Answer, ask
from tests.e2e.lab.proxy import LAB
from tests.e2e.lab.script import Reply
from tests.e2e.lab.turns import CONFIG, OFF, WINDOW, Agent
from tests.e2e.lab.upstream import Upstream
from tests.e2e.lab.wires import (
    COMPLETIONS,
    MESSAGES,
    MTOP,
    anthropic,
    anthropic_message,
    asked,
    compact,
    event,
    openai_message,
    streamed,
    whole,
)

NATIVE = "/api/v1/services/aigc/text-generation/generation"
RESPONSES = "/api/v1/responses"
WIRES = {
    "anthropic": ("calm-zai", MESSAGES),
    "openai": ("calm-zai", COMPLETIONS),
    "responses": ("calm-zai", RESPONSES),
    "native": ("calm-dashscope", NATIVE),
}
CODE = "side_request_payload_too_large"
OVERSIZE, FITTING = 7000, 1500
"""Words, of a bit more than a token each: over one and a quarter windows, and well within one."""
ANSWER = whole(anthropic_message())

Agents = Callable[..., Agent]


@pytest.fixture
def agent(proxies: Proxies, upstream: Upstream) -> Agents:
    def make(wire: str = "anthropic", kind: str = "", config: dict[str, Any] = CONFIG) -> Agent:
        usual, path = WIRES[wire]
        proxy = proxies(config, scripts=[LAB / "ended.py"])
        return Agent(proxy, turns.place(upstream, kind or usual), path)

    return make


def words(count: int) -> str:
    """Plain English, a bit more than a token a word."""
    few = ("the", "river", "carries", "a", "small", "boat", "of", "paper", "under", "an", "old", "bridge")
    return " ".join(itertools.islice(itertools.cycle(few), count))


def side(count: int, wire: str = "anthropic", model: str = "small-1", start: str = "", **more: object) -> bytes:
    """A side request of so many words."""
    text = start + words(count)
    messages = [{"role": "user", "content": text}]
    if wire == "native":
        return compact({"model": model, "input": {"messages": messages}, "parameters": {"max_tokens": 20}, **more})
    if wire == "responses":
        return compact({"model": model, "input": text, "max_output_tokens": 20, **more})
    return compact({"model": model, "max_tokens": 20, "messages": messages, **more})


def main(count: int, model: str = "small-1", wire: str = "anthropic") -> bytes:
    """A main request of so many words: it has a tool and a large budget."""
    if wire in ("native", "responses"):
        tools = [{"type": "function", "name": "read"}]
        return side(count, wire, model, tools=tools)
    return asked(words(count), model=model)


def refused(answer: Answer, reason: str = "side_request_over_window") -> None:
    """A 413 that no client tries again, and none takes for a limit of its main conversation."""
    assert (answer.status, answer.header("x-breakwater")) == (413, reason), answer.raw
    assert answer.header("retry-after") is None
    assert answer.header("x-should-retry") == "false"
    assert b"request_too_large" not in answer.body


def usage(tokens: int) -> dict[str, Any]:
    return {**anthropic_message(), "usage": {"input_tokens": tokens - 400, "cache_read_input_tokens": 400, "output_tokens": 2}}


def overflow(window: int, status: int = 400) -> Reply:
    message = f"This model's maximum context length is {window} tokens. However, you requested {window + 900} tokens"
    return whole({"error": {"message": message, "type": "invalid_request_error", "code": "context_length_exceeded"}}, status)


@pytest.mark.parametrize("wire", WIRES)
def test_an_oversize_side_request_is_a_413_and_not_sent(agent: Agents, wire: str) -> None:
    here = agent(wire)
    answer = here.send(side(OVERSIZE, wire))
    refused(answer)
    assert answer.header("content-type") == "application/json"
    body = answer.json()
    error = body["error"]
    assert (error["type"], error["code"], error["retryable"]) == ("invalid_request_error", CODE, False)
    assert str(WINDOW) in error["message"]
    assert "small-1" in error["message"]
    assert "辅助请求" in error["message"]
    beside = {"anthropic": {"type": "error"}, "native": {"code": CODE, "message": error["message"]}}.get(wire, {})
    assert body == {"error": error, **beside}
    assert set(error) == {"type", "code", "retryable", "message"}
    assert here.place.hits == []


def test_not_even_a_header_of_a_413_says_the_words_that_make_clients_cut_a_conversation(agent: Agents) -> None:
    answer = agent().send(side(OVERSIZE))
    assert answer.status == 413
    assert b"request_too_large" not in answer.raw


@pytest.mark.parametrize("wire", WIRES)
def test_a_fitting_side_request_reaches_the_upstream_byte_for_byte(agent: Agents, wire: str) -> None:
    here = agent(wire)
    here.place.then(ANSWER)
    body = side(FITTING, wire)
    answer = here.send(body)
    assert (answer.status, answer.body) == (200, ANSWER.chunks[0])
    assert [hit.body for hit in here.place.hits] == [body]


@pytest.mark.parametrize("code", ["gzip", "br", "zstd"])
def test_an_encoded_request_is_read_and_goes_on_as_it_came(agent: Agents, code: str) -> None:
    here = agent()
    here.place.then(ANSWER)
    body = encoding.encode(side(FITTING), code)
    assert here.send(body, [("content-encoding", code)]).status == 200
    (hit,) = here.place.hits
    assert (hit.body, hit.header("content-encoding")) == (body, code)
    refused(here.send(encoding.encode(side(OVERSIZE), code), [("content-encoding", code)]))
    assert len(here.place.hits) == 1


@pytest.mark.parametrize("wire", WIRES)
def test_an_unknown_model_is_forwarded(agent: Agents, wire: str) -> None:
    here = agent(wire)
    here.place.then(ANSWER)
    body = side(60_000, wire, "nobody-knows-this")
    assert here.send(body).status == 200
    assert here.place.hits[0].body == body


@pytest.mark.parametrize("count", [OVERSIZE, 280_000])
def test_a_main_request_of_any_size_is_forwarded(agent: Agents, count: int) -> None:
    here = agent()
    here.place.always(ANSWER)
    body = main(count)
    assert here.send(body).status == 200
    assert here.place.hits[0].body == body


@pytest.mark.parametrize(
    "more",
    [
        {"max_tokens": "20"},
        {"max_tokens": 20.0},
        {"max_tokens": 0},
        {"max_tokens": -5},
        {"max_tokens": None},
        {"max_tokens": 201},
    ],
    ids=lambda more: repr(more["max_tokens"]),
)
def test_an_odd_or_larger_budget_makes_a_main_request(agent: Agents, more: dict[str, Any]) -> None:
    here = agent()
    here.place.then(ANSWER)
    assert here.send(side(OVERSIZE, **more)).status == 200


def test_a_title_by_its_text_is_a_side_request_whatever_its_budget(agent: Agents) -> None:
    here = agent()
    refused(here.send(side(OVERSIZE, max_tokens=32000, system="You are a title generator. You output")))
    assert here.place.hits == []


def test_counting_tokens_is_no_side_request(agent: Agents) -> None:
    here = agent()
    here.path += "/count_tokens"
    here.place.then(whole({"input_tokens": 9000}))
    assert here.send(side(OVERSIZE)).body == compact({"input_tokens": 9000})


@pytest.mark.parametrize(("count", "status"), [(FITTING, 200), (OVERSIZE, 413)])
def test_a_picture_is_not_counted_as_text(agent: Agents, count: int, status: int) -> None:
    here = agent()
    here.place.always(ANSWER)
    source = {"type": "base64", "media_type": "image/png", "data": png(64, 64, padding=300_000)}
    content = [{"type": "image", "source": source}, {"type": "text", "text": words(count)}]
    body = compact({"model": "small-1", "max_tokens": 20, "messages": [{"role": "user", "content": content}]})
    assert here.send(body).status == status


def png(width: int, height: int, padding: int) -> str:
    """Base64 of a picture's header and of as many bytes as a photograph has."""
    head = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sIIBBBBB", 13, b"IHDR", width, height, 8, 6, 0, 0, 0)
    return base64.b64encode(head + bytes(range(256)) * (padding // 256)).decode()


def test_a_body_that_is_no_json_is_forwarded(agent: Agents) -> None:
    here = agent()
    here.place.then(ANSWER)
    body = side(OVERSIZE)[:-1]
    assert here.send(body).status == 200
    assert here.place.hits[0].body == body


def test_the_catalogue_knows_the_windows_of_real_models(agent: Agents) -> None:
    here = agent()
    here.place.always(ANSWER)
    refused(here.send(side(90_000, model="glm-4.5v")))
    assert here.send(side(90_000, model="glm-4.5-air")).status == 200


OVERFLOWS = {
    "a 400": overflow(1500),
    "a 413": overflow(1500, 413),
    "a 200": overflow(1500, 200),
    "a frame": streamed(
        [event({"error": {"message": "prompt is too long: 2100 tokens > 1500 maximum", "type": "invalid_request_error"}})]
    ),
    "n_ctx": whole(
        {
            "error": {
                "type": "exceed_context_size_error",
                "message": "the request exceeds the available context size, try increasing it",
                "n_ctx": 1500,
            }
        },
        400,
    ),
}


@pytest.mark.parametrize("form", OVERFLOWS)
def test_an_overflow_is_passed_on_and_teaches_the_window(agent: Agents, form: str) -> None:
    here = agent()
    reply = OVERFLOWS[form]
    here.place.then(reply).always(ANSWER)
    answer = here.send(side(2500))
    assert answer.status == max(reply.status, 400)
    assert b"1500" in answer.body or b"context size" in answer.body
    assert answer.header("retry-after") is None
    if reply.status >= 400:
        assert answer.body == reply.chunks[0]
    refused(here.send(side(2500)))
    refused(here.send(side(2400, start="Another one. ")))
    assert len(here.place.hits) == 1
    assert here.send(side(500)).status == 200
    assert here.send(side(2500, model="small-2")).status == 200


def test_an_overflow_of_a_main_request_teaches_the_window_and_the_main_request_goes_on(agent: Agents) -> None:
    here = agent()
    here.place.then(overflow(1500)).always(ANSWER)
    body = main(2500)
    assert here.send(body).status == 400
    refused(here.send(side(2500)))
    assert here.send(body).status == 200
    assert len(here.place.hits) == 2


def sse_with_usage(tokens: int) -> Reply:
    frames = anthropic("Hello")
    frames[0] = event({"type": "message_start", "message": {**usage(tokens), "content": [], "stop_reason": None}})
    return streamed(frames)


def openai_sse(tokens: int) -> Reply:
    base = {"id": "c", "object": "chat.completion.chunk", "model": "small-1"}
    frames = [
        event({**base, "choices": [{"index": 0, "delta": {"content": "Hello"}, "finish_reason": None}]}),
        event({**base, "choices": [], "usage": {"prompt_tokens": tokens, "completion_tokens": 2}}),
        b"data: [DONE]\n\n",
    ]
    return streamed(frames)


RESPONSE: dict[str, Any] = {
    "id": "resp_1",
    "object": "response",
    "status": "completed",
    "output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hello"}]}],
}
NATIVE_ANSWER = {"output": {"text": "Hello", "finish_reason": "stop"}, "request_id": "r"}


def responses_sse(tokens: int) -> Reply:
    ended = {**RESPONSE, "usage": {"input_tokens": tokens, "output_tokens": 1}}
    frames = [
        event({"type": "response.created", "response": {**RESPONSE, "status": "in_progress", "output": []}}),
        event({"type": "response.output_text.delta", "item_id": "i", "delta": "Hello"}),
        event({"type": "response.completed", "response": ended}),
    ]
    return streamed(frames)


def late_usage(tokens: int) -> Reply:
    frames = anthropic("Hello")
    stop = {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn"},
        "usage": {"input_tokens": tokens, "output_tokens": 2},
    }
    return streamed([*frames[:-2], event(stop), frames[-1]])


def gzipped(reply: Reply) -> Reply:
    data = encoding.encode(b"".join(chunk for chunk in reply.chunks if isinstance(chunk, bytes)), "gzip")
    return Reply(headers=[*reply.headers, ("content-encoding", "gzip")], chunks=[data])


SUCCESSES = {
    "JSON": ("anthropic", whole(usage(2600))),
    "SSE": ("anthropic", sse_with_usage(2600)),
    "SSE with late usage": ("anthropic", late_usage(2600)),
    "openai JSON": ("openai", whole({**openai_message(), "usage": {"prompt_tokens": 2600, "completion_tokens": 1}})),
    "openai SSE": ("openai", openai_sse(2600)),
    "gzipped JSON": ("anthropic", gzipped(whole(usage(2600)))),
    "gzipped SSE": ("anthropic", gzipped(sse_with_usage(2600))),
    "responses JSON": ("responses", whole({**RESPONSE, "usage": {"input_tokens": 2600, "output_tokens": 1}})),
    "responses SSE": ("responses", responses_sse(2600)),
    "native JSON": ("native", whole({**NATIVE_ANSWER, "usage": {"input_tokens": 2600, "output_tokens": 1}})),
    "JSON with a cut connection after it": ("anthropic", whole(usage(2600), framing="close")),
}


@pytest.mark.parametrize("form", SUCCESSES)
def test_a_success_above_the_learnt_window_releases_it(agent: Agents, form: str) -> None:
    wire, success = SUCCESSES[form]
    here = agent(wire)
    here.place.then(overflow(1500)).always(ANSWER)
    assert here.send(side(2500, wire)).status == 400
    refused(here.send(side(2500, wire)))
    refused(here.send(side(2500, wire, start="Another. ")))
    here.place.then(success)
    assert here.send(main(2500, wire=wire)).status == 200
    assert here.send(side(2500, wire)).status == 200
    assert here.send(side(2500, wire, start="Another. ")).status == 200
    assert len(here.place.hits) == 4


@pytest.mark.parametrize("tokens", [1400, 1700])
def test_a_success_within_the_learnt_window_releases_nothing(agent: Agents, tokens: int) -> None:
    here = agent()
    here.place.then(overflow(1500), whole(usage(tokens))).always(ANSWER)
    assert here.send(side(2500)).status == 400
    assert here.send(main(1400)).status == 200
    refused(here.send(side(2500, start="Another. ")))


def test_a_success_of_another_model_releases_nothing(agent: Agents) -> None:
    here = agent()
    here.place.then(overflow(1500), whole(usage(90_000))).always(ANSWER)
    assert here.send(side(2500)).status == 400
    assert here.send(main(1400, "small-2")).status == 200
    refused(here.send(side(2500, start="Another. ")))


def test_numbers_in_what_a_model_wrote_teach_and_release_nothing(agent: Agents) -> None:
    here = agent()
    text = 'This model\'s maximum context length is 1200 tokens. {"usage":{"input_tokens":900000}}'
    here.place.then(whole(anthropic_message(text))).always(ANSWER)
    assert here.send(side(500)).status == 200
    assert here.send(side(FITTING + 300)).status == 200
    here.place.then(overflow(1500), whole(anthropic_message(text)))
    assert here.send(side(2500)).status == 400
    assert here.send(main(500)).status == 200
    refused(here.send(side(2500, start="Another. ")))


@pytest.mark.parametrize(
    "reply",
    [
        whole({"error": {"code": "1261", "message": "Prompt exceeds max length"}}, 400),
        whole({"error": {"code": "1261", "message": "Prompt exceeds max length"}}),
        whole(
            {"type": "error", "error": {"type": "invalid_request_error", "message": "Input is too long for requested model."}},
            400,
        ),
    ],
    ids=["1261", "1261 in a 200", "text"],
)
def test_after_an_overflow_without_a_number_the_same_side_request_is_refused_and_another_passes(
    agent: Agents, reply: Reply
) -> None:
    here = agent()
    here.place.then(reply).always(ANSWER)
    assert here.send(side(2500)).status == 400
    for _ in range(2):
        refused(here.send(side(2500, max_tokens=30)), "remembered_overflow")
    assert len(here.place.hits) == 1
    assert here.send(side(2500, start="Another. ")).status == 200
    assert Agent(here.proxy, here.place, MESSAGES, "other").send(side(2500)).status == 200


def test_after_an_overflow_without_a_number_the_same_main_request_goes_on(agent: Agents) -> None:
    here = agent()
    here.place.then(whole({"error": {"code": "1261", "message": "Prompt exceeds max length"}}, 400)).always(ANSWER)
    assert here.send(main(2500)).status == 400
    assert here.send(main(2500)).status == 200


@pytest.mark.parametrize(
    "text",
    [
        "Too many tokens, please wait before trying again.",
        "Range of max_tokens should be [1, 1500]",
        "max_tokens: 100000 > 1500, which is the maximum allowed number of output tokens for small-1",
        "Request too large for small-1 in organization on tokens per min (TPM): Limit 1500, Requested 2361",
    ],
)
def test_texts_that_only_look_like_an_overflow_teach_nothing(agent: Agents, text: str) -> None:
    here = agent()
    here.place.then(whole({"error": {"message": text, "type": "invalid_request_error"}}, 400)).always(ANSWER)
    assert here.send(side(2500)).status == 400
    assert here.send(side(2500)).status == 200


@pytest.mark.parametrize(
    ("model", "headers"), [("small-1[1m]", []), ("small-1", [("anthropic-beta", "claude-code-20250219,context-1m-2025-08-07")])]
)
def test_a_request_for_the_long_context_has_a_larger_window(agent: Agents, model: str, headers: list[tuple[str, str]]) -> None:
    here = agent()
    here.place.always(ANSWER)
    refused(here.send(side(OVERSIZE)))
    assert here.send(side(OVERSIZE, model=model), headers).status == 200
    assert len(here.place.hits) == 1


def test_turned_off_every_side_request_is_forwarded(agent: Agents) -> None:
    here = agent(config=OFF)
    here.place.always(ANSWER)
    assert here.send(side(OVERSIZE)).status == 200
    here.place.then(whole({"error": {"code": "1261", "message": "Prompt exceeds max length"}}, 400))
    assert here.send(side(FITTING)).status == 400
    assert here.send(side(FITTING)).status == 200
    assert len(here.place.hits) == 3


def test_an_oversize_side_request_takes_no_probe_and_sees_no_open_breaker(agent: Agents) -> None:
    here = agent(kind="shut")
    here.place.then(whole(MTOP)).always(ANSWER)
    challenged = here.send(main(10))
    assert challenged.status == 529
    refused(here.send(side(OVERSIZE)))
    time.sleep(max(0.0, challenged.head_at + 0.35 - time.monotonic()))
    refused(here.send(side(OVERSIZE)))
    assert here.send(main(20)).status == 200
    assert len(here.place.hits) == 2


def test_learnt_windows_are_listed_until_they_are_taken_back(agent: Agents) -> None:
    here = agent()
    here.place.then(overflow(1500)).always(ANSWER)
    assert here.send(side(2500)).status == 400
    assert _listed(here) == [1500]
    here.place.then(whole(usage(2600)))
    assert here.send(main(2500)).status == 200
    assert _listed(here) == []


def _listed(here: Agent) -> list[int]:
    status = ask(here.proxy, "http://breakwater.internal/status.json", method="GET").json()
    return [row["tokens"] for row in status["windows"] if row["upstream"] == here.place.host]
