"""What a person sees of a decision on the flow itself: comment, mark and metadata."""

from __future__ import annotations

from typing import Any

from mitmproxy import http

from policies.exchange import Exchange
from policies.findings import Kind
from policies.wire import encodings

METADATA = "breakwater"

REFUSED_HERE = ":no_entry:"
REPLACED = ":warning:"
RESENT = ":repeat:"
PASSED_REFUSAL = ":small_orange_diamond:"


def describe(flow: http.HTTPFlow, ex: Exchange) -> None:
    """Write comment, mark and metadata; a person's own comment and mark stay."""
    data = flow.metadata.setdefault(METADATA, {})
    data.update(_facts(ex))
    _view(flow, data)
    if ex.comment and not flow.comment:
        flow.comment = f"Breakwater: {ex.comment}"
    mark = _mark(ex)
    if mark and not flow.marked:
        flow.marked = mark


def _facts(ex: Exchange) -> dict[str, Any]:
    finding, surface = ex.tapped or ex.finding, ex.call.surface
    facts: dict[str, Any] = {
        "reason": ex.reason,
        "upstream": surface.upstream,
        "wire": surface.wire.value,
        "model": ex.call.model,
        "breaker_before": ex.breaker_before,
        "breaker_after": ex.breaker_after,
        "attempts": 0 if ex.refused_here else ex.sends,
        "waits": [float(wait) for wait in ex.waits],
        "told": ex.told,
        "hold_seconds": None if ex.held is None else round(ex.held, 3),
    }
    if finding is not None:
        excerpt = finding.excerpt.decode("utf8", "replace")
        facts |= {"finding": finding.kind.value, "row": finding.row, "code": finding.code, "excerpt": excerpt}
    return facts


def _view(flow: http.HTTPFlow, data: dict[str, Any]) -> None:
    stream = flow.response.stream if flow.response else None
    view = bytes(getattr(stream, "view", b""))
    if view and flow.response:
        encoding = flow.response.headers.get("content-encoding", "")
        decoder = encodings.decoder(encoding, 4 * len(view)) if encoding else None
        plain = decoder.feed(view) if decoder else view
        data["view"] = plain.decode("utf8", "replace")


def _mark(ex: Exchange) -> str:
    finding = ex.tapped or ex.finding
    if ex.refused_here:
        return REFUSED_HERE
    if ex.told is not None or ex.tapped is not None or (ex.comment and not ex.committed):
        return REPLACED
    if ex.sends > 1:
        return RESENT
    refused = finding is not None and finding.kind not in (Kind.ANSWER, Kind.NOTHING)
    return PASSED_REFUSAL if refused else ""
