"""The one place where the clock is read; whoever decides gets the time as an argument."""

from __future__ import annotations

import time
from typing import NamedTuple


class Moment(NamedTuple):
    """One moment on both clocks, in seconds."""

    now: float
    """Monotonic."""
    wall: float
    """Since the epoch."""


def clock() -> Moment:
    return Moment(time.monotonic(), time.time())
