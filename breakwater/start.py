"""`breakwater start`: mitmproxy with the addon on 127.0.0.1, lean, or as mitmdump itself is with `--full`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any, NoReturn

from breakwater import authorities, loops
from breakwater.cli import EPILOG, HOST, USAGE, CommandError, Parser, app, confdir, port
from breakwater.run import end_when_unused


def parser() -> Parser:
    made = Parser(
        prog="breakwater start", usage="breakwater start [--port N] [--page-port N] [--demo] [--full] [mitmdump options]"
    )
    made.epilog = EPILOG
    made.add_argument("--port", "-p", "--listen-port", type=partial(port, least=0), metavar="N", help="default: 8080")
    made.add_argument(
        "--page-port",
        type=partial(port, least=0),
        metavar="N",
        help="a port for the page, where the others serve an upstream alone",
    )
    made.add_argument("--demo", action="store_true", help="with a scripted upstream at http://demo.breakwater.internal/")
    made.add_argument("--full", action="store_true", help="mitmdump as it is, with nothing left out")
    made.add_argument("--mode", "-m", dest="modes", action="append", default=[], help=argparse.SUPPRESS)
    made.add_argument("--set", dest="sets", action="append", default=[], help=argparse.SUPPRESS)
    made.add_argument("--while-leased", metavar="FILE", help=argparse.SUPPRESS)
    return made


def main(words: Sequence[str]) -> int:
    asked, passed_on = parser().parse_known_args(words)
    authorities.ensure(confdir(asked.sets))
    arguments = ["-s", str(app() / "addon.py")]
    arguments += [] if asked.port is None else ["--listen-port", str(asked.port)]
    sets = [*asked.sets, *(["breakwater_demo=true"] if asked.demo else [])]
    modes = asked.modes
    if asked.page_port is not None:  # the page is at the address of any regular proxy
        set_ones = [entry for entry in sets if entry.startswith("mode=")]
        sets = [entry for entry in sets if entry not in set_ones]
        modes = [
            *(modes or [entry.removeprefix("mode=") for entry in set_ones] or ["regular"]),
            f"regular@{HOST}:{asked.page_port}",
        ]
    arguments += [word for mode in modes for word in ("--mode", mode)]
    for entry in sets:
        arguments += ["--set", entry]
    sys.argv[0] = "breakwater start"  # mitmproxy begins its own complaints with it
    if not asked.full:
        loops.choose()
    return _serve([*arguments, *passed_on], full=asked.full, leased=asked.while_leased)


def _serve(arguments: list[str], *, full: bool, leased: str | None) -> int:
    from mitmproxy.tools import cmdline, main  # noqa: PLC0415 - half a second that the other commands need not wait for

    from breakwater import master  # noqa: PLC0415 - imports mitmproxy

    def make_parser(options: Any) -> Any:
        made = cmdline.mitmdump(options)
        made.prog, made.error = "breakwater start", _unknown
        return made

    def made_master(options: Any) -> Any:
        made = master.make(options, full=full)
        if leased:
            end_when_unused(leased, made.shutdown)
        return made

    make_master: Any = made_master  # mitmproxy calls a class of its own here, with the options
    try:
        main.run(make_master, make_parser, arguments, master.filters)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 1
    return 0


def _unknown(message: str) -> NoReturn:
    raise CommandError(f"start: {message} (breakwater start --help, mitmdump --help)", USAGE)
