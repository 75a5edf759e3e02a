"""Several proxies over one real Redis server: what one learns, all know; and what they do without the server."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Proxies
from tests.e2e.lab.client import Answer, ask
from tests.e2e.lab.proxy import Proxy
from tests.e2e.lab.script import Place, Reply
from tests.e2e.lab.shared_server import SharedServer, needs_server
from tests.e2e.lab.wires import MESSAGES, MTOP, account, anthropic, asked, event, streamed

pytestmark = needs_server

Places = Callable[..., Place]
Fleet = Callable[..., list[Proxy]]
CHALLENGE = streamed([event(MTOP)])
ANSWER = streamed(anthropic("one"))
SHORT: dict[str, Any] = {
    "breaker": {"open_seconds": 3},
    "retry_after": {"challenge": 1, "overload": 1},
    "queue": {"seconds": 0},
}
"""Short times; whoever would wait is told, so that a test sees who was let through."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SharedServer]:
    running = SharedServer(tmp_path / "redis").start()
    yield running
    running.end()


@pytest.fixture
def fleet(proxies: Proxies, server: SharedServer) -> Iterator[Fleet]:
    started: list[Proxy] = []

    def start(number: int = 2, url: str | None = None, joined: bool = True, **config: Any) -> list[Proxy]:
        for _ in range(number):
            started.append(proxies.fresh({**SHORT, "shared": url or server.url, **config}))
            started[-1].start()
        if joined:
            for proxy in started:
                wait_for(lambda proxy=proxy: connection(proxy) == "connected", "it never joined")
        return started[-number:]

    yield start
    for proxy in started:
        proxy.end()
        proxy.assert_quiet()


def wait_for(true: Callable[[], bool], words: str, seconds: float = 20.0) -> None:
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until, words
        time.sleep(0.02)


def status(proxy: Proxy) -> dict[str, Any]:
    answer = ask(proxy, "http://breakwater.internal/status.json", method="GET")
    found: dict[str, Any] = json.loads(answer.body)
    return found


def connection(proxy: Proxy) -> str:
    return str(status(proxy)["shared"][0]["connection"])


def state(proxy: Proxy, here: Place) -> str:
    return str(next(row["state"] for row in status(proxy)["upstreams"] if row["name"] == here.host))


def send(proxy: Proxy, here: Place, text: str, who: str = "") -> Answer:
    return ask(proxy, here.url(MESSAGES), asked(text), account(who or text))


def settle(here: Place, *proxies: Proxy, to: str) -> None:
    wait_for(lambda: {state(proxy, here) for proxy in proxies} == {to}, f"not all of them became {to}")


def test_strikes_on_different_proxies_open_all(fleet: Fleet, place: Places) -> None:
    here, (one, two, three) = place(), fleet(3)
    here.then(CHALLENGE, CHALLENGE, CHALLENGE)
    for number, proxy in enumerate((one, two, three)):
        assert send(proxy, here, f"strike {number}").status == 529
        wait_for(lambda: all(strikes(each, here) >= 1 for each in (one, two, three)), "a strike was not heard")
    settle(here, one, two, three, to="open")
    refused = [send(proxy, here, f"after {number}") for number, proxy in enumerate((one, two, three))]
    assert [answer.header("x-breakwater") for answer in refused] == ["breaker_open"] * 3
    assert len(here.hits) == 3


def strikes(proxy: Proxy, here: Place) -> int:
    return int(next(row["strikes"] for row in status(proxy)["upstreams"] if row["name"] == here.host))
