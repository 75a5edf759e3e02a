"""From one load of addon.py to the next: mitmproxy makes the addon anew when its file changes, and this module stays."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from operations.desk import Desk

logger = logging.getLogger("breakwater")

SUCCESSOR_SECONDS = 2.0
"""A reload takes a fraction of it; after it, traffic has gone by unguarded and somebody should know."""

_left: list[Desk] = []
_alarms: list[asyncio.Task[None]] = []


def leave(desk: Desk) -> None:
    """Leave the state for a successor, and raise an alarm where none comes."""
    _left[:] = [desk]
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return
    _alarms[:] = [loop.create_task(_alarm(desk), name="breakwater successor")]


def take() -> Desk | None:
    """The state that a predecessor left, once."""
    return _left.pop() if _left else None


async def _alarm(desk: Desk) -> None:
    await asyncio.sleep(SUCCESSOR_SECONDS)
    if desk in _left:
        logger.error("Breakwater: addon.py was unloaded and did not come back: traffic is unguarded")
