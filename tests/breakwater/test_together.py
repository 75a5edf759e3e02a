"""One step of the loop, one write; nothing is lost, reordered or kept beyond it."""

from __future__ import annotations

import asyncio
from typing import Any

from breakwater.lean import Together


class Recorded:
    """A writer that notes what reaches the socket."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.transport = self

    def write(self, data: bytes) -> None:
        self.calls.append(data)

    async def drain(self) -> None:
        self.calls.append("drain")

    def close(self) -> None:
        self.calls.append("close")

    def write_eof(self) -> None:
        self.calls.append("eof")

    def is_closing(self) -> bool:
        return "close" in self.calls

    def get_extra_info(self, name: str) -> str:
        return name


def calls(use: Any) -> list[Any]:
    recorded = Recorded()

    async def run() -> None:
        writer: Any = recorded
        result = use(Together(writer))
        if result is not None:
            await result

    asyncio.run(run())
    return recorded.calls


def test_what_is_written_in_one_step_goes_out_in_one_write_at_its_end() -> None:
    async def use(writer: Any) -> None:
        writer.write(b"one ")
        writer.write(b"two")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        writer.write(b"three")

    assert calls(use) == [b"one two", b"three"]


def test_a_drain_writes_first() -> None:
    async def use(writer: Any) -> None:
        writer.write(b"one")
        await writer.drain()
        await writer.drain()

    assert calls(use) == [b"one", "drain", "drain"]


def test_an_end_comes_after_what_was_written() -> None:
    def close(writer: Any) -> None:
        writer.write(b"last")
        writer.close()

    def end(writer: Any) -> None:
        writer.write(b"last")
        writer.write_eof()

    assert calls(close) == [b"last", "close"]
    assert calls(end) == [b"last", "eof"]


def test_everything_else_is_the_writers_own() -> None:
    seen: list[Any] = []

    def use(writer: Any) -> None:
        seen.extend((writer.get_extra_info("peername"), writer.is_closing()))

    assert calls(use) == []
    assert seen == ["peername", False]
