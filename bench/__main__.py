"""`python -m bench`: about a minute, on loopback only."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from bench import rules
from bench.load import body, p50, request
from bench.proxied import Pair, pair

LARGE_BYTES = 1_400_000


@dataclass(frozen=True)
class Line:
    """One measure: a ratio (or milliseconds), what it should reach, and whether it may be above or must not be below."""

    name: str
    value: float
    reach: str
    good: bool
    detail: str

    def __str__(self) -> str:
        return f"{self.name:<48} {self.value:8.3f}  {self.reach:<9} {'ok  ' if self.good else 'MISS'}  {self.detail}"


def at_most(name: str, value: float, limit: float, detail: str) -> Line:
    return Line(name, value, f"<= {limit}", value <= limit, detail)


def at_least(name: str, value: float, limit: float, detail: str) -> Line:
    return Line(name, value, f">= {limit}", value >= limit, detail)


def _ms(*seconds: float) -> str:
    return " / ".join(f"{value * 1000:.2f}" for value in seconds) + " ms"


async def _through(proxies: Pair) -> None:
    small = request("bench.test", "small", body())
    bare, guarded, ratio = await proxies.latency(small, 30)
    print(at_most("small JSON, p50 of one, against bare", ratio, 1.1, _ms(bare, guarded)))
    bare, guarded, ratio = await proxies.rate(small, 160, 16)
    print(at_least("small JSON, requests a second at 16", ratio, 0.92, f"{bare:.0f} / {guarded:.0f} a second"))
    for kind, count, lines, words, reach in (("paced", 16, 16, "paced", 0.95), ("sse", 16, 4, "back to back", 0.9)):
        bare, guarded, ratio = await proxies.rate(request("bench.test", kind, body(stream=True)), count, lines)
        detail = f"{lines} at once: {bare:.1f} / {guarded:.1f} a second"
        print(at_least(f"SSE of 60 chunks {words}, streams a second", ratio, reach, detail))
    large = request("bench.test", "small", body(filler_bytes=LARGE_BYTES))
    bare, guarded, ratio = await proxies.latency(large, 3)
    print(at_most("request body of 1.4 MB, p50, against bare", ratio, 1.25, _ms(bare, guarded)))
    forwarded, refused, ratio = await proxies.refusal(20)
    print(at_most("refusal here, p50, against forwarding", ratio, 0.7, _ms(forwarded, refused)))
    delays = await proxies.challenge(30)
    worst = max(delays) * 1000
    print(at_most("challenge frame to status line, ms (p50)", p50(delays) * 1000, 10, f"slowest of 30: {worst:.2f} ms"))


async def _held(proxies: Pair) -> None:
    kib = await proxies.held(3) / 1024
    print(at_most("bytes sent before an undecided body goes on, KiB", kib, 272, "held at most 256, and what is under way"))


def _rules() -> None:
    loads, ours = rules.head(LARGE_BYTES)
    print(at_most("head of a 1.4 MB request, against json.loads", ours / loads, 0.2, _ms(loads, ours)))
    loads, ours = rules.side_guard(LARGE_BYTES)
    print(at_most("side-request guard, 1.4 MB, against json.loads", ours / loads, 1, _ms(loads, ours)))


async def _main() -> None:
    began = time.monotonic()
    print("ratios against bare mitmproxy (or what is named); detail: bare / guarded")
    async with pair() as proxies:
        await _through(proxies)
        await _held(proxies)
    _rules()
    print(f"{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    asyncio.run(_main())
