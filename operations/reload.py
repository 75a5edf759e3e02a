"""What changes while the proxy runs: the config file, and addon.py itself, which mitmproxy loads anew while this module stays."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from operations.controller import Controller

logger = logging.getLogger("breakwater")

LARGEST_BYTES = 128 * 1024
"""A larger file is no config: reading it as YAML would keep every connection waiting for seconds."""
LOOKS_BEFORE_TROUBLE = 2
"""An editor may move the file away before it writes the new one."""
SUCCESSOR_SECONDS = 2.0
"""A reload takes a fraction of it; after it, traffic has gone by unguarded and somebody should know."""


class ConfigWatch:
    """Looks at a config file whenever it is asked to; keeps no handle, starts no thread."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.fault: str | None = None
        """What kept the file from being read at the last look, in words that follow its path."""
        self._looks = 0
        self._seen = self._mark()
        self.text = self._read()
        """The last text that was read, the first one included; None where there was none."""

    def poll(self) -> str | None:
        """The new text, once, where it has changed since the last look; else None. Never raises.

        A file that is empty (editors truncate first) or gone is looked at again the next time; so is one that changed
        while it was read. One that was only touched is not news.
        """
        before, self.fault = self.fault, None
        text = self._changed()
        self._looks = self._looks + 1 if self.fault and self.fault == before else int(self.fault is not None)
        return text

    def trouble(self) -> str | None:
        """What keeps a file that was read before from being read, once, where two looks in a row have found it so."""
        return self.fault if self._looks == LOOKS_BEFORE_TROUBLE and self.text is not None else None

    def _changed(self) -> str | None:
        mark = self._mark()
        if mark is None:
            self.fault = "is gone"
        if mark in (None, self._seen):
            return None
        text = self._read()
        if text is None or not text.strip() or self._mark() != mark:
            return None
        self._seen = mark
        if text == self.text:
            return None
        self.text = text
        return text

    def _mark(self) -> tuple[int, int, int] | None:
        try:
            stat = self.path.stat()
        except (OSError, ValueError):
            return None
        return stat.st_mtime_ns, stat.st_size, stat.st_ino

    def _read(self) -> str | None:
        """The text; bytes that are no UTF-8 become a replacement character, which the settings' parser then refuses."""
        try:
            with self.path.open("rb") as file:
                data = file.read(LARGEST_BYTES + 1)
        except (OSError, ValueError) as error:
            self.fault = f"cannot be read ({getattr(error, 'strerror', None) or error})"
            return None
        if len(data) > LARGEST_BYTES:
            self.fault = f"is larger than {LARGEST_BYTES // 1024} KiB, so it is no config"
            return None
        return data.decode("utf-8-sig", "replace")


_left: list[Controller] = []
_tasks: set[asyncio.Task[None]] = set()


def leave(controller: Controller) -> None:
    """Leave the state for a successor, and raise an alarm where none comes."""
    _left[:] = [controller]
    keep(_alarm(controller))


def take() -> Controller | None:
    """The state that a predecessor left, once."""
    return _left.pop() if _left else None


async def _alarm(controller: Controller) -> None:
    await asyncio.sleep(SUCCESSOR_SECONDS)
    if controller in _left:
        logger.error("Breakwater: addon.py was unloaded and did not come back: traffic is unguarded")


def keep(work: Coroutine[Any, Any, None]) -> None:
    """Do something that outlives the addon which asked for it; nothing where the loop is gone."""
    try:
        task = asyncio.get_running_loop().create_task(work)
    except RuntimeError:
        work.close()
        return
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)
