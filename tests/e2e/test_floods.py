"""Hundreds of requests at once, on loopback and bounded: one probe, bounded memory, nothing left."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.e2e.conftest import QUICK, Proxies
from tests.e2e.lab.client import Connection, ask
from tests.e2e.lab.operated import breaker, press, until
from tests.e2e.lab.proxy import LAB, Proxy
from tests.e2e.lab.script import Gate, Place, Reply
from tests.e2e.lab.wires import (
    COMPLETIONS,
    HTML,
    JSON,
    SSE,
    account,
    asked,
    openai,
    openai_message,
    page,
    streamed,
    whole,
)

Places = Callable[..., Place]
CLIENTS, REQUESTS = 100, 500
READ = 65536
"""Bytes that mitmproxy reads at a time, at most."""


@pytest.fixture
def counted(proxies: Proxies) -> Proxy:
    return proxies({**QUICK, "breaker": {"open_seconds": 1}}, scripts=(LAB / "census.py",))


def census(proxy: Proxy) -> Any:
    return ask(proxy, "http://census.test/", method="GET").json()


def assert_empty(proxy: Proxy) -> None:
    until(lambda: not any(census(proxy)[what] for what in ("live", "aliases")), "the last exchange to be forgotten")
    found = census(proxy)
    assert found["streams"] <= 1, found  # its own
    assert found["tasks"] < 30, found


def flood(proxy: Proxy, here: Place) -> list[int]:
    def turns(client: int) -> list[int]:
        statuses = []
        with Connection(proxy, here.url(COMPLETIONS)) as connection:
            for turn in range(REQUESTS // CLIENTS):
                connection.send(asked(f"{client} {turn}"), account(f"{here.host} {client}"))
                statuses.append(connection.answer().status)
        return statuses

    with ThreadPoolExecutor(CLIENTS) as pool:
        return [status for statuses in pool.map(turns, range(CLIENTS)) for status in statuses]


def test_a_flood_against_a_challenge_ends_here(counted: Proxy, place: Places) -> None:
    here = place().always(page())
    statuses = flood(counted, here)
    assert statuses == [503] * REQUESTS
    assert len(here.hits) < REQUESTS // 2  # what was under way before the third strike, and a probe a second
    assert_empty(counted)


def test_a_flood_of_answers_arrives(counted: Proxy, place: Places) -> None:
    here = place().always(streamed(openai("a", "b")))
    assert flood(counted, here) == [200] * REQUESTS
    assert len(here.hits) == REQUESTS
    assert_empty(counted)


def test_of_a_hundred_that_come_as_the_window_ends_one_is_the_probe(counted: Proxy, place: Places) -> None:
    gate = Gate()
    here = place().always(whole(openai_message(), before=gate))
    press(counted, "open", upstream=here.host)
    together, answered = threading.Barrier(CLIENTS), threading.Semaphore(0)

    def turn(client: int) -> int:
        with Connection(counted, here.url(COMPLETIONS)) as connection:
            together.wait()
            connection.send(asked(f"{client}"), account(f"{here.host} {client}"))
            status = connection.answer().status
            answered.release()
            return status

    until(lambda: breaker(counted, here.host)["state"] != "open", "the window's end")
    with ThreadPoolExecutor(CLIENTS) as pool:
        running = [pool.submit(turn, client) for client in range(CLIENTS)]
        for _ in range(CLIENTS - 1):
            assert answered.acquire(timeout=20)
        reached = len(here.wait_hits(1))
        gate.open()
        statuses = sorted(future.result() for future in running)
    assert reached == len(here.hits) == 1
    assert statuses == [200] + [503] * (CLIENTS - 1)
    assert_empty(counted)


@pytest.mark.parametrize("kind", [JSON, HTML, SSE], ids=lambda kind: kind[1])
def test_what_one_response_keeps_is_bounded(counted: Proxy, place: Places, kind: tuple[str, str]) -> None:
    body = b'{"a":"' + b"x" * (2 << 20) if kind is JSON else b"<html>" * 300_000 if kind is HTML else b": wait\n\n" * 200_000
    here = place().then(Reply(headers=[kind], chunks=[body], framing="chunked"))
    answer = ask(counted, here.url(COMPLETIONS), asked(), account(here.host))
    assert (answer.status, answer.body) == (200, body)
    assert 0 < census(counted)["most"] <= (256 << 10) + READ
    assert_empty(counted)


def test_clients_that_leave_at_every_moment_leave_nothing(counted: Proxy, place: Places) -> None:
    here = place().always(streamed([openai("a")[0], *openai("a", "b")[1:]], pace=0.01))

    def leave(client: int) -> None:
        with Connection(counted, here.url(COMPLETIONS)) as connection:
            connection.send(asked(f"{client}"), account(f"{here.host} {client}"))
            connection._socket.settimeout(0.001 * (client % 60) + 0.001)
            try:
                connection.answer()
            except (TimeoutError, OSError):
                connection.reset()

    with ThreadPoolExecutor(20) as pool:
        list(pool.map(leave, range(120)))
    assert_empty(counted)
