"""A refusal that no row knows, as an anonymised corpus line: what a person can send to the project."""

from __future__ import annotations

import json
import re

from mitmproxy import http

from operations.annotations import METADATA
from operations.held import pairs
from policies.answer.head import Head
from policies.kinds import Kind
from policies.refusal import redaction
from policies.request.surfaces import BUILT_IN
from policies.state import State

KEPT_HEADERS = frozenset({"content-type", "retry-after", "server", "x-should-retry", "bxpunish"})
BODY_AT_MOST = 4096
_PERSONAL = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+|\b\d{1,3}(?:\.\d{1,3}){3}\b")
"""Mail addresses, and the addresses of machines."""
_LONG_WORD = re.compile(r"[A-Za-z0-9_\-+/=.]{24,}")
_DIGITS = re.compile(r"\d{9,}")


def corpus_line(state: State, flow: http.HTTPFlow) -> str:
    """One JSON line of the answer's envelope; long words, ids and all of the request but host, path and model are left out."""
    asked, response = flow.request, flow.response
    upstream = state.surfaces.at(asked.host, asked.port, flow.client_conn.sni)
    if upstream is None:
        return json.dumps({"error": f"{asked.host} is no configured upstream"})
    surface = state.surfaces.recognise(upstream, asked.method, asked.path, lambda _: "")
    noted = flow.metadata.get(METADATA, {})
    if response is None or noted.get("attempts") == 0:
        return json.dumps({"error": "answered here or not at all: nothing of an upstream's to export"})
    body = noted.get("excerpt") or (response.get_text(strict=False) or "")[:BODY_AT_MOST]
    status = noted.get("upstream_status", response.status_code)
    if noted.get("excerpt"):  # what the client got is ours, or may be
        headers = {"content-type": str(noted.get("upstream_type", ""))}
    else:
        headers = {name.lower(): value for name, value in pairs(response) if name.lower() in KEPT_HEADERS}
    finding = state.recogniser.document(surface, Head(status, tuple(headers.items())), body.encode(), whole=True)
    if Kind.ANSWER in (finding.kind, noted.get("finding")):
        return json.dumps({"error": "this is an answer: what a model wrote is not exported"})
    line = {
        "id": "unknown",
        "wire": surface.wire.value,
        "kind": finding.kind.value,
        "request": {"method": asked.method, "host": _host(asked.host, surface.upstream), "path": _path(asked.path)},
        "response": {"status": status, "headers": headers, "body": _anonymous(body)},
    }
    return json.dumps(line, ensure_ascii=False)


def _host(host: str, upstream: str) -> str:
    """A vendor's host; the upstream's name stands for one of the user's own, or of a workspace."""
    return host if any(host in known.hosts for known in BUILT_IN) else upstream


def _path(path: str) -> str:
    return "/".join(_LONG_WORD.sub("X", part) for part in path.partition("?")[0].split("/"))


def _anonymous(body: str) -> str:
    text = redaction.excerpt(body.encode()).decode("utf8", "replace")
    text = _LONG_WORD.sub("X", _PERSONAL.sub("X", text))
    return _DIGITS.sub("0", text)
