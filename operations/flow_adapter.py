"""Exchanges from flows: the values that the rules read of a request."""

from __future__ import annotations

from collections.abc import Callable

from mitmproxy import http

from policies import patience
from policies.answer import encodings
from policies.calls import Call
from policies.exchange import Exchange
from policies.kinds import Role
from policies.request import reading
from policies.state import State


def headers_of(asked: http.Request) -> Callable[[str], str]:
    """Gives the first value of a header, name in lower case, and nothing where it is absent.

    mitmproxy's own look-up goes over all fields each time, and a call asks for a dozen.
    """
    fields = {name.lower(): value for name, value in reversed(asked.headers.fields)}

    def header(name: str) -> str:
        value = fields.get(name.encode())
        return "" if value is None else value.decode("utf8", "surrogateescape")

    return header


def printable(path: str) -> str:
    """A path as it may be logged and shown: control characters, which a terminal would obey, are escaped."""
    return path if path.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in path)


def exchange_of(flow: http.HTTPFlow, state: State, now: float) -> Exchange | None:
    """The exchange that a request begins; None for a host that is not configured, and for a person's page.

    Its body is looked at where a model is asked, and nowhere else. ``now``: monotonic seconds.
    """
    asked = flow.request
    upstream = state.surfaces.at(asked.host, asked.port, flow.client_conn.sni)
    if upstream is None:
        return None
    header = headers_of(asked)
    surface = state.surfaces.recognise(upstream, asked.method, asked.path, header)
    if surface.role is Role.PERSON:
        return None
    queue = state.settings.queue
    bears = patience.of({name: header(name) for name in patience.HEADERS}, queue.clients, queue.seconds)
    path, _, query = asked.path.partition("?")
    path = printable(path)
    account = _account(flow, state, header)
    if surface.role is not Role.GENERATION:
        return Exchange(state, flow.id, Call(surface, asked.method, path, account), now, asked.host, patience=bears)
    raw = asked.raw_content or b""
    encoding = header("content-encoding")
    body = (encodings.decode(raw, encoding) or b"") if encoding else raw
    call = reading.read(
        surface,
        asked.method,
        path,
        header,
        query,
        body if len(body) <= encodings.REQUEST_LIMIT else b"",
        size=len(raw),
        account=account,
        hashed=state.hashed,
        traits=state.settings.side_requests.traits,
    )
    return Exchange(state, flow.id, call, now, asked.host, patience=bears, agent=header("user-agent"))


def _account(flow: http.HTTPFlow, state: State, header: Callable[[str], str]) -> str:
    """Keyed hash of Authorization, else x-api-key, else the ``token`` cookie, else the client's address."""
    credential = header("authorization") or header("x-api-key")
    if not credential and header("cookie"):
        credential = flow.request.cookies.get("token", "")
    peer = flow.client_conn.peername
    return state.hashed(credential or (peer[0] if peer else ""))
