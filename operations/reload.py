"""From one load of addon.py to the next: mitmproxy makes the addon anew when its file changes, and this module stays."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from operations.controller import Controller

logger = logging.getLogger("breakwater")

SUCCESSOR_SECONDS = 2.0
"""A reload takes a fraction of it; after it, traffic has gone by unguarded and somebody should know."""

_left: list[Controller] = []
_tasks: set[asyncio.Task[None]] = set()


def leave(controller: Controller) -> None:
    """Leave the state for a successor, and raise an alarm where none comes."""
    _left[:] = [controller]
    keep(_alarm(controller))


def keep(work: Coroutine[Any, Any, None]) -> None:
    """Do something that outlives the addon which asked for it; nothing where the loop is gone."""
    try:
        task = asyncio.get_running_loop().create_task(work)
    except RuntimeError:
        work.close()
        return
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)


def take() -> Controller | None:
    """The state that a predecessor left, once."""
    return _left.pop() if _left else None


async def _alarm(controller: Controller) -> None:
    await asyncio.sleep(SUCCESSOR_SECONDS)
    if controller in _left:
        logger.error("Breakwater: addon.py was unloaded and did not come back: traffic is unguarded")
