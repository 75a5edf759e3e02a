"""One scenario on one side: the upstream, the proxy and the agents are started, watched until each has ended, and ended."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from bench.agent_lab.clients import AGENTS, Bases, Start, environment
from bench.agent_lab.provider import Behaviour, Provider
from bench.agent_lab.tools import NOTE
from bench.agent_lab.wires import ANSWER
from tests.e2e.lab.certificates import Authority
from tests.e2e.lab.proxy import LAB, Proxy

Side = Literal["without", "with"]
GRACE_SECONDS = 20
"""What an agent that has printed its answer gets to end by itself."""
LOOK_SECONDS = 0.2
OUTPUT_BYTES = 2_000_000
"""As much of what an agent printed as is looked through."""
PLAIN = Bases("https://api.z.ai/api/anthropic", "https://api.z.ai/api/coding/paas/v4")
ZCODE = Bases("https://zcode.z.ai/api/v1/zcode-plan/anthropic", "https://zcode.z.ai/api/v1/zcode-plan/v4")


@dataclass(frozen=True)
class Scenario:
    name: str
    agents: tuple[str, ...]
    behaviour: Behaviour
    limit_seconds: float
    """After this every agent that still runs is ended."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """Of the Breakwater."""


@dataclass(frozen=True)
class Turn:
    """What came of one agent. Seconds from the first generation request at the upstream."""

    agent: str
    answered: float | None
    ended: float
    said: str
    """The end of what it printed, where it printed no answer."""


@dataclass(frozen=True)
class Outcome:
    scenario: str
    side: Side
    turns: tuple[Turn, ...]
    sends: int
    refused: int
    sent_at: tuple[float, ...]
    """When each send came, in seconds from the first."""

    @property
    def answers(self) -> int:
        return sum(turn.answered is not None for turn in self.turns)

    @property
    def last(self) -> float | None:
        """When the last answer came."""
        return max((turn.answered for turn in self.turns if turn.answered is not None), default=None)

    def record(self) -> dict[str, Any]:
        return asdict(self)


class Running:
    """One agent at work, in a folder and a process group of its own."""

    def __init__(self, name: str, start: Start, folder: Path, surrounding: dict[str, str]) -> None:
        self.name = name
        self.answered: float | None = None
        self.ended: float | None = None
        self._output = folder / "output.txt"
        for file, text in {**start.files, NOTE: "a note\n"}.items():
            path = folder / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                start.command,
                cwd=folder,
                env={**surrounding, **start.environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def printed(self) -> str:
        with self._output.open("rb") as output:
            return output.read(OUTPUT_BYTES).decode("utf-8", "replace")

    def look(self) -> bool:
        """Take down what has happened; True while there is something to wait for."""
        now = time.monotonic()
        over = self._process.poll() is not None
        if self.answered is None and ANSWER in self.printed:
            self.answered = now
        if over and self.ended is None:
            self.ended = now
        if self.answered is not None and now - self.answered > GRACE_SECONDS:
            self.end()
        return self.ended is None

    def end(self) -> None:
        """End the agent and what it started, whatever state they are in."""
        for sign in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, sign)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(3)
        self.ended = self.ended or time.monotonic()

    def turn(self, began: float) -> Turn:
        assert self.ended is not None
        answered = None if self.answered is None else self.answered - began
        return Turn(self.name, answered, self.ended - began, "" if self.answered else self.printed[-600:])


def play(scenario: Scenario, side: Side, cache: Path) -> Outcome:
    """Run it, and end everything that it started. With BENCH_KEEP set its folder stays, with all that was printed."""
    folder = Path(tempfile.mkdtemp(prefix="agents-"))
    try:
        return _played(scenario, side, cache, folder)
    finally:
        if os.environ.get("BENCH_KEEP"):
            print(f"kept: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)


def _played(scenario: Scenario, side: Side, cache: Path, folder: Path) -> Outcome:
    provider = Provider(Authority(folder), scenario.behaviour)
    provider.folder = str(folder)
    (folder / NOTE).write_text("a note\n", encoding="utf-8")
    scripts = [] if side == "with" else [LAB / "streaming.py"]
    proxy = Proxy(folder / "proxy", provider, config=scenario.config, addon=side == "with", scripts=scripts)
    running: list[Running] = []
    provider.start()
    try:
        proxy.start()
        bases = ZCODE if scenario.behaviour.form == "3007" else PLAIN
        for number, name in enumerate(scenario.agents):
            home = folder / f"{number}-{name}"
            home.mkdir()
            surrounding = environment(cache, home, proxy.url, proxy.ca_path)
            running.append(Running(name, AGENTS[name].start(cache, bases), home, surrounding))
        _watch(running, scenario.limit_seconds)
    finally:
        for each in running:
            each.end()
        proxy.end()
        provider.stop()
        (folder / "proxy.log").write_text(proxy.log, encoding="utf-8")
    if provider.faults:
        raise RuntimeError(f"the scripted upstream failed: {provider.faults[0]!r}")
    return _outcome(scenario, side, running, provider)


def _watch(running: Sequence[Running], limit_seconds: float) -> None:
    deadline = time.monotonic() + limit_seconds
    while any([each.look() for each in running]) and time.monotonic() < deadline:  # noqa: C419 - look at every one
        time.sleep(LOOK_SECONDS)


def _outcome(scenario: Scenario, side: Side, running: Sequence[Running], provider: Provider) -> Outcome:
    sends = provider.sends
    began = sends[0].at if sends else time.monotonic()
    return Outcome(
        scenario.name,
        side,
        tuple(each.turn(began) for each in running),
        len(sends),
        sum(send.refused for send in sends),
        tuple(round(send.at - began, 1) for send in sends),
    )
