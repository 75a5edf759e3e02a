"""The command line: which of the five commands is meant, what they share, and one line for what cannot be done."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module, metadata
from pathlib import Path
from typing import Any, NoReturn

HOST = "127.0.0.1"
PORT = 8080
"""mitmproxy's own default."""
USAGE = 2
"""Exit status of a command line that cannot be understood."""
COMMANDS = {
    "start": "start the proxy (plain `breakwater` does so too)",
    "run": "run a program behind it: breakwater run -- claude",
    "env": 'lines for a shell: eval "$(breakwater env)"',
    "status": "what it does at the moment",
    "doctor": "what is here, what is missing, what is misconfigured",
}
EPILOG = """\
Everything that mitmdump takes may follow `start` (--mode, -s, --set, -w, -nr, --mode upstream:…, a filter).

Left out by `start`, and brought back by --full:
  a line for each connection and flow (or: --set flow_detail=1, or -v), the page http://mitm.it (or:
  --set onboarding=true), the default loop instead of uvloop, and the calls of those of mitmproxy's own
  features that no option asks for (each wakes with its option: --anticache, --map-local, -w …)
"""


class CommandError(Exception):
    """A message of one line for a person, and the exit status that goes with it."""

    def __init__(self, message: str, status: int = 1) -> None:
        super().__init__(" ".join(message.split()))
        self.status = status


def why(fault: Exception) -> str:
    """The system's words for a fault, without the path that the caller names anyway."""
    return getattr(fault, "strerror", None) or str(fault)


# -- the line ----------------------------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit status. One line on stderr for what cannot be done."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that knows no Chinese shows the rest
    try:
        status = _dispatch(list(sys.argv[1:] if arguments is None else arguments))
        sys.stdout.flush()
    except CommandError as error:
        print(f"breakwater: {error}", file=sys.stderr)
        return error.status
    except BrokenPipeError:  # whoever read has gone, as with `| head`; what is left unread goes nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        return 130
    return status


def _dispatch(words: list[str]) -> int:
    if words[:1] in (["-h"], ["--help"], ["help"]):
        commands = "\n".join(f"  {name:<8} {what}" for name, what in COMMANDS.items())
        print(f"usage: breakwater [{'|'.join(COMMANDS)}] [options]\n\nmitmproxy with Breakwater in it.\n\n{commands}\n")
        print(f"  --version, --help; breakwater COMMAND --help says more of each\n\n{EPILOG}", end="")
        return 0
    if words[:1] in (["-V"], ["--version"]):
        python = ".".join(map(str, sys.version_info[:3]))
        print(f"breakwater {version()} (mitmproxy {metadata.version('mitmproxy')}, Python {python})")
        return 0
    command = words.pop(0) if words and not words[0].startswith("-") else "start"
    if command not in COMMANDS:
        raise CommandError(f"{command}: no such command; there are {', '.join(COMMANDS)} (breakwater --help)", USAGE)
    module: Any = import_module(f"breakwater.{command}")
    status: int = module.main(words)
    return status


class Parser(argparse.ArgumentParser):
    """argparse, whose errors are one line."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter, **options)

    def error(self, message: str) -> NoReturn:
        raise CommandError(f"{message} ({self.prog} --help)", USAGE)


def common(parser: Parser) -> None:
    """The options that every command but start shares."""
    parser.add_argument("--port", "-p", type=port, default=PORT, help="where Breakwater is (default: %(default)s)")
    sets = "as for start: confdir=FOLDER, breakwater_config=FILE"
    parser.add_argument("--set", dest="sets", action="append", default=[], metavar="NAME=VALUE", help=sets)


def port(text: str, *, least: int = 1) -> int:
    """The number of a port; where ``least`` is 0, that stands for any free one."""
    if not text.isascii() or not text.isdigit() or not least <= int(text[:6]) <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is no port, {least} to 65535")
    return int(text)


# -- places on this machine --------------------------------------------------------------------------------------------


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
    from operations import VERSION  # noqa: PLC0415 - importable since a moment

    return VERSION


def settings_of(sets: list[str]) -> dict[str, str]:
    """Values of mitmproxy's `--set name=value` by name; the last one counts."""
    return {name: value for name, _, value in (entry.partition("=") for entry in sets)}


def confdir(sets: list[str]) -> Path:
    """Folder of mitmproxy, with its CA, the state and what belongs to a port."""
    return Path(settings_of(sets).get("confdir") or "~/.mitmproxy").expanduser()
