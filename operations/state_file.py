"""What outlives a restart, in one small JSON file: versioned, atomic, readable by its owner alone.

Nothing here raises: a proxy without its state still protects. Whatever goes wrong comes back as one line for a WARNING.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

VERSION = 1
LARGEST_BYTES = 16 * 1024 * 1024
CLOCK_SLACK_SECONDS = 60.0
MOVES_AT_MOST = 100
"""Broken files that are kept beside the state, `.broken-1` and up; the last name is overwritten from then on."""


class _UnreadableError(Exception):
    """The file is there and cannot be taken up; the words say why."""


def load(path: str | os.PathLike[str]) -> tuple[dict[str, Any], str | None]:
    """The state and no warning; or an empty state, with a warning unless there simply is no file yet.

    A file that is no state is moved aside to `.broken-<n>`, one of a later version to `.newer`.
    """
    file = Path(path)
    try:
        data = _read(file)
    except FileNotFoundError:
        return {}, None
    except _UnreadableError as error:
        return {}, f"{file}: {error}; {_move_aside(file, '.broken-')}"
    except (OSError, ValueError) as error:
        return {}, f"{file}: cannot be read ({_words(error)}); starting without it"
    version = data.get("version")
    if version == VERSION and not isinstance(version, bool):
        return data, None
    if isinstance(version, int) and version > VERSION:
        return {}, f"{file}: written by a later version ({version}); {_move_aside(file, '.newer')}"
    return {}, f"{file}: no known version; {_move_aside(file, '.broken-')}"


def save(path: str | os.PathLike[str], state: Mapping[str, Any]) -> str | None:
    """Replace the file as a whole; `version` and `saved_at` are added. A warning where that failed, the old file kept.

    A `saved_at` (Unix time, seconds) in the state is kept.
    """
    file = Path(path)
    temporary: str | None = None
    try:
        text = json.dumps({"saved_at": time.time(), **state, "version": VERSION}, ensure_ascii=True, allow_nan=False)
        # A state file that is a link stays one: what it points to is replaced.
        target = file.resolve()
        # mkstemp creates with 0600 and never follows or reuses what is there.
        handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
        with os.fdopen(handle, "wb") as out:
            out.write(text.encode("ascii"))
            out.flush()
            os.fsync(out.fileno())
        os.replace(temporary, target)  # noqa: PTH105 - both are names here
        temporary = None
        _sync_directory(target.parent)
    except (OSError, ValueError, TypeError, RecursionError, RuntimeError) as error:
        return f"{file}: cannot be written ({_words(error)}); a restart will forget"
    else:
        return None
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                Path(temporary).unlink()


def clock_went_back(state: Mapping[str, Any], now_wall: float) -> bool:
    """True where the state was saved in what the wall clock now calls the future, or does not say when.

    Ages computed from it are then worth nothing: whoever reads them should assume that no time has passed.
    """
    saved_at = state.get("saved_at")
    if isinstance(saved_at, bool) or not isinstance(saved_at, int | float):
        return True
    return not saved_at <= now_wall + CLOCK_SLACK_SECONDS


def _read(file: Path) -> dict[str, Any]:
    # O_NONBLOCK: a pipe in the file's place must not stop the start.
    descriptor = os.open(file, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    with os.fdopen(descriptor, "rb") as source:
        data = source.read(LARGEST_BYTES + 1) or b""
    if len(data) > LARGEST_BYTES:
        raise _UnreadableError("too large to be a state")
    try:
        state = json.loads(data)
    except (ValueError, RecursionError):
        raise _UnreadableError("no JSON") from None
    if not isinstance(state, dict):
        raise _UnreadableError("no JSON object")
    return state


def _move_aside(file: Path, suffix: str) -> str:
    """What has become of the file, in words."""
    for number in range(1, MOVES_AT_MOST + 1):
        aside = file.with_name(f"{file.name}{suffix}{number}" if suffix.endswith("-") else f"{file.name}{suffix}")
        if suffix.endswith("-") and number < MOVES_AT_MOST and os.path.lexists(aside):
            continue
        try:
            os.replace(file, aside)  # noqa: PTH105 - both are names here
        except OSError as error:
            return f"it could not be moved aside ({_words(error)}); starting without it"
        return f"moved aside to {aside.name}, starting without it"
    return "starting without it"


def _words(error: Exception) -> str:
    """Why, without the path that the caller names anyway, and on one line."""
    words = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(words.split()) or type(error).__name__


def _sync_directory(directory: Path) -> None:
    """Make the new name last through a power cut, where the system can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
