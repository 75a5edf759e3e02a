"""The lab itself, through bare mitmproxy: what the other end-to-end tests stand on."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.e2e.lab.client import Connection, ask
from tests.e2e.lab.client_h2 import H2Connection
from tests.e2e.lab.proxy import Proxy
from tests.e2e.lab.script import Gate, Place, Reply
from tests.e2e.lab.wires import MESSAGES, anthropic, asked, streamed, whole

Places = Callable[..., Place]


@pytest.mark.parametrize(("scheme", "port", "protocol"), [("http", None, "1.1"), ("https", None, "1.1"), ("https", 8443, "2")])
def test_a_streamed_answer_arrives_frame_by_frame(
    bare: Proxy, place: Places, scheme: str, port: int | None, protocol: str
) -> None:
    gate, frames = Gate(), anthropic("one", "two")
    here = place().then(streamed([frames[0], gate, *frames[1:]]))
    with Connection(bare, here.url(MESSAGES, scheme, port)) as connection:
        connection.send(asked())
        answer = connection.head()
        assert connection.piece(answer) == frames[0]
        gate.open()
        connection.rest(answer)
    assert answer.status == 200
    assert answer.body == b"".join(frames)
    assert answer.whole
    assert (here.hits[0].protocol, here.hits[0].tls) == (protocol, scheme == "https")
    assert here.hits[0].body == asked()


def test_a_cut_is_seen_as_a_cut(bare: Proxy, place: Places) -> None:
    here = place().then(streamed([b"data: 1\n\n"], end="cut"))
    assert not ask(bare, here.url(MESSAGES), asked()).whole


def test_an_upstream_connection_is_used_again(bare: Proxy, place: Places) -> None:
    here = place().always(whole({"ok": True}))
    with Connection(bare, here.url(MESSAGES)) as connection:
        for _ in range(3):
            connection.send(asked())
            assert connection.answer().json() == {"ok": True}
    assert len({hit.connection for hit in here.hits}) == 1


def test_a_client_that_leaves_is_seen_by_the_upstream(bare: Proxy, place: Places) -> None:
    here = place().then(streamed([b"data: 1\n\n"], end="hang"))
    with Connection(bare, here.url(MESSAGES)) as connection:
        connection.send(asked())
        connection.piece(connection.head())
    here.wait_left(here.hits[0])


def test_streams_of_one_connection_are_answered_independently(bare: Proxy, place: Places) -> None:
    gate = Gate()
    here = place().then(streamed([b"data: 1\n\n", gate]), streamed([b"data: 2\n\n"]))
    with H2Connection(bare, here.host) as connection:
        first = connection.open(MESSAGES, asked("one"))
        here.wait_hits(1)
        second = connection.finish(connection.open(MESSAGES, asked("two")))
        assert second.body == b"data: 2\n\n"
        gate.open()
        assert connection.finish(first).body == b"data: 1\n\n"
    assert [hit.protocol for hit in here.hits] == ["2", "2"]


def test_nobody_listens_behind_port_9(bare: Proxy, place: Places) -> None:
    assert ask(bare, place().url(MESSAGES, port=9), asked()).status == 502


def test_raw_bytes_reach_the_client(bare: Proxy, place: Places) -> None:
    wire = b"HTTP/1.1 200 OK\r\nx-odd: \xff\xfe\r\ncontent-length: 2\r\n\r\nok"
    answer = ask(bare, place().then(Reply(framing="raw", chunks=[wire])).url("/"), method="GET")
    assert answer.raw == wire
