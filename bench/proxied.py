"""The measures through real proxies. Each is taken in turns, bare and guarded, so that a busy machine slows both."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from bench.load import Line, at_once, body, one_by_one, p50, request
from bench.upstream import BenchUpstream, Serving
from tests.e2e.lab.proxy import LAB, Proxy

CONFIG = {
    "upstreams": {
        "bench": {"hosts": ["bench.test"], "family": "zai"},
        # One strike opens it for the whole run.
        "refused": {"hosts": ["refused.test"], "family": "zai", "breaker": {"strikes": 1, "open_seconds": 3600}},
        "challenged": {"hosts": ["challenged.test"], "family": "zai", "breaker": {"open_seconds": 0}},
    }
}
ROUNDS = 4
Taker = TypeVar("Taker")


class Pair:
    """A bare mitmdump and a guarded one, before the same upstream."""

    def __init__(self, bare: Proxy, guarded: Proxy) -> None:
        self.bare, self.guarded = bare, guarded

    async def latency(self, data: bytes, count: int) -> tuple[float, float]:
        """p50 in seconds, bare and guarded."""
        bare: list[float] = []
        guarded: list[float] = []
        for turn in range(ROUNDS):
            for proxy, taken in _turns(turn, (self.bare, bare), (self.guarded, guarded)):
                taken.extend(await one_by_one(proxy.port, data, count))
        return p50(bare), p50(guarded)

    async def rate(self, data: bytes, count: int, lines: int) -> tuple[float, float]:
        """Requests a second, bare and guarded: the median of the rounds."""
        bare: list[float] = []
        guarded: list[float] = []
        for turn in range(ROUNDS):
            for proxy, rates in _turns(turn, (self.bare, bare), (self.guarded, guarded)):
                rates.append(await at_once(proxy.port, data, count, lines))
        return p50(bare), p50(guarded)

    async def refusal(self, count: int) -> tuple[float, float]:
        """p50 in seconds of a forwarded request and of one refused here, both by the guarded proxy."""
        opening, small = request("refused.test", "challenge", body("open")), request("bench.test", "small", body())
        await one_by_one(self.guarded.port, opening, 1, status=529)
        forwarded: list[float] = []
        refused: list[float] = []
        for _ in range(ROUNDS):
            forwarded += await one_by_one(self.guarded.port, small, count)
            refused += await one_by_one(self.guarded.port, request("refused.test", "small", body()), count, status=529)
        return p50(forwarded), p50(refused)

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


def _turns(turn: int, *takers: Taker) -> tuple[Taker, ...]:
    """Who goes first alternates, so that neither always finds the warmer machine."""
    return takers if turn % 2 else takers[::-1]


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
