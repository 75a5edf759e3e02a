"""The breaker, the remembered waits and the re-sends, seen from outside: who reaches the upstream, and when."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.e2e.conftest import QUICK, Proxies
from tests.e2e.lab.client import Answer, Connection, ask
from tests.e2e.lab.client_h2 import H2Connection
from tests.e2e.lab.proxy import Proxy
from tests.e2e.lab.script import Gate, Place, Reply
from tests.e2e.lab.wires import (
    CAPTCHA_3007,
    COMPLETIONS,
    MESSAGES,
    MTOP,
    OVERLOAD_1305,
    QWEN_WEB,
    ZCODE,
    account,
    anthropic,
    anthropic_message,
    asked,
    event,
    qwen_web,
    streamed,
    whole,
)

Places = Callable[..., Place]
CHALLENGE = streamed([event(MTOP)])
ANSWER = streamed(anthropic("one"))
NUMBERS = itertools.count()
OPEN_SECONDS = QUICK["breaker"]["open_seconds"]


def send(proxy: Proxy, here: Place, text: str, who: str = "", path: str = MESSAGES) -> Answer:
    return ask(proxy, here.url(path), asked(text), account(who or here.host))


def strike(proxy: Proxy, here: Place, times: int = 3, path: str = MESSAGES) -> list[Answer]:
    """Have this many different requests challenged."""
    here.then(*[CHALLENGE] * times)
    names = [f"strike {next(NUMBERS)}" for _ in range(times)]
    return [send(proxy, here, name, name, path) for name in names]


def until_over(answer: Answer) -> None:
    """Wait as long as we were told to, from the moment we were told."""
    assert answer.retry_after is not None
    time.sleep(max(0.0, answer.head_at + answer.retry_after - time.monotonic()))


def reason(answer: Answer) -> str | None:
    return answer.header("x-breakwater")


def test_three_challenges_in_a_row_open_it_for_everyone(guarded: Proxy, place: Places) -> None:
    here, mark = place(), guarded.log_lines
    struck = strike(guarded, here)
    assert [answer.status for answer in struck] == [529, 529, 529]
    assert [answer.retry_after for answer in struck[:2]] == [30, 30]
    assert 58 <= (struck[2].retry_after or 0) <= 59  # the strike that opens it tells the window
    refused = [send(guarded, here, "another", who) for who in ("a", "b", "c")]
    assert [(answer.status, reason(answer)) for answer in refused] == [(529, "breaker_open")] * 3
    assert all(1 <= (answer.retry_after or 0) <= 59 for answer in refused)
    assert len(here.hits) == 3
    told = [
        line for line in guarded.log_since(mark).splitlines() if f"Breakwater: {here.host} " in line and "its breaker" in line
    ]
    assert len(told) == 1


def test_every_wire_of_an_upstream_is_refused_in_its_own_dialect(guarded: Proxy, place: Places) -> None:
    here = place()
    strike(guarded, here)
    assert send(guarded, here, "x", path=MESSAGES).status == 529
    refused = send(guarded, here, "x", path=COMPLETIONS)
    assert (refused.status, refused.json()["error"]["code"]) == (503, "upstream_unavailable")


def test_an_answer_between_challenges_clears_the_strikes(guarded: Proxy, place: Places) -> None:
    here = place()
    for turn in range(3):
        strike(guarded, here, 2)
        here.then(ANSWER)
        assert send(guarded, here, f"turn {turn}", f"other {turn}").status == 200
    assert len(here.hits) == 9


def test_another_upstream_stays_closed(guarded: Proxy, place: Places) -> None:
    here, there = place(), place().then(ANSWER)
    strike(guarded, here)
    assert send(guarded, there, "x").status == 200


def test_what_is_no_generation_passes_an_open_breaker(guarded: Proxy, place: Places) -> None:
    here = place()
    strike(guarded, here)
    here.then(whole({"input_tokens": 5}), whole({"data": []}))
    assert send(guarded, here, "x", path=MESSAGES + "/count_tokens").json() == {"input_tokens": 5}
    assert ask(guarded, here.url("/api/paas/v4/models"), headers=account("m"), method="GET").json() == {"data": []}


def test_preparation_steps_are_refused_while_it_is_open(guarded: Proxy, place: Places) -> None:
    here = place("qwen-web")
    here.then(whole({"success": True, "data": {"id": "c"}}))
    assert send(guarded, here, "x", path="/api/v2/chats/new").status == 200
    strike(guarded, here, path=QWEN_WEB)
    before = len(here.hits)
    assert send(guarded, here, "x", path="/api/v2/chats/new").status == 503
    assert len(here.hits) == before


def test_after_the_window_one_request_alone_is_the_probe_and_its_answer_closes_it(quick: Proxy, place: Places) -> None:
    here = place()
    until_over(strike(quick, here)[-1])
    gate = Gate()
    here.then(streamed([gate, *anthropic("probe")])).always(ANSWER)
    with Connection(quick, here.url(MESSAGES)) as probe:
        probe.send(asked("probe"), account("probe"))
        here.wait_hits(4)
        refused = [send(quick, here, f"meanwhile {number}", f"m{number}") for number in range(4)]
        assert {reason(answer) for answer in refused} == {"breaker_probing"}
        assert all(1 <= (answer.retry_after or 0) <= 59 for answer in refused)
        assert len(here.hits) == 4
        gate.open()
        assert probe.answer().body == b"".join(anthropic("probe"))
    assert send(quick, here, "after", "after").status == 200


def test_of_many_that_come_at_once_after_the_window_one_reaches_the_upstream(quick: Proxy, place: Places) -> None:
    here = place()
    until_over(strike(quick, here)[-1])
    gate = Gate()
    here.then(streamed([gate, *anthropic("probe")]))
    with ThreadPoolExecutor(8) as pool:
        waiting = [pool.submit(send, quick, here, f"n {number}", f"n{number}") for number in range(8)]
        here.wait_hits(4)
        deadline = time.monotonic() + 10
        while sum(future.done() for future in waiting) < 7:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert len(here.hits) == 4
        gate.open()
    assert sorted(future.result().status for future in waiting) == [200] + [529] * 7


def test_a_challenged_probe_opens_it_again(quick: Proxy, place: Places) -> None:
    here = place()
    until_over(strike(quick, here)[-1])
    here.then(CHALLENGE)
    probe = send(quick, here, "probe", "probe")
    assert (probe.status, probe.retry_after) == (529, OPEN_SECONDS)
    assert reason(send(quick, here, "next", "next")) == "breaker_open"
    assert len(here.hits) == 4
    until_over(probe)
    here.then(ANSWER)
    assert send(quick, here, "probe again", "probe").status == 200


ENDS: dict[str, Reply] = {
    "a caller error": whole({"error": {"code": "1210", "message": "bad"}}, 400),
    "a quota": whole({"error": {"code": "1113", "message": "Insufficient balance"}}, 429),
    "a server error": whole({"error": {"message": "no"}}, 500),
    "an overload": whole(OVERLOAD_1305, 429),
    "nothing": Reply(framing="length"),
    "a cut": streamed([b": keep-alive\n\n"], end="cut"),
    "an abort": streamed([], end="abort"),
    "no answer": Reply(framing="raw", chunks=[]),
}


@pytest.mark.parametrize("end", ENDS)
def test_a_probe_that_ends_in_any_other_way_hands_over_to_the_very_next_request(quick: Proxy, place: Places, end: str) -> None:
    here = place()
    until_over(strike(quick, here)[-1])
    here.then(ENDS[end], ANSWER)
    send(quick, here, "probe", "probe")
    assert send(quick, here, "next", "next").status == 200
    assert len(here.hits) == 5


@pytest.mark.parametrize("when", ["before the headers", "during the hold"])
def test_a_probe_whose_client_leaves_hands_over_to_the_very_next_request(quick: Proxy, place: Places, when: str) -> None:
    here, gate = place(), Gate()
    until_over(strike(quick, here)[-1])
    hung = Reply(before=Gate()) if when == "before the headers" else streamed([gate], end="hang")
    here.then(hung, ANSWER)
    probe = Connection(quick, here.url(MESSAGES))
    probe.send(asked("probe"), account("probe"))
    hit = here.wait_hits(4)[3]
    if when == "during the hold":
        gate.wait_reached()
    probe.close()
    here.wait_left(hit)
    assert send(quick, here, "next", "next").status == 200


def test_a_request_from_before_the_opening_closes_nothing(guarded: Proxy, place: Places) -> None:
    here, gate = place(), Gate()
    here.then(streamed([gate, *anthropic("old")]))
    with Connection(guarded, here.url(MESSAGES)) as old:
        old.send(asked("old"), account("old"))
        here.wait_hits(1)
        strike(guarded, here)
        gate.open()
        assert old.answer().status == 200
    assert reason(send(guarded, here, "next", "next")) == "breaker_open"


def test_the_same_request_is_refused_here_until_its_wait_is_over_and_then_told_a_longer_one(
    quick: Proxy, place: Places
) -> None:
    here = place().then(CHALLENGE, CHALLENGE, ANSWER)
    first = send(quick, here, "same")
    again = send(quick, here, "same")
    assert (again.status, reason(again)) == (529, "remembered_wait")
    assert len(here.hits) == 1
    until_over(first)
    second = send(quick, here, "same")
    assert (first.retry_after, second.retry_after) == (1, 2)
    until_over(second)
    assert send(quick, here, "same").status == 200
    assert len(here.hits) == 3


def test_other_requests_of_the_account_are_not_held_to_that_wait(guarded: Proxy, place: Places) -> None:
    here = place().then(CHALLENGE, ANSWER)
    assert send(guarded, here, "same").status == 529
    assert send(guarded, here, "different").status == 200


def test_a_blocked_account_is_refused_here_and_no_other(guarded: Proxy, place: Places) -> None:
    blocked = whole({"code": 3012, "msg": "request has been blocked due to unusual activity"}, 405)
    here = place("zcode").then(blocked, ANSWER)
    first = send(guarded, here, "one", "blocked", ZCODE)
    assert (first.status, first.retry_after) == (529, 59)
    second = send(guarded, here, "two", "blocked", ZCODE)
    assert (second.status, reason(second)) == (529, "account_blocked")
    assert len(here.hits) == 1
    assert send(guarded, here, "two", "innocent", ZCODE).status == 200


@pytest.fixture
def patient(proxies: Proxies) -> Proxy:
    """Re-sends at once, and takes what comes within ten seconds of an answer for a replay."""
    return proxies({"replay": {"base_seconds": 0, "gap_seconds": 10}})


def session(proxy: Proxy, here: Place, path: str, port: int | None = None) -> Callable[[str], Answer]:
    """A session that has just had an answer; sends its next requests."""
    scheme = "https" if port else "http"

    def follow(text: str) -> Answer:
        return ask(proxy, here.url(path, scheme, port), asked(text, system="one session"), account(here.host))

    here.then(ANSWER)
    assert follow("first").status == 200
    return follow


@pytest.mark.parametrize("port", [None, 443, 8443])
@pytest.mark.parametrize("refusal", [whole(CAPTCHA_3007, 400), whole(OVERLOAD_1305, 429)], ids=["3007", "1305"])
def test_a_refused_replay_is_sent_again_in_place(patient: Proxy, place: Places, port: int | None, refusal: Reply) -> None:
    here = place("zcode")
    follow = session(patient, here, ZCODE, port)
    here.then(refusal, refusal, ANSWER)
    answer = follow("second")
    assert (answer.status, answer.body) == (200, b"".join(anthropic("one")))
    assert len(here.hits) == 4
    assert len({hit.body for hit in here.hits[1:]}) == 1


def test_after_the_last_attempt_the_client_is_told_how_many_there_were(patient: Proxy, place: Places) -> None:
    here = place("zcode")
    follow = session(patient, here, ZCODE)
    here.then(*[whole(CAPTCHA_3007, 400)] * 3)
    answer = follow("second")
    assert answer.status == 529
    assert "3 attempts" in answer.json()["error"]["message"]
    assert len(here.hits) == 4


def test_a_challenge_page_is_never_sent_again(patient: Proxy, place: Places) -> None:
    here = place("zcode")
    follow = session(patient, here, ZCODE)
    here.then(CHALLENGE)
    assert follow("second").status == 529
    assert len(here.hits) == 2


def test_a_resend_over_http2_leaves_the_other_streams_alone(patient: Proxy, place: Places) -> None:
    here, gate = place("zcode"), Gate()
    session(patient, here, ZCODE, 8443)
    here.then(streamed([*anthropic("one")[:3], gate, *anthropic("one")[3:]]), whole(CAPTCHA_3007, 400), ANSWER)
    with H2Connection(patient, here.host) as connection:
        other = connection.open(ZCODE, asked("other", system="another session"), account("other"))
        here.wait_hits(2)
        again = connection.finish(connection.open(ZCODE, asked("second", system="one session"), account(here.host)))
        assert (again.status, again.body) == (200, b"".join(anthropic("one")))
        gate.open()
        assert connection.finish(other).body == b"".join(anthropic("one"))
    assert len(here.hits) == 4


def test_a_client_that_leaves_while_a_resend_waits_stops_it(proxies: Proxies, place: Places) -> None:
    slow = proxies({"replay": {"base_seconds": 1.5, "gap_seconds": 10}})
    here = place("zcode")
    session(slow, here, ZCODE)
    here.then(whole(CAPTCHA_3007, 400)).always(ANSWER)
    mark = slow.log_lines
    connection = Connection(slow, here.url(ZCODE))
    connection.send(asked("second", system="one session"), account(here.host))
    slow.wait_log("sent again", since=mark)
    connection.close()
    assert send(slow, here, "x", "someone else", ZCODE).status == 200
    time.sleep(1.8)  # past the moment at which it would have been sent again
    assert len(here.hits) == 3


def test_observing_changes_nothing_and_says_what_it_would_have_done(proxies: Proxies, place: Places) -> None:
    observer = proxies({"mode": "observe"})
    here, mark = place().always(CHALLENGE), observer.log_lines
    for number in range(5):
        answer = send(observer, here, "same", f"o{number}")
        assert (answer.status, answer.body) == (200, event(MTOP))
    assert len(here.hits) == 5
    assert here.host in observer.log_since(mark)


def test_an_open_breaker_on_the_web_wire(guarded: Proxy, place: Places) -> None:
    here = place("qwen-web")
    strike(guarded, here, path=QWEN_WEB)
    refused: Any = send(guarded, here, "x", path=QWEN_WEB)
    assert (refused.status, reason(refused)) == (503, "breaker_open")
    assert here.then(streamed(qwen_web())).hits == here.hits


def test_a_whole_answer_clears_strikes_as_a_stream_does(guarded: Proxy, place: Places) -> None:
    here = place()
    strike(guarded, here, 2)
    here.then(whole(anthropic_message()))
    assert send(guarded, here, "fine", "fine").status == 200
    assert [answer.retry_after for answer in strike(guarded, here, 2)] != [59, 59]
