from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest

from operations.demo import PATHS, SEQUENCE, Demo
from tests.rows import over

Ask = Callable[..., Awaitable[tuple[int, str, bytes]]]


def on_demo(test: Callable[[Ask], Awaitable[None]]) -> None:
    """Run a test against a started demo without pauses."""

    async def run() -> None:
        demo = Demo(frame_seconds=0)
        address = await demo.start()
        try:
            await test(lambda *request: asyncio.wait_for(ask(address, *request), 10))
        finally:
            await demo.stop()

    asyncio.run(run())


async def ask(address: tuple[str, int], path: str, body: bytes = b"{}", method: str = "POST") -> tuple[int, str, bytes]:
    reader, writer = await asyncio.open_connection(*address)
    writer.write(
        b"%b %b HTTP/1.1\r\nhost: demo\r\ncontent-length: %d\r\n\r\n%b" % (method.encode(), path.encode(), len(body), body)
    )
    head, _, data = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    first, *lines = head.decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    return int(first.split()[1]), headers["content-type"], data


@pytest.mark.parametrize("path", PATHS)
def test_the_sequence_begins_and_ends_with_answers_and_has_each_refusal_once(path: str) -> None:
    async def test(ask: Ask) -> None:
        got = [await ask(path) for _ in range(len(SEQUENCE) + 2)]
        assert [status for status, _, _ in got] == [200, 200, 200, 200, 200, 400, 429, 200, 200]
        assert [kind.partition(";")[0] for _, kind, _ in got[1:4]] == [
            "application/json",
            "text/event-stream",
            "text/html",
        ]
        assert json.loads(got[1][2])["ret"][0] == "FAIL_SYS_USER_VALIDATE"
        assert got[2][2].startswith(b'data: {"ret":')
        assert b"aliyun_waf_aa" in got[3][2]
        assert json.loads(got[5][2])["code"] == 3007
        assert json.loads(got[6][2])["error"]["code"] == "1305"
        for answer in (got[0], got[4], got[7], got[8]):
            assert b"This answer comes frame by frame." in answer[2]

    on_demo(test)


@pytest.mark.parametrize(("path", "last"), [("/v1/messages", b"message_stop"), ("/v1/chat/completions", b"[DONE]")])
def test_an_answer_streams_when_a_stream_is_asked_for(path: str, last: bytes) -> None:
    async def test(ask: Ask) -> None:
        status, kind, body = await ask(path, b'{"stream": true}')
        assert (status, kind) == (200, "text/event-stream")
        assert last in body
        assert body.count(b"data: ") > 5
        assert body.endswith(b"0\r\n\r\n")

    on_demo(test)


def test_each_path_has_its_own_place_in_the_sequence() -> None:
    async def test(ask: Ask) -> None:
        assert b"msg_demo" in (await ask("/v1/messages"))[2]
        assert b"ret" in (await ask("/v1/messages"))[2]
        assert b"chatcmpl-demo" in (await ask("/v1/chat/completions"))[2]

    on_demo(test)


def test_a_query_does_not_hide_the_path() -> None:
    async def test(ask: Ask) -> None:
        assert b"msg_demo" in (await ask("/v1/messages?beta=true"))[2]

    on_demo(test)


def test_reset_begins_again() -> None:
    async def test(ask: Ask) -> None:
        first = await ask("/v1/messages")
        assert await ask("/v1/messages") != first
        assert (await ask("/reset"))[0] == 200
        assert await ask("/v1/messages") == first

    on_demo(test)


@pytest.mark.parametrize(("path", "method"), [("/", "GET"), ("/v1/messages", "GET"), ("/v1/models", "POST")])
def test_anything_else_says_what_there_is(path: str, method: str) -> None:
    async def test(ask: Ask) -> None:
        status, _, body = await ask(path, b"", method)
        assert status == 404
        assert b"/v1/messages" in body

    on_demo(test)


@over("body", [b"not json", b"[]", b'{"stream": "yes"}', b""])
def test_a_body_that_asks_for_no_stream_gets_a_whole_answer(body: bytes) -> None:
    async def test(ask: Ask) -> None:
        assert (await ask("/v1/messages", body))[1] == "application/json"

    on_demo(test)


@over("junk", [b"", b"\r\n\r\n", b"GET\r\n\r\n", b"POST / HTTP/1.1\r\ncontent-length: x\r\n\r\n", b"x" * 70000])
def test_what_is_no_request_ends_its_own_connection_only(junk: bytes) -> None:
    async def run() -> None:
        demo = Demo()
        address = await demo.start()
        reader, writer = await asyncio.open_connection(*address)
        writer.write(junk)
        writer.write_eof()
        assert not await asyncio.wait_for(reader.read(), 10)
        writer.close()
        assert (await asyncio.wait_for(ask(address, "/v1/messages"), 10))[0] == 200
        await demo.stop()

    asyncio.run(run())


def test_stop_ends_a_stream_that_is_being_served() -> None:
    async def run() -> None:
        demo = Demo(frame_seconds=3600)
        reader, writer = await asyncio.open_connection(*await demo.start())
        writer.write(b'POST /v1/messages HTTP/1.1\r\ncontent-length: 15\r\n\r\n{"stream":true} '[:-1])
        await reader.readuntil(b"message_start")
        await asyncio.wait_for(demo.stop(), 10)
        assert b"message_stop" not in await asyncio.wait_for(reader.read(), 10)
        writer.close()

    asyncio.run(run())
