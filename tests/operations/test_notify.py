"""The command of `notify`, its limits: a minute between two of a kind, an end for one that hangs, one line of complaint."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path

import pytest

from operations import notify
from operations.clock import Moment
from operations.notify import Notifier
from policies.breaker import BreakerState, Transition
from tests.policies.exchanges import settings

OPENED = Transition("zai", BreakerState.CLOSED, BreakerState.OPEN, "strike", "warning", 60.0)
BETWEEN = Transition("zai", BreakerState.OPEN, BreakerState.HALF_OPEN, "window over", "debug")


def hears(one: Notifier, *transitions: Transition) -> None:
    """Tell it, and wait until its command has ended."""

    async def told() -> None:
        one.moved(transitions)
        await asyncio.gather(*one._tasks, return_exceptions=True)

    asyncio.run(told())


def test_a_second_of_a_kind_waits_a_minute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    times = iter((1000.0, 1059.0, 1060.5))
    monkeypatch.setattr(notify, "clock", lambda: Moment(next(times), 0.0))
    one = Notifier(lambda: settings(f"notify: sh -c 'echo $BREAKWATER_EVENT $BREAKWATER_MESSAGE >> {tmp_path}/told'"))
    for _ in range(3):
        hears(one, OPENED, BETWEEN)
    assert (tmp_path / "told").read_text() == 2 * "breaker_opened zai is paused for 60 s after repeated challenges\n"


def test_one_that_hangs_is_ended_with_what_it_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(notify, "LONGEST_SECONDS", 0.2)
    fifo = tmp_path / "held"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    one = Notifier(lambda: settings(f"notify: sh -c '(sleep 300 > {fifo}) & wait'"))
    hears(one, OPENED)
    os.set_blocking(reader, True)
    assert os.read(reader, 1) == b""  # nobody holds the other end any more
    os.close(reader)
    assert caplog.messages == ["Breakwater: the command of notify failed (ended after 0 s); further failures are not said"]


def test_a_failing_one_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    one = Notifier(lambda: settings("notify: sh -c 'exit 3'"))
    hears(one, OPENED)
    hears(one, Transition("zai", BreakerState.OPEN, BreakerState.CLOSED, "answered", "info"))
    assert caplog.messages == ["Breakwater: the command of notify failed (exit status 3); further failures are not said"]


def test_nothing_runs_without_a_command() -> None:
    one = Notifier(lambda: settings("mode: enforce"))
    hears(one, OPENED)
    assert not one._last


def test_nothing_runs_where_a_recording_is_read(tmp_path: Path) -> None:
    one = Notifier(lambda: settings(f"notify: touch {tmp_path}/told"))
    one.moved([OPENED])
    assert not (tmp_path / "told").exists()
