"""Clock: the one place where it is read; whoever decides gets the time as an argument."""

from __future__ import annotations

import time
from typing import NamedTuple


class Moment(NamedTuple):
    """Seconds on both clocks at one moment."""

    now: float
    """Monotonic."""
    wall: float
    """Since the epoch."""


def clock() -> Moment:
    return tuple.__new__(Moment, (time.monotonic(), time.time()))  # four times as fast as by its own constructor
