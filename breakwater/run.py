"""`breakwater run -- CMD…`: CMD behind the Breakwater of a port, which is started for as long as somebody needs it.

That is told by a lease: a lock of the kernel on a file (`flock`), so that it ends with its holder, however that ends. Every
`run` holds it shared; the Breakwater looks whether it can have it alone, which is so when the last `run` is gone, and ends then.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import IO, Any

from breakwater import asking, authorities
from breakwater.cli import HOST, USAGE, CommandError, Parser, common, confdir
from breakwater.env import variables

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

MISSING, NOT_EXECUTABLE = 127, 126
"""What a shell says of a command that is not there, and of one that cannot be executed."""
START_SECONDS = 60.0
"""How long a start may take; a quiet machine needs about one second."""
ENDING_SECONDS = 5.0
"""How long a Breakwater that ends may keep its port."""
LOOK_SECONDS = 0.05
LEASE_LOOK_SECONDS = 0.2
FORWARDED = ("SIGHUP", "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGWINCH", "SIGCONT")
"""What reaches us alone is meant for the child. The terminal sends SIGWINCH twice then, which costs a redraw."""
OF_THE_KEYBOARD = ("SIGINT", "SIGQUIT", "SIGTSTP")
"""What the terminal sends to the child as well."""


def main(words: Sequence[str]) -> int:
    asked, passed_on, command = _parse(list(words))
    program = _find(command[0])
    folder = confdir(asked.sets).absolute()
    with locked(folder / f"breakwater-{asked.port}.lease", shared=True):
        with locked(folder / f"breakwater-{asked.port}.lock"):
            _take_or_start(asked.port, folder, passed_on)
        bundle = authorities.bundle(folder, os.environ)
        environment = {**os.environ, **variables(asked.port, bundle, os.environ)}
        return _run([program, *command[1:]], environment, command[0])


def _parse(words: list[str]) -> tuple[argparse.Namespace, list[str], list[str]]:
    """Own options, what a start is given besides, and the command."""
    parser = Parser(
        prog="breakwater run",
        usage="breakwater run [--port N] [options of start --] CMD [ARGUMENT…]",
        description="Runs CMD behind the Breakwater of a port; starts one, if there is none, until the last CMD ends.",
    )
    common(parser)
    if "--" in words:
        place = words.index("--")
        asked, passed_on = parser.parse_known_args(words[:place])
        command = words[place + 1 :]
    else:
        parser.add_argument("command", nargs=argparse.REMAINDER)
        asked = parser.parse_args(words)
        passed_on, command = [], asked.command
    if not command:
        raise CommandError("run: no command is given: breakwater run -- CMD (breakwater run --help)", USAGE)
    return asked, [word for entry in asked.sets for word in ("--set", entry)] + passed_on, command


def _find(name: str) -> str:
    found = shutil.which(name)
    if found:
        return found
    if os.sep in name and Path(name).exists():
        raise CommandError(f"{name}: cannot be executed", NOT_EXECUTABLE)
    raise CommandError(f"{name}: command not found", MISSING)


# -- the Breakwater of a port ------------------------------------------------------------------------------------------


def _take_or_start(port: int, folder: Path, passed_on: list[str]) -> None:
    found, until = asking.who(port), time.monotonic() + ENDING_SECONDS
    while found.broke_off and time.monotonic() < until:
        time.sleep(LOOK_SECONDS)
        found = asking.who(port)
    if found.kind is asking.Kind.OTHER:
        raise CommandError(f"{HOST}:{port} is taken by {found.kind.value}; --port takes another one")
    if found.kind is asking.Kind.NOTHING:
        _start(port, folder, passed_on)
    elif not asking.is_trusted(port, authorities.ensure(folder)):
        raise CommandError(f"the Breakwater at {HOST}:{port} has another CA than {folder}; --set confdir=… names its folder")


def _start(port: int, folder: Path, passed_on: list[str]) -> None:
    log = folder / f"breakwater-{port}.log"
    command = [sys.executable, "-P", "-m", "breakwater", "start", "--port", str(port), *passed_on]
    command += ["--while-leased", str(folder / f"breakwater-{port}.lease")]
    # Of this very package, whatever lies in the folder that we are called from.
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1]), "PYTHONUNBUFFERED": "1"}
    with _open(log) as file:
        file.truncate()
        started = subprocess.Popen(  # noqa: S603 - our own program
            command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,  # a Ctrl-C at the terminal is CMD's
        )
    until = time.monotonic() + START_SECONDS
    while asking.who(port).kind is not asking.Kind.BREAKWATER:
        if started.poll() is not None:
            raise CommandError(_last_line(log) or f"Breakwater ended with status {started.returncode}; see {log}")
        if time.monotonic() > until:
            started.terminate()
            raise CommandError(f"Breakwater did not come up within {START_SECONDS:.0f} s; see {log}")
        time.sleep(LOOK_SECONDS)


def _last_line(log: Path) -> str:
    """What a start that ended has said last; a request that it met while it ended is not why."""
    said = log.read_text("utf-8", "replace").strip().splitlines()
    lines = [line for line in said if "Addon error" not in line]
    return lines[-1].removeprefix("breakwater: ") if lines else ""


# -- its lease ---------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def locked(path: Path, *, shared: bool = False) -> Iterator[None]:
    """Hold a lock, alone or with others who share it; a Breakwater that is just ending is waited for."""
    with _open(path) as file:
        fcntl.flock(file, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        yield


def end_when_unused(lease: str, end: Callable[[], None]) -> None:
    """Call `end` when nobody holds the lease any more, and keep it from new ones until this process is gone."""

    def wait() -> None:
        _kept.append(_open(Path(lease)))
        while not _is_ours(_kept[-1]):
            time.sleep(LEASE_LOOK_SECONDS)  # a lock that waits in line could keep new holders out on some systems
        end()

    threading.Thread(target=wait, name="lease", daemon=True).start()


_kept: list[IO[Any]] = []
"""Files whose lock this process keeps to its end."""


def _is_ours(file: IO[Any]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _open(path: Path) -> IO[Any]:
    if fcntl is None:
        raise CommandError("run needs a POSIX system (on Windows: breakwater start, and WSL or the lines of env)")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "w")
    except OSError as fault:
        raise CommandError(f"{path}: cannot be written: {fault.strerror}") from None


# -- the program ---------------------------------------------------------------------------------------------------------


def _run(command: Sequence[str], environment: Mapping[str, str], name: str) -> int:
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
        with Path("/dev/tty").open("rb", buffering=0) as terminal:
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:
        return False
