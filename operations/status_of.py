"""The picture of a controller at one moment, for page, metrics and commands."""

from __future__ import annotations

import time
from dataclasses import replace

from operations.controller import Controller
from operations.status import Counts, RefusalRow, Status, UpstreamRow, WindowRow
from operations.version import VERSION
from policies.breaker import LEASE_SECONDS, Breaker, BreakerState
from policies.research import report
from policies.settings import Upstream
from policies.windows import LIFETIME

REPORT_SECONDS = 30.0
EVIDENCE_OFF = "Evidence is off: `evidence: true` in the config takes it. / 未收集证据:在配置中设置 `evidence: true` 即可开启。"
ACCOUNT_DIGITS = 8
"""Of an account's keyed hash that are shown."""


def status(controller: Controller) -> Status:
    """Everything that is shown."""
    now, wall, state = time.monotonic(), time.time(), controller.state
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
        report_text=_recent_report(controller, now),
        faults=dict(controller.faults),
        counts=counts,
    )


def report_text(controller: Controller) -> str:
    """The report on the evidence; where none is taken, how to take some."""
    if not controller.state.settings.keeps_evidence:
        return EVIDENCE_OFF
    controller.evidence_log.flush()
    return report.as_text(report.report(controller.state.evidence.records()))


def _recent_report(controller: Controller, now: float) -> str:
    """Counting 5,000 records takes some 100 ms of the one thread there is: for a page that asks again and again, not each time."""
    made_at, text = controller.report
    if not text or now - made_at > REPORT_SECONDS:
        controller.report = (now, report_text(controller))
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
