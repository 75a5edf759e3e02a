"""Several proxies over one real Redis server: what one learns, all know, and a probe is one over all."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from tests.e2e.lab.certificates import Authority
from tests.e2e.lab.client import Answer
from tests.e2e.lab.fleet import CHALLENGE, connection, opened, send, settle, state, status, strikes, wait_for
from tests.e2e.lab.proxy import PROJECT, Proxy
from tests.e2e.lab.script import Gate, Place
from tests.e2e.lab.shared_server import SharedServer, free_port, needs_server, with_each_server
from tests.e2e.lab.wires import ZCODE, anthropic, streamed, whole

pytestmark = needs_server

Places = Callable[..., Place]
Fleet = Callable[..., list[Proxy]]
ANSWER = streamed(anthropic("one"))
BLOCKED = whole({"code": 3012, "msg": "Unusual activity"}, 405)
OVERFLOW = whole(
    {"error": {"message": "This model's maximum context length is 65536 tokens. However, you requested 86046 tokens."}}, 400
)


@with_each_server
def test_strikes_on_different_proxies_open_all(fleet: Fleet, place: Places) -> None:
    here, proxies = place(), fleet(3, breaker={"open_seconds": 30})
    here.then(CHALLENGE, CHALLENGE, CHALLENGE)
    for number, proxy in enumerate(proxies):
        assert send(proxy, here, f"strike {number}").status == 529
        wait_for(lambda count=number: all(strikes(each, here) > count for each in proxies), "a strike was not heard")  # type: ignore[misc]
    settle(here, *proxies, to="open")
    refused = [send(proxy, here, f"after {number}") for number, proxy in enumerate(proxies)]
    assert [answer.header("x-breakwater") for answer in refused] == ["breaker_open"] * 3
    assert len(here.hits) == 3
    said = "\n".join(proxy.log for proxy in proxies)
    assert said.count(f"{here.host} repeated_challenges: its breaker is opened for 30 s") == 1
    assert said.count(f"{here.host} told_by_others: its breaker is opened for 30 s") == 2


@with_each_server
def test_of_thirty_that_come_to_two_proxies_as_the_window_ends_one_is_sent(fleet: Fleet, place: Places) -> None:
    proxies = fleet(2, queue={"seconds": 20})
    sent: list[int] = []
    while 1 not in sent:  # a proxy that hears nothing for 0.2 s goes by itself, as it should; on a busy machine that happens
        assert len(sent) < 3, f"sent of thirty: {sent}"
        sent.append(probes_of_thirty(place(), proxies))


def probes_of_thirty(here: Place, proxies: list[Proxy]) -> int:
    opened(here, *proxies)
    answered = Gate()
    here.then(*[replace(ANSWER, before=answered)] * 2).always(ANSWER)
    with ThreadPoolExecutor(30) as pool:
        waits = [pool.submit(send, proxies[number % 2], here, f"one of 30: {number}") for number in range(30)]
        settle(here, *proxies, to="probing")
        wait_for(lambda: sum(len(status(proxy)["waiting"]) for proxy in proxies) + len(here.hits) == 33, "not all came")
        probes = len(here.hits) - 3
        answered.open()
        assert {wait.result().status for wait in waits} == {200}
    assert len(here.hits) == 33
    assert [state(proxy, here) for proxy in proxies] == ["closed", "closed"]
    return probes


def test_the_probe_of_a_killed_proxy_is_taken_over_when_its_lease_is_over(
    fleet: Fleet, place: Places, server: SharedServer
) -> None:
    here, (one, two) = place(), fleet(2)
    opened(here, one, two)
    never = Gate()
    here.then(replace(ANSWER, before=never)).always(ANSWER)
    with ThreadPoolExecutor(1) as pool:
        probe = pool.submit(until_sent, one, here)
        settle(here, one, two, to="probing")
        here.wait_hits(4)
        one.process.kill()
        probe.exception()
    never.open()
    assert send(two, here, "too early").header("x-breakwater") == "breaker_probing"
    age_by(71.0, here, server)
    settle(here, two, to="half_open")
    assert until_sent(two, here).status == 200
    assert state(two, here) == "closed"


def age_by(seconds: float, here: Place, server: SharedServer) -> None:
    """Make the lease of a probe older than it is; the proxies see it at their next look."""
    name = f"{here.host}:"
    value = json.loads(server.ask("GET", f"breakwater:v1:breaker:{name}"))
    assert value["lease"]
    value |= {"until": value["until"] - seconds, "version": value["version"] + 1}
    server.ask("SET", f"breakwater:v1:breaker:{name}", json.dumps(value))
    now, _ = server.ask("TIME")
    server.ask("ZADD", "breakwater:v1:index:breaker", f"{int(now) + 1}000000", name)


def until_sent(proxy: Proxy, here: Place) -> Answer:
    """Where nobody waits here, the first is told to come again while the others are asked."""
    for number in range(50):
        answer = send(proxy, here, f"who takes it {number}")
        if answer.header("x-breakwater") is None:
            return answer
        time.sleep(0.1)
    raise AssertionError("it was never sent")


@with_each_server
def test_told_waits_cross_over_and_end_with_the_answer(fleet: Fleet, place: Places, server: SharedServer) -> None:
    here, (one, two) = place(), fleet(2, retry_after={"challenge": 30})
    server.ask("ZADD", "breakwater:v1:index:wait", "1", "of long ago")
    here.then(CHALLENGE)
    assert send(one, here, "the very same", "somebody").retry_after == 30
    wait_for(lambda: bool(status(two)["refusals"]), "the wait was not heard")
    again = send(two, here, "the very same", "somebody")
    assert again.header("x-breakwater") == "remembered_wait"
    assert 20 <= (again.retry_after or 0) <= 30
    assert len(here.hits) == 1
    (name,) = server.ask("ZRANGE", "breakwater:v1:index:wait", "0", "-1")
    assert name in server.everything()
    assert name != "of long ago", "the index grows without end"


@with_each_server
def test_blocked_accounts_cross_over(fleet: Fleet, place: Places) -> None:
    here, (one, two) = place("zcode"), fleet(2)
    here.then(BLOCKED).always(ANSWER)
    send(one, here, "blocked", "somebody", ZCODE)
    wait_for(lambda: bool(status(two)["refusals"]), "the block was not heard")
    assert send(two, here, "another", "somebody", ZCODE).header("x-breakwater") == "account_blocked"
    assert send(two, here, "another", "somebody else", ZCODE).status == 200
    assert len(here.hits) == 2


def test_learnt_windows_cross_over_and_are_forgotten_together(fleet: Fleet, place: Places) -> None:
    here, (one, two) = place(), fleet(2)
    here.then(OVERFLOW)
    send(one, here, "long")
    wait_for(lambda: bool(status(one)["windows"]), "no window was learnt")
    wait_for(lambda: status(two)["windows"] == status(one)["windows"], "the window was not heard")
    (fresh,) = fleet(1)
    assert status(fresh)["windows"] == status(one)["windows"]


def test_one_that_comes_later_knows_what_the_others_know(fleet: Fleet, place: Places) -> None:
    here, (one,) = place(), fleet(1, breaker={"open_seconds": 30})
    here.then(CHALLENGE, CHALLENGE, CHALLENGE)
    for number in range(3):
        send(one, here, f"strike {number}")
    (two,) = fleet(1, breaker={"open_seconds": 30})
    assert state(two, here) == "open"
    assert send(two, here, "at once").header("x-breakwater") == "breaker_open"


def test_a_message_that_was_missed_is_repaired_by_a_look(fleet: Fleet, place: Places, server: SharedServer) -> None:
    here, (one, two) = place(), fleet(2, breaker={"open_seconds": 30})
    here.then(CHALLENGE)
    send(one, here, "a strike")
    wait_for(lambda: strikes(two, here) == 1, "the strike was not heard")
    name = f"{here.host}:"
    value = json.loads(server.ask("GET", f"breakwater:v1:breaker:{name}"))
    value |= {"strikes": 2, "version": value["version"] + 1}
    server.ask("SET", f"breakwater:v1:breaker:{name}", json.dumps(value))  # and no message
    now, _ = server.ask("TIME")
    server.ask("ZADD", "breakwater:v1:index:breaker", f"{int(now) + 1}000000", name)
    wait_for(lambda: strikes(two, here) == strikes(one, here) == 2, "nobody looked")


def test_sharing_begins_and_ends_with_the_config(fleet: Fleet, place: Places, server: SharedServer) -> None:
    here, (one,) = place(), fleet(1)
    config = json.loads(one.config_path.read_text())
    one.write_config({**config, "shared": None})
    wait_for(lambda: not status(one)["shared"], "it still shares")
    here.then(CHALLENGE)
    send(one, here, "a strike of its own")
    assert here.host not in server.everything()
    one.write_config(config)
    wait_for(lambda: bool(status(one)["shared"]) and connection(one) == "connected", "it does not share again")
    assert here.host in server.everything()


def may_what(page: str) -> list[str]:
    """The rights that the page says are enough."""
    text = (PROJECT / page).read_text(encoding="utf-8")
    return text.partition("ACL SETUSER breakwater on >password ")[2].partition("\n")[0].split()


def test_a_server_behind_tls_with_a_user_who_may_little_is_used(fleet: Fleet, place: Places, tmp_path: Path) -> None:
    (tmp_path / "authority").mkdir()
    authority = Authority(tmp_path / "authority")
    may = ["on", ">pw-CANARY", *may_what("docs/scaling.md")]
    files = ["--tls-cert-file", str(authority.chain_path), "--tls-key-file", str(authority.chain_path)]
    files += ["--tls-ca-cert-file", str(authority.ca_path), "--tls-auth-clients", "no"]
    tls_port = free_port()
    server = SharedServer(tmp_path / "tls", "--tls-port", str(tls_port), *files, "--user", "somebody", *may).start()
    try:
        url = f"rediss://somebody:pw-CANARY@localhost:{tls_port}/0?ssl_ca_certs={authority.ca_path}"
        here, (one, two) = place(), fleet(2, shared=url)
        here.then(CHALLENGE, CHALLENGE)
        for proxy in (one, two):
            send(proxy, here, f"strike {proxy.port}")
        wait_for(lambda: strikes(one, here) == strikes(two, here) == 2, "the strikes did not meet")
        assert "CANARY" not in one.log + str(status(one))
    finally:
        server.end()


def test_a_socket_of_this_machine_is_used(fleet: Fleet, place: Places, tmp_path: Path) -> None:
    path = tmp_path / "redis.sock"
    server = SharedServer(tmp_path / "redis", "--unixsocket", str(path), password="pw-CANARY").start()
    try:
        here, (one, two) = place(), fleet(2, shared=f"unix://default@{path}?db=1&password=pw-CANARY")
        here.then(CHALLENGE, CHALLENGE)
        for proxy in (one, two):
            send(proxy, here, f"strike {proxy.port}")
        wait_for(lambda: strikes(one, here) == strikes(two, here) == 2, "the strikes did not meet")
        server.kill()
        wait_for(lambda: connection(one) == "alone", "nobody noticed")
        assert "CANARY" not in one.log + str(status(one))
        assert f"unix://{path} is not to be used" in one.log
    finally:
        server.end()
