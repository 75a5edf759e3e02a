"""`breakwater start`: mitmproxy with the addon on 127.0.0.1, lean, or as mitmdump itself is with `--full`."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import importlib.util
import shlex
import sys
import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any, NoReturn

from breakwater import authorities
from breakwater.cli import EPILOG, HOST, USAGE, CommandError, Parser, app, confdir, port
from breakwater.run import end_when_unused

WANTED = "uvloop>=0.22" if sys.version_info >= (3, 14) else "uvloop>=0.21,<0.22"
"""As the extra `fast` asks for it."""


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
        choose_loop()
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


# -- which event loop: uvloop where the extra `fast` is installed and works with this Python ----------------------------


def uvloop_fault() -> str:
    """Say why uvloop cannot be used here, in some words; empty where it can."""
    try:
        uvloop: Any = importlib.import_module("uvloop")
    except ImportError:
        return f"not installed ({_installing()})"
    try:
        _try(uvloop.new_event_loop())
    except Exception as fault:  # noqa: BLE001 - whatever a foreign loop raises, asyncio's own does the work
        return f"uvloop {uvloop.__version__} does not work with this Python ({type(fault).__name__})"
    return ""


def _installing() -> str:
    """The command that brings uvloop to this Python, however Breakwater came to it: no index has a package of that name."""
    if sys.platform == "win32":
        return "not for Windows"
    python = shlex.quote(sys.executable)
    way = f"{python} -m pip install" if importlib.util.find_spec("pip") else f"uv pip install --python {python}"
    return f"{way} {shlex.quote(WANTED)}"


def _try(loop: Any) -> None:
    """What mitmproxy does with its loop: tasks with names, begun at once where Python can (3.12 and newer)."""
    eager = getattr(asyncio, "eager_task_factory", None)
    if eager:
        loop.set_task_factory(eager)

    async def nothing() -> None:
        pass

    coroutines = [nothing()]

    async def ask() -> None:
        await asyncio.create_task(coroutines[0], name="probe")

    coroutines.append(ask())
    try:
        loop.run_until_complete(coroutines[-1])
    finally:
        for coroutine in coroutines:
            coroutine.close()  # a loop that failed has begun none
        loop.close()


def choose_loop() -> None:
    """Make uvloop the loop of `asyncio.run` where it works."""
    if uvloop_fault():
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # policies end with Python 3.16; mitmproxy knows no other way
        asyncio.set_event_loop_policy(importlib.import_module("uvloop").EventLoopPolicy())
