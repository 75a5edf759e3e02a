"""Without the server: each proxy goes on by itself, says so once, and all meet again when it is back."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.e2e.lab.client import ask
from tests.e2e.lab.fleet import CHALLENGE, connection, send, settle, state, strikes, wait_for
from tests.e2e.lab.proxy import Proxy
from tests.e2e.lab.script import Place
from tests.e2e.lab.shared_server import SharedServer, needs_server
from tests.e2e.lab.wires import anthropic, streamed

pytestmark = needs_server

Places = Callable[..., Place]
Fleet = Callable[..., list[Proxy]]
ANSWER = streamed(anthropic("one"))
LONG = {"open_seconds": 30}
SLOWEST_SECONDS = 0.5
LOST, BACK = "is not to be used", "is back"


def change_password(server: SharedServer) -> None:
    server.ask("CONFIG", "SET", "requirepass", "another")
    server.password = "another"
    for kind in ("normal", "pubsub"):
        server.ask("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")


def change_it_back(server: SharedServer) -> None:
    server.ask("CONFIG", "SET", "requirepass", "")
    server.password = ""


LOSSES: dict[str, tuple[Callable[[SharedServer], object], Callable[[SharedServer], object]]] = {
    "hangs": (SharedServer.hang, SharedServer.go_on),
    "is killed": (SharedServer.kill, SharedServer.start),
    "is full": (
        lambda server: server.ask("CONFIG", "SET", "maxmemory", "1", "maxmemory-policy", "noeviction"),
        lambda server: server.ask("CONFIG", "SET", "maxmemory", "0"),
    ),
    "changes its password": (change_password, change_it_back),
}


@pytest.mark.parametrize("name", LOSSES)
def test_without_the_server_each_goes_on_and_all_meet_again(name: str, fleet: Fleet, place: Places, server: SharedServer) -> None:
    here, (one, two) = place(), fleet(2, breaker=LONG)
    here.then(CHALLENGE, CHALLENGE)
    for number in range(2):
        send(one, here, f"before {number}")
    wait_for(lambda: strikes(two, here) == 2, "two strikes were not heard")
    LOSSES[name][0](server)
    slowest = timed(two, here, 40)
    here.then(CHALLENGE)
    began = time.monotonic()
    assert send(two, here, "the last strike").status == 529
    assert max(slowest, time.monotonic() - began) < SLOWEST_SECONDS
    assert state(two, here) == "open", "what was known here was lost"
    for proxy in (one, two):
        if name != "is full":  # a proxy that writes nothing need not notice
            wait_for(lambda proxy=proxy: connection(proxy) == "alone", "nobody noticed")  # type: ignore[misc]
    wait_for(lambda: connection(two) == "alone", "it did not notice")
    assert timed(two, here, 10, refused=True) < SLOWEST_SECONDS
    LOSSES[name][1](server)
    settle(here, one, two, to="open")
    wait_for(lambda: connection(one) == connection(two) == "connected", "they never met again")
    for words in (LOST, BACK):
        assert two.log.count(words) == 1
        assert one.log.count(words) <= 1
    assert 'breakwater_shared_losses_total{server="' in metrics(two)


def timed(proxy: Proxy, here: Place, number: int, *, refused: bool = False) -> float:
    """Seconds of the slowest of so many requests."""
    slowest = 0.0
    for turn in range(number):
        if not refused:
            here.then(streamed([]) if False else ANSWER)
        began = time.monotonic()
        send(proxy, here, f"meanwhile {refused} {turn}", "a quiet one")
        slowest = max(slowest, time.monotonic() - began)
    return slowest


def metrics(proxy: Proxy) -> str:
    return ask(proxy, "http://breakwater.internal/metrics", method="GET").body.decode()
