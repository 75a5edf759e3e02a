"""A request that comes right after an answer and is refused is sent again, more slowly, before its client sees a status."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.e2e.conftest import Proxies
from tests.e2e.lab import turns
from tests.e2e.lab.client import Connection, ask
from tests.e2e.lab.client_h2 import H2Connection
from tests.e2e.lab.proxy import LAB, Proxy
from tests.e2e.lab.script import Gate, Hit, Reply
from tests.e2e.lab.turns import CONFIG, SLOW, Agent, gaps
from tests.e2e.lab.upstream import Upstream
from tests.e2e.lab.wires import (
    CAPTCHA_3007,
    COMPLETIONS,
    JSON,
    MESSAGES,
    MTOP,
    OVERLOAD_1305,
    QWEN_WEB,
    RATE_LIMIT_1302,
    ZCODE,
    account,
    anthropic,
    asked,
    compact,
    event,
    openai,
    page,
    qwen_web,
    streamed,
    whole,
)

BASE = CONFIG["replay"]["base_seconds"]
LATE = 4.0
"""Seconds by which a loaded machine may be late."""

PATHS = {"zai": MESSAGES, "dashscope": "/apps/anthropic/v1/messages", "web": QWEN_WEB}
REFUSED = whole(CAPTCHA_3007, 400)
ANSWER = anthropic("one", "two")
BLOCKED = whole({"code": 3012, "msg": "Your request has been blocked due to unusual activity"}, 405)
MARKED = whole({"error": {"type": "gateway", "message": "risk control: verify failed, try again"}}, 400)

Agents = Callable[..., Agent]


@pytest.fixture(scope="module")
def proxy(proxies: Proxies) -> Proxy:
    return proxies(CONFIG, scripts=[LAB / "ended.py"])


@pytest.fixture
def agent(proxy: Proxy, upstream: Upstream) -> Agents:
    """An agent at an upstream that no other test uses; where `warm`, it has just been answered."""

    def make(kind: str = "zcode", *, warm: bool = True, **more: Any) -> Agent:
        made = Agent(proxy, turns.place(upstream, kind), PATHS.get(kind, ZCODE), **more)
        return made.answered() if warm else made

    return make


def row(proxy: Proxy, name: str) -> dict[str, Any]:
    """What status.json says of an upstream."""
    status = json.loads(ask(proxy, "http://breakwater.internal/status.json", method="GET").body)
    found: dict[str, Any] = next(one for one in status["upstreams"] if one["name"] == name)
    return found


REFUSALS = {
    "zcode 3007": ("zcode", REFUSED),
    "zcode 3007 in a 200": ("zcode", whole(CAPTCHA_3007)),
    "zcode concurrency": ("zcode", whole({"code": 3009, "msg": "model concurrency limit exceeded"}, 429)),
    "a rate limit": ("zai", whole(RATE_LIMIT_1302, 429)),
    "a rate limit in a 200": ("zai", whole(RATE_LIMIT_1302)),
    "a rate limit as a first frame": ("zai", streamed([event(RATE_LIMIT_1302)])),
    "a rate limit after preamble": ("zai", streamed([ANSWER[0], event({"type": "ping"}), event(RATE_LIMIT_1302)])),
    "a rate limit in a stream that never ends": ("zai", streamed([event(RATE_LIMIT_1302)], end="hang")),
    "an overload": ("zai", whole(OVERLOAD_1305, 429)),
    "a bare 429": ("dashscope", Reply(429)),
    "a server error": ("dashscope", whole({"code": "InternalError", "message": "internal error"}, 500)),
    "a page of a gateway": (
        "zai",
        Reply(502, headers=[("content-type", "text/html")], chunks=[b"<html>Bad Gateway</html>"]),
    ),
    "a marked 400": ("zai", MARKED),
    "a refusal that closes the connection": ("zcode", whole(CAPTCHA_3007, 400, keep=False)),
    "a refusal up to the end of the connection": ("zcode", whole(CAPTCHA_3007, 400, framing="close")),
}


@pytest.mark.parametrize("form", REFUSALS)
def test_a_refused_replay_is_answered_in_place(agent: Agents, form: str) -> None:
    kind, refusal = REFUSALS[form]
    here = agent(kind)
    here.place.then(refusal, streamed(ANSWER))
    answer = here.turn()
    assert (answer.status, answer.body, answer.whole) == (200, b"".join(ANSWER), True)
    assert len(here.sends) == 2


@pytest.mark.parametrize(("scheme", "port"), [("http", None), ("https", None), ("https", 8443)])
def test_the_second_send_has_the_same_bytes_and_headers(agent: Agents, scheme: str, port: int | None) -> None:
    here = agent(
        scheme=scheme, port=port, more=[("X-Odd-Case", "kept"), ("accept-encoding", "zstd"), ("x-b", "1"), ("x-b", "2")]
    )
    here.place.then(REFUSED, streamed(ANSWER))
    body = b'{ "model":"glm-5.2",\t"stream" : true, "messages":[{"role":"user","content":"\\u4f60 \xe5\xa5\xbd"}] }'
    assert here.send(body).body == b"".join(ANSWER)
    first, second = here.sends
    assert first.body == second.body == body
    assert first.headers == second.headers
    assert (first.method, first.path) == (second.method, second.path)
    assert first.protocol == ("2" if port else "1.1")
    known = {name.lower() for name, _ in here.headers} | {"host", "content-length"}
    assert {name.decode().lower() for name, _ in second.headers if not name.startswith(b":")} <= known


@pytest.mark.parametrize(("scheme", "port"), [("http", None), ("https", None), ("https", 8443)])
def test_the_answer_to_a_second_send_streams_as_it_comes(agent: Agents, scheme: str, port: int | None) -> None:
    gates = [Gate(), Gate()]
    here = agent(scheme=scheme, port=port)
    here.place.then(REFUSED, streamed([*ANSWER[:3], gates[0], ANSWER[3], gates[1], *ANSWER[4:]]))
    with here.connection() as connection:
        connection.send(asked("next"), here.headers)
        answer = connection.head()
        while len(answer.body) < len(b"".join(ANSWER[:3])):
            connection.piece(answer)
        gates[0].open()
        assert connection.piece(answer) == ANSWER[3]
        gates[1].open()
        connection.rest(answer)
    assert (answer.status, answer.body, answer.whole) == (200, b"".join(ANSWER), True)
    assert answer.header("x-breakwater") is None
    assert len(here.sends) == 2


@pytest.mark.parametrize(
    ("kind", "path", "refusal", "frames"),
    [("zai", COMPLETIONS, whole(RATE_LIMIT_1302, 429), openai("x")), ("web", QWEN_WEB, Reply(429), qwen_web("x"))],
)
def test_other_wires_are_sent_again_too(agent: Agents, kind: str, path: str, refusal: Reply, frames: list[bytes]) -> None:
    here = agent(kind, warm=False)
    here.path = path
    here.answered(streamed(frames))
    here.place.then(refusal, streamed(frames))
    assert here.turn().body == b"".join(frames)
    assert len(here.sends) == 2


def test_an_http2_client_gets_the_answer_of_the_second_send(proxy: Proxy, agent: Agents) -> None:
    here = agent(scheme="https", port=8443)
    here.place.then(REFUSED, streamed(ANSWER))
    with H2Connection(proxy, here.place.host) as connection:
        stream = connection.finish(connection.open(ZCODE, asked("next"), here.headers))
    assert (stream.status, stream.body, stream.ended) == (200, b"".join(ANSWER), True)
    assert len(here.sends) == 2


@pytest.mark.parametrize(("scheme", "port"), [("http", None), ("https", None), ("https", 8443)])
def test_three_refusals_are_three_sends_and_an_honest_529(proxy: Proxy, agent: Agents, scheme: str, port: int | None) -> None:
    mark = proxy.log_lines
    here = agent(scheme=scheme, port=port)
    here.place.then(REFUSED, REFUSED, REFUSED)
    answer = here.turn()
    assert (answer.status, answer.retry_after, answer.header("x-breakwater")) == (529, 1, "challenge_captcha")
    error = answer.json()["error"]
    assert error["type"] == "overloaded_error"
    assert "after 3 attempts" in error["message"]
    assert "3007" in error["message"]
    first, second = gaps(here.sends)
    assert len(here.sends) == 3
    assert BASE * 0.9 < first < BASE + LATE
    assert 2 * BASE * 0.9 < second < 2 * BASE + LATE
    known = row(proxy, here.place.host)
    assert (known["state"], known["strikes"], known["sent"]) == ("closed", 1, 4)
    lines = [line for line in proxy.log_since(mark).split("\n") if here.place.host in line and "sent again" in line]
    assert [line.rpartition("sent again ")[2].partition(" (")[0] for line in lines] == [
        "in 0.2 s, attempt 2 of 3",
        "in 0.4 s, attempt 3 of 3",
    ]
    assert all("zcode:3007" in line for line in lines)


def test_a_last_refusal_that_is_no_challenge_keeps_its_status_and_says_the_attempts(agent: Agents) -> None:
    here = agent("zai")
    refusal = whole(RATE_LIMIT_1302, 429)
    here.place.then(refusal, refusal, refusal)
    answer = here.turn()
    assert (answer.status, answer.body) == (429, compact(RATE_LIMIT_1302))
    assert answer.header("x-breakwater") == "rate_limit; after 3 attempts"
    assert len(here.sends) == 3


def test_a_third_send_can_be_the_answered_one(agent: Agents) -> None:
    here = agent("zai")
    here.place.then(whole(RATE_LIMIT_1302, 429), whole(OVERLOAD_1305, 529), streamed(ANSWER))
    assert here.turn().body == b"".join(ANSWER)
    assert len(here.sends) == 3


def test_another_kind_of_refusal_ends_the_attempts(agent: Agents) -> None:
    here = agent("zai")
    here.place.then(whole(RATE_LIMIT_1302, 429), page(), streamed(ANSWER))
    answer = here.turn()
    assert (answer.status, answer.header("x-breakwater")) == (529, "challenge_captcha")
    assert "after 2 attempts" in answer.json()["error"]["message"]
    assert len(here.sends) == 2


def test_a_short_wait_of_the_upstream_is_respected(agent: Agents) -> None:
    here = agent("zai")
    here.place.then(Reply(429, headers=[JSON, ("Retry-After", "1")], chunks=[compact(RATE_LIMIT_1302)]), streamed(ANSWER))
    assert here.turn().status == 200
    assert gaps(here.sends)[0] >= 0.95


HONEST = Reply(529, headers=[JSON, ("Retry-After", "1")], chunks=[compact(OVERLOAD_1305)])


def test_an_overload_that_is_told_truthfully_is_sent_again_all_the_same(agent: Agents) -> None:
    here = agent("zai")
    here.place.then(HONEST, streamed(ANSWER))
    assert here.turn().body == b"".join(ANSWER)
    assert len(here.sends) == 2
    assert gaps(here.sends)[0] >= 0.95


def test_an_overload_that_is_told_truthfully_each_time_passes_and_says_the_attempts(agent: Agents) -> None:
    here = agent("zai")
    here.place.then(HONEST, HONEST, HONEST)
    answer = here.turn()
    assert (answer.status, answer.retry_after, answer.body) == (529, 1, compact(OVERLOAD_1305))
    assert answer.header("x-breakwater") == "overload; after 3 attempts"
    assert len(here.sends) == 3


@pytest.mark.parametrize("kind", ["once", "zai"])
def test_an_overload_that_is_told_truthfully_and_is_not_sent_again_passes_untouched(agent: Agents, kind: str) -> None:
    here = agent(kind, warm=kind == "once")
    sent = len(here.place.hits)
    here.place.then(HONEST).always(streamed(ANSWER))
    answer = here.turn()
    assert (answer.status, answer.retry_after, answer.header("x-breakwater")) == (529, 1, None)
    assert answer.body == compact(OVERLOAD_1305)
    assert len(here.place.hits) == sent + 1


def test_a_refusal_that_another_breakwater_has_told_is_sent_once(agent: Agents) -> None:
    here = agent("zai")
    told = [JSON, ("Retry-After", "1"), ("X-Breakwater", "overload")]
    here.place.then(Reply(529, headers=told, chunks=[compact(OVERLOAD_1305)])).always(streamed(ANSWER))
    answer = here.turn()
    assert (answer.status, answer.header("x-breakwater")) == (529, "overload")
    assert len(here.sends) == 1


def test_a_base_of_zero_does_not_wait(agent: Agents) -> None:
    here = agent("nowait")
    here.place.then(REFUSED, REFUSED, streamed(ANSWER))
    assert here.turn().status == 200
    assert len(here.sends) == 3
    assert sum(gaps(here.sends)) < LATE


ONE_SEND = {
    "3012": ("zcode", BLOCKED, 529),
    "a captcha page": ("zai", page(), 529),
    "a captcha page with an error status": ("zai", page(403), 529),
    "a captcha frame": ("zai", streamed([event(MTOP)]), 529),
    "a captcha body": ("zai", whole(MTOP), 529),
    "an overflow": ("zai", whole({"error": {"code": "1261", "message": "Prompt exceeds max length"}}, 400), 400),
    "an overflow that says try again": (
        "dashscope",
        whole({"code": "InvalidParameter", "message": "Range of input length should be [1, 98304], try again"}, 400),
        400,
    ),
    "a quota": ("zai", whole({"error": {"code": "1308", "message": "Usage limit reached for 5 hour"}}, 429), 429),
    "an account": ("zai", whole({"error": {"code": "1113", "message": "Insufficient balance, try again"}}, 429), 429),
    "a wrong key": ("zai", whole({"error": {"code": "1000", "message": "Authentication Failed"}}, 401), 401),
    "a filter": ("zai", whole({"error": {"code": "1301", "message": "sensitive content"}}, 400), 400),
    "a plain 400": ("zai", whole({"error": {"code": "1210", "message": "invalid parameter"}}, 400), 400),
    "a plain 404": ("dashscope", whole({"error": {"message": "no such model", "type": "not_found"}}, 404), 404),
    "a wait of 11 seconds": (
        "zai", Reply(429, headers=[JSON, ("Retry-After", "11")], chunks=[compact(RATE_LIMIT_1302)]), 429,
    ),
    "no re-sends configured": ("once", REFUSED, 529),
    "no captcha re-sends configured": ("nocaptcha", REFUSED, 529),
    "a connection that breaks before an answer": ("zai", Reply(framing="raw", end="abort"), 502),
    "a connection that breaks in an answer": ("zai", streamed([ANSWER[0]], end="abort"), 502),
}  # fmt: skip


@pytest.mark.parametrize("form", ONE_SEND)
def test_what_a_slower_try_cannot_cure_is_sent_once(agent: Agents, form: str) -> None:
    kind, refusal, status = ONE_SEND[form]
    here = agent(kind)
    here.place.then(refusal).always(streamed(ANSWER))
    answer = here.turn()
    assert answer.status == status, answer.body
    assert b"attempts" not in answer.raw
    assert len(here.sends) == 1


def test_a_refusal_after_the_first_answer_frame_is_sent_once(agent: Agents) -> None:
    here = agent("zai")
    here.place.then(streamed([*ANSWER[:3], event(RATE_LIMIT_1302)])).always(streamed(ANSWER))
    answer = here.turn()
    assert answer.body.startswith(b"".join(ANSWER[:3]))
    assert b"retry_after" in answer.body
    assert len(here.sends) == 1


def test_a_one_time_token_is_sent_once_and_its_client_told(agent: Agents) -> None:
    here = agent()
    here.place.then(REFUSED).always(streamed(ANSWER))
    answer = here.send(asked("next"), [("X-Aliyun-Captcha-Verify-Param", "token-of-one-use")])
    assert answer.status == 529
    assert "one-time captcha token" in answer.json()["error"]["message"]
    assert b"token-of-one-use" not in answer.raw
    assert len(here.sends) == 1
    assert "token-of-one-use" not in here.proxy.log


def test_the_probe_of_a_breaker_is_sent_once(agent: Agents) -> None:
    here = agent("fragile")
    here.place.then(whole(MTOP))
    assert here.turn("challenged").status == 529
    time.sleep(0.4)
    here.place.then(REFUSED).always(streamed(ANSWER))
    assert here.turn("the probe").header("x-breakwater") == "challenge_captcha"
    assert len(here.sends) == 2


def test_a_second_round_within_a_minute_is_sent_once(agent: Agents) -> None:
    here = agent("zai")
    here.place.then(whole(RATE_LIMIT_1302, 429), streamed(ANSWER))
    assert here.turn("the same").status == 200
    here.place.then(whole(RATE_LIMIT_1302, 429)).always(streamed(ANSWER))
    answer = here.turn("the same")
    assert (answer.status, answer.body) == (429, compact(RATE_LIMIT_1302))
    assert len(here.sends) == 3
    here.place.then(whole(RATE_LIMIT_1302, 429))
    assert here.turn("another").status == 200
    assert len(here.sends) == 5


def test_a_first_request_is_sent_once(agent: Agents) -> None:
    here = agent(warm=False)
    here.place.then(REFUSED).always(streamed(ANSWER))
    assert here.turn().status == 529
    assert len(here.place.hits) == 1


@pytest.mark.parametrize(
    "other",
    [
        {"name": "other"},
        {"more": [("x-session-id", "another")]},
        {"text": {"system": "You are another agent."}},
        {"text": {"model": "glm-5"}},
    ],
    ids=["account", "session id", "system prompt", "model"],
)
def test_another_session_right_after_is_sent_once(proxy: Proxy, agent: Agents, other: dict[str, Any]) -> None:
    here = agent()
    asked_more = other.get("text", {})
    rival = Agent(proxy, here.place, ZCODE, **{key: value for key, value in other.items() if key != "text"})
    here.place.then(REFUSED).always(streamed(ANSWER))
    assert rival.turn("next", **asked_more).status == 529
    assert len(here.sends) == 1


def test_a_human_paced_turn_is_sent_once(agent: Agents) -> None:
    here = agent("human")
    time.sleep(0.4)
    here.place.then(REFUSED).always(streamed(ANSWER))
    assert here.turn().status == 529
    assert len(here.sends) == 1


def test_a_side_request_is_no_replay_and_no_previous_answer(agent: Agents) -> None:
    here = agent()
    here.place.then(REFUSED).always(streamed(ANSWER))
    assert here.turn("a title", tools=[], max_tokens=20).status == 529
    assert len(here.sends) == 1

    other = agent(warm=False)
    other.place.then(streamed(ANSWER))
    assert other.turn("a title", tools=[], max_tokens=20).status == 200
    other.place.then(REFUSED).always(streamed(ANSWER))
    assert other.turn().status == 529
    assert len(other.place.hits) == 2


def test_the_status_line_waits_until_the_second_send_is_answered(agent: Agents) -> None:
    gate, here = Gate(), agent()
    here.place.then(REFUSED, streamed(ANSWER, before=gate))
    with here.connection() as connection:
        connection.send(asked("next"), here.headers)
        here.place.wait_hits(3)
        assert connection.silent_for(0.1)
        gate.open()
        assert connection.answer().body == b"".join(ANSWER)


def sent_again_after(proxy: Proxy, mark: int) -> None:
    proxy.wait_log("attempt 2 of 3", since=mark)


def gone_at_once(proxy: Proxy, here: Agent, mark: int) -> None:
    left = time.monotonic()
    proxy.wait_log(f"lab: ended {here.place.host}", since=mark)
    assert time.monotonic() - left < SLOW / 2


def leaves(proxy: Proxy, here: Agent, leave: Callable[[Connection], None], waits: str) -> None:
    """Ask, and go once the log says that the next send waits."""
    mark = proxy.log_lines
    connection = here.connection()
    connection.send(asked("next"), here.headers)
    proxy.wait_log(waits, since=mark)
    leave(connection)
    gone_at_once(proxy, here, mark)


def cancels(proxy: Proxy, here: Agent) -> None:
    """The same with one stream of an HTTP/2 connection, on which others go on."""
    mark = proxy.log_lines
    with H2Connection(proxy, here.place.host) as connection:
        number = connection.open(ZCODE, asked("next"), here.headers)
        sent_again_after(proxy, mark)
        connection.cancel(number)
        gone_at_once(proxy, here, mark)
        other = connection.finish(connection.open(ZCODE, asked("more"), account("someone")))
    assert (other.status, other.body) == (200, b"".join(ANSWER))


def test_a_client_that_leaves_during_a_wait_is_gone_at_once_and_nothing_is_sent(proxy: Proxy, agent: Agents) -> None:
    seen: list[tuple[Agent, int]] = []
    for leave in (Connection.close, Connection.reset):
        for more in ({}, {"scheme": "https"}, {"scheme": "https", "port": 8443}):
            here = agent("slow", **more)
            here.place.then(REFUSED).always(streamed(ANSWER))
            leaves(proxy, here, leave, "attempt 2 of 3")
            seen.append((here, 1))
        here = agent("patient")
        here.place.always(streamed(ANSWER))
        leaves(proxy, here, leave, "paced: sent")
        seen.append((here, 0))
    here = agent("slow", scheme="https", port=8443)
    here.place.then(REFUSED).always(streamed(ANSWER))
    cancels(proxy, here)
    seen.append((here, 2))
    time.sleep(SLOW + 0.2)
    assert [(len(here.sends), here.place.host) for here, _ in seen] == [(sends, here.place.host) for here, sends in seen]


def test_a_client_that_leaves_while_the_second_send_is_out_cancels_it(agent: Agents) -> None:
    here = agent()
    here.place.then(REFUSED, streamed(ANSWER, before=Gate()))
    connection = here.connection()
    connection.send(asked("next"), here.headers)
    second = here.place.wait_hits(3)[2]
    left = time.monotonic()
    connection.close()
    assert here.place.wait_left(second) - left < 1


def test_a_breaker_that_opens_meanwhile_stops_the_attempts(proxy: Proxy, agent: Agents) -> None:
    here = agent("waiting")
    mark = proxy.log_lines
    here.place.then(REFUSED, whole(MTOP)).always(streamed(ANSWER))
    with here.connection() as connection:
        connection.send(asked("next"), here.headers)
        sent_again_after(proxy, mark)
        assert Agent(proxy, here.place, ZCODE, "someone").turn().status == 529
        assert row(proxy, here.place.host)["state"] == "open"
        answer = connection.answer()
    assert answer.status == 529
    assert 30 < (answer.retry_after or 0) <= 59  # what is left of the open window
    assert "attempts" not in answer.json()["error"]["message"]
    assert len(here.sends) == 2


def test_a_breaker_that_opens_while_the_second_send_is_out_stops_the_third(proxy: Proxy, agent: Agents) -> None:
    here, gate = agent("brittle"), Gate()
    here.place.then(REFUSED, whole(CAPTCHA_3007, 400, before=gate), whole(MTOP)).always(streamed(ANSWER))
    with here.connection() as connection:
        connection.send(asked("next"), here.headers)
        here.place.wait_hits(3)
        assert Agent(proxy, here.place, ZCODE, "someone").turn().status == 529
        gate.open()
        answer = connection.answer()
    assert answer.status == 529
    assert "after 2 attempts" in answer.json()["error"]["message"]
    assert len(here.sends) == 3


def test_the_connection_of_a_refusal_that_ended_is_used_again(agent: Agents) -> None:
    here = agent()
    here.place.then(REFUSED, streamed(ANSWER))
    here.turn()
    kept = [hit.connection for hit in here.sends]
    closing = agent()
    closing.place.then(whole(CAPTCHA_3007, 400, keep=False), streamed(ANSWER))
    closing.turn()
    first, second = (hit.connection for hit in closing.sends)
    assert first != second
    assert len(set(kept)) == 1


def test_fifty_replays_at_once_are_all_answered(proxy: Proxy, agent: Agents) -> None:
    seen: Counter[str | None] = Counter()
    lock = threading.Lock()

    def reply(hit: Hit) -> Reply:
        with lock:
            seen[hit.header("authorization")] += 1
            return REFUSED if seen[hit.header("authorization")] == 2 else streamed(anthropic(hit.header("x-word") or ""))

    here = agent(warm=False)
    here.place.always(reply)
    crowd = [Agent(proxy, here.place, ZCODE, f"agent{number}", more=[("x-word", f"word{number}")]) for number in range(50)]
    with ThreadPoolExecutor(50) as pool:
        assert {answer.status for answer in pool.map(lambda one: one.turn("first"), crowd)} == {200}
        answers = list(pool.map(lambda one: one.turn("next"), crowd))
    assert [answer.status for answer in answers] == [200] * 50
    assert [answer.body for answer in answers] == [b"".join(anthropic(f"word{number}")) for number in range(50)]
    assert set(seen.values()) == {3}
    known = row(proxy, here.place.host)
    assert (known["state"], known["strikes"], known["sent"]) == ("closed", 0, 150)


class LastWords:
    """An upstream that answers once, refuses once, and is gone: nobody listens any more."""

    def __init__(self, *, silent: bool = False) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self.asked = 0
        self._silent = silent
        """It listens on, and closes each connection without a word."""
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        answer = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n" + b"".join(ANSWER)
        refusal = b"HTTP/1.1 400 No\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n" + compact(CAPTCHA_3007)
        for words in (answer, refusal, *([b""] if self._silent else [])):
            connection, _ = self._listening.accept()
            with connection:
                self._read(connection)
                self.asked += 1
                if words is refusal and not self._silent:
                    self._listening.close()
                connection.sendall(words)
                connection.shutdown(socket.SHUT_WR)
                connection.recv(1)

    def _read(self, connection: socket.socket) -> None:
        data = b""
        while not data.endswith(b"]}"):
            data += connection.recv(65536)

    def close(self) -> None:
        self._listening.close()
        self._thread.join(5)


@pytest.fixture(params=[False, True], ids=["nobody listens", "closed without a word"])
def last_words(request: pytest.FixtureRequest) -> Iterator[LastWords]:
    server = LastWords(silent=request.param)
    yield server
    server.close()


def test_a_second_send_that_reaches_nobody_ends_in_the_honest_529(proxy: Proxy, last_words: LastWords) -> None:
    url = f"http://127.0.0.1:{last_words.port}{ZCODE}"
    who = account(f"last-words-{last_words.port}")
    assert ask(proxy, url, asked("first"), who).status == 200
    answer = ask(proxy, url, asked("next"), who)
    assert (answer.status, answer.header("x-breakwater"), answer.retry_after) == (529, "challenge_captcha", 1)
    assert "attempts" in answer.json()["error"]["message"]
    assert last_words.asked == (3 if last_words._silent else 2)


def test_pacing_delays_a_replay_until_the_gap_and_nothing_else(proxy: Proxy, agent: Agents) -> None:
    mark = proxy.log_lines
    here = agent("paced", warm=False)
    here.place.always(streamed(ANSWER))
    assert here.turn("turn 1").status == 200
    finished = here.place.wait_finished(here.place.hits[0])
    assert here.turn("turn 2").status == 200
    first, second = here.place.hits
    assert 0.55 < second.at - finished < 0.6 + LATE
    assert first.headers == second.headers
    assert Agent(proxy, here.place, ZCODE, "someone").turn("turn 3").status == 200
    assert proxy.log_since(mark).count(f"{here.place.host} paced: sent") == 1
