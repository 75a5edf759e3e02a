"""The mitmproxy that `start` runs: lean or full, on the loopback address, with connections made when they are needed.

Its lines on the terminal are Breakwater's own and the warnings, and one line for each error that ends it.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import re
import sys
from typing import Any

from mitmproxy import ctx
from mitmproxy.addons import errorcheck
from mitmproxy.options import Options
from mitmproxy.tools.dump import DumpMaster

from breakwater import asking
from breakwater.cli import HOST
from breakwater.lean import Lean, trust_messages


class Collector:
    """An addon that keeps Python's collector from going over all that start-up has made, again and again."""

    def running(self) -> None:
        gc.collect()
        gc.freeze()


def make(options: Options, *, full: bool) -> DumpMaster:
    made = DumpMaster(options) if full else Lean(options)
    _say_errors_in_a_line(made)
    if not full:
        trust_messages()
        made.addons.add(Lines(), Collector())
    options.update(listen_host=HOST, connection_strategy="lazy")
    return made


def _say_errors_in_a_line(made: DumpMaster) -> None:
    log: Any = made.addons.get("termlog")
    stock: Any = made.addons.get("errorcheck")
    stock.finish()
    made.addons.remove(stock)
    check = Errors(log.logger)
    check.name = errorcheck.ErrorCheck.__name__.lower()  # type: ignore[attr-defined]
    made.addons.add(check)


def filters(arguments: Any) -> dict[str, str]:
    """mitmdump's: a filter expression at the end counts for saving, reading and showing."""
    if not arguments.filter_args:
        return {}
    words = " ".join(arguments.filter_args)
    return {"save_stream_filter": words, "readfile_filter": words, "dumper_filter": words}


CONNECTIONS = "mitmproxy.proxy.server"
"""Logger of "client connect" and the like: four lines a connection."""
LOADING = "mitmproxy.addons.script"
READING = "readfile"
"""Module that says first what is wrong with a file of flows, and then that with the file's name."""
TAKEN = re.compile(r"failed to listen on (\S+):(\d+) with .*address already in use", re.IGNORECASE | re.DOTALL)


class Lines:
    """An addon that keeps mitmproxy's lines of each connection away, unless `-v` asks for all."""

    def configure(self, _updated: set[str]) -> None:
        wanted = ctx.options.termlog_verbosity == "debug" or ctx.options.flow_detail > 0
        for name in (CONNECTIONS, LOADING):
            logging.getLogger(name).setLevel(logging.NOTSET if wanted else logging.WARNING)


class Errors(errorcheck.ErrorCheck):
    """mitmproxy's guard of the start, which says each error in one line on stderr; the log does not repeat it."""

    def __init__(self, log: logging.Handler) -> None:
        super().__init__()
        self._log = log
        log.addFilter(_no_error)

    def finish(self) -> None:
        super().finish()
        self._log.removeFilter(_no_error)

    async def shutdown_if_errored(self) -> None:
        await asyncio.sleep(0)  # logging tasks finish first
        if self.logger.has_errored:
            last = {record.module: record for record in self.logger.has_errored}
            for record in self.logger.has_errored:
                if record.module != READING or record is last[READING]:
                    print(one_line(record), file=sys.stderr)
            sys.exit(1)


def _no_error(record: logging.LogRecord) -> bool:
    return record.levelno < logging.ERROR


def one_line(record: logging.LogRecord) -> str:
    """The error as one line, for a person."""
    message = record.getMessage()
    if taken := TAKEN.search(message):
        host, port = taken[1], int(taken[2])
        return f"breakwater: {host}:{port} is taken by {asking.who(port).kind.value}; --port takes another one"
    if record.exc_info and record.exc_info[1] and str(record.exc_info[1]) not in message:
        message = f"{message.splitlines()[0]}: {record.exc_info[1]}"
    return " ".join(message.split())
