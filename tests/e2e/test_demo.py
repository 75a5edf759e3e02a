"""The first look, without an account: the demo upstream through every rule."""

from __future__ import annotations

import json
import re
import time

import pytest

from operations.demo import PAUSE_SECONDS
from tests.e2e.conftest import QUICK, Proxies
from tests.e2e.lab.client import Answer, Connection, ask
from tests.e2e.lab.operated import get
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
    proxy = proxies({"retry_after": QUICK["retry_after"], "queue": {}}, options=("breakwater_demo=true",))
    ask(proxy, f"{DEMO}/reset", b"{}", [JSON])
    return proxy


@pytest.mark.parametrize("path", PATHS)
def test_the_sequence_shows_answers_refusals_a_wait_that_ends_in_an_answer_and_more_of_them(demo: Proxy, path: str) -> None:
    refused = PATHS[path]
    assert say(demo, path, "1").status == 200
    challenged = [say(demo, path, text) for text in ("2", "3", "4")]
    assert [answer.status for answer in challenged] == [refused] * 3
    assert [answer.retry_after for answer in challenged] == [1, 1, PAUSE_SECONDS]
    began = time.monotonic()
    assert say(demo, path, "5").status == 200
    assert PAUSE_SECONDS - 2 < time.monotonic() - began < PAUSE_SECONDS + 5
    newest = json.loads(get(demo, "/status.json").body)["decisions"][0]["comment"]
    assert re.fullmatch(r"Waited here unsent for 1[3-6]\.\d s\.", newest)
    challenge, overload = say(demo, path, "6"), say(demo, path, "7")
    assert (challenge.status, challenge.header("x-breakwater")) == (refused, "challenge_captcha")
    assert (overload.status, overload.header("x-breakwater")) == (refused, "overload")
    assert [say(demo, path, text).status for text in ("8", "9")] == [200, 200]


def test_a_stream_comes_frame_by_frame(demo: Proxy) -> None:
    with Connection(demo, f"{DEMO}/v1/messages") as connection:
        connection.send(body("stream", stream=True), [JSON])
        answer = connection.answer()
    assert (answer.status, answer.whole) == (200, True)
    assert answer.pieces[-1][0] - answer.pieces[0][0] > 1
    assert b"message_stop" in answer.body


def test_without_the_option_there_is_no_demo(guarded: Proxy) -> None:
    assert ask(guarded, f"{DEMO}/v1/messages", body("x"), [JSON]).status != 200
