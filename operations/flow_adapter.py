"""From a flow's request to the values that the rules read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from mitmproxy import http

from policies.answer import encodings
from policies.calls import Call, Surface
from policies.kinds import Role
from policies.request import reading
from policies.state import State


class Keeper(Protocol):
    """Who keeps the key of the hashes."""

    def hashed(self, text: str) -> str: ...

    @property
    def state(self) -> State: ...


def headers_of(asked: http.Request) -> Callable[[str], str]:
    """Gives the first value of a header, name in lower case, and nothing where it is absent.

    mitmproxy's own look-up goes over all fields each time, and a call asks for a dozen.
    """
    fields = {name.lower(): value for name, value in reversed(asked.headers.fields)}

    def header(name: str) -> str:
        value = fields.get(name.encode())
        return "" if value is None else value.decode("utf8", "surrogateescape")

    return header


def call_of(keeper: Keeper, flow: http.HTTPFlow, surface: Surface, header: Callable[[str], str]) -> Call:
    """The body is looked at where a model is asked, and nowhere else."""
    asked = flow.request
    path, _, query = asked.path.partition("?")
    account = _account(keeper, flow, header)
    if surface.role is not Role.GENERATION:
        return Call(surface, asked.method, path, account)
    raw = asked.raw_content or b""
    encoding = header("content-encoding")
    body = (encodings.decode(raw, encoding) or b"") if encoding else raw
    return reading.read(
        surface,
        asked.method,
        path,
        header,
        query,
        body if len(body) <= encodings.REQUEST_LIMIT else b"",
        size=len(raw),
        account=account,
        hashed=keeper.hashed,
        traits=keeper.state.settings.side_requests.traits,
    )


def _account(keeper: Keeper, flow: http.HTTPFlow, header: Callable[[str], str]) -> str:
    """Keyed hash of Authorization, else x-api-key, else the ``token`` cookie, else the client's address."""
    credential = header("authorization") or header("x-api-key")
    if not credential and header("cookie"):
        credential = flow.request.cookies.get("token", "")
    peer = flow.client_conn.peername
    return keeper.hashed(credential or (peer[0] if peer else ""))
