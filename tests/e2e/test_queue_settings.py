"""What the settings make of the line: turned off, small, observed; what is never held; and what is counted and logged of it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.e2e.conftest import NO_QUEUE, Proxies
from tests.e2e.lab.client import Connection, ask
from tests.e2e.lab.client_h2 import H2Connection
from tests.e2e.lab.line import (
    ANSWER,
    CHALLENGE,
    LONG,
    PERMITS,
    QUEUED,
    assert_nothing_is_out,
    in_turn,
    paused,
    send,
    status,
    taken,
    until_waiting,
)
from tests.e2e.lab.operated import breaker, get, press, until
from tests.e2e.lab.proxy import Proxy
from tests.e2e.lab.script import Gate, Place
from tests.e2e.lab.wires import (
    COMPLETIONS,
    MESSAGES,
    MTOP,
    OVERLOAD_1305,
    ZCODE,
    account,
    anthropic,
    asked,
    event,
    openai,
    streamed,
    whole,
)

Places = Callable[..., Place]
OFF: dict[str, Any] = {**QUEUED, **NO_QUEUE}


# -- off, small, observed -------------------------------------------------------------------------------------


def test_where_nobody_waits_whoever_meets_a_probe_is_told_what_is_left_of_its_lease(
    proxies: Proxies, place: Places, many: ThreadPoolExecutor
) -> None:
    proxy, here, gate = (
        proxies({**OFF, "retry_after": {"challenge": 1, "cap": 59}}, scripts=(PERMITS,)),
        place(),
        Gate(),
    )
    paused(proxy, here)
    until(lambda: breaker(proxy, here.host)["state"] == "half_open", "the window's end")
    probe = many.submit(send, proxy, here.then(streamed(anthropic("one"), before=gate)), "probe")
    gate.wait_reached()
    left = breaker(proxy, here.host)["seconds_left"]
    told = send(proxy, here, "second")
    assert (told.status, told.header("x-breakwater")) == (529, "breaker_probing")
    assert told.retry_after == min(59, -int(-left // 1))
    gate.open()
    assert probe.result().status == 200
    assert send(proxy, here.then(ANSWER), "third").status == 200
    assert_nothing_is_out(proxy, here)


def test_where_nobody_waits_as_many_go_at_a_time_as_come(proxies: Proxies, place: Places, many: ThreadPoolExecutor) -> None:
    proxy, here, gate = proxies(OFF, scripts=(PERMITS,)), place(), Gate()
    here.always(streamed(anthropic("one"), before=gate))
    answers = [many.submit(send, proxy, here, f"turn {number}") for number in range(10)]
    here.wait_hits(10)
    gate.open()
    assert [answer.result().status for answer in answers] == [200] * 10
    assert_nothing_is_out(proxy, here)


def test_more_than_the_size_are_refused_at_once(proxies: Proxies, place: Places, many: ThreadPoolExecutor) -> None:
    proxy, here = proxies({**LONG, "queue": {"size": 2}}, scripts=(PERMITS,)), place()
    paused(proxy, here)
    waiting = in_turn(many, proxy, here, "one", "two")
    told = send(proxy, here, "three")
    assert (told.status, told.header("x-breakwater")) == (529, "queue_full")
    assert 1 <= (told.retry_after or 0) <= 59
    press(proxy, "close", upstream=here.always(ANSWER).host)
    assert [answer.result().status for answer in waiting] == [200] * 2
    assert_nothing_is_out(proxy, here)


def test_observing_holds_nobody(proxies: Proxies, place: Places, many: ThreadPoolExecutor) -> None:
    proxy, here, gate = proxies({**LONG, "concurrency": 1, "mode": "observe"}, scripts=(PERMITS,)), place(), Gate()
    assert send(proxy, here.then(CHALLENGE), "challenged").status == 200
    here.always(streamed(anthropic("one"), before=gate))
    answers = [many.submit(send, proxy, here, f"turn {number}") for number in range(5)]
    here.wait_hits(6)
    assert status(proxy)["waiting"] == []
    gate.open()
    assert [answer.result().status for answer in answers] == [200] * 5
    assert_nothing_is_out(proxy, here)


# -- what is never held ---------------------------------------------------------------------------------------


def test_a_one_time_token_is_never_sent_a_second_time_from_here(queued: Proxy, place: Places) -> None:
    here, token = place().always(CHALLENGE), [("x-aliyun-captcha-verify-param", "once")]
    for sent in (1, 2, 3):
        answer = send(queued, here, "with a token", more=token)
        assert answer.status == 529
        assert len(here.hits) == sent, "each is told, and its client decides"
    assert_nothing_is_out(queued, here)


def test_a_blocked_account_never_waits(queued: Proxy, place: Places) -> None:
    here = place("zcode").always(whole({"code": 3012, "msg": "Unusual activity"}, 400))
    headers = account("blocked")
    for text in ("one", "one", "two"):
        began = time.monotonic()
        answer = ask(queued, here.url(ZCODE), asked(text), headers)
        assert (answer.status, answer.retry_after) == (529, 59)
        assert time.monotonic() - began < 1
    assert len(here.hits) == 1
    assert_nothing_is_out(queued, here)


# -- what is counted and logged -------------------------------------------------------------------------------


def metric(proxy: Proxy, name: str, here: Place, **labels: str) -> float:
    wanted = {"upstream": here.host, **labels}
    for line in get(proxy, "/metrics").body.decode().splitlines():
        found = re.fullmatch(rf"{name}\{{(.*)\}} (\S+)", line)
        if found and dict(re.findall(r'(\w+)="([^"]*)"', found[1])) == wanted:
            return float(found[2])
    return 0.0


def test_who_waits_and_how_it_ended_is_counted_and_two_lines_are_logged(
    proxies: Proxies, place: Places, many: ThreadPoolExecutor
) -> None:
    proxy = proxies({**LONG, "queue": {"clients": {"hasty/": 23}}}, scripts=(PERMITS,))
    here, mark = place(), proxy.log_lines
    paused(proxy, here)
    waiting = in_turn(many, proxy, here.always(ANSWER), "one", "two")
    with Connection(proxy, here.url(MESSAGES)) as leaves:
        leaves.send(asked("leaves"), account(here.host))
        until_waiting(proxy, here, 3)
        assert metric(proxy, "breakwater_queue_waiting", here) == 3
    hasty = [*account(here.host), ("user-agent", "hasty/1")]
    assert ask(proxy, here.url(MESSAGES), asked("hasty"), hasty).status == 529
    press(proxy, "close", upstream=here.host)
    assert [answer.result().status for answer in waiting] == [200] * 2
    ended = {
        how: metric(proxy, "breakwater_queue_left_total", here, how=how)
        for how in ("sent", "patience", "client_left", "released")
    }
    assert ended == {"sent": 2, "patience": 1, "client_left": 1, "released": 0}
    assert metric(proxy, "breakwater_queue_waiting", here) == 0
    assert metric(proxy, "breakwater_queue_seconds_count", here) == 4
    assert metric(proxy, "breakwater_queue_seconds_sum", here) >= 3
    said = [
        line for line in proxy.log_since(mark).splitlines() if re.search(f"{here.host} .*(wait for their|nobody waits)", line)
    ]
    assert len(said) == 2
    assert re.search(rf"{here.host} breaker_open: requests wait for their turn \(the first is flow [0-9a-f-]{{36}}\)$", said[0])
    assert f"{here.host} queue_empty: nobody waits any more; 4 waited, the longest for " in said[1]
    assert_nothing_is_out(proxy, here)


def test_a_learnt_limit_is_counted_and_its_calls(queued: Proxy, place: Places, many: ThreadPoolExecutor) -> None:
    here, gate = place(), Gate()
    first = taken(many, queued, here, gate)
    crowd = whole(OVERLOAD_1305, 429)
    refused = many.submit(send, queued, here.then(crowd).always(ANSWER), "beside another")
    until_waiting(queued, here, 1)
    assert metric(queued, "breakwater_concurrency_limit", here) == 1
    assert [row["under_way"] for row in status(queued)["limits"] if row["upstream"] == here.host] == [1]
    gate.open()
    assert first.result().status == refused.result().status == 200
    assert_nothing_is_out(queued, here)


# -- a stream that ends bare ----------------------------------------------------------------------------------


@pytest.mark.parametrize("refusal", [MTOP, OVERLOAD_1305])
def test_for_qwen_code_a_refusal_after_the_first_words_ends_the_stream_and_nothing_else(
    queued: Proxy, place: Places, refusal: dict[str, Any]
) -> None:
    frames = openai("some ", "words")
    here = place().then(streamed([*frames[:3], event(refusal), *frames[3:]]))
    headers = [*account(here.host), ("user-agent", "QwenCode/0.24.4 (linux; x64)")]
    with Connection(queued, here.url(COMPLETIONS)) as connection:
        connection.send(asked("hi"), headers)
        answer = connection.answer()
        assert (answer.status, answer.body, answer.whole) == (200, b"".join(frames[:3]), True)
        assert answer.raw.count(b"0\r\n\r\n") == 1
        here.then(streamed(frames))
        press(queued, "close", upstream=here.host)
        connection.send(asked("more"), headers)
        assert connection.answer().body == b"".join(frames), "the connection is as sound as before"
    assert_nothing_is_out(queued, here)


def test_for_qwen_code_it_ends_so_on_http2_too(queued: Proxy, place: Places) -> None:
    frames = openai("some ", "words")
    here = place().then(streamed([*frames[:3], event(MTOP), *frames[3:]]))
    with H2Connection(queued, here.host) as connection:
        headers = [*account(here.host), ("user-agent", "QwenCode/0.24.4 (linux; x64)")]
        stream = connection.finish(connection.open(COMPLETIONS, asked("hi"), headers))
    assert (stream.status, stream.body, stream.ended, stream.reset) == (200, b"".join(frames[:3]), True, False)
    assert_nothing_is_out(queued, here)
