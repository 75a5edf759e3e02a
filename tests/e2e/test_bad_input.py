"""Upstreams that break the rules of HTTP, SSE, JSON or text: what they send goes on unchanged, and nothing hangs."""

from __future__ import annotations

import gzip
import time
from collections.abc import Callable

import pytest

from tests.e2e.lab.client import Answer, Connection, ask
from tests.e2e.lab.client_h2 import H2Connection
from tests.e2e.lab.proxy import Proxy
from tests.e2e.lab.script import Gate, Place, Reply
from tests.e2e.lab.wires import (
    COMPLETIONS,
    HTML,
    JSON,
    MESSAGES,
    MTOP,
    PAGE,
    SSE,
    account,
    anthropic,
    anthropic_message,
    asked,
    compact,
    openai,
    streamed,
)

Places = Callable[..., Place]
MEGABYTE = 1024 * 1024

BODIES = {
    "invalid UTF-8 in a frame": (SSE, b'data: {"choices":[{"delta":{"content":"\xff\xfe\xc3"}}]}\n\n'),
    "invalid UTF-8 in JSON": (JSON, b'{"type":"message","content":[{"type":"text","text":"\xff\xc3\x28"}]}'),
    "a body that ends inside a character": (JSON, '{"type":"message","content":[{"text":"好'.encode()[:-1]),
    "a frame that ends inside a character": (SSE, 'data: {"choices":[{"delta":{"content":"好'.encode()[:-2]),
    "broken JSON": (JSON, b'{"type":"message","content":[}'),
    "broken JSON in a frame": (SSE, b'data: {"choices":[{"delta":\n\ndata: ]\n\ndata: [DONE]\n\n'),
    "JSON that is nested too deep": (JSON, b"[" * 50_000 + b"]" * 50_000),
    "a number that is too long": (JSON, b'{"code":' + b"9" * 10_000 + b"}"),
    "a bare scalar": (JSON, b"3007"),
    "JSON twice": (JSON, b'{"a":1}{"b":2}'),
    "nothing at all": (JSON, b""),
    "an empty stream": (SSE, b""),
    "only blank lines": (SSE, b"\n" * 5000),
    "only comments": (SSE, b": keep-alive\n\n" * 50),
    "frames that end with CRLF": (SSE, b"".join(openai("a", "b")).replace(b"\n", b"\r\n")),
    "frames that end with CR": (SSE, b"".join(openai("a", "b")).replace(b"\n", b"\r")),
    "a byte order mark before JSON": (JSON, b"\xef\xbb\xbf" + compact(anthropic_message())),
    "a byte order mark before a frame": (SSE, b"\xef\xbb\xbf" + b"".join(openai("a"))),
    "NUL bytes": (SSE, b"data: \x00\x00\n\n" * 3 + b"".join(openai("a"))),
    "a stream without its last blank line": (SSE, b"".join(openai("a"))[:-2]),
    "text under an SSE type": (SSE, b"hello, this is no stream of events"),
    "HTML that is no challenge": (HTML, b"<!doctype html><html><body>captcha</body></html>"),
    "bytes of no known type": (("content-type", "application/octet-stream"), bytes(range(256)) * 20),
    "no content type": (("x-none", "1"), compact(anthropic_message())),
    "an odd content type": (("content-type", "\xff;;=/"), compact(anthropic_message())),
}


def assert_one_line_at_most(proxy: Proxy, mark: int) -> None:
    lines = [line for line in proxy.log_since(mark).splitlines() if "Breakwater" in line]
    assert len(lines) <= 1, lines


@pytest.mark.parametrize("path", [MESSAGES, COMPLETIONS])
@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("framing", ["length", "chunked", "close"])
def test_an_odd_body_passes_unchanged(guarded: Proxy, place: Places, name: str, framing: str, path: str) -> None:
    kind, body = BODIES[name]
    mark = guarded.log_lines
    here = place().then(Reply(headers=[kind], chunks=[body] if body else [], framing=framing))  # type: ignore[arg-type]
    answer = ask(guarded, here.url(path), asked(), account(here.host))
    assert (answer.status, answer.body, answer.whole) == (200, body, True)
    assert answer.header(kind[0]) == kind[1]
    assert len(here.hits) == 1
    assert_one_line_at_most(guarded, mark)


@pytest.mark.parametrize("name", BODIES)
def test_an_odd_body_in_pieces_passes_unchanged_over_http2(guarded: Proxy, place: Places, name: str) -> None:
    kind, body = BODIES[name]
    pieces = [body[start : start + 4096] for start in range(0, len(body), 4096)]
    here = place().then(Reply(headers=[kind], chunks=pieces, framing="chunked"))
    with H2Connection(guarded, here.host) as connection:
        stream = connection.finish(connection.open(MESSAGES, asked(), account(here.host)))
    assert (stream.status, stream.ended, stream.body) == (200, True, body)


@pytest.mark.parametrize("kind", [SSE, JSON, HTML], ids=["sse", "json", "html"])
def test_ten_megabytes_without_an_end_stream_through(guarded: Proxy, place: Places, kind: tuple[str, str]) -> None:
    gate, start = Gate(), {SSE: b"data: ", JSON: b'{"content": "', HTML: b"<html>"}[kind]
    chunks: list[bytes | Gate] = [start + b"x" * MEGABYTE, gate, *[b"x" * MEGABYTE] * 9]
    here = place().then(Reply(headers=[kind], chunks=chunks, framing="chunked"))
    with Connection(guarded, here.url(MESSAGES)) as connection:
        connection.send(asked(), account(here.host))
        answer = connection.head()  # comes although the upstream waits after the first megabyte
        while len(answer.body) < MEGABYTE:
            assert connection.piece(answer)
        gate.open()
        began = time.monotonic()
        connection.rest(answer)
    assert answer.body == start + b"x" * (10 * MEGABYTE)
    assert time.monotonic() - began < 15


@pytest.mark.parametrize("named", ["gzip", "br", "zstd", "deflate", "made-up", "gzip, br"])
@pytest.mark.parametrize("kind", [SSE, JSON], ids=["sse", "json"])
def test_a_wrong_content_encoding_passes_unchanged(guarded: Proxy, place: Places, named: str, kind: tuple[str, str]) -> None:
    mark = guarded.log_lines
    body = b"".join(anthropic("one")) if kind is SSE else compact(anthropic_message())
    here = place().then(Reply(headers=[kind, ("content-encoding", named)], chunks=[body[:50], body[50:]], framing="chunked"))
    answer = ask(guarded, here.url(MESSAGES), asked(), account(here.host))
    assert (answer.status, answer.body, answer.header("content-encoding")) == (200, body, named)
    assert_one_line_at_most(guarded, mark)


def test_a_gzip_body_that_breaks_off_passes_as_far_as_it_goes(guarded: Proxy, place: Places) -> None:
    data = gzip.compress(compact(anthropic_message("x" * 5000)))[:-12]
    here = place().then(Reply(headers=[JSON, ("content-encoding", "gzip")], chunks=[data]))
    answer = ask(guarded, here.url(MESSAGES), asked(), account(here.host))
    assert (answer.status, answer.body) == (200, data)


def test_a_decompression_bomb_passes_without_being_unpacked(guarded: Proxy, place: Places) -> None:
    data = gzip.compress(b'{"content":"' + b"0" * (200 * MEGABYTE) + b'"}', 1)
    here = place().then(Reply(headers=[JSON, ("content-encoding", "gzip")], chunks=[data]))
    began = time.monotonic()
    answer = ask(guarded, here.url(MESSAGES), asked(), account(here.host))
    assert (answer.status, answer.body) == (200, data)
    assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nX-Odd: \xff\xfe\x80\r\nSet-Cookie: a=1\r\nset-cookie: b=2\r\n",
        b"HTTP/1.1 200 \xe5\xa5\xbd\r\ncontent-type: application/json\r\n",
        b"HTTP/1.1 200\r\ncontent-type:application/json\r\nX-Empty:\r\n",
        b"HTTP/1.1 299 Odd\r\ncontent-type: application/json\r\nRetry-After: soon\r\n",
        b"HTTP/1.1 429 No\r\ncontent-type: application/json\r\nRetry-After: \xff\r\n",
        b"HTTP/1.1 503 No\r\ncontent-type: application/json\r\nRetry-After: 99999999999999999999\r\n",
    ],
)
def test_headers_with_odd_bytes_pass_as_bare_mitmproxy_passes_them(
    guarded: Proxy, bare: Proxy, place: Places, head: bytes
) -> None:
    body = b'{"type":"message","content":[]}'
    wire = head + b"content-length: %d\r\n\r\n%b" % (len(body), body)
    here = place().always(Reply(framing="raw", chunks=[wire]))
    expected = ask(bare, here.url(MESSAGES), asked(), account(here.host))
    answer = ask(guarded, here.url(MESSAGES), asked(), account(here.host))
    assert answer.raw == expected.raw
    assert len(here.hits) == 2


def no_body(answer: Answer, status: int) -> None:
    assert (answer.status, answer.body) == (status, b"")


@pytest.mark.parametrize("status", [204, 304])
@pytest.mark.parametrize("kind", [SSE, JSON], ids=["sse", "json"])
def test_an_answer_that_may_not_have_a_body(guarded: Proxy, place: Places, status: int, kind: tuple[str, str]) -> None:
    here = place().then(Reply(status, headers=[kind], framing="none"))
    with Connection(guarded, here.url(MESSAGES)) as connection:
        connection.send(asked(), account(here.host))
        no_body(connection.answer(), status)
        connection.send(asked("again"), account(here.host))
        assert connection.answer().status == 599  # the connection is still good for another request


@pytest.mark.parametrize("path", [MESSAGES, "/", "/api/hello"])
def test_an_answer_to_head(guarded: Proxy, place: Places, path: str) -> None:
    here = place().then(Reply(headers=[JSON, ("content-length", "5000")]))
    answer = ask(guarded, here.url(path), method="HEAD")
    assert (answer.status, answer.header("content-length"), answer.body) == (200, "5000", b"")


def test_a_switch_of_protocols_passes_bytes_both_ways(guarded: Proxy, place: Places) -> None:
    wire = b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: odd\r\n\r\nfirst words"
    here = place().then(Reply(framing="raw", chunks=[wire], end="hang"))
    with Connection(guarded, here.url(MESSAGES)) as connection:
        connection.send(headers=[("connection", "upgrade"), ("upgrade", "odd")], method="GET")
        answer = connection.head()
        assert answer.status == 101
        assert connection.piece(answer) == b"first words"


@pytest.mark.parametrize("path", [MESSAGES, COMPLETIONS])
def test_a_stream_with_a_content_length_passes_unchanged(guarded: Proxy, place: Places, path: str) -> None:
    frames = anthropic("one", "two") if path == MESSAGES else openai("one", "two")
    here = place().then(Reply(headers=[SSE], chunks=frames))
    answer = ask(guarded, here.url(path), asked(), account(here.host))
    assert (answer.status, answer.body) == (200, b"".join(frames))
    assert answer.header("content-length") == str(len(answer.body))


def test_a_challenge_with_a_content_length_is_replaced_whole(guarded: Proxy, place: Places) -> None:
    body = b"data: " + compact(MTOP) + b"\n\n"
    here = place().then(Reply(headers=[SSE], chunks=[body]))
    answer = ask(guarded, here.url(MESSAGES), asked(), account(here.host))
    assert answer.status == 529
    assert answer.header("content-length") == str(len(answer.body))


@pytest.mark.parametrize("end", ["cut", "abort"])
def test_a_stream_that_is_cut_after_its_commit_stays_a_cut(guarded: Proxy, place: Places, end: str) -> None:
    frames = anthropic("one", "two")[:3]
    here = place().then(streamed(frames, end=end))
    answer = ask(guarded, here.url(MESSAGES), asked(), account(here.host))
    assert (answer.status, answer.whole) == (200, False)
    assert b"".join(frames).startswith(answer.body)


@pytest.mark.parametrize("end", ["cut", "abort"])
@pytest.mark.parametrize(("path", "kind"), [(MESSAGES, "api_error"), (COMPLETIONS, "server_error")])
def test_a_cut_with_nothing_but_preamble_is_a_real_502_in_the_dialect(
    guarded: Proxy, place: Places, end: str, path: str, kind: str
) -> None:
    here = place().then(streamed([b": keep-alive\n\n"], end=end))
    answer = ask(guarded, here.url(path), asked(), account(here.host))
    assert (answer.status, answer.retry_after, answer.whole) == (502, None, True)
    assert answer.json()["error"]["type"] == kind


def test_an_upstream_that_closes_without_an_answer_is_a_502(guarded: Proxy, place: Places) -> None:
    here = place().then(Reply(framing="raw", chunks=[]))
    assert ask(guarded, here.url(MESSAGES), asked(), account(here.host)).status == 502


def test_an_upstream_that_cannot_be_reached_is_a_502(guarded: Proxy, place: Places) -> None:
    here = place()
    assert ask(guarded, here.url(MESSAGES, port=9), asked(), account(here.host)).status == 502


def test_chunks_written_in_one_go_with_their_headers_pass(guarded: Proxy, place: Places) -> None:
    frames = b"".join(anthropic("one"))
    wire = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    here = place().then(Reply(framing="raw", chunks=[wire + b"%x\r\n%b\r\n0\r\n\r\n" % (len(frames), frames)]))
    assert ask(guarded, here.url(MESSAGES), asked(), account(here.host)).body == frames


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not json",
        b'{"model":',
        b"\xff\xfe",
        b"[]",
        b'{"model":7,"messages":"x","max_tokens":-1}',
        b'{"model":"m","max_tokens":1e400}',
        b'{"messages":' + b"[" * 20_000 + b"]" * 20_000 + b"}",
        b'{"model":"glm-5.2","model":"other","stream":"yes"}',
    ],
)
def test_an_odd_request_goes_on_unchanged(guarded: Proxy, place: Places, body: bytes) -> None:
    here = place().then(Reply(headers=[JSON], chunks=[b'{"ok":true}']))
    answer = ask(guarded, here.url(MESSAGES), body, account(here.host))
    assert (answer.status, here.hits[0].body) == (200, body)


def test_a_challenge_page_beyond_the_held_bytes_is_still_told_or_passes_whole(guarded: Proxy, place: Places) -> None:
    body = b"<html>" + b" " * 300_000 + PAGE
    here = place().then(Reply(headers=[HTML], chunks=[body]))
    answer = ask(guarded, here.url(MESSAGES), asked(), account(here.host))
    assert answer.status == 529 or (answer.status, answer.body) == (200, body)
