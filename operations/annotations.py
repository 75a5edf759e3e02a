"""Comment, mark and metadata: what a person sees of a decision on the flow itself. Nothing in them was asked or answered."""

from __future__ import annotations

from typing import Any

from mitmproxy import http

from policies.decisions import End, Refuse, Replace
from policies.exchange import Exchange
from policies.kinds import Kind

METADATA = "breakwater"

REFUSED_HERE = ":no_entry:"
REPLACED = ":warning:"
RESENT = ":repeat:"
PASSED_REFUSAL = ":small_orange_diamond:"


def describe(flow: http.HTTPFlow, ex: Exchange, before: str = "") -> None:
    """Write comment, mark and metadata; a person's own comment and mark stay. ``before``: words that the comment begins with."""
    flow.metadata.setdefault(METADATA, {}).update(_facts(ex))
    made = ex.decision if ex.decision and ex.decision.comment else ex.admission
    comment, reason = (str(made.comment), made.reason) if made and made.comment else ("", "")
    if (comment or before) and not flow.comment:  # its reason too: mitmweb's field filters by comment, not by metadata
        flow.comment = f"Breakwater {reason}".strip() + ": " + ". ".join(filter(None, (before, comment)))
    if not flow.marked and (mark := _mark(ex)):
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
    said, surface, finding = ex.decision or ex.admission, ex.call.surface, ex.finding
    facts: dict[str, Any] = {
        "reason": said.reason if said else "",
        "finding": None,
        "upstream": surface.upstream,
        "wire": str(surface.wire),
        "model": ex.call.model,
        "breaker_before": ex.breaker_before,
        "breaker_after": ex.breaker_after,
        "attempts": 0 if ex.refused_here else ex.sends,
        "waits": [float(resend.after) for resend in ex.resends],
        "not_sent_again": said.not_again if said else "",
        "told": said.wait if said else None,
        "queued_seconds": None,
        "hold_seconds": None if ex.held is None else round(ex.held, 3),
    }
    if ex.place is not None and ex.place.waited:
        facts |= {"queued_seconds": round(ex.place.waited, 3), "queued_for": ex.admission.reason if ex.admission else ""}
    if finding is not None:
        excerpt = finding.excerpt.decode("utf8", "replace")
        facts |= {"finding": str(finding.kind), "row": finding.row, "code": finding.code, "excerpt": excerpt}
    if ex.head is not None:
        facts |= {"upstream_status": ex.head.status, "upstream_type": ex.head.media_type}
    return facts


def _mark(ex: Exchange) -> str:
    if isinstance(ex.admission, Refuse):
        return REFUSED_HERE
    if isinstance(ex.decision, Replace | End) or (ex.admission is not None and ex.admission.wait is not None):
        return REPLACED
    if ex.resends:
        return RESENT
    refused = ex.finding is not None and ex.finding.kind not in (Kind.ANSWER, Kind.NOTHING)
    return PASSED_REFUSAL if refused else ""
