"""`python -m bench.command`: `breakwater start` against mitmdump alone with its defaults, in one run of some minutes."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from bench.__main__ import LARGE_BYTES, Line, _ms, at_least, at_most
from bench.load import body, one_by_one, request
from bench.proxied import CONFIG, ROUNDS, Pair
from bench.upstream import BenchUpstream
from tests.e2e.lab.proxy import LAB, LISTENING, PROJECT

START_SECONDS = 45


class Served:
    """A proxy whose lines go to a file, so that nobody pays for reading them."""

    def __init__(self, folder: Path, upstream: BenchUpstream, command: Sequence[str]) -> None:
        folder.mkdir()
        self._log = folder / "log"
        closed = "9"
        ports = {"80": str(upstream.clear_port), "443": closed, "8443": closed, "9": closed}
        environment = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
        environment |= {f"LAB_PORT_{port}": actual for port, actual in ports.items()}
        environment |= {"PYTHONUNBUFFERED": "1", "HOME": str(folder), "PYTHONPATH": str(PROJECT)}
        with self._log.open("wb") as file:
            self.process = subprocess.Popen(
                [*command, "-s", str(LAB / "route.py")],
                cwd=folder,
                env=environment,
                stdout=file,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
            )
        self.port = 0

    def wait(self) -> None:
        until = time.monotonic() + START_SECONDS
        while not (found := LISTENING.search(self._log.read_text())) or "lab: running" not in self._log.read_text():
            assert time.monotonic() < until, self._log.read_text()
            assert self.process.poll() is None, self._log.read_text()
            time.sleep(0.05)
        self.port = int(found[1])

    @property
    def mebibytes(self) -> float:
        """Resident memory."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) / 1024

    @property
    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def end(self) -> None:
        self.process.send_signal(signal.SIGINT)
        self.process.wait(10)


@asynccontextmanager
async def both(full: bool) -> AsyncIterator[tuple[Served, Served]]:
    """mitmdump with its defaults, and `breakwater start` with its own; both on loopback only."""
    upstream = BenchUpstream()
    await upstream.start()
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        config = folder / "config.yaml"
        config.write_text(str(CONFIG).replace("'", '"'))
        mitmdump = [str(Path(sys.executable).parent / "mitmdump"), "--listen-host", "127.0.0.1", "-p", "0"]
        ours = [sys.executable, "-P", "-m", "breakwater", "start", "-p", "0", "--set", f"breakwater_config={config}"]
        pair = (
            Served(folder / "bare", upstream, mitmdump),
            Served(folder / "ours", upstream, [*ours, *(["--full"] if full else [])]),
        )
        try:
            for proxy in pair:
                await asyncio.to_thread(proxy.wait)
                await one_by_one(proxy.port, request("bench.test", "small", body()), 50)
            yield pair
        finally:
            for proxy in pair:
                proxy.end()
            upstream.stop()


async def measure(full: bool) -> list[Line]:
    small, large = request("bench.test", "small", body()), request("bench.test", "small", body(filler_bytes=LARGE_BYTES))
    lines = []
    async with both(full) as (bare, ours):
        proxies = Pair(bare, ours)
        first, second, ratio = await proxies.latency(small, 30)
        lines.append(at_most("small JSON, p50 of one", ratio, 1.0, _ms(first, second)))
        for name, kind, count, at, reach in (
            ("small JSON, requests a second", "small", 160, 16, 1.08),
            ("SSE of 60 chunks back to back", "sse", 32, 4, 1.0),
        ):
            before = bare.cpu_seconds, ours.cpu_seconds
            data = request("bench.test", kind, body(stream=kind == "sse"))
            first, second, ratio = await proxies.rate(data, count, at)
            spent = bare.cpu_seconds - before[0], ours.cpu_seconds - before[1]
            detail = f"{first:.0f} / {second:.0f}; CPU {_ms(*(each / count / ROUNDS for each in spent))}"
            lines.append(at_least(f"{name}, at {at}", ratio, reach, detail))
        first, second, ratio = await proxies.latency(large, 3)
        lines.append(at_most("request body of 1.4 MB, p50", ratio, 1.15, _ms(first, second)))
        lines.append(at_most("memory after that, MiB", ours.mebibytes, 135, f"mitmdump alone {bare.mebibytes:.0f}"))
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--full", action="store_true", help="measure `breakwater start --full` instead")
    asked = parser.parse_args()
    print("breakwater start against mitmdump alone with its defaults; detail: mitmdump / ours")
    for _ in range(asked.runs):
        for line in asyncio.run(measure(asked.full)):
            print(line, flush=True)


if __name__ == "__main__":
    main()
