"""The line whatever way a request takes: HTTP/2, TLS in a CONNECT, SOCKS5, reverse mode, two proxies, a connection that never comes."""

from __future__ import annotations

import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Proxies, upstream_rows
from tests.e2e.lab.client import Answer, Connection, ask
from tests.e2e.lab.client_h2 import H2Connection
from tests.e2e.lab.line import (
    ANSWER,
    CROWD,
    ONE,
    PERMITS,
    QUEUED,
    assert_nothing_is_out,
    order,
    paused,
    send,
    status,
    taken,
    until_waiting,
)
from tests.e2e.lab.operated import press, state, until
from tests.e2e.lab.proxy import Proxy
from tests.e2e.lab.script import Gate, Place, Reply
from tests.e2e.lab.upstream import Upstream
from tests.e2e.lab.wires import MESSAGES, account, anthropic, asked, streamed

Places = Callable[..., Place]


def test_a_stream_of_a_connection_waits_and_its_sibling_goes_on(one_at_a_time: Proxy, place: Places) -> None:
    here, gate = place(), Gate()
    here.then(streamed(anthropic("one"), before=gate), ANSWER).always(ANSWER)
    with H2Connection(one_at_a_time, here.host) as connection:
        first = connection.open(MESSAGES, asked("first"), account("one"))
        gate.wait_reached()
        waits = connection.open(MESSAGES, asked("waits"), account("one"))
        until_waiting(one_at_a_time, here, 1)
        sibling = connection.open(MESSAGES, asked("sibling"), account("other"))
        assert connection.finish(sibling).status == 200
        gate.open()
        assert connection.finish(first).status == connection.finish(waits).status == 200
    assert_nothing_is_out(one_at_a_time, here)


def test_a_stream_that_is_reset_while_it_waits_leaves_the_others_of_its_connection(one_at_a_time: Proxy, place: Places) -> None:
    here, gate = place(), Gate()
    here.then(streamed(anthropic("one"), before=gate)).always(ANSWER)
    with H2Connection(one_at_a_time, here.host) as connection:
        first = connection.open(MESSAGES, asked("first"), account("one"))
        gate.wait_reached()
        gone, stays = (connection.open(MESSAGES, asked(text), account("one")) for text in ("gone", "stays"))
        until_waiting(one_at_a_time, here, 2)
        connection.cancel(gone)
        until_waiting(one_at_a_time, here, 1)
        gate.open()
        assert connection.finish(first).status == connection.finish(stays).status == 200
    assert order(here) == ["first", "stays"]
    assert_nothing_is_out(one_at_a_time, here)


def test_a_client_that_goes_while_its_streams_wait_for_a_connection_keeps_no_slot(queued: Proxy, place: Places) -> None:
    """mitmproxy opens five connections to one address for a client; streams that still wait for one never hear that it has gone."""
    here, gate = place(), Gate()
    here.always(streamed(anthropic("one"), before=gate))
    with H2Connection(queued, here.host, 443) as connection:
        for number in range(16):
            connection.open(MESSAGES, asked(f"stream {number}"), account(here.host))
        here.wait_hits(5)
    assert_nothing_is_out(queued, here)
    assert len(here.hits) == 5


def test_a_connection_that_cannot_be_made_gives_its_slot_back(
    one_at_a_time: Proxy, place: Places, many: ThreadPoolExecutor
) -> None:
    here, gate = place(), Gate()
    first = taken(many, one_at_a_time, here, gate)
    with Connection(one_at_a_time, here.url(MESSAGES, port=9)) as nowhere:
        nowhere.send(asked("nowhere"), account(here.host))
        until_waiting(one_at_a_time, here, 1)
        gate.open()
        assert nowhere.answer().status == 502
    assert first.result().status == 200
    assert_nothing_is_out(one_at_a_time, here)
    assert send(one_at_a_time, here.then(ANSWER), "next").status == 200


def test_an_upstream_that_never_answers_keeps_its_slot_until_the_client_leaves(
    one_at_a_time: Proxy, place: Places, many: ThreadPoolExecutor
) -> None:
    here = place().then(Reply(framing="raw", chunks=[], end="hang")).always(ANSWER)
    with Connection(one_at_a_time, here.url(MESSAGES)) as silent:
        silent.send(asked("silent"), account(here.host))
        here.wait_hits(1)
        behind = many.submit(send, one_at_a_time, here, "behind")
        until_waiting(one_at_a_time, here, 1)
    assert behind.result().status == 200
    assert_nothing_is_out(one_at_a_time, here)


# -- modes ----------------------------------------------------------------------------------------------------


def test_in_a_tunnel_it_waits_too(one_at_a_time: Proxy, place: Places, many: ThreadPoolExecutor) -> None:
    here, gate = place(), Gate()
    first = taken(many, one_at_a_time, here, gate)
    with Connection(one_at_a_time, here.url(MESSAGES, "https")) as connection:
        connection.send(asked("waits"), account(here.host))
        until_waiting(one_at_a_time, here, 1)
        here.always(ANSWER)
        gate.open()
        assert connection.answer().status == first.result().status == 200
    assert order(here) == ["taken", "waits"]
    assert_nothing_is_out(one_at_a_time, here)


class Direct(Connection):
    """A connection to a proxy that asks nothing of HTTP: reverse mode, or SOCKS5 by name."""

    def __init__(self, proxy: Proxy, here: Place, *, socks: bool) -> None:
        super().__init__(proxy, here.url(MESSAGES))
        self._target = MESSAGES
        if socks:
            name = here.host.encode()
            self.write(b"\x05\x01\x00")
            assert self._socket.recv(2, socket.MSG_WAITALL) == b"\x05\x00"
            self.write(b"\x05\x01\x00\x03" + bytes([len(name)]) + name + b"\x00\x50")
            assert self._socket.recv(10, socket.MSG_WAITALL)[:2] == b"\x05\x00"


@pytest.mark.parametrize("mode", ["reverse", "socks5"])
def test_in_other_modes_it_waits_too(proxies: Proxies, place: Places, many: ThreadPoolExecutor, mode: str) -> None:
    here, gate = place(), Gate()
    named = f"reverse:http://{here.host}" if mode == "reverse" else mode
    proxy = proxies.fresh(ONE, mode=named, options=["keep_host_header=true"], scripts=(PERMITS,)).start()

    def asks(text: str) -> Answer:
        with Direct(proxy, here, socks=mode == "socks5") as connection:
            connection.send(asked(text), account(here.host))
            return connection.answer()

    try:
        here.then(streamed(anthropic("one"), before=gate)).always(ANSWER)
        first = many.submit(asks, "first")
        gate.wait_reached()
        with Direct(proxy, here, socks=mode == "socks5") as gone:
            gone.send(asked("gone"), account(here.host))
            waits = many.submit(asks, "waits")
            proxy.wait_log("wait for their turn")
            assert gone.silent_for(0.5)
        gate.open()
        assert first.result().status == waits.result().status == 200
        proxy.wait_log("nobody waits any more; 2 waited")
        assert order(here) == ["first", "waits"]
    finally:
        proxy.stop()


# -- two proxies ----------------------------------------------------------------------------------------------


def test_two_proxies_each_let_their_own_wait_and_keep_what_they_learnt(
    proxies: Proxies, place: Places, many: ThreadPoolExecutor, tmp_path: Path
) -> None:
    config: dict[str, Any] = {"upstreams": upstream_rows(), **QUEUED, "state_path": str(tmp_path / "shared.json")}
    one, other = (proxies.fresh(config, scripts=(PERMITS,)).start() for _ in range(2))
    here = place()
    try:
        for proxy in (one, other):
            paused(proxy, here)
        here.always(ANSWER)
        answers = [many.submit(send, proxy, here, f"turn {n}") for n in range(4) for proxy in (one, other)]
        assert [answer.result().status for answer in answers] == [200] * 8
        assert len(here.hits) == 10
        for proxy in (one, other):
            assert_nothing_is_out(proxy, here)
    finally:
        one.stop()
        other.stop()


def test_a_learnt_limit_outlives_a_restart_until_it_is_forgotten(
    proxies: Proxies, upstream: Upstream, place: Places, many: ThreadPoolExecutor
) -> None:
    here, gate = place(), Gate()
    proxy = proxies.fresh(QUEUED, scripts=(PERMITS,)).start()

    def limits() -> list[int]:
        return [row["slots"] for row in status(proxy)["limits"] if row["upstream"] == here.host]

    try:
        first = taken(many, proxy, here, gate)
        refused = many.submit(send, proxy, here.then(CROWD).always(ANSWER), "one too many")
        until_waiting(proxy, here, 1)
        gate.open()
        assert first.result().status == refused.result().status == 200
        assert limits() == [1]
        until(lambda: state(proxy).get("limits"), "the limit in the state file")
        proxy.stop()
        config = {"upstreams": upstream_rows(), **QUEUED}
        proxy = Proxy(proxy.folder, upstream, config=config, scripts=(PERMITS,)).start()
        assert limits() == [1]
        assert f'breakwater_concurrency_limit{{upstream="{here.host}"}} 1.0' in metrics(proxy)
        assert "Forgot" in press(proxy, "forget", model="glm-5.2").body.decode()
        assert limits() == []
        assert_nothing_is_out(proxy, here)
    finally:
        proxy.stop()


def metrics(proxy: Proxy) -> str:
    return ask(proxy, "http://breakwater.internal/metrics", method="GET").body.decode()
