"""The picture of a desk at one moment, for page, metrics and commands."""

from __future__ import annotations

import time
from dataclasses import replace

from operations.desk import Desk
from operations.status import Counts, RefusalRow, Status, UpstreamRow, WindowRow
from operations.version import VERSION
from policies import report
from policies.breaker import LEASE_SECONDS, Breaker, State
from policies.settings import Upstream
from policies.windows import LIFETIME

REPORT_SECONDS = 30.0
ACCOUNT_DIGITS = 8
"""Of an account's keyed hash that are shown."""


def status(desk: Desk) -> Status:
    """Everything that is shown."""
    now, wall, memory = time.monotonic(), time.time(), desk.memory
    counts = desk.counters.freeze()
    rows = [
        _row(desk, upstream, breaker, counts, now)
        for upstream in memory.settings.upstreams
        for breaker in memory.breakers.named(upstream.name) or (None,)
    ]
    return Status(
        now_wall=wall,
        version=VERSION,
        mode=memory.settings.mode,
        upstreams=tuple(rows),
        decisions=tuple(desk.decisions),
        windows=tuple(
            WindowRow(row.upstream, row.model, row.tokens, row.thinking, row.source, row.when, row.when + LIFETIME)
            for row in memory.windows.learnt()
            if row.when + LIFETIME > wall
        ),
        refusals=tuple(
            RefusalRow(found.kind, found.upstream, account[:ACCOUNT_DIGITS], found.left)
            for account, found in memory.refusals.listed(now)
        ),
        report_text=_recent_report(desk, now),
        faults=dict(desk.faults),
        counts=counts,
    )


def report_text(desk: Desk) -> str:
    desk.notebook.flush()
    return report.as_text(report.report(desk.memory.evidence.records()))


def _recent_report(desk: Desk, now: float) -> str:
    """Counting 5,000 records takes some 100 ms of the one thread there is: for a page that asks again and again, not each time."""
    made_at, text = desk.report
    if not text or now - made_at > REPORT_SECONDS:
        desk.report = (now, report_text(desk))
    return desk.report[1]


def _row(desk: Desk, upstream: Upstream, breaker: Breaker | None, counts: Counts, now: float) -> UpstreamRow:
    name = upstream.name
    settings = upstream.breaker or desk.memory.settings.breaker
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
    left = view.left if view.state is State.OPEN else None
    if view.probe_age is not None:
        left = max(0.0, LEASE_SECONDS - view.probe_age)
    return replace(
        row,
        state=view.state.value,
        seconds_left=left,
        strikes=view.strikes,
        account=breaker.account[:ACCOUNT_DIGITS],
    )
