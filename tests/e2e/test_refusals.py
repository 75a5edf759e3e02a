"""What the upstream has just refused is not asked again before its time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.e2e.conftest import Proxies
from tests.e2e.lab import turns
from tests.e2e.lab.client import Answer, ask
from tests.e2e.lab.proxy import LAB
from tests.e2e.lab.script import Reply
from tests.e2e.lab.turns import CONFIG, OFF, Agent
from tests.e2e.lab.upstream import Upstream
from tests.e2e.lab.wires import (
    COMPLETIONS,
    JSON,
    MESSAGES,
    MTOP,
    OVERLOAD_1305,
    QWEN_WEB,
    RATE_LIMIT_1302,
    ZCODE,
    anthropic,
    asked,
    compact,
    event,
    openai,
    page,
    qwen_web,
    streamed,
    whole,
)

PATHS = {"calm-zcode": ZCODE, "calm-web": QWEN_WEB}
ANSWER = streamed(anthropic("one", "two"))
CHALLENGE = whole(MTOP)
LONG = Reply(headers=[JSON, ("Retry-After", "40")], chunks=[compact(MTOP)])
"""A challenge whose wait is not over before its test is."""
BLOCKED = whole({"code": 3012, "msg": "Your request has been blocked due to unusual activity"}, 405)
LIMIT = 131072

Agents = Callable[..., Agent]


@pytest.fixture
def agent(proxies: Proxies, upstream: Upstream) -> Agents:
    def make(kind: str = "calm-zai", path: str = "", config: dict[str, Any] = CONFIG, **more: Any) -> Agent:
        proxy = proxies(config, scripts=[LAB / "ended.py"])
        return Agent(proxy, turns.place(upstream, kind), path or PATHS.get(kind, MESSAGES), **more)

    return make


def told(answer: Answer, wait: int, status: int = 529) -> None:
    assert (answer.status, answer.retry_after) == (status, wait), answer.raw
    assert (answer.header("x-breakwater") or "").startswith(("challenge", "overload", "rate_limit"))


def remembered(answer: Answer, most: int, status: int = 529) -> None:
    assert (answer.status, answer.header("x-breakwater")) == (status, "remembered_wait"), answer.raw
    assert answer.retry_after is not None
    assert 1 <= answer.retry_after <= most


def outwait(answer: Answer) -> None:
    """Do as the answer says, as a client does."""
    assert answer.retry_after is not None
    time.sleep(max(0.0, answer.head_at + answer.retry_after - time.monotonic()) + 0.02)


REFUSALS = {
    "a challenge": LONG,
    "a page": Reply(headers=[("content-type", "text/html"), ("Retry-After", "40")], chunks=page().chunks),
    "a frame": Reply(headers=[("content-type", "text/event-stream"), ("Retry-After", "40")], chunks=[event(MTOP)]),
    "an overload in a 200": Reply(headers=[JSON, ("Retry-After", "40")], chunks=[compact(OVERLOAD_1305)]),
    "a rate limit in a 200": Reply(headers=[JSON, ("Retry-After", "40")], chunks=[compact(RATE_LIMIT_1302)]),
}


@pytest.mark.parametrize("form", REFUSALS)
def test_inside_its_wait_the_same_request_never_reaches_the_upstream(agent: Agents, form: str) -> None:
    here = agent()
    here.place.then(REFUSALS[form]).always(ANSWER)
    told(here.turn("same"), 40, 429 if form.startswith("a rate limit") else 529)
    for _ in range(3):
        remembered(here.turn("same"), 40)
    assert len(here.place.hits) == 1


@pytest.mark.parametrize(
    ("kind", "path", "status", "frames"),
    [("calm-zai", COMPLETIONS, 503, openai("x")), ("calm-web", QWEN_WEB, 503, qwen_web("x"))],
)
def test_other_wires_remember_too(agent: Agents, kind: str, path: str, status: int, frames: list[bytes]) -> None:
    here = agent(kind, path)
    here.place.then(LONG).always(streamed(frames))
    told(here.turn("same"), 40, status)
    answer = here.turn("same")
    remembered(answer, 40, status)
    assert answer.json()["error"]["code"] == "upstream_unavailable"
    assert len(here.place.hits) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"max_tokens": 8000},
        {"stream": False},
        {"temperature": 0.2},
        {"metadata": {"user_id": "other"}},
        {"thinking": {"type": "enabled"}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_the_same_question_with_other_flags_is_the_same_request(agent: Agents, change: dict[str, object]) -> None:
    here = agent()
    here.place.then(LONG).always(ANSWER)
    told(here.turn("same"), 40)
    remembered(here.turn("same", **change), 40)
    assert len(here.place.hits) == 1


@pytest.mark.parametrize(
    "change",
    [{"text": "another"}, {"model": "glm-5"}, {"system": "You are terse."}, {"tools": [{"name": "write", "input_schema": {}}]}],
    ids=lambda change: next(iter(change)),
)
def test_another_question_reaches_the_upstream(agent: Agents, change: dict[str, Any]) -> None:
    here = agent()
    here.place.then(LONG).always(ANSWER)
    told(here.turn("same"), 40)
    assert here.turn(change.pop("text", "same"), **change).status == 200
    assert len(here.place.hits) == 2


def test_another_account_reaches_the_upstream(agent: Agents) -> None:
    here = agent()
    here.place.then(LONG).always(ANSWER)
    told(here.turn("same"), 40)
    assert Agent(here.proxy, here.place, MESSAGES, "other").turn("same").status == 200
    remembered(here.turn("same"), 40)
    assert len(here.place.hits) == 2


def test_another_upstream_is_asked(agent: Agents, upstream: Upstream) -> None:
    here, there = agent(), agent()
    here.place.then(LONG)
    there.place.always(ANSWER)
    told(here.turn("same"), 40)
    assert ask(there.proxy, there.url, asked("same"), here.headers).status == 200


def test_what_is_left_of_the_wait_gets_less(agent: Agents) -> None:
    here = agent()
    here.place.then(Reply(headers=[JSON, ("Retry-After", "3")], chunks=[compact(MTOP)])).always(ANSWER)
    answer = here.turn("same")
    told(answer, 3)
    remembered(here.turn("same"), 3)
    time.sleep(max(0.0, answer.head_at + 1.2 - time.monotonic()))
    again = here.turn("same")
    if again.head_at < answer.head_at + 3:  # else the machine was too slow to come inside the wait
        remembered(again, 2)
        assert len(here.place.hits) == 1


@pytest.mark.parametrize("refusal", [CHALLENGE, whole(OVERLOAD_1305, 429)], ids=["challenge", "overload"])
def test_after_its_wait_it_is_asked_and_a_second_refusal_tells_the_doubled_wait(agent: Agents, refusal: Reply) -> None:
    here = agent()
    here.place.then(refusal, refusal).always(ANSWER)
    first = here.turn("same")
    told(first, 1)
    outwait(first)
    second = here.turn("same", max_tokens=9000)
    told(second, 2)
    assert len(here.place.hits) == 2
    remembered(here.turn("same"), 2)
    assert len(here.place.hits) == 2
    outwait(second)
    assert here.turn("same").status == 200
    # An answer starts again at the first wait.
    here.place.then(refusal)
    told(here.turn("same"), 1)


def test_a_refusal_that_merely_passed_is_not_remembered(agent: Agents) -> None:
    here = agent()
    here.place.always(whole(RATE_LIMIT_1302, 429))
    for _ in range(3):
        assert here.turn("same").body == compact(RATE_LIMIT_1302)
    assert len(here.place.hits) == 3


def test_a_refusal_of_the_breaker_is_not_remembered(agent: Agents) -> None:
    here = agent("shut")
    here.place.then(CHALLENGE).always(ANSWER)
    first = here.turn("first")
    assert first.status == 529
    refused = here.turn("second")
    if refused.status == 529:  # else the machine took longer than the window
        assert refused.header("x-breakwater") == "breaker_open"
    time.sleep(max(0.0, first.head_at + 0.35 - time.monotonic()))
    assert here.turn("second").status == 200


def test_a_refusal_in_a_running_stream_is_remembered(agent: Agents) -> None:
    here = agent()
    here.place.then(streamed([*anthropic("one")[:3], event(MTOP)])).always(ANSWER)
    broken = here.turn("same")
    assert b"retry_after" in broken.body
    inside = here.turn("same")
    if len(here.place.hits) == 1:
        remembered(inside, 1)
    else:  # the machine took longer than the wait
        assert inside.status == 200


def test_without_enforcement_every_request_is_sent(agent: Agents) -> None:
    here = agent(config=OFF)
    here.place.then(LONG, LONG).always(ANSWER)
    told(here.turn("same"), 40)
    told(here.turn("same"), 40)
    assert here.turn("same").status == 200
    assert len(here.place.hits) == 3


@pytest.mark.parametrize("config", [CONFIG, OFF], ids=["enforced", "not enforced"])
def test_a_blocked_account_is_kept_away_from_the_upstream(agent: Agents, config: dict[str, Any]) -> None:
    here = agent("calm-zcode", config=config)
    here.place.then(BLOCKED).always(ANSWER)
    told(here.turn("one"), 59)
    other = here.turn("two")
    assert (other.status, other.retry_after, other.header("x-breakwater")) == (529, 59, "account_blocked")
    assert len(here.place.hits) == 1
    assert Agent(here.proxy, here.place, ZCODE, "other").turn("two").status == 200


def test_a_body_that_is_challenged_for_its_size_is_hopeless_and_a_smaller_one_is_not(agent: Agents) -> None:
    here = agent("calm-web")
    here.place.then(CHALLENGE).always(streamed(qwen_web("x")))
    large = "word " * (LIMIT // 5)
    for reason in ("challenge_body_size", "remembered_body_size", "remembered_body_size"):
        answer = here.turn(large)
        assert (answer.status, answer.header("x-breakwater")) == (413, reason)
        assert answer.header("x-should-retry") == "false"
        assert answer.header("retry-after") is None
    assert len(here.place.hits) == 1
    assert here.turn("word").status == 200


def test_a_large_body_that_is_answered_is_answered(agent: Agents) -> None:
    here = agent("calm-web")
    here.place.always(streamed(qwen_web("x")))
    assert here.turn("word " * (LIMIT // 5)).status == 200
    assert here.turn("word " * (LIMIT // 5)).status == 200
