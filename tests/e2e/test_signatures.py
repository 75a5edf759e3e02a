"""Recognisers that a user writes into the config file are as good as the built-in ones."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.e2e.conftest import Proxies
from tests.e2e.lab import turns
from tests.e2e.lab.client import Answer, ask
from tests.e2e.lab.proxy import LAB, Proxy
from tests.e2e.lab.script import Reply
from tests.e2e.lab.turns import CONFIG, OFF, Agent
from tests.e2e.lab.upstream import Upstream
from tests.e2e.lab.wires import (
    COMPLETIONS,
    JSON,
    MESSAGES,
    ZCODE,
    anthropic,
    anthropic_message,
    compact,
    event,
    openai,
    streamed,
    whole,
)

ANSWER = streamed(anthropic("one", "two"))

Agents = Callable[..., Agent]


@pytest.fixture
def agent(proxies: Proxies, upstream: Upstream) -> Agents:
    def make(kind: str = "calm-zai", path: str = "", config: dict[str, Any] = CONFIG) -> Agent:
        proxy = proxies(config, scripts=[LAB / "ended.py"])
        return Agent(proxy, turns.place(upstream, kind), path or {"calm-zcode": ZCODE}.get(kind, MESSAGES))

    return make


def coded(code: object, status: int = 200) -> Reply:
    return whole({"error": {"code": code, "message": "made up"}}, status)


CASES = {
    "a code in a 200": (coded("777001"), 529, "overload", 13),
    "a code as a number": (coded(777001), 529, "overload", 13),
    "a code in a 400": (coded("777001", 400), 529, "overload", 13),
    "a code as a first frame": (streamed([event({"error": {"code": "777001", "message": "made up"}})]), 529, "overload", 13),
    "a field nobody knows": (whole({"puzzle": {"kind": "slide-3"}}), 529, "challenge_captcha", 1),
    "a text": (whole({"error": {"message": "Zu viele Leute hier"}}, 400), 529, "challenge_busy", 1),
    "a text that is no JSON": (Reply(503, chunks=[b"Zu viele Leute hier"]), 529, "challenge_busy", 1),
    "a quota": (coded("777002"), 429, "quota", None),
    "a rate limit": (coded("777003"), 429, "rate_limit", 7),
    "a status": (whole({"hello": "teapot"}, 418), 529, "overload", 1),
}


@pytest.mark.parametrize("case", CASES)
def test_a_made_up_refusal_becomes_the_answer_that_its_row_says(agent: Agents, case: str) -> None:
    reply, status, reason, wait = CASES[case]
    here = agent()
    here.place.then(reply)
    answer = here.turn()
    assert (answer.status, answer.header("x-breakwater"), answer.retry_after) == (status, reason, wait), answer.raw
    assert answer.header("x-should-retry") == ("false" if reason == "quota" else None)


@pytest.mark.parametrize("case", ["a code in a 200", "a field nobody knows", "a status"])
def test_without_its_row_it_is_something_else(agent: Agents, case: str) -> None:
    reply, _, reason, _ = CASES[case]
    here = agent(config=OFF)
    here.place.then(reply)
    assert here.turn().header("x-breakwater") != reason


def test_a_row_of_another_family_does_not_hold(agent: Agents) -> None:
    here = agent("calm-zcode")
    here.place.then(whole({"code": 777001, "error": {"code": "777001"}}, 400))
    answer = here.turn()
    assert (answer.status, answer.header("x-breakwater")) == (400, None)


def test_a_made_up_challenge_is_a_strike_of_the_breaker(agent: Agents) -> None:
    here = agent("struck")
    here.place.then(whole({"puzzle": {"kind": "slide"}})).always(ANSWER)
    assert here.turn("one").header("x-breakwater") == "challenge_captcha"
    assert here.turn("two").header("x-breakwater") == "breaker_open"
    assert len(here.place.hits) == 1


def test_a_made_up_penalty_blocks_the_account(agent: Agents) -> None:
    here = agent("calm-zcode")
    here.place.then(whole({"code": 777004, "msg": "made up"}, 400)).always(ANSWER)
    answer = here.turn("one")
    assert (answer.status, answer.retry_after, answer.header("x-breakwater")) == (529, 59, "challenge_blocked")
    assert here.turn("two").header("x-breakwater") == "account_blocked"
    assert len(here.place.hits) == 1


@pytest.mark.parametrize(("path", "frames"), [(MESSAGES, anthropic), (COMPLETIONS, openai)])
def test_a_made_up_code_in_a_running_stream_ends_it(agent: Agents, path: str, frames: Callable[..., list[bytes]]) -> None:
    here = agent(path=path)
    refusal = event({"error": {"code": "777001", "message": "made up"}})
    here.place.then(streamed([*frames("one")[:3], refusal, *frames("two")]))
    answer = here.turn()
    begun = b"".join(frames("one")[:3])
    assert answer.body.startswith(begun)
    assert b'"retry_after":13' in answer.body
    assert b"two" not in answer.body


@pytest.mark.parametrize(
    "text", ["Zu viele Leute hier", '{"error":{"code":"777001"}}', '{"puzzle":{"kind":"slide"}}', "777001"]
)
def test_no_row_holds_for_what_a_model_wrote(agent: Agents, text: str) -> None:
    here = agent()
    frames = anthropic(text, text)
    here.place.then(streamed(frames), whole(anthropic_message(text)))
    assert here.turn("one").body == b"".join(frames)
    assert here.turn("two").body == compact(anthropic_message(text))


GOOD = {"name": "good", "finding": "overload", "field": "error.code", "equals": "777001"}


def test_a_bad_row_stops_the_start_and_is_named_by_its_index(proxies: Proxies) -> None:
    proxy = proxies.fresh(json.dumps({"signatures": [GOOD, {**GOOD, "field": "choices.0.delta.content"}]}))
    proxy.launch()
    assert proxy.wait_exit() != 0, proxy.log
    proxy.assert_quiet()
    told = [line for line in proxy.log.split("\n") if "signatures" in line]
    assert len(told) == 1, proxy.log
    assert f"{proxy.config_path}: signatures[1].field: choices is what a model writes" in told[0]


@pytest.fixture
def changing(proxies: Proxies) -> Iterator[Proxy]:
    proxy = proxies.fresh(CONFIG).start()
    yield proxy
    proxy.stop()


def test_a_row_that_is_written_while_it_runs_is_taken_up_and_a_bad_one_is_not(changing: Proxy, upstream: Upstream) -> None:
    place = turns.place(upstream, "calm-zai")
    place.always(Reply(headers=[JSON], chunks=[b'{"error":{"code":"777009","message":"made up"}}']))

    def asked(text: str) -> Answer:
        return Agent(changing, place, MESSAGES).turn(text)

    assert asked("one").header("x-breakwater") != "overload"
    mark = changing.log_lines
    changing.write_config({**CONFIG, "signatures": [{**GOOD, "equals": "777009"}]})
    changing.wait_log("has changed", since=mark)
    assert asked("two").header("x-breakwater") == "overload"
    mark = changing.log_lines
    changing.write_config({**CONFIG, "signatures": [{**GOOD, "finding": "sleepy"}]})
    changing.wait_log("signatures[0].finding", since=mark)
    assert asked("three").header("x-breakwater") == "overload"
    assert ask(changing, "http://breakwater.internal/healthz", method="GET").status == 200
