"""What ends a start beside a mistake in the config file itself: an option that is misspelt, a path that nobody can write."""

from __future__ import annotations

import difflib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from policies.settings import Settings
from policies.settings_file import SettingsError

PREFIX = "breakwater"


def misspelt(options: Any) -> Iterator[str]:
    """A line for each of mitmproxy's options that was set, that no addon knows, and that was meant for this one."""
    ours = {name.removeprefix(PREFIX): name for name in sorted(options.keys()) if name.startswith(PREFIX)}
    for name in options.deferred:
        near = difflib.get_close_matches(name, ours.values(), n=1, cutoff=0.85)
        if name.startswith(PREFIX):
            near = [ours[rest] for rest in difflib.get_close_matches(name.removeprefix(PREFIX), ours, n=1)]
        if near or name.startswith(PREFIX):
            hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(ours.values())}"
            yield f"{name if name.isprintable() else ascii(name)}: unknown option; {hint}"


def check_writable(settings: Settings, config: str) -> None:
    """Raise a ``SettingsError`` that names ``config`` and the key of a path at which nothing can be written.

    Leaves no file behind. A file that is there is appended to (evidence), or replaced by one beside it (state).
    """
    for key, path, replaced in (
        ("evidence_path", settings.evidence_path, False),
        ("state_path", settings.state_path, True),
    ):
        if path is None:
            continue
        try:
            _try(Path(path).expanduser(), replaced=replaced)
        except (OSError, ValueError, RuntimeError) as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else error
            shown = path if path.isprintable() else ascii(path)
            raise SettingsError(f"{config}: {key}: {shown} cannot be written ({why})") from None


def _try(file: Path, *, replaced: bool) -> None:
    if file.is_dir():
        raise IsADirectoryError(None, "it is a folder")
    if file.exists() and not replaced:
        # O_NONBLOCK: a pipe in the file's place must not stop the start.
        os.close(os.open(file, os.O_WRONLY | os.O_APPEND | getattr(os, "O_NONBLOCK", 0)))
    else:
        target = file.resolve()
        with tempfile.NamedTemporaryFile(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent):
            pass
