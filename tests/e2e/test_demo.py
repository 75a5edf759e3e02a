"""The first look, without an account: the demo upstream through every rule."""

from __future__ import annotations

import time

import pytest

from tests.e2e.conftest import QUICK, Proxies
from tests.e2e.lab.client import Answer, Connection, ask
from tests.e2e.lab.proxy import Proxy
from tests.e2e.lab.wires import JSON, compact

DEMO = "http://demo.breakwater.internal"
PATHS = {"/v1/messages": 529, "/v1/chat/completions": 503}


def body(text: str, *, stream: bool = False) -> bytes:
    return compact({"model": "demo", "stream": stream, "messages": [{"role": "user", "content": text}]})


def say(proxy: Proxy, path: str, text: str) -> Answer:
    """One line of curl with an account of its own, so that no earlier wait stands in its way."""
    return ask(proxy, DEMO + path, body(text), [JSON, ("authorization", f"Bearer {path} {text}")])


@pytest.fixture
def demo(proxies: Proxies) -> Proxy:
    proxy = proxies(QUICK, options=("breakwater_demo=true",))
    ask(proxy, f"{DEMO}/reset", b"{}", [JSON])
    return proxy


@pytest.mark.parametrize("path", PATHS)
def test_the_sequence_shows_answers_refusals_the_open_breaker_and_answers_again(demo: Proxy, path: str) -> None:
    refused = PATHS[path]
    assert say(demo, path, "1").status == 200
    challenged = [say(demo, path, text) for text in ("2", "3", "4")]
    assert [answer.status for answer in challenged] == [refused] * 3
    assert all(1 <= (answer.retry_after or 0) <= 59 for answer in challenged)
    assert say(demo, path, "5").header("x-breakwater") == "breaker_open"
    probe = until_open_again(demo, path, challenged[-1])
    assert (probe.status, probe.header("x-breakwater")) == (refused, "challenge_captcha")
    overload = until_open_again(demo, path, probe)
    assert (overload.status, overload.header("x-breakwater")) == (refused, "overload")
    assert [say(demo, path, text).status for text in ("8", "9")] == [200, 200]


def until_open_again(demo: Proxy, path: str, told: Answer) -> Answer:
    """What the next request gets once the wait that this one told is over."""
    assert told.retry_after is not None
    time.sleep(max(0.0, told.head_at + told.retry_after - time.monotonic()))
    return say(demo, path, f"after {told.head_at}")


def test_a_stream_comes_frame_by_frame(demo: Proxy) -> None:
    with Connection(demo, f"{DEMO}/v1/messages") as connection:
        connection.send(body("stream", stream=True), [JSON])
        answer = connection.answer()
    assert (answer.status, answer.whole) == (200, True)
    assert answer.pieces[-1][0] - answer.pieces[0][0] > 1
    assert b"message_stop" in answer.body


def test_without_the_option_there_is_no_demo(guarded: Proxy) -> None:
    assert ask(guarded, f"{DEMO}/v1/messages", body("x"), [JSON]).status != 200
