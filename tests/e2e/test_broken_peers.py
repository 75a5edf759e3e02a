"""Peers that break off, half speak HTTP, or are other proxies and addons: no answer is lost, doubled or made up."""

from __future__ import annotations

import gzip
import importlib.util
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.e2e.conftest import QUICK, Proxies
from tests.e2e.lab.client import Answer, Connection, ask
from tests.e2e.lab.client_h2 import H2Connection
from tests.e2e.lab.proxy import LAB, Proxy
from tests.e2e.lab.script import Gate, Place, Reply
from tests.e2e.lab.wires import (
    COMPLETIONS,
    HTML,
    JSON,
    MTOP,
    PAGE,
    SSE,
    account,
    asked,
    compact,
    openai,
    openai_message,
    page,
    streamed,
    whole,
)

Places = Callable[..., Place]
FRAMES = openai("a", "b")
STREAM, MESSAGE = b"".join(FRAMES), compact(openai_message())
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\n"
NEW_MITMPROXY = importlib.util.find_spec("mitmproxy.contentviews._api") is not None
"""12.x: it has `store_streamed_bodies`."""


def chunked(body: bytes) -> bytes:
    pieces = [body[at : at + 40] for at in range(0, len(body), 40)]
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


def raw(kind: tuple[str, str], body: bytes, framing: str, more: bytes = b"") -> bytes:
    head = HEAD % kind[1].encode() + more
    if framing == "chunked":
        return head + b"transfer-encoding: chunked\r\n\r\n" + chunked(body)
    return head + b"content-length: %d\r\n\r\n" % len(body) + body


CUT = {
    "a stream": (raw(SSE, STREAM, "chunked"), STREAM),
    "a message": (raw(JSON, MESSAGE, "length"), MESSAGE),
    "an encoded message": (
        raw(JSON, gzip.compress(MESSAGE, mtime=0), "chunked", b"content-encoding: gzip\r\n"),
        gzip.compress(MESSAGE, mtime=0),
    ),
}
CHALLENGES = {
    "a page": raw(HTML, PAGE, "length"),
    "a page in chunks": raw(HTML, PAGE, "chunked"),
    "an object": raw(JSON, compact(MTOP), "length"),
    "a frame": raw(SSE, b"data: " + compact(MTOP) + b"\n\n", "chunked"),
}


@pytest.fixture
def open_handed(proxies: Proxies) -> Proxy:
    """No breaker, so that a test can be challenged as often as it likes."""
    return proxies({**QUICK, "breaker": {"open_seconds": 0}})


def cut(wire: bytes, at: int) -> Reply:
    return Reply(framing="raw", chunks=[wire[:at]], end="abort" if at % 2 else "cut")


@pytest.mark.parametrize("name", CUT)
def test_an_answer_that_breaks_off_anywhere_is_a_502_or_a_visible_cut(open_handed: Proxy, place: Places, name: str) -> None:
    wire, body = CUT[name]
    here = place()
    for at in range(0, len(wire), 13):
        answer = ask(open_handed, here.then(cut(wire, at)).url(COMPLETIONS), asked(f"{at}"), account(f"{at}"))
        assert (answer.status == 502) or (answer.status == 200 and not answer.whole and body.startswith(answer.body)), at
    answer = ask(open_handed, here.then(cut(wire, len(wire))).url(COMPLETIONS), asked(), account("end"))
    assert (answer.status, answer.body, answer.whole) == (200, body, True)


@pytest.mark.parametrize("name", CHALLENGES)
def test_a_challenge_that_breaks_off_anywhere_is_never_an_answer(open_handed: Proxy, place: Places, name: str) -> None:
    wire = CHALLENGES[name]
    here, told = place(), []
    for at in [*range(0, len(wire), 11), len(wire)]:
        answer = ask(open_handed, here.then(cut(wire, at)).url(COMPLETIONS), asked(f"{at}"), account(f"{at}"))
        told.append(answer.status)
        assert answer.status in (502, 503) or not answer.whole, at
    assert told[-1] == 503
    assert told == sorted(told, key=lambda status: status == 503), "once its markers have come it is the challenge"


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_an_old_client_gets_what_bare_mitmproxy_gives_it(guarded: Proxy, bare: Proxy, place: Places, version: str) -> None:
    def told(proxy: Proxy) -> bytes:
        here = place().then(streamed(FRAMES))
        with Connection(proxy, here.url(COMPLETIONS)) as client:
            body = asked()
            head = f"POST {here.url(COMPLETIONS)} HTTP/{version}\r\nhost: {here.host}\r\nconnection: close\r\n"
            client.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
            answer = client.head()
            raw_bytes = answer.raw
            while data := client._socket.recv(65536):
                client._buffer += data
            return raw_bytes + client._buffer

    assert told(guarded) == told(bare)


def test_pipelined_requests_are_answered_in_their_order(open_handed: Proxy, place: Places) -> None:
    here = place().then(whole(openai_message("first")), page(), streamed(FRAMES), whole(openai_message("last")))
    with Connection(open_handed, here.url(COMPLETIONS)) as client:
        for number in range(4):
            client.send(asked(f"{number}"), account(f"pipe{number}"))
        answers = [client.answer() for _ in range(4)]
    assert [answer.status for answer in answers] == [200, 503, 200, 200]
    assert answers[2].body == STREAM


def test_a_body_in_single_bytes_arrives_whole(guarded: Proxy, place: Places) -> None:
    body = compact(openai_message("x" * 20_000))
    one_by_one = b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"
    wire = HEAD % b"application/json" + b"transfer-encoding: chunked\r\n\r\n" + one_by_one
    here = place().then(Reply(framing="raw", chunks=[wire]))
    answer = ask(guarded, here.url(COMPLETIONS), asked(), account(here.host))
    assert (answer.status, answer.body) == (200, body)


def test_a_reader_that_is_slow_gets_every_byte(guarded: Proxy, place: Places) -> None:
    frame = b'data: {"id":"x","choices":[{"delta":{"content":"' + b"y" * (1 << 20) + b'"}}]}\n\n'
    here = place().then(streamed([*FRAMES[:2], *[frame] * 3, FRAMES[-1]]))
    with Connection(guarded, here.url(COMPLETIONS)) as client:
        client.send(asked(), account(here.host))
        answer = client.head()
        time.sleep(0.3)
        client.rest(answer)
    assert answer.body == b"".join(FRAMES[:2]) + frame * 3 + FRAMES[-1]


@pytest.mark.parametrize("port", [443, 8443])
def test_a_connection_of_http2_that_ends_in_the_middle(open_handed: Proxy, place: Places, port: int) -> None:
    here = place().then(streamed(FRAMES[:1], end="abort"), streamed(FRAMES[:3], end="abort"), streamed(FRAMES))
    with H2Connection(open_handed, here.host, port) as client:
        first = client.finish(client.open(COMPLETIONS, asked("1"), account("h2 1")))
        second = client.finish(client.open(COMPLETIONS, asked("2"), account("h2 2")))
        third = client.finish(client.open(COMPLETIONS, asked("3"), account("h2 3")))
    assert (first.status, first.ended) == (502, True)
    assert (second.reset, STREAM.startswith(second.body)) == (True, True)
    assert (third.status, third.body) == (200, STREAM)


def test_interim_answers_end_as_with_bare_mitmproxy(guarded: Proxy, bare: Proxy, place: Places) -> None:
    def told(proxy: Proxy) -> tuple[int, bytes]:
        wire = b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n"
        here = place().then(Reply(framing="raw", chunks=[wire], end="cut"))
        answer = ask(proxy, here.url(COMPLETIONS), asked(), account(here.host))
        return answer.status, answer.body

    assert told(guarded) == told(bare)


# -- other addons ------------------------------------------------------------------------------------------------


@pytest.fixture
def meddled(proxies: Proxies) -> Proxy:
    return proxies({**QUICK, "breaker": {"open_seconds": 0}}, scripts=(LAB / "meddler.py",))


def meddling(proxy: Proxy, here: Place, wish: str) -> Answer:
    return ask(proxy, here.url(COMPLETIONS), asked(wish), [*account(here.host), ("x-lab-meddle", wish)])


@pytest.mark.parametrize("hook", ["requestheaders", "request", "response"])
def test_an_answer_of_another_addon_goes_out_as_it_made_it(meddled: Proxy, place: Places, hook: str) -> None:
    here = place().always(whole(openai_message()))
    answer = meddling(meddled, here, f"answer@{hook}")
    if hook != "response":  # a held answer is on its way by then, as any streamed one
        assert (answer.status, answer.body) == (418, b"meddled")
    assert answer.whole
    assert meddling(meddled, here, "").status == 200


@pytest.mark.parametrize("hook", ["requestheaders", "request", "responseheaders", "response"])
@pytest.mark.parametrize("reply", [streamed(FRAMES), page(), whole(openai_message())], ids=["stream", "page", "message"])
def test_a_flow_that_another_addon_kills_is_over(meddled: Proxy, place: Places, hook: str, reply: Reply) -> None:
    here = place().always(reply)
    with Connection(meddled, here.url(COMPLETIONS)) as client:
        client.send(asked(hook), [*account(here.host), ("x-lab-meddle", f"kill@{hook}")])
        try:
            answer = client.rest(client.head())
        except ConnectionResetError:
            return
    assert hook == "response" and (not answer.whole or answer.status == 200)  # noqa: PT018 - it was out already


def test_a_stream_that_another_addon_rewrites_is_left_to_it(meddled: Proxy, place: Places) -> None:
    here = place().then(streamed(FRAMES))
    assert meddling(meddled, here, "stream@responseheaders").body == STREAM.upper()


def test_a_replay_of_mitmproxys_own_is_judged_and_harms_nothing(meddled: Proxy, place: Places) -> None:
    here = place().always(streamed(FRAMES))
    assert meddling(meddled, here, "replay").body == STREAM
    again = here.wait_hits(2)[1]
    assert again.header("x-lab-replayed") == "1"
    here.wait_finished(again)
    assert meddling(meddled, here, "").body == STREAM


# -- ways to run mitmproxy ---------------------------------------------------------------------------------------

MORE = ["store_streamed_bodies=true"] if NEW_MITMPROXY else []
OPTIONS: dict[str, list[str]] = {
    "eager": ["connection_strategy=eager", "anticomp=true", *MORE],
    "streaming": ["stream_large_bodies=1k", *MORE],
    "bounded": ["body_size_limit=1m"],
}


@pytest.mark.parametrize("name", OPTIONS)
def test_options_of_mitmproxy_change_nothing(proxies: Proxies, place: Places, name: str) -> None:
    proxy = proxies({**QUICK, "breaker": {"open_seconds": 0}}, options=OPTIONS[name])
    for scheme in ("http", "https"):
        assert_serves(proxy, place(), scheme)


def assert_serves(proxy: Proxy, here: Place, scheme: str, url: str = "") -> None:
    """An answer streams, a challenge is told, a large request arrives whole, a replaced one is not remembered wrongly."""
    gate = Gate()
    here.then(streamed([*FRAMES[:3], gate, *FRAMES[3:]]), page(), page(), whole(openai_message()))
    url = url or here.url(COMPLETIONS, scheme)
    with Connection(proxy, url) as client:
        client.send(asked(), account(here.host))
        answer = client.head()
        while len(answer.body) < sum(map(len, FRAMES[:3])):
            assert client.piece(answer)
        gate.open()
        client.rest(answer)
    assert (answer.status, answer.body) == (200, STREAM)
    large = "large " * 2000
    assert ask(proxy, url, asked("small"), account(here.host)).status == 503
    assert ask(proxy, url, asked(large), account(here.host)).status == 503
    answer = ask(proxy, url, asked(large + "again"), account(here.host))
    assert (answer.status, answer.body) == (200, MESSAGE)
    assert here.hits[-1].body == asked(large + "again")


def test_a_large_request_that_streams_is_neither_refused_here_nor_sent_again(proxies: Proxies, place: Places) -> None:
    proxy = proxies({**QUICK, "replay": {"gap_seconds": 60, "base_seconds": 0}}, options=OPTIONS["streaming"])
    here = place()
    large = asked("large " * 2000)
    limited = whole({"error": {"code": "1305", "message": "overloaded"}}, 429)
    here.then(whole(openai_message()), limited, page(), page(), page(), whole(openai_message()))
    statuses = [ask(proxy, here.url(COMPLETIONS), large, account(here.host)).status for _ in range(6)]
    assert statuses == [200, 503, 503, 503, 503, 200]
    assert [hit.body for hit in here.hits] == [large] * 6


def test_in_reverse_mode(proxies: Proxies, place: Places) -> None:
    here = place()
    config: Any = {**QUICK, "breaker": {"open_seconds": 0}}
    proxy = proxies.fresh(config, mode=f"reverse:http://{here.host}", options=["keep_host_header=true"]).start()
    try:
        here.then(streamed(FRAMES), page())
        first, second = (reverse(proxy, here, asked(text)) for text in ("1", "2"))
        assert (first.status, first.body) == (200, STREAM)
        assert (second.status, second.retry_after) == (503, 1)
    finally:
        proxy.stop()


def reverse(proxy: Proxy, here: Place, body: bytes) -> Answer:
    with Connection(proxy, here.url(COMPLETIONS)) as client:
        client.send(body, account(here.host), target=COMPLETIONS)
        return client.answer()


def test_in_front_of_another_proxy(proxies: Proxies, bare: Proxy, place: Places) -> None:
    config: Any = {**QUICK, "breaker": {"open_seconds": 0}}
    proxy = proxies.fresh(config, mode=f"upstream:http://127.0.0.1:{bare.port}").start()
    try:
        for scheme in ("http", "https"):
            assert_serves(proxy, place(), scheme)
    finally:
        proxy.stop()
