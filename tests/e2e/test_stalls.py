"""Nothing that an upstream sends holds up the others: while it passes, the proxy answers; and lines stream on."""

from __future__ import annotations

import gzip
import os
import threading
import time
from collections.abc import Callable, Sequence

import pytest

from tests.e2e.lab.client import Connection, Pairs, ask
from tests.e2e.lab.operated import get
from tests.e2e.lab.proxy import Proxy
from tests.e2e.lab.script import Gate, Place, Reply
from tests.e2e.lab.wires import COMPLETIONS, JSON, MTOP, SSE, account, asked, compact, openai, openai_message, streamed
from tests.policies.answer.test_encodings import zstd

Places = Callable[..., Place]
LONGEST_SECONDS = 1.0
FRAME = openai("hello")[1]


def raw(pieces: Sequence[bytes], *headers: tuple[str, str]) -> Reply:
    """An answer in chunks of exactly these pieces, written at once."""
    head = [b"HTTP/1.1 200 OK", b"transfer-encoding: chunked", *(f"{name}: {value}".encode() for name, value in headers)]
    body = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    return Reply(chunks=[b"\r\n".join(head) + b"\r\n\r\n" + body + b"0\r\n\r\n"], framing="raw")


def singly(data: bytes) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))]


PAGE = b"<!doctype html><script>\n" + (b"var a = 'something long enough to be a page of 108 KB';\n\n") * 2_000
COMMENT = b":" + b"x" * 15_000
REPLIES: dict[str, Reply] = {
    "a page with blank lines in a stream": raw([FRAME, PAGE], SSE),
    "a page with blank lines in many pieces": raw([FRAME, *(PAGE[at : at + 50] for at in range(0, len(PAGE), 50))], SSE),
    "a comment line in single bytes": raw(singly(COMMENT), SSE),
    "a comment line in single bytes after an answer": raw([FRAME, *singly(COMMENT)], SSE),
    "empty gzip members": raw([gzip.compress(b"") * 200_000], SSE, ("content-encoding", "gzip")),
    "empty zstd frames": raw([zstd(b"") * 80_000], SSE, ("content-encoding", "zstd")),
    "noise in zstd": raw([zstd(b": " + os.urandom(5 << 20))], SSE, ("content-encoding", "zstd")),
}


@pytest.mark.parametrize("name", REPLIES)
def test_the_proxy_answers_while_it_passes(guarded: Proxy, place: Places, name: str) -> None:
    assert_answers_while(guarded, place().always(REPLIES[name]), asked(), ())


REQUESTS: dict[str, tuple[str, bytes]] = {
    "empty gzip members": ("gzip", gzip.compress(b"") * 200_000),
    "empty zstd frames": ("zstd", zstd(b"") * 80_000),
    "noise in zstd": ("zstd", zstd(os.urandom(5 << 20))),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_the_proxy_answers_while_a_request_passes(guarded: Proxy, place: Places, name: str) -> None:
    coding, body = REQUESTS[name]
    assert_answers_while(guarded, place().always(streamed(openai("hello"))), body, [("content-encoding", coding)])


def assert_answers_while(guarded: Proxy, here: Place, body: bytes, headers: Pairs) -> None:
    done = threading.Event()
    statuses: list[int] = []

    def turn() -> None:
        try:
            url = here.url(COMPLETIONS)
            statuses.append(ask(guarded, url, body, [*account(here.host), *headers]).status)
        finally:
            done.set()

    client = threading.Thread(target=turn)
    client.start()
    slowest, times = 0.0, 0
    while not (done.is_set() and times):
        start = time.monotonic()
        assert get(guarded, "/healthz").body == b"ok\n"
        slowest, times = max(slowest, time.monotonic() - start), times + 1
    client.join()
    assert statuses == [200]
    assert slowest < LONGEST_SECONDS, f"the slowest of {times}"


@pytest.mark.parametrize("media_type", ["application/x-ndjson", "application/json"])
def test_lines_of_json_stream_on_from_the_first(guarded: Proxy, place: Places, media_type: str) -> None:
    gate, line = Gate(), compact(openai_message()) + b"\n"
    here = place().always(Reply(headers=[("content-type", media_type)], chunks=[line, gate, line], framing="chunked"))
    with Connection(guarded, here.url(COMPLETIONS)) as connection:
        connection.send(asked(), account(here.host))
        answer = connection.head()
        assert connection.piece(answer) == line
        gate.open()
        assert connection.rest(answer).body == line * 2


def test_a_refusal_in_the_first_line_is_told_before_the_body_ends(guarded: Proxy, place: Places) -> None:
    gate = Gate()
    here = place().always(Reply(headers=[JSON], chunks=[compact(MTOP) + b"\n", gate], framing="chunked"))
    with Connection(guarded, here.url(COMPLETIONS)) as connection:
        connection.send(asked(), account(here.host))
        assert connection.answer().status == 503
    gate.open()


def test_blanks_before_a_document_are_keep_alive(quick: Proxy, place: Places) -> None:
    gate, message = Gate(), compact(openai_message())
    here = place().always(Reply(headers=[JSON], chunks=[b" ", gate, b" ", message], framing="chunked"))
    with Connection(quick, here.url(COMPLETIONS)) as connection:
        connection.send(asked(), account(here.host))
        answer = connection.head()
        assert answer.status == 200
        assert connection.piece(answer) == b" "
        gate.open()
        assert connection.rest(answer).body == b"  " + message
