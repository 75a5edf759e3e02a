"""Notices that the config file has changed."""

from __future__ import annotations

import os
from pathlib import Path

LARGEST_BYTES = 1024 * 1024
"""A larger file is no config; it is left alone as if it had not changed."""


class ConfigWatch:
    """Looks at a file whenever it is asked to; keeps no handle, starts no thread."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._seen = self._mark()
        self.text = self._read()
        """The last text that was read, the first one included; None where there was none."""

    def poll(self) -> str | None:
        """The new text, once, where it has changed since the last look; else None. Never raises.

        A file that is empty (editors truncate first) or gone is looked at again the next time; so is one that changed
        while it was read. One that was only touched is not news.
        """
        mark = self._mark()
        if mark is None or mark == self._seen:
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
        except (OSError, ValueError):
            return None
        return None if len(data) > LARGEST_BYTES else data.decode("utf-8-sig", "replace")
