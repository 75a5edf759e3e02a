"""Exchanges from flows: the values that the rules read of a request."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping

from mitmproxy import http

from policies import patience
from policies.answer import encodings
from policies.calls import Call
from policies.exchange import Exchange
from policies.kinds import Role
from policies.request import reading
from policies.state import State


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
