"""What a person sees of a decision on the flow itself: comment, mark and metadata. Nothing in them was asked or answered."""

from __future__ import annotations

from typing import Any

from mitmproxy import http

from policies.exchange import Exchange
from policies.kinds import Kind

METADATA = "breakwater"

REFUSED_HERE = ":no_entry:"
REPLACED = ":warning:"
RESENT = ":repeat:"
PASSED_REFUSAL = ":small_orange_diamond:"


def describe(flow: http.HTTPFlow, ex: Exchange) -> None:
    """Write comment, mark and metadata; a person's own comment and mark stay."""
    flow.metadata.setdefault(METADATA, {}).update(_facts(ex))
    if ex.comment and not flow.comment:
        flow.comment = f"Breakwater: {ex.comment}"
    mark = _mark(ex)
    if mark and not flow.marked:
        flow.marked = mark


def keep_answer(flow: http.HTTPFlow) -> None:
    """Make the kept beginning of a stream the flow's content, where mitmproxy has it of an answer that is not streamed.

    Not its metadata: ``~meta`` would find a model's words as if they were a reason.
    """
    response = flow.response
    if response is None or response.raw_content is not None:
        return
    view = getattr(response.stream, "view", None)
    if view:
        response.raw_content = bytes(view)
        view.clear()


def _facts(ex: Exchange) -> dict[str, Any]:
    finding, surface = ex.tapped or ex.finding, ex.call.surface
    facts: dict[str, Any] = {
        "reason": ex.reason,
        "finding": None,
        "upstream": surface.upstream,
        "wire": surface.wire.value,
        "model": ex.call.model,
        "breaker_before": ex.breaker_before,
        "breaker_after": ex.breaker_after,
        "attempts": 0 if ex.refused_here else ex.sends,
        "waits": [float(wait) for wait in ex.waits],
        "not_sent_again": ex.kept_from_sending,
        "told": ex.told,
        "hold_seconds": None if ex.held is None else round(ex.held, 3),
    }
    if finding is not None:
        excerpt = finding.excerpt.decode("utf8", "replace")
        facts |= {"finding": finding.kind.value, "row": finding.row, "code": finding.code, "excerpt": excerpt}
    if ex.head is not None:
        facts |= {"upstream_status": ex.head.status, "upstream_type": ex.head.media_type}
    return facts


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
