"""The measures through real proxies. Each is taken in turns, bare and guarded, so that a busy machine slows both."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

from bench.load import Line, at_once, body, one_by_one, p50, request
from bench.upstream import BenchUpstream, Serving
from tests.e2e.lab.proxy import LAB, Proxy

IMPATIENT = "bench-impatient/1.0"
CONFIG = {
    # A client that leaves at once: nothing of it waits in line, so a refusal comes as fast as it can.
    "queue": {"clients": {IMPATIENT: 1}},
    "upstreams": {
        "bench": {"hosts": ["bench.test"], "family": "zai"},
        # One strike opens it for the whole run.
        "refused": {"hosts": ["refused.test"], "family": "zai", "breaker": {"strikes": 1, "open_seconds": 3600}},
        "challenged": {"hosts": ["challenged.test"], "family": "zai", "breaker": {"open_seconds": 0}},
    },
}
ROUNDS = 16
"""Short ones, taken in turns: what a machine does beside them then slows both of a pair alike."""
Take = Callable[[], Awaitable[float]]


class Measured(NamedTuple):
    """The medians of two, and of their ratios (second by first) round by round: the ratio to trust."""

    first: float
    second: float
    ratio: float


class Listening(Protocol):
    """A proxy that runs: all that is asked of it is where."""

    port: int


class Pair:
    """A bare mitmdump and a guarded one, before the same upstream."""

    def __init__(self, bare: Listening, guarded: Listening) -> None:
        self.bare, self.guarded = bare, guarded

    async def latency(self, data: bytes, count: int) -> Measured:
        """p50 in seconds of `count` requests a round, bare and guarded."""

        async def take(proxy: Listening) -> float:
            return p50(await one_by_one(proxy.port, data, count))

        return await _in_turns(lambda: take(self.bare), lambda: take(self.guarded))

    async def rate(self, data: bytes, count: int, lines: int) -> Measured:
        """Requests a second of `count` requests a round, `lines` at a time, bare and guarded."""
        return await _in_turns(
            lambda: at_once(self.bare.port, data, count, lines), lambda: at_once(self.guarded.port, data, count, lines)
        )

    async def refusal(self, count: int) -> Measured:
        """p50 in seconds of a forwarded request and of one refused here, both by the guarded proxy."""
        opening, small = request("refused.test", "challenge", body("open")), request("bench.test", "small", body())
        refused = request("refused.test", "small", body(), agent=IMPATIENT)
        await one_by_one(self.guarded.port, opening, 1, status=529)

        async def take(data: bytes, status: int) -> float:
            return p50(await one_by_one(self.guarded.port, data, count, status=status))

        return await _in_turns(lambda: take(small, 200), lambda: take(refused, 529))

    async def held(self, count: int) -> int:
        """Bytes of an undecided page that the upstream could send before its headers came to the client: the most."""
        most = 0
        for _ in range(count):
            async with Line(self.guarded.port) as line:
                most = max(most, await line.head(request("bench.test", "page", body()), lambda: Serving.page_bytes))
        return most

    async def challenge(self, count: int) -> list[float]:
        """Seconds from the challenge frame leaving the upstream to the status line at the client."""
        delays = []
        for number in range(count):
            async with Line(self.guarded.port) as line:
                asked = body(f"turn {number}", stream=True)
                data = request("challenged.test", "challenge", asked, f"challenged{number}")
                _, headed, status = await line.exchange(data)
            assert status == 529, status
            delays.append(headed - Serving.challenged_at)
        return delays


async def _in_turns(first: Take, second: Take) -> Measured:
    """Who goes first alternates, so that neither always finds the warmer machine."""
    one: list[float] = []
    other: list[float] = []
    for turn in range(ROUNDS):
        for take, taken in ((first, one), (second, other))[:: 1 if turn % 2 else -1]:
            taken.append(await take())
    return Measured(p50(one), p50(other), p50([theirs / ours for ours, theirs in zip(one, other, strict=True)]))


@asynccontextmanager
async def pair() -> AsyncIterator[Pair]:
    """Both proxies, started and warm."""
    upstream = BenchUpstream()
    await upstream.start()
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        bare = Proxy(folder / "bare", upstream, addon=False, scripts=[LAB / "streaming.py"])
        guarded = Proxy(folder / "guarded", upstream, config=CONFIG)
        try:
            await asyncio.gather(*(asyncio.to_thread(proxy.start) for proxy in (bare, guarded)))
            for proxy in (bare, guarded):
                await one_by_one(proxy.port, request("bench.test", "small", body()), 50)
            yield Pair(bare, guarded)
        finally:
            for proxy in (bare, guarded):
                proxy.end()
            upstream.stop()
