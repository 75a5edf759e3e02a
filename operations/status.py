"""What the page, the metrics and the commands show: one picture of the state at one moment.

Nothing in here may hold a credential, a prompt, an answer or a query string: whatever is in a `Status` is shown.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from operations import VERSION
from operations.clock import clock
from operations.metrics import CONNECTED, Counters, Counts
from operations.timeline import Bar
from policies.breaker import LEASE_SECONDS, Breaker, BreakerState
from policies.calls import Call
from policies.comments import Comment
from policies.decisions import Said
from policies.research.report import Report, as_text, report
from policies.settings import Upstream
from policies.windows import LIFETIME

if TYPE_CHECKING:
    from operations.controller import Controller

REPORT_SECONDS = 30.0
EVIDENCE_OFF = "Evidence is off: `evidence: true` in the config takes it. / 未收集证据:在配置中设置 `evidence: true` 即可开启。"
RUNNING = frozenset({"waited", "longest"})
"""Columns of seconds that run on by themselves."""
ACCOUNT_DIGITS = 8
"""Of an account's keyed hash that are shown."""


@dataclass(frozen=True, slots=True)
class UpstreamRow:
    """One breaker. With `scope: account` there is a row for each account that has struck."""

    name: str
    hosts: tuple[str, ...] = ()
    family: str = ""
    state: str = "closed"
    """A `BreakerState`; half_open: the next generation request is the probe; probing: that request is out."""
    seconds_left: float | None = None
    """Of the open window; of the probe's lease while probing; None while closed or half_open."""
    strikes: int = 0
    strikes_to_open: int = 3
    sent: int = 0
    avoided: int = 0
    challenges: int = 0
    opened: int = 0
    account: str = ""
    """Prefix of the account's keyed hash, where the breaker is one account's."""

    @property
    def busy(self) -> bool:
        """Something was asked of it, or something keeps it from being asked."""
        return bool(self.sent or self.avoided or self.strikes or self.state != "closed")


@dataclass(frozen=True, slots=True)
class Table:
    """Further rows for the page and for status.json: who waits, which limits were learnt."""

    title: str
    """Key of the page's words, and the name in status.json."""
    columns: tuple[str, ...]
    """Keys of the page's words."""
    rows: tuple[tuple[str | int | float, ...], ...]


@dataclass(frozen=True, slots=True)
class DecisionRow:
    """One decision, newest first in a `Status`."""

    wall: float
    """Unix time, seconds."""
    flow_id: str
    upstream: str
    wire: str
    path: str
    """Without the query."""
    finding: str
    reason: str
    comment: Comment | None = None
    wait: float | None = None
    """Seconds told to the client."""
    attempts: int = 1
    status: int | None = None


@dataclass(frozen=True, slots=True)
class WindowRow:
    """A context window learnt from an overflow text."""

    upstream: str
    model: str
    tokens: int
    thinking: bool = False
    source: str = ""
    """Which text stated it."""
    learnt_wall: float | None = None
    expires_wall: float | None = None


@dataclass(frozen=True, slots=True)
class RefusalRow:
    """A refusal that is remembered."""

    kind: str
    upstream: str
    account: str
    """Prefix of the keyed hash."""
    seconds_left: float


@dataclass(frozen=True, slots=True)
class Status:
    """Everything that is shown, at one moment."""

    now_wall: float
    version: str
    mode: str
    upstreams: tuple[UpstreamRow, ...] = ()
    decisions: tuple[DecisionRow, ...] = ()
    windows: tuple[WindowRow, ...] = ()
    refusals: tuple[RefusalRow, ...] = ()
    tables: tuple[Table, ...] = ()
    timeline: Mapping[str, tuple[Bar, ...]] = field(default_factory=dict)
    """The last hour by upstream, as it is drawn."""
    report: Report | None = None
    """What the evidence says; None where none is kept."""
    faults: Mapping[str, Comment] = field(default_factory=dict)
    """By kind of fault: one sentence about the first of that kind. How many, the counters say."""
    counters: Counters = field(default_factory=Counters)
    """Themselves, not a copy: the metrics show them as they are."""

    def revision(self) -> str:
        """Changes with whatever the page shows, but for seconds that run on by themselves: it asks for this, and itself only then."""
        upstreams = [replace(row, seconds_left=None) for row in self.upstreams]
        refusals = [replace(row, seconds_left=0.0) for row in self.refusals]
        tables = [
            [cell for name, cell in zip(table.columns, row, strict=True) if name not in RUNNING]
            for table in self.tables
            for row in table.rows
        ]
        shown = (self.mode, upstreams, self.decisions, self.windows, refusals, tables, self.timeline, self.report, self.faults)
        return f"{zlib.crc32(repr((shown, self.counters.freeze().as_json())).encode('utf8', 'replace')):08x}"

    def as_json(self, parts: str | None = None) -> dict[str, object]:
        """Everything, or only the parts named, with commas between them; time, version and mode always."""
        told: dict[str, object] = {
            name: [dataclasses.asdict(row) for row in getattr(self, name)] for name in ("upstreams", "windows", "refusals")
        }
        told |= {table.title: [dict(zip(table.columns, row, strict=True)) for row in table.rows] for table in self.tables}
        told["decisions"] = [
            {**dataclasses.asdict(replace(row, comment=None)), "comment": str(row.comment or "")} for row in self.decisions
        ]
        faults = {kind: str(words) for kind, words in self.faults.items()}
        told |= {"report": report_text(self.report), "faults": faults, "counts": self.counters.freeze().as_json()}
        told["revision"] = self.revision()
        if parts is not None:
            told = {name: value for name, value in told.items() if name in parts.split(",")}
        return {"now": self.now_wall, "version": self.version, "mode": self.mode, **told}


def decision_row(wall: float, flow_id: str, call: Call, said: Said, status: int | None) -> DecisionRow:
    """What was decided over one request; ``status``: of the answer that its client gets, None where it has none yet."""
    return DecisionRow(
        wall=wall,
        flow_id=flow_id,
        upstream=call.surface.upstream,
        wire=call.surface.wire.value,
        path=call.path,
        finding=said.finding.kind.value if said.finding else "",
        reason=said.reason,
        comment=said.comment,
        wait=said.wait,
        attempts=said.attempts,
        status=status,
    )


def status_of(controller: Controller) -> Status:
    """Everything that is shown."""
    (now, wall), state = clock(), controller.state
    counts = controller.counters.freeze()
    rows = [
        _row(controller, upstream, breaker, counts, now)
        for upstream in state.settings.upstreams
        for breaker in state.breakers.named(upstream.name) or (None,)
    ]
    return Status(
        now_wall=wall,
        version=VERSION,
        mode=state.settings.mode,
        upstreams=tuple(rows),
        decisions=tuple(controller.decisions),
        windows=tuple(
            WindowRow(row.upstream, row.model, row.tokens, row.thinking, row.source, row.when, row.when + LIFETIME)
            for row in state.windows.learnt()
            if row.when + LIFETIME > wall
        ),
        refusals=tuple(
            RefusalRow(found.kind, found.upstream, account[:ACCOUNT_DIGITS], found.left)
            for account, found in state.refusals.listed(now)
        ),
        tables=_tables(controller, now),
        timeline=controller.timeline.pictures(wall),
        report=_recent_report(controller, now),
        faults=dict(controller.log.faults),
        counters=controller.counters,
    )


def _tables(controller: Controller, now: float) -> tuple[Table, ...]:
    """The server that is shared, who waits and for what, and which limits were learnt."""
    line = controller.state.line
    waits = tuple(
        (place.asking.upstream, place.asking.model, told.why if (told := line.why(place, now)) else "",
         round(now - place.since), round(place.deadline - now))
        for place in line.waiting()
    )  # fmt: skip
    limits = tuple(
        (row.key.upstream, row.key.account[:ACCOUNT_DIGITS], row.key.model, row.limit, row.under_way)
        for row in line.limits.listed(now)
    )
    shared = controller.shared
    rows = ((shared.url, CONNECTED if shared.connected else "alone", shared.trouble),) if shared else ()
    return (
        Table("shared", ("server", "connection", "why"), rows),
        Table("waiting", ("upstream", "model", "reason", "waited", "longest"), waits),
        Table("limits", ("upstream", "account", "model", "slots", "under_way"), limits),
    )


def report_of(controller: Controller) -> Report | None:
    """What the evidence says; None where none is kept."""
    if not controller.state.settings.keeps_evidence:
        return None
    controller.evidence_log.flush()
    return report(controller.state.evidence.records())


def report_text(found: Report | None) -> str:
    """The report for a terminal; where there is none, how to get one."""
    return as_text(found) if found else EVIDENCE_OFF


def _recent_report(controller: Controller, now: float) -> Report | None:
    """Counting 5,000 records takes some 100 ms of the one thread there is: for a page that asks again and again, not each time."""
    made_at, found = controller.report
    if found is None or now - made_at > REPORT_SECONDS or not controller.state.settings.keeps_evidence:
        controller.report = (now, report_of(controller))
    return controller.report[1]


def _row(controller: Controller, upstream: Upstream, breaker: Breaker | None, counts: Counts, now: float) -> UpstreamRow:
    name = upstream.name
    settings = upstream.breaker or controller.state.settings.breaker
    row = UpstreamRow(
        name=name,
        hosts=upstream.hosts,
        family=upstream.family.value,
        strikes_to_open=settings.strikes,
        sent=counts.sends.get(name, 0),
        avoided=counts.avoided_at(name),
        challenges=counts.found(name, "challenge"),
        opened=counts.opened.get(name, 0),
    )
    if breaker is None:
        return row
    view = breaker.state(now)
    left = view.left if view.state is BreakerState.OPEN else None
    if view.probe_age is not None:
        left = max(0.0, LEASE_SECONDS - view.probe_age)
    return replace(
        row,
        state=view.state.value,
        seconds_left=left,
        strikes=view.strikes,
        account=breaker.account[:ACCOUNT_DIGITS],
    )
