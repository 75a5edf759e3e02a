"""A child at the terminal: it has the terminal, the signals and the last word, as if a shell had started it."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from types import FrameType

from breakwater.places import CommandError

FORWARDED = ("SIGHUP", "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGWINCH", "SIGCONT")
"""What reaches us alone is meant for the child. The terminal sends SIGWINCH twice then, which costs a redraw."""
OF_THE_KEYBOARD = ("SIGINT", "SIGQUIT", "SIGTSTP")
"""What the terminal sends to the child as well."""
NOT_EXECUTABLE = 126


def run(command: Sequence[str], environment: Mapping[str, str], name: str) -> int:
    """Run to its end; the exit status, 128 + n where signal n ended it."""
    process: subprocess.Popen[bytes] | None = None

    def forward(number: int, _: FrameType | None) -> None:
        if process is not None and not (number in keyboard and _has_terminal()):
            os.kill(process.pid, number)

    keyboard = {getattr(signal, each) for each in OF_THE_KEYBOARD}
    for each in (*FORWARDED, *OF_THE_KEYBOARD):
        number = getattr(signal, each)
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
            signal.signal(number, forward)
    try:
        process = subprocess.Popen(command, env=environment)  # noqa: S603 - the command that the person named
    except OSError as fault:
        raise CommandError(f"{name}: cannot be executed: {fault.strerror}", NOT_EXECUTABLE) from None
    return _wait(process)


def _wait(process: subprocess.Popen[bytes]) -> int:
    """Stop where the child stops (Ctrl-Z), so that the shell sees it, and go on with it."""
    while True:
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        if os.WIFSTOPPED(status):
            os.kill(os.getpid(), signal.SIGSTOP)
            os.kill(process.pid, signal.SIGCONT)
            continue
        process.returncode = os.waitstatus_to_exitcode(status)
        return process.returncode if process.returncode >= 0 else 128 - process.returncode


def _has_terminal() -> bool:
    """Tell whether we are in front at a terminal: what its keys send goes to the child too."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)
