"""Flows in and out: the exchange that a request begins, and what a person sees on the flow of what was decided over it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from mitmproxy import http

from policies import patience
from policies.answer import encodings
from policies.calls import Call
from policies.decisions import End, Refuse, Replace
from policies.exchange import Exchange
from policies.kinds import Kind, Role
from policies.request import reading
from policies.state import State

METADATA = "breakwater"

REFUSED_HERE = ":no_entry:"
REPLACED = ":warning:"
RESENT = ":repeat:"
PASSED_REFUSAL = ":small_orange_diamond:"


def headers_of(asked: http.Request) -> Mapping[str, str]:
    """The first value of each header, name in lower case; an empty one for a header that is absent.

    mitmproxy's own look-up goes over all fields each time, and a call asks for a dozen.
    """
    fields = [(name.lower().decode("utf8", "surrogateescape"), value) for name, value in reversed(asked.headers.fields)]
    return defaultdict(str, {name: value.decode("utf8", "surrogateescape") for name, value in fields})


def printable(path: str) -> str:
    """A path as it may be logged and shown: control characters, which a terminal would obey, are escaped."""
    return path if path.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in path)


def exchange_of(flow: http.HTTPFlow, state: State, now: float) -> Exchange | None:
    """The exchange that a request begins; None for a host that is not configured, and for a person's page.

    Its body is looked at where a model is asked, and nowhere else. ``now``: monotonic seconds.
    """
    asked, host, method = flow.request, flow.request.host, flow.request.method
    upstream = state.surfaces.at(host, asked.port, flow.client_conn.sni)
    if upstream is None:
        return None
    headers, (path, _, query) = headers_of(asked), asked.path.partition("?")
    header = headers.__getitem__
    surface = state.surfaces.recognise(upstream, method, path, header)
    if surface.role is Role.PERSON:
        return None
    queue = state.settings.queue
    bears, path, account = patience.of(headers, queue.clients, queue.seconds), printable(path), _account(flow, state, header)
    if surface.role is not Role.GENERATION:
        return Exchange(state, flow.id, Call(surface, method, path, account), now, host, patience=bears)
    raw = asked.raw_content or b""
    encoding = header("content-encoding")
    body = (encodings.decode(raw, encoding) or b"") if encoding else raw
    call = reading.read(
        surface,
        method,
        path,
        header,
        query,
        body if len(body) <= encodings.REQUEST_LIMIT else b"",
        size=len(raw),
        account=account,
        hashed=state.hashed,
        traits=state.settings.side_requests.traits,
    )
    return Exchange(state, flow.id, call, now, host, patience=bears, agent=header("user-agent"))


def _account(flow: http.HTTPFlow, state: State, header: Callable[[str], str]) -> str:
    """Keyed hash of Authorization, else x-api-key, else the ``token`` cookie, else the client's address."""
    credential = header("authorization") or header("x-api-key")
    if not credential and header("cookie"):
        credential = flow.request.cookies.get("token", "")
    peer = flow.client_conn.peername
    return state.hashed(credential or (peer[0] if peer else ""))


# -- on the flow: nothing in it was asked or answered -------------------------------------------------------------------


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
