"""The line, seen from outside: who waits unsent, who is sent when, and how each wait ends."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from tests.e2e.conftest import Proxies
from tests.e2e.lab.client import Answer, Connection, ask
from tests.e2e.lab.client_h2 import H2Connection
from tests.e2e.lab.proxy import Proxy
from tests.e2e.lab.script import Gate, Hit, Place, Reply
from tests.e2e.lab.wires import MESSAGES, MTOP, account, anthropic, asked, event, streamed, whole

Places = Callable[..., Place]
CHALLENGE = streamed([event(MTOP)])
ANSWER = streamed(anthropic("one"))
CROWD = whole({"error": {"code": "1302", "message": "Rate limit reached for requests"}}, status=429)
QUEUED = {
    "queue": {"seconds": 280, "size": 1000},
    "concurrency": "learn",
    "retry_after": {"challenge": 1, "overload": 1},
    "breaker": {"open_seconds": 2, "strikes": 1},
    "hold": {"seconds": 0.5, "silence_seconds": 3},
}


@pytest.fixture
def queued(proxies: Proxies) -> Proxy:
    return proxies(QUEUED)


@pytest.fixture
def many() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(40) as pool:
        yield pool


def send(proxy: Proxy, here: Place, text: str, who: str = "") -> Answer:
    return ask(proxy, here.url(MESSAGES), asked(text), account(who or here.host))


def status(proxy: Proxy) -> Any:
    return ask(proxy, "http://breakwater.internal/status.json?parts=waiting,limits,counts", method="GET").json()


def until_waiting(proxy: Proxy, here: Place, count: int) -> None:
    end = time.monotonic() + 20
    while (found := sum(row["upstream"] == here.host for row in status(proxy)["waiting"])) != count:
        assert time.monotonic() < end, f"{found} wait, not {count}"
        time.sleep(0.05)


def paused(proxy: Proxy, here: Place) -> None:
    """A challenge has opened the breaker."""
    assert send(proxy, here.then(CHALLENGE), "first", "another").status == 529


def test_who_comes_while_the_breaker_is_open_waits_unsent_and_one_goes_first(
    queued: Proxy, place: Places, many: ThreadPoolExecutor
) -> None:
    here, gate = place(), Gate()
    paused(queued, here)
    here.then(streamed(anthropic("probe"), before=gate)).always(ANSWER)
    answers = [many.submit(send, queued, here, f"turn {n}") for n in range(5)]
    gate.wait_reached()
    until_waiting(queued, here, 4)
    assert len(here.hits) == 2, "one goes first"
    gate.open()
    assert [answer.result().status for answer in answers] == [200] * 5
    assert len(here.hits) == 6


def test_a_client_that_leaves_while_it_waits_costs_no_send_and_blocks_nobody(
    queued: Proxy, place: Places, many: ThreadPoolExecutor
) -> None:
    here = place()
    paused(queued, here)
    with Connection(queued, here.url(MESSAGES)) as connection:
        connection.send(asked("leaves"), account(here.host))
        until_waiting(queued, here, 1)
    until_waiting(queued, here, 0)
    here.always(ANSWER)
    assert send(queued, here, "stays").status == 200
    assert len(here.hits) == 2


def test_a_stream_of_a_connection_waits_and_its_sibling_goes_on(proxies: Proxies, place: Places) -> None:
    proxy = proxies({**QUEUED, "concurrency": 1})
    here, gate = place(), Gate()
    here.then(streamed(anthropic("one"), before=gate), ANSWER).always(ANSWER)
    with H2Connection(proxy, here.host) as connection:
        first = connection.open(MESSAGES, asked("first"), account("one"))
        gate.wait_reached()
        waits = connection.open(MESSAGES, asked("waits"), account("one"))
        until_waiting(proxy, here, 1)
        sibling = connection.open(MESSAGES, asked("sibling"), account("other"))
        assert connection.finish(sibling).status == 200
        gate.open()
        assert connection.finish(first).status == connection.finish(waits).status == 200


def test_a_plan_of_two_gives_ten_answers_and_learns_its_number(
    queued: Proxy, place: Places, many: ThreadPoolExecutor
) -> None:
    here = place()
    running: set[int] = set()

    def plan(hit: Hit) -> Reply:
        under_way = [each for each in here.hits if each is not hit and each.finished_at is None and id(each) in running]
        if len(under_way) >= 2:
            return CROWD
        running.add(id(hit))
        return streamed(anthropic("one"), pace=0.1)

    here.always(plan)
    for most in (9, 1):
        before = len(here.hits)
        answers: list[Future[Answer]] = [many.submit(send, queued, here, f"turn {before} {n}") for n in range(10)]
        assert [answer.result().status for answer in answers] == [200] * 10
        assert len(here.hits) - before <= 10 + most
    limits = [row for row in status(queued)["limits"] if row["upstream"] == here.host]
    assert [row["slots"] for row in limits] == [2]


def test_patience_over_is_told_the_truth(proxies: Proxies, place: Places) -> None:
    proxy = proxies({**QUEUED, "breaker": {"open_seconds": 60, "strikes": 1}, "queue": {"clients": {"hasty/": 21}}})
    here = place()
    paused(proxy, here)
    began = time.monotonic()
    told = ask(proxy, here.url(MESSAGES), asked("hasty"), [*account(here.host), ("user-agent", "hasty/1")])
    assert told.status == 529
    assert told.header("x-breakwater") == "breaker_open"
    assert 0.9 <= time.monotonic() - began <= 5
    assert told.retry_after
    assert 50 <= told.retry_after <= 58


def test_the_end_of_the_process_is_an_honest_refusal(proxies: Proxies, place: Places, many: ThreadPoolExecutor) -> None:
    proxy = proxies.fresh({**QUEUED, "breaker": {"open_seconds": 60, "strikes": 1}}).start()
    here = place()
    paused(proxy, here)
    answer = many.submit(send, proxy, here, "waits")
    until_waiting(proxy, here, 1)
    proxy.process.send_signal(signal.SIGTERM)
    assert answer.result().status == 529
    assert answer.result().header("x-breakwater") == "closing"
    proxy.stop()


def test_the_second_refusal_of_a_request_is_waited_out_here(queued: Proxy, place: Places) -> None:
    here = place()
    assert send(queued, here.then(CHALLENGE), "again").status == 529, "told the first time"
    here.then(CHALLENGE, ANSWER)
    answer = send(queued, here, "again")
    assert answer.status == 200
    assert len(here.hits) == 3
