"""The mitmproxy that `start` runs: lean or full, on the loopback address, with connections made when they are needed.

Its lines on the terminal are Breakwater's own and the warnings, and one line for each error that ends it.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import logging
import re
import sys
from collections.abc import Callable
from typing import Any

from mitmproxy import addonmanager, ctx, exceptions, flow, hooks, http
from mitmproxy.addons import errorcheck
from mitmproxy.options import Options
from mitmproxy.tools.dump import DumpMaster

from breakwater import asking
from breakwater.cli import HOST

SLEEPERS: dict[str, tuple[str, ...]] = {
    "anticache": ("anticache",),
    "anticomp": ("anticomp",),
    "blocklist": ("block_list",),
    "dumper": ("flow_detail",),
    "maplocal": ("map_local",),
    "mapremote": ("map_remote",),
    "modifybody": ("modify_body",),
    "modifyheaders": ("modify_headers",),
    "onboarding": ("onboarding",),
    "proxyauth": ("proxyauth",),
    "save": ("save_stream_file",),
    "savehar": ("hardump",),
    "serverplayback": ("server_replay",),
    "stickyauth": ("stickyauth",),
    "stickycookie": ("stickycookie",),
    "upstreamauth": ("upstream_auth",),
}
"""mitmproxy's own addons that do nothing unless one of these options is set: until then nothing calls them."""

ALWAYS = frozenset({"running", "done"})
"""Hooks of the life of an addon; sleepers hear of these too."""

DEFAULTS: dict[str, Any] = {"flow_detail": 0, "onboarding": False}
"""Options whose own default is to do something for each flow."""

Called = tuple[Callable[..., Any], ...]


class Addons(addonmanager.AddonManager):
    """mitmproxy's chain of addons, with a table of who listens to what; a change of addons or options drops it."""

    table: dict[str, Called]

    def register(self, addon: Any) -> Any:
        self.table.clear()
        return super().register(addon)

    def add(self, *addons: Any) -> None:
        super().add(*addons)
        self.table.clear()

    def remove(self, addon: Any) -> None:
        super().remove(addon)
        self.table.clear()

    def clear(self) -> None:
        super().clear()
        self.table.clear()

    def trigger(self, event: hooks.Hook) -> None:
        try:
            super().trigger(event)
        finally:
            if isinstance(event, hooks.ConfigureHook):
                self.table.clear()

    def _look_up(self, event: hooks.Hook) -> Called:
        asleep = [] if event.name in ALWAYS else [self.lookup.get(name) for name in SLEEPERS if not self._awake(name)]
        found = tuple(
            function
            for top in self.chain
            for addon, function in self._iter_hooks(top, event)
            if not any(addon is one for one in asleep)
        )
        self.table[event.name] = found
        return found

    def _awake(self, name: str) -> bool:
        return any(getattr(self.master.options, option, None) for option in SLEEPERS[name])

    async def handle_lifecycle(self, event: hooks.Hook) -> None:
        message = event.args()[0]
        await self._call(event, (message,))
        if isinstance(message, flow.Flow) and self.table.get("update") != ():
            await self.trigger_event(hooks.UpdateHook([message]))

    async def trigger_event(self, event: hooks.Hook) -> None:
        await self._call(event, event.args())

    async def _call(self, event: hooks.Hook, arguments: Any) -> None:
        called = self.table.get(event.name)
        for function in self._look_up(event) if called is None else called:
            try:
                result = function(*arguments)
                if result is not None and inspect.isawaitable(result):
                    await result
            except exceptions.AddonHalt:
                return
            except exceptions.OptionsError:
                raise
            except Exception:  # as mitmproxy does: logged with its traceback, and the next one is called
                with addonmanager.safecall():
                    raise


class Lean(DumpMaster):
    """mitmdump's master with such a chain."""

    def __init__(self, options: Options, loop: asyncio.AbstractEventLoop | None = None) -> None:
        super().__init__(options, loop=loop)
        chain: Any = self.addons
        chain.__class__, chain.table = Addons, {}
        options.update(**DEFAULTS)


def trust_messages() -> None:
    """Leave out the check of each field's type that mitmproxy makes of every message: what it parses itself is of these types."""
    data: Any = http.MessageData
    if hasattr(data, "__post_init__"):  # not where Python runs with -O
        data.__post_init__ = lambda _: None


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
    """An addon that keeps mitmproxy's lines of each connection away, unless `-v` asks for all.

    Away too is the traceback that asyncio of Python 3.11 writes for each connection that is open when the process ends.
    """

    def load(self, _loader: Any) -> None:
        logging.getLogger("asyncio").addFilter(_is_no_ended_connection)

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


def _is_no_ended_connection(record: logging.LogRecord) -> bool:
    return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))


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
