"""The command line: which of the five commands is meant, and one line for what cannot be done."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module, metadata
from typing import Any, NoReturn

from breakwater.places import PORT, USAGE, CommandError, version

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


class Parser(argparse.ArgumentParser):
    """argparse, whose errors are one line."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter, **options)

    def error(self, message: str) -> NoReturn:
        raise CommandError(f"{message} ({self.prog} --help)", USAGE)


def port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is no port, 1 to 65535")
    return int(text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit status. One line on stderr for what cannot be done."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        return _dispatch(words)
    except CommandError as error:
        print(f"breakwater: {error}", file=sys.stderr)
        return error.status
    except BrokenPipeError:
        return 141  # whoever read has gone, as with `| head`
    except KeyboardInterrupt:
        return 130


def _dispatch(words: list[str]) -> int:
    if words[:1] in (["-h"], ["--help"], ["help"]):
        _help()
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


def _help() -> None:
    print("usage: breakwater [start|run|env|status|doctor] [options]\n\nmitmproxy with Breakwater in it.\n")
    for name, words in COMMANDS.items():
        print(f"  {name:<8} {words}")
    print(f"\n  --version, --help; breakwater COMMAND --help says more of each\n\n{EPILOG}", end="")


def common(parser: Parser) -> None:
    """The options that every command but start shares."""
    parser.add_argument("--port", "-p", type=port, default=PORT, help="where Breakwater is (default: %(default)s)")
    parser.add_argument(
        "--set",
        dest="sets",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="as for start: confdir=FOLDER, breakwater_config=FILE",
    )
