"""What goes to one peer in one step goes in one write; nothing is lost, reordered or kept beyond it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from mitmproxy.connection import Client
from mitmproxy.proxy.commands import CloseConnection, Command, Log, SendData

from operations.together import WRITE_BYTES, together


def peer(port: int) -> Client:
    return Client(peername=("127.0.0.1", port), sockname=("127.0.0.1", 8080), timestamp_start=0.0)


ONE, OTHER = peer(1), peer(2)


def said(commands: list[Command]) -> list[object]:
    """Each sending as whom it is for and its bytes, every other command as it is."""
    made = together(iter(commands), SendData)
    return [(each.connection, each.data) if isinstance(each, SendData) else each for each in made]


def test_what_is_sent_to_one_peer_in_a_row_is_one_write() -> None:
    sent: list[Command] = [SendData(ONE, b"head "), SendData(ONE, b"body "), SendData(ONE, b"end")]
    assert said(sent) == [(ONE, b"head body end")]


def test_two_peers_are_two_writes_in_the_order_of_their_bytes() -> None:
    sent: list[Command] = [SendData(ONE, b"1"), SendData(OTHER, b"2"), SendData(OTHER, b"3"), SendData(ONE, b"4")]
    assert said(sent) == [(ONE, b"1"), (OTHER, b"23"), (ONE, b"4")]


def test_whatever_else_is_to_be_done_finds_sent_what_came_before_it() -> None:
    log, close = Log("said"), CloseConnection(ONE)
    sent: list[Command] = [SendData(ONE, b"1"), log, SendData(ONE, b"2"), close]
    assert said(sent) == [(ONE, b"1"), log, (ONE, b"2"), close]


@pytest.mark.parametrize("body", [WRITE_BYTES, WRITE_BYTES + 1, 10 * WRITE_BYTES])
def test_a_large_body_is_not_copied(body: int) -> None:
    data = bytes(body)
    head, passed = together(iter([SendData(ONE, b"head"), SendData(ONE, data)]), SendData)
    assert head.data == b"head"
    assert passed.data is data


def test_a_write_grows_to_its_bound() -> None:
    pieces = together((SendData(ONE, bytes(WRITE_BYTES // 4)) for _ in range(10)), SendData)
    assert [len(each.data) for each in pieces] == [WRITE_BYTES, WRITE_BYTES, WRITE_BYTES // 2]


def test_nothing_is_sent_where_nothing_was_said() -> None:
    assert said([]) == []


def test_a_command_is_handed_on_before_the_next_one_is_made() -> None:
    """A layer stops at a command that it has to wait for: what is sent after it must not be asked for before."""
    made: list[str] = []

    def layer() -> Iterator[Command]:
        yield SendData(ONE, b"1")
        made.append("before")
        yield Log("wait")
        made.append("after")
        yield SendData(ONE, b"2")

    commands = together(layer(), SendData)
    assert isinstance(next(commands), SendData)
    assert isinstance(next(commands), Log)
    assert made == ["before"]
