"""The mitmproxy that `start` runs: lean or full, on the loopback address, with connections made when they are needed."""

from __future__ import annotations

import gc
from typing import Any

from mitmproxy.addons import errorcheck
from mitmproxy.options import Options
from mitmproxy.tools.dump import DumpMaster

from breakwater.lean import Framing, Lean
from breakwater.lines import Errors, Lines
from breakwater.places import HOST
from breakwater.together import Writers


class Collector:
    """An addon that keeps Python's collector from going over all that start-up has made, again and again."""

    def running(self) -> None:
        gc.collect()
        gc.freeze()


def make(options: Options, *, full: bool) -> DumpMaster:
    made = DumpMaster(options) if full else Lean(options)
    _say_errors_in_a_line(made)
    if not full:
        made.addons.add(Lines(), Collector(), Writers(), Framing())
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
