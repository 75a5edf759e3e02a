"""A terminal (a pty) with a program in it, its keys and what it shows."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.e2e.lab.proxy import START_SECONDS

CTRL_C, CTRL_Z, CTRL_D = b"\x03", b"\x1a", b"\x04"


class Terminal:
    """The program leads a session of its own there, as a shell does."""

    def __init__(self, command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> None:
        self.pid, self._master = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.execvpe(command[0], list(command), {**environment, "TERM": "dumb", "PS1": "$ "})
        self.shown = ""
        self.seen = ""  # all of it
        self._status: int | None = None

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def press(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def expect(self, text: str) -> None:
        """Block until it shows that, after what was expected before."""
        until = time.monotonic() + START_SECONDS
        while text not in self.shown:
            ready, _, _ = select.select([self._master], [], [], max(until - time.monotonic(), 0))
            try:
                data = os.read(self._master, 65536) if ready else b""
            except OSError:  # the program has ended
                data = b""
            assert data, f"it never showed {text!r}, but {self.shown!r}"
            self.shown += data.decode("utf-8", "replace")
            self.seen += data.decode("utf-8", "replace")
        self.shown = self.shown.partition(text)[2]

    def wait(self) -> int:
        """The exit status of the program, when it has ended."""
        _, status = os.waitpid(self.pid, 0)
        self._status = os.waitstatus_to_exitcode(status)
        return self._status

    def close(self) -> None:
        if self._status is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            self.wait()
        os.close(self._master)
