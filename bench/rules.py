"""What the rules themselves cost, in this process: reading a request, and guarding a side request."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

from bench.load import body, p50
from policies import windows
from policies.calls import Call, Surface
from policies.kinds import Family, Role, Wire
from policies.request import reading
from policies.settings import SideRequestSettings

ROUNDS = 15
SURFACE = Surface("bench", Family.ZAI, Wire.ANTHROPIC, Role.GENERATION)


def read(data: bytes) -> Call:
    return reading.read(
        SURFACE,
        "POST",
        "/v1/messages",
        lambda _name: "",
        "",
        data,
        size=len(data),
        account="a",
        hashed=lambda text: text,
    )


def interleaved(*works: Callable[[], object]) -> list[float]:
    """p50 in seconds of each, taken in turns."""
    taken: list[list[float]] = [[] for _ in works]
    for _ in range(ROUNDS):
        for work, times in zip(works, taken, strict=True):
            began = time.perf_counter()
            work()
            times.append(time.perf_counter() - began)
    return [p50(times) for times in taken]


def head(size: int) -> tuple[float, float]:
    """Seconds of `json.loads` and of reading the head of a main request of about `size` bytes."""
    data = body(filler_bytes=size)
    loads, ours = interleaved(lambda: json.loads(data), lambda: read(data))
    return loads, ours


def side_guard(size: int) -> tuple[float, float]:
    """Seconds of `json.loads` and of the side-request guard (its reading included) on a side request of that size."""
    asked = json.loads(body(filler_bytes=size))
    del asked["tools"]
    data = json.dumps({**asked, "max_tokens": 100}).encode()
    settings = SideRequestSettings()
    loads, ours = interleaved(lambda: json.loads(data), lambda: windows.oversize(read(data), settings, 1_000_000))
    return loads, ours
