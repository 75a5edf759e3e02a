"""What answers at the address of a shared server need be none: it is said in words, and soon."""

from __future__ import annotations

import asyncio

import pytest

from operations.shared_server import LostError, Server
from tests.rows import over

pytest.importorskip("redis")

NO_REDIS = "what answers there speaks no Redis"
ANSWERS = {
    "the same to all": (b"+OK\r\n" * 20, NO_REDIS),
    "numbers": (b":1\r\n" * 20, NO_REDIS),
    "digits without end": (b":" + b"9" * 5_000 + b"\r\n", NO_REDIS),
    "arrays in one another": (b"*1\r\n" * 50_000, NO_REDIS),
    "a line without end": (b"-" + b"E" * 2_000_000, NO_REDIS),
    "a page": (b"HTTP/1.1 400 Bad Request\r\n\r\n", "Protocol Error: b'HTTP/1.1 400 Bad Request'"),
    "its own words": (b"-LOADING Redis is loading the dataset in memory\r\n" * 20, "Redis is loading the dataset in memory"),
    "nothing": (b"", "Connection closed by server."),
}


async def said(answer: bytes) -> str:
    """Why a server is not to be used that gives this answer to whatever it is asked."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(65536)
        writer.write(answer)
        await writer.drain()
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    server = Server(f"redis://:password@127.0.0.1:{listening.sockets[0].getsockname()[1]}/0")
    try:
        with pytest.raises(LostError) as lost:
            await server.open()
        return str(lost.value)
    finally:
        await server.close()
        listening.close()


@over("name", ANSWERS)
def test_it_is_said_in_words(name: str) -> None:
    answer, words = ANSWERS[name]
    assert asyncio.run(said(answer)) == words


def test_a_url_that_the_library_does_not_take_is_said_without_its_password() -> None:
    with pytest.raises(LostError) as lost:
        asyncio.run(Server("http://:hidden@127.0.0.1/0").open())
    assert "scheme" in str(lost.value)
    assert "hidden" not in str(lost.value)
