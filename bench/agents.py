"""`python -m bench.agents`: real coding agents against a scripted upstream, with Breakwater and without it.

Nothing of it runs in the tests: it installs 1.5 GB of npm packages under its cache folder and takes hours as a whole.
The agents run where only loopback is, so that they reach nobody.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from types import FrameType

from bench.agent_lab import report
from bench.agent_lab.clients import AGENTS
from bench.agent_lab.scenarios import chosen
from bench.agent_lab.turns import Scenario, Side, play
from bench.installed import NODE, default_cache
from bench.isolated import isolate


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.agents", description=__doc__)
    parser.add_argument("--list", action="store_true", help="print the scenarios and end")
    parser.add_argument("--only", action="append", default=[], metavar="PATTERN", help="such as 'nine/*'; repeatable")
    parser.add_argument("--seconds", type=float, metavar="N", help="length of the challenge, instead of each one's own")
    parser.add_argument("--side", choices=("without", "with"), help="one side only")
    parser.add_argument("--runs", type=int, default=1, metavar="N", help="how often each is played")
    parser.add_argument("--cache", type=Path, default=default_cache(), help="what is installed, and the results")
    parser.add_argument("--results", type=Path, help="file that outcomes are added to (default: in the cache)")
    parser.add_argument("--tables", action="store_true", help="print the tables of what the file holds, and end")
    parser.add_argument("--not-isolated", action="store_true", help="run where no network namespace can be had")
    return parser.parse_args()


def main() -> None:
    arguments = _arguments()
    scenarios = chosen(arguments.only, arguments.seconds)
    results = arguments.results or arguments.cache / "agents.jsonl"
    if arguments.list:
        _print(f"{each.name:<32} at most {each.limit_seconds:.0f} s: {', '.join(each.agents)}" for each in scenarios)
        return
    if not arguments.tables:
        _install(scenarios, arguments.cache)
        if not isolate("bench.agents", sys.argv[1:]) and not arguments.not_isolated:
            sys.exit("no network namespace with loopback alone (needs root or user namespaces): see --not-isolated")
        signal.signal(signal.SIGTERM, _stopped)
        _play(scenarios, arguments, results)
    _print(report.tables(report.read(results)))


def _install(scenarios: list[Scenario], cache: Path) -> None:
    NODE.install(cache)
    for name in dict.fromkeys(name for scenario in scenarios for name in scenario.agents):
        AGENTS[name].package.install(cache)


def _play(scenarios: list[Scenario], arguments: argparse.Namespace, results: Path) -> None:
    sides: tuple[Side, ...] = (arguments.side,) if arguments.side else ("without", "with")
    for _ in range(arguments.runs):
        for scenario in scenarios:
            for side in sides:
                outcome = play(scenario, side, arguments.cache)
                report.written(results, outcome)
                print(time.strftime("%H:%M:%S"), report.line(outcome), file=sys.stderr, flush=True)


def _stopped(_signal: int, _frame: FrameType | None) -> None:
    """Leave through every `finally`, so that no agent outlives this program."""
    sys.exit("stopped")


def _print(lines: Iterable[str]) -> None:
    for each in lines:
        print(each)


if __name__ == "__main__":
    main()
