"""What outlives a restart, in one small JSON file: versioned, atomic, readable by its owner alone, shared by several proxies.

Nothing here raises: a proxy without its state still protects. Whatever goes wrong is one line for a WARNING.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import secrets
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from operations import demo
from operations.clock import clock
from policies import saved as saved_rows
from policies.saved import SECTIONS, VERSION, Known, Saved
from policies.state import State

try:
    import fcntl
except ImportError:  # Windows has none
    fcntl = None  # type: ignore[assignment]

logger = logging.getLogger("breakwater")

LARGEST_BYTES = 16 * 1024 * 1024
CLOCK_SLACK_SECONDS = 60.0
MOVES_AT_MOST = 100
"""Broken files that are kept beside the state, `.broken-1` and up; the last name is overwritten from then on."""
COMPLAINTS_AT_MOST = 20
"""Odd rows of one file that are named."""
KEY_BYTES = 32
CANNOT_WRITE = "cannot be written"
LOCK_TRIES, LOCK_PAUSE = 50, 0.01
"""Looks at a lock that another proxy has, and seconds between two of them, where nobody else is kept waiting."""


class StateFile:
    """The file of one proxy, which others may use meanwhile; without a path nothing is kept."""

    def __init__(self, path: str | os.PathLike[str] = "", key: bytes = b"") -> None:
        self.path = str(path)
        self.key = key or secrets.token_bytes(KEY_BYTES)
        """Of the hashes: the one that was kept, else a fresh one."""
        self._known: Known = {}
        self._said: set[str] = set()

    def load(self, *, create: bool = False) -> Saved:
        """What was kept, empty at a first start. ``create``: write a fresh key at once, so that a second proxy takes it too."""
        if not self.path:
            return Saved()
        if create:  # on a fresh machine mitmproxy makes its folder later
            with contextlib.suppress(OSError, ValueError, RuntimeError):
                Path(self.path).parent.mkdir(parents=True, exist_ok=True)
        with _locked(self.path, LOCK_TRIES) if create else contextlib.nullcontext(NO_LOCKS) as lock:
            if create and lock == NO_LOCKS:
                self._say(f"{self.path}: no file locks here; give each proxy a state_path of its own", logging.INFO)
            saved, complaints = load(self.path)
            for complaint in complaints:
                self._say(complaint)
            if key := key_of(saved.key):
                self.key = key
            elif create and lock == HELD:
                save(self.path, msgspec.structs.replace(saved, key=self.key.hex(), saved_at=clock().wall))
        self._known = saved_rows.seen_in(saved)
        return saved

    def rekey(self, key: bytes) -> None:
        """Keep another key of the hashes: the one that is shared with proxies elsewhere."""
        self.key = key
        with _locked(self.path, LOCK_TRIES):
            save(self.path, msgspec.structs.replace(load(self.path)[0], key=key.hex()))

    def save(self, state: State, *, tries: int = 1) -> bool:
        """Merge the state into the file and take up what others left there; False where it has to be tried again."""
        if not self.path:
            return True
        with _locked(self.path, tries) as lock:
            if lock == BUSY:
                return False
            theirs, complaints = load(self.path)
            written, news = saved_rows.merge(kept(state, self.key), theirs, self._known, clock().wall)
            if theirs.key and theirs.key != self.key.hex():
                if key_of(theirs.key):
                    complaints.append(
                        f"{self.path}: was made anew by another proxy; this one's accounts are kept until its end"
                    )
                else:
                    written.key = self.key.hex()
            warning = save(self.path, written)
        for complaint in (*complaints, *filter(None, [warning])):
            self._say(complaint)
        if warning:
            return False
        self._said.discard(CANNOT_WRITE)
        if names := sorted({row.upstream for section in SECTIONS for row in getattr(news, section)}):
            restore(news, state)
            logger.info("Breakwater: another proxy's blocks and windows were taken up: %s", ", ".join(names))
        return True

    def _say(self, words: str, level: int = logging.WARNING) -> None:
        """Say a thing once; what cannot be written is one thing, whatever the reason."""
        kind = CANNOT_WRITE if CANNOT_WRITE in words else words
        if kind not in self._said:
            self._said.add(kind)
            logger.log(level, "Breakwater: %s", words)


def kept(state: State, key: bytes) -> Saved:
    """What is kept of a state, without the demo, which starts anew each time."""
    now, wall = clock()
    saved = Saved(
        saved_at=wall,
        key=key.hex(),
        breakers=state.breakers.dump(wall, now),
        refusals=state.refusals.dump(wall, now),
        windows=state.windows.learnt(),
        limits=state.line.limits.dump(wall, now),
    )
    for section in SECTIONS:
        setattr(saved, section, [row for row in getattr(saved, section) if row.upstream != demo.UPSTREAM.name])
    return saved


def restore(saved: Saved, state: State) -> None:
    """Take up what was kept. Where the clock went back, no time has passed since it was saved."""
    now, wall = clock()
    if clock_went_back(saved, wall) and math.isfinite(saved.saved_at):
        wall = saved.saved_at
    state.breakers.load(saved.breakers, wall, now)
    state.refusals.load(saved.refusals, wall, now)
    state.windows.load(saved.windows, wall)
    state.line.limits.load(saved.limits, wall, now)


def load(path: str | os.PathLike[str]) -> tuple[Saved, list[str]]:
    """The state and a line for each odd row in it, which is left out; an empty state where there is no file yet.

    A file that is no state is moved aside to `.broken-<n>`, one of a later version to `.newer`.
    """
    file = Path(path)
    try:
        # O_NONBLOCK: a pipe in the file's place must not stop the start.
        with os.fdopen(os.open(file, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as source:
            data = source.read(LARGEST_BYTES + 1) or b""
    except FileNotFoundError:
        return Saved(), []
    except (OSError, ValueError) as error:
        return Saved(), [f"{file}: cannot be read ({_words(error)}); starting without it"]
    if len(data) > LARGEST_BYTES:
        return Saved(), [f"{file}: too large to be a state; {_move_aside(file, newer=False)}"]
    fields: dict[str, msgspec.Raw] = {}
    try:
        fields = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
        version = msgspec.json.decode(fields["version"], type=int)
    except (KeyError, ValueError, RecursionError, msgspec.MsgspecError):
        version = 0
    if version != VERSION:
        newer = version > VERSION
        why = f"written by a later version ({version})" if newer else "no state of a known version"
        return Saved(), [f"{file}: {why}; {_move_aside(file, newer=newer)}"]
    saved, complaints = saved_rows.decode(fields)
    lines = [f"{file}: {complaint}; left out" for complaint in complaints[:COMPLAINTS_AT_MOST]]
    more = len(complaints) - len(lines)
    return saved, [*lines, f"{file}: {more} further odd rows; left out"] if more else lines


def save(path: str | os.PathLike[str], saved: Saved) -> str | None:
    """Replace the file as a whole. A warning where that failed, the old file kept."""
    file = Path(path)
    try:
        target = file.resolve()  # a state file that is a link stays one: what it points to is replaced
        with contextlib.ExitStack() as stack:
            # mkstemp creates with 0600 and never follows or reuses what is there.
            handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
            stack.callback(Path(temporary).unlink, missing_ok=True)
            with os.fdopen(handle, "wb") as out:
                out.write(msgspec.json.encode(saved))
                out.flush()
                os.fsync(out.fileno())
            Path(temporary).replace(target)
    except (OSError, ValueError, RuntimeError) as error:
        return f"{file}: {CANNOT_WRITE} ({_words(error)}); a restart will forget"
    with contextlib.suppress(OSError):  # so that the new name lasts through a power cut
        directory = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    return None


def clock_went_back(saved: Saved, wall: float) -> bool:
    """True where the state was saved in what the wall clock now calls the future, or does not say when.

    Ages computed from it are then worth nothing: whoever reads them should assume that no time has passed.
    """
    return not saved.saved_at <= wall + CLOCK_SLACK_SECONDS


HELD, BUSY, NO_LOCKS = "held", "busy", "no locks"


@contextlib.contextmanager
def _locked(path: str, tries: int) -> Iterator[str]:
    """Hold the lock beside the file, or say that another proxy has it, or that there are no locks here."""
    with contextlib.ExitStack() as stack:
        try:
            target = Path(path).resolve()
            flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
            handle = os.open(target.with_name(f"{target.name}.lock"), flags, 0o600)
            stack.callback(os.close, handle)
            said = _lock(handle, tries)
        except (OSError, ValueError, RuntimeError):  # also of a file system without locks
            said = NO_LOCKS
        yield said


def _lock(handle: int, tries: int) -> str:
    if fcntl is None:
        return NO_LOCKS
    for left in range(tries - 1, -1, -1):
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return HELD
        if left:
            time.sleep(LOCK_PAUSE)
    return BUSY


def key_of(text: str) -> bytes:
    """The key that a file holds, empty where it is none."""
    try:
        key = bytes.fromhex(text)
    except ValueError:
        return b""
    return key if len(key) == KEY_BYTES else b""


def _move_aside(file: Path, *, newer: bool) -> str:
    """What has become of the file, in words."""
    numbered = [file.with_name(f"{file.name}.broken-{number}") for number in range(1, MOVES_AT_MOST + 1)]
    free = (one for one in numbered if not os.path.lexists(one))
    aside = file.with_name(f"{file.name}.newer") if newer else next(free, numbered[-1])
    try:
        file.replace(aside)
    except OSError as error:
        return f"it could not be moved aside ({_words(error)}); starting without it"
    return f"moved aside to {aside.name}, starting without it"


def _words(error: Exception) -> str:
    """Why, without the path that the caller names anyway, and on one line."""
    return " ".join(str(getattr(error, "strerror", None) or error).split()) or type(error).__name__
