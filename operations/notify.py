"""The user's own command, run when a person may want to know: a captcha, a breaker that moved, a blocked account.

What happened comes in ``BREAKWATER_*`` variables and never in the command's words, so that nothing of an upstream's text
is read by a shell. One at most a minute a kind; a command that hangs is ended, and all end with the proxy.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shlex
import signal
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from operations.clock import clock
from operations.flow_adapter import printable
from policies.breaker import BreakerState, Transition
from policies.decisions import Said
from policies.exchange import Exchange
from policies.kinds import Challenge, Kind
from policies.settings import Settings

logger = logging.getLogger("breakwater")

GAP_SECONDS = 60.0
"""Between two of a kind."""
LONGEST_SECONDS = 10.0
"""A command that runs longer is ended."""
KINDS = {Challenge.CAPTCHA: "captcha", Challenge.BLOCKED: "account_blocked"}
MOVES = {BreakerState.OPEN: "breaker_opened", BreakerState.CLOSED: "breaker_closed"}

MESSAGES = {
    "captcha": "{site} asks for a captcha: open it in a browser and pass the check",
    "account_blocked": "risk control at {site} refuses this account: wait, each further send may prolong it",
    "breaker_opened": "{upstream} is paused for {seconds} s after repeated challenges",
    "breaker_closed": "{upstream} answers again",
}


class Notifier:
    """Runs the command that the settings name. ``settings``: those of the moment."""

    def __init__(self, settings: Callable[[], Settings]) -> None:
        self._settings = settings
        self._last: dict[str, float] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._groups: set[int] = set()
        """Process groups of what runs now."""
        self._failed = False

    def found(self, ex: Exchange, said: Said) -> None:
        """Hear what an upstream answered."""
        finding = said.finding
        if (
            finding is None
            or finding.kind is not Kind.CHALLENGE
            or (kind := KINDS.get(finding.challenge or Challenge.BUSY)) is None
        ):
            return
        wait = "" if said.wait is None else said.wait
        self._tell(kind, {"upstream": ex.call.surface.upstream, "site": ex.site, "reason": finding.row, "seconds": wait})

    def moved(self, transitions: Iterable[Transition]) -> None:
        """Hear of a breaker's openings and closings; what lies between is nobody's news."""
        for one in transitions:
            if one.level != "debug" and (kind := MOVES.get(one.after)):
                seconds = f"{one.left:.0f}" if one.after is BreakerState.OPEN else ""
                hosts = next((row.hosts for row in self._settings().upstreams if row.name == one.upstream), ())
                self._tell(
                    kind,
                    {"upstream": one.upstream, "site": hosts[0] if hosts else "", "reason": one.reason, "seconds": seconds},
                )

    def close(self) -> None:
        """End what still runs: nothing of it outlives the proxy."""
        for group in self._groups:
            _end(group)
        for task in self._tasks:
            task.cancel()

    def _tell(self, kind: str, facts: Mapping[str, object]) -> None:
        settings, now = self._settings(), clock().now
        if settings.notify is None or now - self._last.get(kind, -GAP_SECONDS) < GAP_SECONDS:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return  # a recording is read: nothing happens now
        self._last[kind] = now
        message = ("Only observed: " if settings.mode == "observe" else "") + MESSAGES[kind].format(**facts)
        told = {**facts, "event": kind, "mode": settings.mode, "message": message}
        environment = {f"BREAKWATER_{name.upper()}": printable(str(value)) for name, value in told.items()}
        task = loop.create_task(self._run(shlex.split(settings.notify), environment), name="breakwater notify")
        self._tasks.add(task)
        task.add_done_callback(self._over)

    def _over(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (fault := task.exception()) is not None:
            self._complain(type(fault).__name__)

    async def _run(self, command: list[str], environment: Mapping[str, str]) -> None:
        nowhere = asyncio.subprocess.DEVNULL
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=nowhere,
                stdout=nowhere,
                stderr=nowhere,
                start_new_session=True,
                env={**os.environ, **environment},
            )
        except (OSError, ValueError) as fault:
            self._complain(getattr(fault, "strerror", None) or type(fault).__name__)
            return
        self._groups.add(process.pid)
        try:
            if status := await asyncio.wait_for(process.wait(), LONGEST_SECONDS):
                self._complain(f"exit status {status}")
        except TimeoutError:
            _end(process.pid)
            await process.wait()
            self._complain(f"ended after {LONGEST_SECONDS:.0f} s")
        finally:
            self._groups.discard(process.pid)

    def _complain(self, why: str) -> None:
        """Say once that it does not work; never its words, which may hold a credential."""
        if not self._failed:
            self._failed = True
            logger.warning("Breakwater: the command of notify failed (%s); further failures are not said", why)


def _end(group: int) -> None:
    """End a process and what it started, which share a session of their own."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
