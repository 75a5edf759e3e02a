"""Without the server: each proxy goes on by itself, says so once, and all meet again when it is back."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.e2e.lab.client import ask
from tests.e2e.lab.fleet import CHALLENGE, connection, send, settle, state, status, strikes, wait_for
from tests.e2e.lab.proxy import Proxy
from tests.e2e.lab.script import Place
from tests.e2e.lab.shared_server import SharedServer, needs_server, with_each_server
from tests.e2e.lab.wires import anthropic, streamed

pytestmark = needs_server

Places = Callable[..., Place]
Fleet = Callable[..., list[Proxy]]
ANSWER = streamed(anthropic("one"))
LONG = {"open_seconds": 30}
SLOWEST_SECONDS = 0.5
"""That the loss may add to the slowest request of all, whatever else this machine does."""
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


@with_each_server
@pytest.mark.parametrize("name", LOSSES)
def test_without_the_server_each_goes_on_and_all_meet_again(
    name: str, fleet: Fleet, place: Places, server: SharedServer
) -> None:
    here, there, (one, two) = place(), place(), fleet(2, breaker=LONG)
    there.always(ANSWER)
    here.then(CHALLENGE, CHALLENGE)
    for number in range(2):
        send(one, here, f"before {number}")
    wait_for(lambda: strikes(two, here) == 2, "two strikes were not heard")
    usual = timed(two, there, 40)
    LOSSES[name][0](server)
    slowest = timed(two, there, 40)
    here.then(CHALLENGE)
    began = time.monotonic()
    assert send(two, here, "the last strike").status == 529
    assert max(slowest, time.monotonic() - began) < usual + SLOWEST_SECONDS
    assert state(two, here) == "open", "what was known here was lost"
    for proxy in (one, two):
        if name != "is full":  # a proxy that writes nothing need not notice
            wait_for(lambda proxy=proxy: connection(proxy) == "alone", "nobody noticed")  # type: ignore[misc]
    wait_for(lambda: connection(two) == "alone", "it did not notice")
    assert timed(two, here, 10) < usual + SLOWEST_SECONDS
    LOSSES[name][1](server)
    settle(here, one, two, to="open")
    wait_for(lambda: connection(one) == connection(two) == "connected", "they never met again")
    for words in (LOST, BACK):
        assert two.log.count(words) == 1
        assert one.log.count(words) <= 1
    assert 'breakwater_shared_losses_total{server="' in metrics(two)


def timed(proxy: Proxy, here: Place, number: int) -> float:
    """Seconds of the slowest of so many requests."""
    slowest = 0.0
    for turn in range(number):
        began = time.monotonic()
        send(proxy, here, f"meanwhile {turn}")
        slowest = max(slowest, time.monotonic() - began)
    return slowest


def metrics(proxy: Proxy) -> str:
    return ask(proxy, "http://breakwater.internal/metrics", method="GET").body.decode()


def test_a_probe_waits_for_a_hanging_server_no_longer_than_a_moment(fleet: Fleet, place: Places, server: SharedServer) -> None:
    here, (one,) = place(), fleet(1, queue={"seconds": 20})
    here.then(CHALLENGE, CHALLENGE, CHALLENGE).always(ANSWER)
    for number in range(3):
        send(one, here, f"strike {number}")
    settle(here, one, to="half_open")
    usual = timed(one, place().always(ANSWER), 20)
    server.hang()
    began = time.monotonic()
    assert send(one, here, "the probe").status == 200
    assert time.monotonic() - began < usual + SLOWEST_SECONDS
    assert state(one, here) == "closed"


def test_an_emptied_server_is_filled_again(fleet: Fleet, place: Places, server: SharedServer) -> None:
    here, (one, two) = place(), fleet(2, breaker=LONG)
    here.then(CHALLENGE, CHALLENGE, CHALLENGE)
    for number in range(3):
        send(one, here, f"strike {number}")
    settle(here, one, two, to="open")
    key = server.ask("GET", "breakwater:v1:key")
    server.ask("FLUSHALL")
    wait_for(lambda: here.host in server.everything(), "nothing was written again")
    assert server.ask("GET", "breakwater:v1:key") == key
    assert [state(proxy, here) for proxy in (one, two)] == ["open", "open"]
    for proxy in (one, two):
        assert LOST not in proxy.log
        assert proxy.log.count("was emptied") <= 1
    assert "was emptied" in one.log + two.log


def test_a_wrong_password_is_one_line_without_it(fleet: Fleet, place: Places, server: SharedServer) -> None:
    server.ask("CONFIG", "SET", "requirepass", "right")
    server.password = "right"
    here = place().always(ANSWER)
    url = f"redis://somebody:pw-CANARY@127.0.0.1:{server.port}/0"
    (one,) = fleet(1, joined=False, shared=url)
    wait_for(lambda: LOST in one.log, "it did not say so")
    assert send(one, here, "as ever").status == 200
    assert status(one)["shared"][0]["connection"] == "alone"
    seen = one.log + str(status(one)) + metrics(one) + ask(one, "http://breakwater.internal/", method="GET").body.decode()
    assert "CANARY" not in seen
    assert "somebody" not in seen
    assert f"redis://127.0.0.1:{server.port}/0" in seen
    time.sleep(3)
    assert one.log.count(LOST) == 1


@contextmanager
def old_server() -> Iterator[str]:
    """A server that says of itself that it is version 2.8; everything else is an error to it."""
    listening = socket.create_server(("127.0.0.1", 0))

    def talk(client: socket.socket) -> None:
        with client:
            while data := client.recv(65536):
                for command in data.upper().split(b"*")[1:]:
                    info = b"redis_version:2.8.19\r\n"
                    known = b"INFO" in command
                    client.sendall(b"$%d\r\n%b\r\n" % (len(info), info) if known else b"-ERR unknown command\r\n")

    def serve() -> None:
        while True:
            try:
                client, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=talk, args=(client,), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    yield f"redis://127.0.0.1:{listening.getsockname()[1]}/0?protocol=2"
    listening.close()


def test_a_version_too_old_is_one_line(fleet: Fleet, place: Places) -> None:
    here = place().always(ANSWER)
    with old_server() as url:
        (one,) = fleet(1, joined=False, shared=url)
        wait_for(lambda: LOST in one.log, "it did not say so")
        time.sleep(3)
    assert "version 2.8.19" in one.log
    assert one.log.count(LOST) == 1
    assert send(one, here, "as ever").status == 200
