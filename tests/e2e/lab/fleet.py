"""Several proxies that share a server, and what they say of it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from tests.e2e.lab.client import Answer, ask
from tests.e2e.lab.proxy import Proxy
from tests.e2e.lab.script import PATIENCE_SECONDS, Place
from tests.e2e.lab.wires import MESSAGES, MTOP, account, asked, event, streamed

CHALLENGE = streamed([event(MTOP)])
SHORT: dict[str, Any] = {
    "breaker": {"open_seconds": 3},
    "retry_after": {"challenge": 1, "overload": 1},
    "queue": {"seconds": 0},
}
"""Short times; whoever would wait is told, so that a test sees who was let through."""


def wait_for(true: Callable[[], bool], words: str) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    while not true():
        assert time.monotonic() < until, words
        time.sleep(0.02)


def status(proxy: Proxy) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(ask(proxy, "http://breakwater.internal/status.json", method="GET").body)
    return found


def connection(proxy: Proxy) -> str:
    return str(status(proxy)["shared"][0]["connection"])


def _row(proxy: Proxy, here: Place) -> dict[str, Any]:
    return next(row for row in status(proxy)["upstreams"] if row["name"] == here.host)


def state(proxy: Proxy, here: Place) -> str:
    return str(_row(proxy, here)["state"])


def strikes(proxy: Proxy, here: Place) -> int:
    return int(_row(proxy, here)["strikes"])


def send(proxy: Proxy, here: Place, text: str, who: str = "", path: str = MESSAGES) -> Answer:
    return ask(proxy, here.url(path), asked(text), account(who or text))


def settle(here: Place, *proxies: Proxy, to: str) -> None:
    wait_for(lambda: {state(proxy, here) for proxy in proxies} == {to}, f"not all of them became {to}")


def opened(here: Place, *proxies: Proxy) -> None:
    """A window that was opened on the first proxy and is over on all of them."""
    here.then(CHALLENGE, CHALLENGE, CHALLENGE)
    for number in range(3):
        send(proxies[0], here, f"opens {here.host} {number}")
    settle(here, *proxies, to="open")
    settle(here, *proxies, to="half_open")
