"""What a run writes down: lines of the log, each of which begins with upstream and reason and ends with a flow's id, and evidence."""

from __future__ import annotations

import dataclasses
import logging
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from mitmproxy import ctx

from operations import VERSION
from operations.clock import clock
from operations.flow_adapter import printable
from operations.page import DIRECT, HOST
from policies.breaker import BreakerState, Transition
from policies.comments import NOTHING, Comment, Text, say
from policies.exchange import Exchange
from policies.rules import Rules
from policies.settings import Settings

if TYPE_CHECKING:
    from operations.controller import Controller

logger = logging.getLogger("breakwater")

LEARNT = "learnt"
"""In a reason's place, before what was learnt of a model."""
FAULT = Text("{error} in {kind}{where}", "{kind} 处出错：{error}{where}")
CHANGES_AT_MOST = 8
VALUE_AT_MOST = 40
"""Characters."""
PLAIN = str | float | int | None
"""Types of values that a line can show."""
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
        self.faults: dict[str, Comment] = {}
        """By kind of fault: one sentence about the first of that kind."""
        self._said: set[str] = set()

    def once(self, kind: str, words: str) -> None:
        """Say one line per run of its kind."""
        if kind not in self._said:
            self._said.add(kind)
            logger.info("Breakwater: %s", words)

    def fault(self, kind: str, flow_id: str | None, fault: Exception) -> None:
        """Say a fault of ours once per kind, with the flow's id; never its own words, which may quote what was being read."""
        where = Text(f" (flow {flow_id})", f"（flow {flow_id}）") if flow_id else NOTHING
        words = say(FAULT, error=type(fault).__name__, kind=kind, where=where)
        if kind not in self.faults:
            logger.warning("Breakwater: traffic goes on unchanged after a fault, further ones are only counted: %s", words)
            logger.debug("Breakwater: %s, at\n%s", words, "".join(traceback.format_tb(fault.__traceback__)))
        self.faults.setdefault(kind, words)


def of_flow(upstream: str, reason: str, words: str, path: str, flow_id: str) -> None:
    """Say what became of one request."""
    logger.info("Breakwater: %s %s: %s (%s, flow %s)", upstream, reason, words.removesuffix("."), path, flow_id)


def transitions(moved: Iterable[Transition], flow_id: str = "", *, observing: bool) -> None:
    """Say openings and closings of breakers; what lies between goes without a line. ``flow_id``: of the flow that did it."""
    for one in moved:
        if one.level == "debug":
            continue
        level = logging.WARNING if one.level == "warning" else logging.INFO
        word = "would be" if observing else "is"
        how = f"opened for {one.left:.0f} s" if one.after is BreakerState.OPEN else one.after.value
        was = f"it was {one.before.value}" + (f", flow {flow_id}" if flow_id else "")
        logger.log(level, "Breakwater: %s %s: its breaker %s (%s)", one.upstream, one.reason, f"{word} {how}", was)


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
    found = list(_differences("", before, after))
    more = f", and {len(found) - CHANGES_AT_MOST} more" if len(found) > CHANGES_AT_MOST else ""
    return ", ".join(found[:CHANGES_AT_MOST]) + more or "no setting differs"


def _differences(name: str, old: Any, new: Any) -> Iterator[str]:
    """What differs below a setting, each with its whole name."""
    before, after = _parts(old), _parts(new)
    if old == new:
        return
    if before is not None and after is not None:
        for key in dict.fromkeys([*before, *after]):
            yield from _differences(f"{name}.{_short(key)}".lstrip("."), before.get(key), after.get(key))
    elif isinstance(old, PLAIN) and isinstance(new, PLAIN):
        yield f"{name} {_short(old)} -> {_short(new)}"
    else:
        yield f"{name} {'is new' if old is None else 'is gone' if new is None else 'differs'}"


def _parts(value: Any) -> Mapping[str, Any] | None:
    """Settings within a setting, by name; None where it has none. One that may hold a password is not to be written."""
    if dataclasses.is_dataclass(value):
        parts = {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
        return parts | {each.name: _Hidden(parts[each.name]) for each in dataclasses.fields(value) if not each.repr}
    if isinstance(value, tuple) and all(hasattr(row, "name") for row in value):
        return {row.name: row for row in value}
    return value if isinstance(value, Mapping) else None


class _Hidden(NamedTuple):
    value: object


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
                lines += [msgspec.json.encode(record), b"\n"] if path else []
            except Exception as fault:  # noqa: BLE001 - evidence that fails must not cost anything else
                self._fault("evidence", None, fault)
        try:
            if path and lines:
                with Path(path).expanduser().open("ab") as file:
                    file.writelines(lines)
        except Exception as fault:  # noqa: BLE001 - nor may a file that fails
            self._fault("evidence", None, fault)
