"""The line, seen from outside: who waits unsent, and who is sent when."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.e2e.conftest import Proxies
from tests.e2e.lab.client import Answer, Connection, ask
from tests.e2e.lab.line import (
    ANSWER,
    CHALLENGE,
    CROWD,
    PATIENT,
    PERMITS,
    QUEUED,
    assert_nothing_is_out,
    in_turn,
    order,
    paused,
    send,
    status,
    taken,
    until_waiting,
)
from tests.e2e.lab.operated import press
from tests.e2e.lab.proxy import Proxy
from tests.e2e.lab.script import Gate, Hit, Place, Reply
from tests.e2e.lab.wires import JSON, MESSAGES, OVERLOAD_1305, account, anthropic, asked, compact, streamed

Places = Callable[..., Place]


# -- one goes first -------------------------------------------------------------------------------------------


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
    assert_nothing_is_out(queued, here)


def test_a_probe_that_is_cut_or_refused_hands_on_at_once(queued: Proxy, place: Places, many: ThreadPoolExecutor) -> None:
    here, gate = place(), Gate()
    paused(queued, here)
    here.then(Reply(framing="raw", chunks=[gate], end="abort"), ANSWER)
    answers = in_turn(many, queued, here, "cut", "next")
    gate.wait_reached()
    opened = time.monotonic()
    gate.open()
    assert [answer.result().status for answer in answers] == [502, 200]
    assert here.hits[2].at - opened < 1.5
    assert_nothing_is_out(queued, here)


def test_an_answer_that_begins_after_its_headers_lets_the_next_go(
    queued: Proxy, place: Places, many: ThreadPoolExecutor
) -> None:
    here, words, rest, frames = place(), Gate(), Gate(), anthropic("one", "two")
    paused(queued, here)
    here.then(streamed([b": ping\n\n", words, *frames[:3], rest, *frames[3:]])).always(ANSWER)
    with Connection(queued, here.url(MESSAGES)) as probe:
        probe.send(asked("probe"), [*account(here.host), *PATIENT])
        words.wait_reached()
        behind = many.submit(send, queued, here, "behind")
        until_waiting(queued, here, 1)
        assert probe.head().status == 200, "its headers went out after hold.seconds"
        assert len(here.hits) == 2
        words.open()
        here.wait_hits(3)
        rest.open()
    assert behind.result().status == 200
    assert_nothing_is_out(queued, here)


def test_the_second_refusal_of_a_request_is_waited_out_here(queued: Proxy, place: Places) -> None:
    here = place()
    assert send(queued, here.then(CHALLENGE), "again").status == 529, "told the first time"
    here.then(CHALLENGE, ANSWER)
    answer = send(queued, here, "again")
    assert answer.status == 200
    assert len(here.hits) == 3
    assert_nothing_is_out(queued, here)


# -- order ----------------------------------------------------------------------------------------------------


def test_side_requests_go_after_main_ones(one_at_a_time: Proxy, place: Places, many: ThreadPoolExecutor) -> None:
    here, gate = place(), Gate()
    first = taken(many, one_at_a_time, here, gate)
    waiting = in_turn(many, one_at_a_time, here.always(ANSWER), "side", "main one", "main two")
    gate.open()
    assert [answer.result().status for answer in (first, *waiting)] == [200] * 4
    assert order(here) == ["taken", "main one", "main two", "side"]
    assert_nothing_is_out(one_at_a_time, here)


def test_a_side_request_is_no_probe_while_a_main_one_waits(queued: Proxy, place: Places, many: ThreadPoolExecutor) -> None:
    here = place()
    paused(queued, here)
    waiting = in_turn(many, queued, here.always(ANSWER), "side", "main")
    assert [answer.result().status for answer in waiting] == [200, 200]
    assert order(here) == ["first", "main", "side"]
    assert_nothing_is_out(queued, here)


def test_a_side_request_is_no_probe_for_five_seconds_after_a_main_one(queued: Proxy, place: Places) -> None:
    here = place()
    paused(queued, here)
    assert send(queued, here.always(ANSWER), "side", tools=[], max_tokens=100).status == 200
    first, side = here.hits
    assert 4.5 < side.at - first.at < 8
    assert_nothing_is_out(queued, here)


# -- calls at a time ------------------------------------------------------------------------------------------


def test_a_plan_of_two_gives_ten_answers_and_learns_its_number(queued: Proxy, place: Places, many: ThreadPoolExecutor) -> None:
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
    assert [(row["slots"], row["under_way"]) for row in limits] == [(2, 0)]
    assert_nothing_is_out(queued, here)


# -- stated waits ---------------------------------------------------------------------------------------------


def test_a_long_stated_wait_is_told_to_the_next_ten_and_none_is_sent(queued: Proxy, place: Places) -> None:
    here = place().then(Reply(429, [JSON, ("Retry-After", "3600")], [compact({"error": {"message": "slow down"}})]))
    assert send(queued, here, "first").status == 429
    told = [send(queued, here, f"new {number}") for number in range(10)]
    assert {answer.header("x-breakwater") for answer in told} == {"stated_wait"}
    assert all(50 <= (answer.retry_after or 0) <= 59 for answer in told)
    assert len(here.hits) == 1
    assert send(queued, here.always(ANSWER), "another model", model="glm-4.6").status == 200
    assert send(queued, here, "another account", "another").status == 200
    assert_nothing_is_out(queued, here)


def test_a_short_stated_wait_is_waited_out_and_one_goes_first(queued: Proxy, place: Places, many: ThreadPoolExecutor) -> None:
    here, gate = place(), Gate()
    here.then(Reply(429, [JSON, ("Retry-After", "3")], [compact(OVERLOAD_1305)]))
    send(queued, here, "first")
    here.then(streamed(anthropic("one"), before=gate)).always(ANSWER)
    answers = [many.submit(send, queued, here, f"new {number}") for number in range(10)]
    gate.wait_reached()
    assert len(here.hits) == 2
    assert here.hits[1].at - here.hits[0].at >= 2.9
    gate.open()
    assert [answer.result().status for answer in answers] == [200] * 10
    assert_nothing_is_out(queued, here)


# -- patience -------------------------------------------------------------------------------------------------


def test_patience_over_is_told_the_truth(proxies: Proxies, place: Places) -> None:
    config = {**QUEUED, "breaker": {"open_seconds": 60, "strikes": 1}, "queue": {"clients": {"hasty/": 21}}}
    proxy = proxies(config, scripts=(PERMITS,))
    here = place()
    paused(proxy, here)
    began = time.monotonic()
    told = ask(proxy, here.url(MESSAGES), asked("hasty"), [*account(here.host), ("user-agent", "hasty/1")])
    assert told.status == 529
    assert told.header("x-breakwater") == "breaker_open"
    assert 0.9 <= time.monotonic() - began <= 5
    assert told.retry_after
    assert 50 <= told.retry_after <= 58
    assert_nothing_is_out(proxy, here)


@pytest.mark.parametrize("stated", ["-1", "1e9", "abc", "0", "nan", ""])
def test_a_client_that_says_nonsense_of_its_patience_has_the_least(
    long_paused: Proxy, place: Places, many: ThreadPoolExecutor, stated: str
) -> None:
    here = place()
    paused(long_paused, here)
    headers = [*account(here.host), ("x-stainless-timeout", stated)]
    answer = many.submit(ask, long_paused, here.url(MESSAGES), asked("odd"), headers)
    until_waiting(long_paused, here, 1)
    (row,) = [row for row in status(long_paused)["waiting"] if row["upstream"] == here.host]
    assert 15 <= row["longest"] <= 25
    here.always(ANSWER)
    press(long_paused, "close", upstream=here.host)
    assert answer.result().status == 200
    assert_nothing_is_out(long_paused, here)
