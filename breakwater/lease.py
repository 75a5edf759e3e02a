"""A lease: as long as one process holds it, the Breakwater that was started for it stays.

It is a lock of the kernel on a file (`flock`), so that it ends with its holder, however that ends. Every `run` holds it
shared; the Breakwater looks whether it can have it alone, which is so when the last `run` is gone, and ends then.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from breakwater.places import CommandError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

LOOK_SECONDS = 0.2


def _open(path: Path) -> IO[Any]:
    if fcntl is None:
        raise CommandError("run needs a POSIX system (on Windows: breakwater start, and WSL or the lines of env)")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "w")
    except OSError as fault:
        raise CommandError(f"{path}: cannot be written: {fault.strerror}") from None


@contextlib.contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold the lease; where its Breakwater is just ending, wait for that."""
    with _open(path) as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        yield


@contextlib.contextmanager
def alone(path: Path) -> Iterator[None]:
    """Be the only one who looks and starts."""
    with _open(path) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def end_when_unused(path: str, end: Callable[[], None]) -> None:
    """Call `end` when nobody holds the lease any more, and keep it from new ones until this process is gone."""

    def wait() -> None:
        _kept.append(_open(Path(path)))
        while not _is_ours(_kept[-1]):
            time.sleep(LOOK_SECONDS)  # a lock that waits in line could keep new holders out on some systems
        end()

    threading.Thread(target=wait, name="lease", daemon=True).start()


def _is_ours(file: IO[Any]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


_kept: list[IO[Any]] = []
"""Files whose lock this process keeps to its end."""
