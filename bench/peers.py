"""`python -m bench.peers`: Breakwater beside other gateways, before one upstream on loopback.

Nothing of it runs in the tests: it installs the others under its cache folder. What is printed are the tables of
docs/benchmarks.md. Figures of a machine that does something else beside it are worth nothing; the ratios bear more.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from types import FrameType

from bench.installed import NODE, default_cache
from bench.isolated import isolate
from bench.pages import fill
from bench.peer_lab import speed
from bench.peer_lab.behaviour import ROWS, SDKS, behave
from bench.peer_lab.served import Served
from bench.peer_lab.systems import SYSTEMS, System
from bench.peer_lab.upstream import PeerUpstream


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__)
    parser.add_argument("--list", action="store_true", help="print the gateways and end")
    parser.add_argument("--only", action="append", default=[], choices=tuple(SYSTEMS), help="repeatable")
    parser.add_argument("--part", choices=("speed", "behaviour"), help="one part only")
    parser.add_argument("--fill", type=Path, metavar="PAGE", help="put the tables into this page, such as docs/benchmarks.md")
    parser.add_argument("--rounds", type=int, default=8, metavar="N", help="of each measure of speed")
    parser.add_argument("--cache", type=Path, default=default_cache(), help="where the others are installed")
    parser.add_argument("--not-isolated", action="store_true", help="run where no network namespace can be had")
    return parser.parse_args()


def main() -> None:
    arguments = _arguments()
    names = [name for name in SYSTEMS if not arguments.only or name in arguments.only]
    if arguments.list:
        for name in names:
            print(f"{name:<10} {SYSTEMS[name].title}")
        return
    systems = [SYSTEMS[name] for name in names]
    for package in (SDKS, *(package for system in systems for package in system.packages)):
        package.install(arguments.cache)
    if not isolate("bench.peers", sys.argv[1:]) and not arguments.not_isolated:
        sys.exit("no network namespace with loopback alone (needs root or user namespaces): see --not-isolated")
    signal.signal(signal.SIGTERM, _stopped)
    asyncio.run(_run(systems, arguments))


async def _run(systems: list[System], arguments: argparse.Namespace) -> None:
    began = time.monotonic()
    upstream = PeerUpstream()
    await upstream.start()
    try:
        for part, measured in (("speed", _speed), ("behaviour", _behaviour)):
            if arguments.part in (None, part):
                lines = [*await measured(systems, arguments, upstream), *_machine(time.monotonic() - began)]
                print("\n".join(lines), flush=True)
                if arguments.fill:
                    fill(arguments.fill, part, "\n".join(lines))
    finally:
        upstream.stop()


async def _speed(systems: list[System], arguments: argparse.Namespace, upstream: PeerUpstream) -> list[str]:
    lines = list(_head("measure", systems))
    async with AsyncExitStack() as stack:
        served = [await stack.enter_async_context(Served(each, arguments.cache, upstream)) for each in systems]
        for measure in speed.MEASURES:
            figures = await speed.measure(measure, served, arguments.rounds)
            cells = [f"{figure.value:.1f} {measure.unit} ({figure.ratio:.2f})" for figure in figures]
            lines.append(_row(measure.title, cells))
            print(lines[-1], file=sys.stderr, flush=True)
        lines.append(_row("resident memory afterwards", [f"{each.memory_mib():.0f} MiB" for each in served]))
    return [*lines, ""]


async def _behaviour(systems: list[System], arguments: argparse.Namespace, upstream: PeerUpstream) -> list[str]:
    columns = []
    for system in systems:
        columns.append(await behave(system, arguments.cache, upstream))
        print(f"{time.strftime('%H:%M:%S')} {system.title}: {columns[-1]}", file=sys.stderr, flush=True)
    rows = [_row(title, [column[title] for column in columns]) for title in ROWS]
    return [*_head("what the client hears", systems), *rows, ""]


def _head(first: str, systems: list[System]) -> Iterator[str]:
    yield _row(first, [system.title for system in systems])
    yield "|---" * (len(systems) + 1) + "|"


def _row(title: str, cells: list[str]) -> str:
    return f"| {title} | " + " | ".join(cells) + " |"


def _machine(seconds: float) -> Iterator[str]:
    yield f"{time.strftime('%Y-%m-%d')}, {platform.platform(terse=True)}, {os.cpu_count()} cores ({_processor()}), Python"
    yield f"{platform.python_version()}, Node {NODE.version}, load {os.getloadavg()[0]:.1f} at the end, after {seconds:.0f} s."


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "processor unknown"


def _stopped(_signal: int, _frame: FrameType | None) -> None:
    """Leave through every `finally`, so that no gateway outlives this program."""
    sys.exit("stopped")


if __name__ == "__main__":
    main()
