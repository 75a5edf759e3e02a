"""What a run writes down: lines of the log, each of which begins with upstream and reason and ends with a flow's id, and evidence."""

from __future__ import annotations

import dataclasses
import logging
import traceback
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mitmproxy import ctx

from operations import VERSION
from operations.clock import clock
from operations.flow_adapter import printable
from operations.page_site import DIRECT, HOST
from policies.breaker import BreakerState, Transition
from policies.exchange import Exchange
from policies.research.evidence import to_json
from policies.rules import Rules
from policies.settings import Settings

if TYPE_CHECKING:
    from operations.controller import Controller

logger = logging.getLogger("breakwater")

LEARNT = "learnt"
"""In a reason's place, before what was learnt of a model."""
CHANGES_AT_MOST = 8
VALUE_AT_MOST = 40
"""Characters."""
BATCH = 16
BATCH_BYTES = 16 << 20
"""Of the bodies that wait: with so many, or so much, a batch of evidence does not wait for a quiet moment."""
LARGE_BYTES = 65536
"""From here on a batch is taken on a thread of its own: several passes over a large body take milliseconds."""
PATIENCE = 5.0
"""Seconds."""


class Log:
    """Lines of one run, each kind of which that is said once is remembered."""

    def __init__(self) -> None:
        self.faults: dict[str, str] = {}
        """By kind of fault: one sentence about the first of that kind."""
        self._said: set[str] = set()

    def once(self, kind: str, words: str) -> None:
        """Say one line per run of its kind."""
        if kind not in self._said:
            self._said.add(kind)
            logger.info("Breakwater: %s", words)

    def fault(self, kind: str, flow_id: str | None, fault: Exception) -> None:
        """Say a fault of ours once per kind, with the flow's id; never its own words, which may quote what was being read."""
        words = f"{type(fault).__name__} in {kind}" + (f" (flow {flow_id})" if flow_id else "")
        if kind not in self.faults:
            logger.warning("Breakwater: %s: traffic goes on unchanged; further ones are only counted", words)
            logger.debug("Breakwater: %s, at\n%s", words, "".join(traceback.format_tb(fault.__traceback__)))
        self.faults.setdefault(kind, words)


def of_flow(upstream: str, reason: str, words: str, path: str, flow_id: str) -> None:
    """Say what became of one request."""
    logger.info("Breakwater: %s %s: %s (%s, flow %s)", upstream, reason, words.removesuffix("."), path, flow_id)


def transitions(moved: Iterable[Transition], *, observing: bool) -> None:
    """Say openings and closings of breakers; what lies between goes without a line."""
    for one in moved:
        if one.level == "debug":
            continue
        level = logging.WARNING if one.level == "warning" else logging.INFO
        word = "would be" if observing else "is"
        how = f"opened for {one.left:.0f} s" if one.after is BreakerState.OPEN else one.after.value
        logger.log(level, "Breakwater: %s %s: its breaker %s (it was %s)", one.upstream, one.reason, f"{word} {how}", one.before.value)


# -- the proxy as a whole -------------------------------------------------------------------------------------------


def start(controller: Controller) -> str:
    """What runs, where its page is, and what is still so from before: open breakers, who waits, what is remembered."""
    settings = controller.state.settings
    said = f"Breakwater {VERSION}: {settings.mode}, {len(settings.upstreams)} upstreams; its state is at {_where()}"
    return f"{said}; {', '.join([*_from_before(controller)]) or 'nothing is paused and nobody waits'}"


def _where() -> str:
    through = f"http://{HOST}/ through this proxy"
    addons: Any = ctx.master.addons
    servers = getattr(addons.get("proxyserver"), "servers", ())
    own = [one.listen_addrs[0][:2] for one in servers if one.mode.type_name in DIRECT and one.listen_addrs]
    return f"http://127.0.0.1:{own[0][1]}/ and at {through}" if own else through


def _from_before(controller: Controller) -> Iterator[str]:
    now, state = clock().now, controller.state
    for breaker in state.breakers.all():
        if breaker.current(now) is not BreakerState.CLOSED:
            view = breaker.state(now)
            left = f" for {view.left:.0f} s" if view.state is BreakerState.OPEN else ", and one request will find out"
            yield f"{breaker.upstream} is paused{left}"
    for many, name in (
        (len(controller.waiting), "waiting request(s)"),
        (len(state.refusals.listed(now)), "remembered refusal(s)"),
        (len(state.windows.learnt()), "learnt window(s)"),
        (len(state.line.limits.listed(now)), "learnt limit(s)"),
    ):
        if many:
            yield f"{many} {name}"


def changed(before: Settings, after: Settings) -> str:
    """Which settings differ, with both values where they are short; never those that may hold a password."""
    found = [*_differences("", before, after)]
    more = f", and {len(found) - CHANGES_AT_MOST} more" if len(found) > CHANGES_AT_MOST else ""
    return ", ".join(found[:CHANGES_AT_MOST]) + more or "no setting differs"


def _differences(where: str, before: Any, after: Any) -> Iterator[str]:
    for field in dataclasses.fields(after):
        old, new, name = getattr(before, field.name), getattr(after, field.name), f"{where}{field.name}"
        if old == new:
            continue
        if dataclasses.is_dataclass(old) and dataclasses.is_dataclass(new):
            yield from _differences(f"{name}.", old, new)
        elif name == "upstreams":
            yield from _upstreams({one.name: one for one in old}, {one.name: one for one in new})
        elif field.repr and isinstance(old, str | float | int | None) and isinstance(new, str | float | int | None):
            yield f"{name} {_short(old)} -> {_short(new)}"
        else:
            yield f"{name} differs"


def _upstreams(before: dict[str, Any], after: dict[str, Any]) -> Iterator[str]:
    for name in sorted({*before, *after}):
        if before.get(name) != after.get(name):
            how = "is new" if name not in before else "is gone" if name not in after else "differs"
            yield f"upstream {_short(name)} {how}"


def _short(value: object) -> str:
    text = "null" if value is None else printable(str(value).lower() if isinstance(value, bool) else str(value))
    return text if len(text) <= VALUE_AT_MOST else f"{text[:VALUE_AT_MOST]}…"


# -- evidence --------------------------------------------------------------------------------------------------------


class EvidenceLog:
    """Evidence in the order in which the exchanges ended. Nobody else writes evidence, and no two batches are taken at a time."""

    def __init__(self, rules: Rules, fault: Callable[[str, None, Exception], None]) -> None:
        """``fault`` is told of what fails in here."""
        self._rules, self._fault = rules, fault
        self._waiting: list[tuple[Exchange, float]] = []
        self._bytes = 0
        self._thread = ThreadPoolExecutor(1, "breakwater evidence")
        self._newest: Future[None] | None = None
        """Of the batches on the thread."""

    def add(self, ex: Exchange, wall: float) -> None:
        """Keep an exchange that has ended for the next batch; ``wall``: Unix seconds of its request."""
        self._waiting.append((ex, wall))
        self._bytes += len(ex.call.body)
        if len(self._waiting) >= BATCH or self._bytes >= BATCH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Take the batch that waits; to be called now and then, or a quiet hour would write nothing."""
        batch, size = self._waiting, self._bytes
        self._waiting, self._bytes = [], 0
        if size >= LARGE_BYTES or (self._newest and not self._newest.done()):
            self._newest = self._thread.submit(self._take, batch)
        else:
            self._take(batch)

    def wait(self) -> None:
        """Until everything is written down, at the end of a run: some milliseconds, and never longer than ``PATIENCE``."""
        self.flush()
        if self._newest:
            try:
                self._newest.result(PATIENCE)
            except TimeoutError as fault:
                self._fault("evidence", None, fault)

    def _take(self, batch: list[tuple[Exchange, float]]) -> None:
        rules, lines = self._rules, []
        path = rules.state.settings.evidence_path
        for ex, wall in batch:
            try:
                record = rules.note(ex, wall)
                lines += [to_json(record), b"\n"] if path else []
            except Exception as fault:  # noqa: BLE001 - evidence that fails must not cost anything else
                self._fault("evidence", None, fault)
        try:
            if path and lines:
                with Path(path).expanduser().open("ab") as file:
                    file.writelines(lines)
        except Exception as fault:  # noqa: BLE001 - nor may a file that fails
            self._fault("evidence", None, fault)
