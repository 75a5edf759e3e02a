"""A master behind sentinels: it is found by its name, and the one that follows it is found as well."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.lab.fleet import CHALLENGE, connection, send, settle, state, strikes, wait_for
from tests.e2e.lab.proxy import Proxy
from tests.e2e.lab.script import Place
from tests.e2e.lab.shared_server import PROGRAM, Sentinel, SharedServer, free_port, needs_server, with_each_server
from tests.e2e.lab.wires import anthropic, streamed

pytestmark = needs_server

Places = Callable[..., Place]
Fleet = Callable[..., list[Proxy]]
PASSWORD = "pw-CANARY"
LONG = {"open_seconds": 60}


@pytest.fixture
def server(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[SharedServer]:
    options = ("--masterauth", PASSWORD, "--repl-diskless-sync-delay", "0")
    running = SharedServer(tmp_path / "master", *options, password=PASSWORD, program=getattr(request, "param", PROGRAM)).start()
    yield running
    running.end()


@pytest.fixture
def replica(tmp_path: Path, server: SharedServer) -> Iterator[SharedServer]:
    options = ("--masterauth", PASSWORD, "--replicaof", "127.0.0.1", str(server.port))
    running = SharedServer(tmp_path / "replica", *options, password=PASSWORD, program=server.program).start()
    wait_for(lambda: running.ask("ROLE")[3] == "connected", "it never followed")
    yield running
    running.end()


@pytest.fixture
def sentinel(tmp_path: Path, server: SharedServer, replica: SharedServer) -> Iterator[Sentinel]:
    running = Sentinel(tmp_path / "sentinel", server)
    running.start()
    wait_for(lambda: len(running.ask("SENTINEL", "REPLICAS", Sentinel.NAME)) == 1, "the sentinel knows no replica")
    yield running
    running.end()


def url(*sentinels: int, name: str = Sentinel.NAME) -> str:
    hosts = ",".join(f"127.0.0.1:{port}" for port in sentinels)
    return f"redis+sentinel://default:{PASSWORD}@{hosts}/{name}/0"


@with_each_server
def test_when_the_master_is_killed_all_go_on_and_meet_at_the_next_one(
    fleet: Fleet, place: Places, server: SharedServer, replica: SharedServer, sentinel: Sentinel
) -> None:
    nobody = free_port()
    here, (one, two) = place(), fleet(2, shared=url(nobody, sentinel.port), breaker=LONG)
    here.then(CHALLENGE, CHALLENGE, CHALLENGE).always(streamed(anthropic("one")))
    send(one, here, "a strike")
    wait_for(lambda: strikes(two, here) == 1, "the strike was not heard")
    wait_for(lambda: here.host in replica.everything(), "nothing was replicated")
    server.kill()
    wait_for(lambda: connection(one) == connection(two) == "alone", "nobody noticed")
    send(two, here, "a strike while there is no master")
    wait_for(lambda: connection(one) == connection(two) == "connected", "they never met at the next master")
    assert replica.ask("ROLE")[0] == "master"
    wait_for(lambda: strikes(one, here) == strikes(two, here) == 2, "what was learnt alone was not merged")
    send(one, here, "the last strike")
    settle(here, one, two, to="open")
    assert here.host in replica.everything()
    for proxy in (one, two):
        assert "is not to be used" in proxy.log
        assert "is back" in proxy.log
        assert f"redis+sentinel://127.0.0.1:{nobody},127.0.0.1:{sentinel.port}/{Sentinel.NAME}/0" in proxy.log
        assert "CANARY" not in proxy.log


def test_when_another_is_made_the_master_all_follow_it(
    fleet: Fleet, place: Places, replica: SharedServer, sentinel: Sentinel
) -> None:
    here, (one, two) = place(), fleet(2, shared=url(sentinel.port), breaker=LONG)
    here.then(CHALLENGE, CHALLENGE, CHALLENGE)
    send(one, here, "a strike")
    wait_for(lambda: strikes(two, here) == 1, "the strike was not heard")
    sentinel.ask("SENTINEL", "FAILOVER", Sentinel.NAME)
    wait_for(lambda: replica.ask("ROLE")[0] == "master", "the sentinel did not do it")
    wait_for(lambda: "is back" in one.log and "is back" in two.log, "they did not follow")
    for number in range(2):
        send((one, two)[number], here, f"another strike {number}")
        wait_for(lambda: state(one, here) == "open" or strikes(one, here) == strikes(two, here) == 2, "not heard")
    settle(here, one, two, to="open")


def test_a_master_that_no_sentinel_knows_is_one_line(fleet: Fleet, sentinel: Sentinel) -> None:
    (one,) = fleet(1, joined=False, shared=url(sentinel.port, name="another"))
    wait_for(lambda: "is not to be used" in one.log, "it did not say so")
    assert f"(sentinel 127.0.0.1:{sentinel.port} knows no another)" in one.log
