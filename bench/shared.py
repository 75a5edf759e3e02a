"""`python -m bench.shared`: what a shared state costs while nothing is refused, and what it takes of its server.

Needs redis-server (or valkey-server) on this machine; on loopback only.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path

import redis

from bench.__main__ import Line, at_least, at_most
from bench.load import body, one_by_one, request
from bench.proxied import CONFIG, Pair
from bench.upstream import BenchUpstream
from tests.e2e.lab.proxy import Proxy
from tests.e2e.lab.shared_server import SharedServer


async def measure() -> list[Line]:
    """A lone Breakwater and a shared one, in turns; then the bytes and messages of what is shared."""
    upstream = BenchUpstream()
    await upstream.start()
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        server = SharedServer(Path(name) / "redis").start()
        lone = Proxy(Path(name) / "lone", upstream, config=CONFIG)
        shared = Proxy(Path(name) / "shared", upstream, config={**CONFIG, "shared": server.url})
        try:
            await asyncio.gather(*(asyncio.to_thread(proxy.start) for proxy in (lone, shared)))
            small = request("bench.test", "small", body())
            for proxy in (lone, shared):
                await one_by_one(proxy.port, small, 100)
            pair = Pair(lone, shared)
            first, second, ratio = await pair.latency(small, 60)
            lines = [at_most("shared, p50 of one, against alone", ratio, 1.10, f"{first * 1000:.2f} / {second * 1000:.2f} ms")]
            first, second, ratio = await pair.rate(small, 320, 16)
            lines.append(at_least("shared, requests a second at 16, against alone", ratio, 0.95, f"{first:.0f} / {second:.0f}"))
            return [*lines, *await _sizes(server, shared)]
        finally:
            for proxy in (lone, shared):
                proxy.end()
            server.end()
            upstream.stop()


async def _sizes(server: SharedServer, shared: Proxy) -> list[Line]:
    """Bytes of a breaker and of a told wait, and commands of a strike."""
    client = redis.Redis(port=server.port, decode_responses=True)

    def memory() -> int:
        return int(client.info("memory")["used_memory"])

    def commands() -> int:
        return int(client.info("stats")["total_commands_processed"])

    await asyncio.sleep(3)
    quiet, began = commands(), time.monotonic()
    await asyncio.sleep(10)
    idle = (commands() - quiet - 1) / (time.monotonic() - began)
    before, sends = memory(), 200
    for number in range(sends):
        asked = request("challenged.test", "challenge", body(f"turn {number}", stream=True), f"account{number}")
        await one_by_one(shared.port, asked, 1, status=529)
    await asyncio.sleep(3)
    after = memory()
    waits = len(client.keys("breakwater:v1:wait:*"))
    client.close()
    lines = [at_most("commands a second of one that is idle", idle, 10, "a look every 2 s, 6 commands each")]
    if waits:
        lines.append(at_most("bytes of the server for one told wait", (after - before) / waits, 1500, f"{waits} waits"))
    return lines


def main() -> None:
    for line in asyncio.run(measure()):
        print(line)


if __name__ == "__main__":
    main()
