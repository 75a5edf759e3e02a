"""`python -m bench.workers`: requests a second of one Breakwater, and of several behind HAProxy that share their state.

Needs redis-server and haproxy on this machine; on loopback only. The load and the upstream run on the machine's cores too.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from bench.load import at_once, body, one_by_one, p50, request
from bench.pages import fill
from bench.proxied import CONFIG
from bench.upstream import BenchUpstream
from tests.e2e.lab.proxy import Proxy
from tests.e2e.lab.shared_server import SharedServer, free_port

ROUNDS, REQUESTS, LINES = 9, 480, 16
FRONT = """global
    maxconn 4096
defaults
    mode tcp
    timeout connect 2s
    timeout client 1h
    timeout server 1h
listen breakwater
    bind 127.0.0.1:{port}
    balance leastconn
{servers}
"""
"""An hour: a request may wait in the queue, and a stream may pause."""


def front(folder: Path, ports: list[int]) -> tuple[subprocess.Popen[bytes], int]:
    """HAProxy before these proxies, and its port."""
    program, port = shutil.which("haproxy"), free_port()
    assert program, "no haproxy here: apt-get install haproxy"
    servers = "\n".join(f"    server worker{number} 127.0.0.1:{each}" for number, each in enumerate(ports))
    config = folder / f"haproxy{port}.cfg"
    config.write_text(FRONT.format(port=port, servers=servers))
    return subprocess.Popen([program, "-db", "-f", str(config)], stderr=subprocess.DEVNULL), port


def busy_seconds(processes: Iterable[int]) -> float:
    """Seconds of CPU that these processes have taken so far, Linux only."""
    ticks = 0
    for process in processes:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


async def rates(workers: tuple[int, ...]) -> dict[str, tuple[float, float, float]]:
    """By what they went through: requests a second, in turns, and milliseconds of CPU a request, of all proxies and of HAProxy."""
    upstream = BenchUpstream()
    await upstream.start()
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        server = SharedServer(folder / "redis").start()
        proxies = [Proxy(folder / f"worker{n}", upstream, config={**CONFIG, "shared": server.url}) for n in range(max(workers))]
        fronts = []
        try:
            for proxy in proxies:
                await asyncio.to_thread(proxy.start)
            small = request("bench.test", "small", body())
            ports = {"1, without HAProxy": proxies[0].port}
            before: dict[str, list[int]] = {"1, without HAProxy": []}
            for count in workers:
                process, port = front(folder, [proxy.port for proxy in proxies[:count]])
                fronts.append(process)
                ports[f"{count} behind HAProxy"] = port
                before[f"{count} behind HAProxy"] = [process.pid]
            await asyncio.sleep(1)
            for port in (*(proxy.port for proxy in proxies), *ports.values()):
                await one_by_one(port, small, 100)
            taken: dict[str, list[tuple[float, float, float]]] = {words: [] for words in ports}
            for turn in range(ROUNDS):
                for words, port in [*ports.items()][:: 1 if turn % 2 else -1]:
                    ours, theirs = [proxy.process.pid for proxy in proxies], before[words]
                    began = busy_seconds(ours), busy_seconds(theirs)
                    rate = await at_once(port, small, REQUESTS, LINES)
                    spent, passed = busy_seconds(ours) - began[0], busy_seconds(theirs) - began[1]
                    taken[words].append((rate, spent * 1000 / REQUESTS, passed * 1000 / REQUESTS))
            return {words: tuple(p50(list(one)) for one in zip(*rows, strict=True)) for words, rows in taken.items()}  # type: ignore[misc]
        finally:
            for process in fronts:
                process.terminate()
                process.wait(10)
            for proxy in proxies:
                proxy.end()
            server.end()
            upstream.stop()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.workers", description=__doc__)
    parser.add_argument("--fill", type=Path, metavar="PAGE", help="put the table into this page, such as docs/scaling.md")
    page = parser.parse_args().fill
    found = asyncio.run(rates((1, 2, 3)))
    base, _, _ = found["1 behind HAProxy"]
    lines = [
        "| | requests a second | against one behind HAProxy | CPU a request, all proxies | CPU a request, HAProxy |",
        "|---|---|---|---|---|",
    ]
    for words, (rate, ours, theirs) in found.items():
        lines.append(f"| {words} | {rate:.0f} | {rate / base:.2f} | {ours:.2f} ms | {theirs:.2f} ms |")
    lines += ["", f"{time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the end."]
    print("\n".join(lines))
    if page:
        fill(page, "workers", "\n".join(lines))


if __name__ == "__main__":
    main()
