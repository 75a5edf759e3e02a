"""How a wait ends: its client leaves, a person acts, the settings change, a rule fails; each time nothing stays taken."""

from __future__ import annotations

import random
import re
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.e2e.conftest import Proxies, upstream_rows
from tests.e2e.lab.client import Connection
from tests.e2e.lab.line import (
    ANSWER,
    CROWD,
    LONG,
    ONE,
    PERMITS,
    QUEUED,
    Crowd,
    assert_nothing_is_out,
    cpu_share,
    in_turn,
    order,
    paused,
    send,
    status,
    taken,
    until_waiting,
    waiting,
)
from tests.e2e.lab.operated import Reloadable, press, until
from tests.e2e.lab.proxy import LAB, Proxy
from tests.e2e.lab.script import Gate, Place
from tests.e2e.lab.upstream import Upstream
from tests.e2e.lab.web import Web
from tests.e2e.lab.wires import MESSAGES, account, anthropic, asked, streamed

Places = Callable[..., Place]
IDLE_SECONDS = 3
IDLE_SHARE = 0.03
"""Of one core, more than where nobody waits: what the measuring itself can be wrong by on a busy machine."""


# -- clients that leave ---------------------------------------------------------------------------------------


@pytest.mark.timeout(120)
def test_three_hundred_wait_at_no_cost_and_those_who_leave_cost_no_send(proxies: Proxies, place: Places) -> None:
    proxy = proxies.fresh(LONG, scripts=(PERMITS,)).start()
    here = place()
    idle = cpu_share(proxy, IDLE_SECONDS)
    paused(proxy, here)
    crowd = Crowd(proxy, here, 300)
    until_waiting(proxy, here, 300)
    assert cpu_share(proxy, IDLE_SECONDS) <= idle + IDLE_SHARE
    crowd.leave(100)
    until_waiting(proxy, here, 200)
    assert len(here.hits) == 1
    press(proxy, "close", upstream=here.always(ANSWER).host)
    assert [answer.status for answer in crowd.answers()] == [200] * 200
    assert len(here.hits) == 201
    assert_nothing_is_out(proxy, here)
    proxy.stop()


def test_a_client_that_leaves_while_it_waits_costs_no_send_and_blocks_nobody(queued: Proxy, place: Places) -> None:
    here = place()
    paused(queued, here)
    with Connection(queued, here.url(MESSAGES)) as connection:
        connection.send(asked("leaves"), account(here.host))
        until_waiting(queued, here, 1)
    until_waiting(queued, here, 0)
    here.always(ANSWER)
    assert send(queued, here, "stays").status == 200
    assert len(here.hits) == 2
    assert_nothing_is_out(queued, here)


def test_clients_that_leave_as_their_turn_comes_keep_no_slot(
    one_at_a_time: Proxy, place: Places, many: ThreadPoolExecutor
) -> None:
    here, chance = place(), random.Random(7)
    for number in range(25):
        gate = Gate()
        first = taken(many, one_at_a_time, here, gate)
        here.always(ANSWER)
        leaving = Connection(one_at_a_time, here.url(MESSAGES))
        leaving.send(asked(f"leaves {number}"), account(here.host))
        until_waiting(one_at_a_time, here, 1)
        timer = threading.Timer(chance.random() * 0.01, leaving.reset)
        timer.start()
        gate.open()
        assert first.result().status == 200
        assert send(one_at_a_time, here, f"next {number}").status == 200
        timer.join()
    assert_nothing_is_out(one_at_a_time, here)


# -- a person -------------------------------------------------------------------------------------------------


def test_the_pages_button_lets_everybody_go(long_paused: Proxy, place: Places, many: ThreadPoolExecutor) -> None:
    here = place()
    paused(long_paused, here)
    answers = in_turn(many, long_paused, here, "one", "two", "three")
    press(long_paused, "close", upstream=here.always(ANSWER).host)
    assert [answer.result().status for answer in answers] == [200] * 3
    assert_nothing_is_out(long_paused, here)


def test_forgetting_a_learnt_limit_lets_those_go_who_wait_for_it(
    queued: Proxy, place: Places, many: ThreadPoolExecutor
) -> None:
    here, gate = place(), Gate()
    first = taken(many, queued, here, gate)
    refused = many.submit(send, queued, here.then(CROWD).always(ANSWER), "one too many")
    until_waiting(queued, here, 1)
    press(queued, "forget", model="glm-5.2")
    assert refused.result().status == 200
    gate.open()
    assert first.result().status == 200
    assert_nothing_is_out(queued, here)


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory, upstream: Upstream) -> Iterator[Web]:
    config = {"upstreams": upstream_rows(), **ONE}
    proxy = Web(tmp_path_factory.mktemp("mitmweb") / "proxy", upstream, config=config, scripts=(PERMITS,)).start()
    yield proxy
    proxy.stop()


def test_a_kill_in_mitmweb_ends_a_wait_and_blocks_nobody(web: Web, place: Places, many: ThreadPoolExecutor) -> None:
    here, gate = place(), Gate()
    first = taken(many, web, here, gate)
    with Connection(web, here.url(MESSAGES + "?killed")) as killed:
        killed.send(asked("killed"), account(here.host))
        until_waiting(web, here, 1)
        (behind,) = in_turn(many, web, here.always(ANSWER), "behind")
        web.kill(web.flow(host=here.host, path=MESSAGES + "?killed"))
        with pytest.raises(ConnectionResetError):
            killed.head()
    until_waiting(web, here, 1)
    gate.open()
    assert first.result().status == behind.result().status == 200
    assert order(here) == ["taken", "behind"]
    assert_nothing_is_out(web, here)


def test_a_flow_says_how_long_it_waited_and_for_what(web: Web, place: Places, many: ThreadPoolExecutor) -> None:
    here, gate = place(), Gate()
    first = taken(many, web, here, gate)
    with Connection(web, here.url(MESSAGES + "?waited")) as waited:
        waited.send(asked("waits"), account(here.host))
        until_waiting(web, here, 1)
        until(lambda: waiting(web, here)[0]["waited"] >= 1, "a second")
        gate.open()
        here.then(ANSWER)
        assert waited.answer().status == first.result().status == 200
    flow = web.flow(host=here.host, path=MESSAGES + "?waited")
    assert re.fullmatch(r"Breakwater no_slot: Waited here unsent for \d+\.\d s\.", flow["comment"])
    text, _ = web.shown(flow)
    lines = [line.split(maxsplit=2) for line in text.split("\n") if line.startswith("waited")]
    assert [line[:2] for line in lines] == [["waited", "unsent"], ["waited", "for"]]
    assert lines[1][2] == "no_slot"
    assert float(lines[0][2].removesuffix(" s")) >= 0.5


# -- the addon and its settings -------------------------------------------------------------------------------


def test_those_who_wait_outlive_two_reloads_and_are_sent_at_their_turn(
    tmp_path: Path, upstream: Upstream, place: Places, many: ThreadPoolExecutor
) -> None:
    here, gate = place(), Gate()
    proxy = Reloadable(tmp_path / "proxy", upstream, config={"upstreams": upstream_rows(), **ONE}, options=("flow_detail=0",))
    proxy.start()
    try:
        first = taken(many, proxy, here, gate)
        answers = in_turn(many, proxy, here.always(ANSWER), "one", "two")
        for _ in range(2):
            proxy.touch()
            assert len(waiting(proxy, here)) == 2, "a reload sends nobody"
        gate.open()
        assert [answer.result().status for answer in (first, *answers)] == [200] * 3
        assert order(here) == ["taken", "one", "two"]
        until_waiting(proxy, here, 0)
    finally:
        proxy.stop()


def test_a_changed_config_sends_everybody_at_once(proxies: Proxies, place: Places, many: ThreadPoolExecutor) -> None:
    here, proxy = place(), proxies.fresh(LONG, scripts=(PERMITS,)).start()
    paused(proxy, here)
    answers = in_turn(many, proxy, here.always(ANSWER), "one", "two", "three")
    mark = proxy.log_lines
    proxy.write_config({"upstreams": upstream_rows(), **LONG, "hold": {"seconds": 1}})
    proxy.wait_log("has changed", since=mark)
    assert [answer.result().status for answer in answers] == [200] * 3
    assert status(proxy)["counts"]["sends"][here.host] == 4
    assert_nothing_is_out(proxy, here)
    proxy.stop()


# -- faults of ours -------------------------------------------------------------------------------------------

BROKEN = [
    "policies.rules:Rules.turn",
    "policies.turns:Line.due",
    "policies.turns:Line.next_look",
    "policies.turns:Line._serve",
    "policies.queue:Queue.ordered",
    "policies.queue:Queue.add",
    "policies.hurdles:Hurdles.block",
    "policies.hurdles:Hurdles.take",
    "policies.concurrency:Limits.sent",
    "policies.hurdles:SlowStart.room",
    "operations.waiting:Waiting.add",
    "operations.waiting:Waiting._look_later",
    "operations.controller:Controller._wait",
]


@pytest.mark.parametrize("name", BROKEN)
def test_a_fault_of_ours_keeps_nobody(proxies: Proxies, place: Places, many: ThreadPoolExecutor, name: str) -> None:
    proxy = proxies(QUEUED, scripts=(PERMITS, LAB / "faulty.py"))
    here = place()
    paused(proxy, here)
    waits = in_turn(many, proxy, here.always(ANSWER), "one", "two")
    spoils = many.submit(send, proxy, here, "spoils", more=[("x-lab-fault", name)])
    assert [answer.result().status for answer in (*waits, spoils)] == [200] * 3
    assert_nothing_is_out(proxy, here)
    assert send(proxy, here, "sound").status == 200
    assert_nothing_is_out(proxy, here)


def test_what_a_fault_gives_back_goes_to_the_next_at_once(proxies: Proxies, place: Places, many: ThreadPoolExecutor) -> None:
    """Both requests name the fault, since a request that does not heals it."""
    proxy = proxies(ONE, scripts=(PERMITS, LAB / "faulty.py"))
    here, first, rest, mark = place(), Gate(), Gate(), proxy.log_lines
    frames, fault = anthropic("one", "two"), [("x-lab-fault", "policies.exchange:Exchange.answer_began")]
    here.then(streamed([*frames[:3], rest, *frames[3:]], before=first)).always(ANSWER)
    spoilt = many.submit(send, proxy, here, "spoilt", more=fault)
    first.wait_reached()
    behind = many.submit(send, proxy, here, "behind", more=fault)
    proxy.wait_log("wait for their turn", since=mark)
    first.open()
    here.wait_hits(2)
    rest.open()
    assert spoilt.result().status == behind.result().status == 200
    assert_nothing_is_out(proxy, here)


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
