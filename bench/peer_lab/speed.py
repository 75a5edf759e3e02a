"""How fast: all gateways run beside each other and are measured in short rounds that take turns."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from statistics import median

from bench.load import at_once, one_by_one, p50
from bench.peer_lab.served import Served

LARGE_BYTES = 1_400_000
Take = Callable[[Served], Awaitable[float]]


@dataclass(frozen=True)
class Measure:
    """One row of the table."""

    title: str
    unit: str
    take: Take


@dataclass(frozen=True)
class Figure:
    """The median, and the median of the ratios to the first gateway, round by round: the ratio to trust."""

    value: float
    ratio: float


async def _latency(served: Served) -> float:
    return p50(await one_by_one(served.place.port, served.raw(served.body()), 30)) * 1000


async def _rate(served: Served) -> float:
    return await at_once(served.place.port, served.raw(served.body()), 320, 16)


async def _streams(served: Served) -> float:
    return await at_once(served.place.port, served.raw(served.body(stream=True)), 32, 4)


async def _large(served: Served) -> float:
    return p50(await one_by_one(served.place.port, served.raw(served.body(filler_bytes=LARGE_BYTES)), 3)) * 1000


MEASURES = (
    Measure("small request, p50 of one", "ms", _latency),
    Measure("requests a second, 16 at once", "/s", _rate),
    Measure("SSE of 60 frames back to back, streams a second, 4 at once", "/s", _streams),
    Measure("request body of 1.4 MB, p50", "ms", _large),
)


async def measure(measure: Measure, all_served: list[Served], rounds: int) -> list[Figure]:
    """In the order of `all_served`; who goes first alternates, so that nobody always finds the warmer machine."""
    for served in all_served:
        await measure.take(served)
    taken: list[list[float]] = [[] for _ in all_served]
    for turn in range(rounds):
        for number in range(len(all_served))[:: 1 if turn % 2 else -1]:
            taken[number].append(await measure.take(all_served[number]))
    first = taken[0]
    ratios = [[value / base for value, base in zip(values, first, strict=True)] for values in taken]
    return [Figure(median(values), median(each)) for values, each in zip(taken, ratios, strict=True)]
