"""Places on this machine: the addon's folder, mitmproxy's folder, and the port."""

from __future__ import annotations

import sys
from pathlib import Path

HOST = "127.0.0.1"
PORT = 8080
"""mitmproxy's own default."""
USAGE = 2
"""Exit status of a command line that cannot be understood."""


class CommandError(Exception):
    """A message of one line for a person, and the exit status that goes with it."""

    def __init__(self, message: str, status: int = 1) -> None:
        super().__init__(" ".join(message.split()))
        self.status = status


def app() -> Path:
    """The folder of addon.py and its rooms: carried in the package, or the clone around it."""
    package = Path(__file__).resolve().parent
    carried = package / "_app"
    return carried if carried.is_dir() else package.parent


def reach() -> None:
    """Make the rooms importable (`operations`, `policies`) in this process alone."""
    if str(app()) not in sys.path:
        sys.path.insert(0, str(app()))


def version() -> str:
    reach()
    from operations.version import VERSION  # noqa: PLC0415 - importable since a moment

    return VERSION


def settings_of(sets: list[str]) -> dict[str, str]:
    """Values of mitmproxy's `--set name=value` by name; the last one counts."""
    return {name: value for name, _, value in (entry.partition("=") for entry in sets)}


def confdir(sets: list[str]) -> Path:
    """Folder of mitmproxy, with its CA, the state and what belongs to a port."""
    return Path(settings_of(sets).get("confdir") or "~/.mitmproxy").expanduser()
