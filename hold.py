"""What holds a response or lets a request wait, as the rest of the program sees it: the contract, and how to ask for it.

``held_stream.py`` obeys a ``Gate`` and a ``Hold``. Neither may raise, wait or block.
"""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from mitmproxy import connection, ctx, http

from policies.decisions import Decision, Forward, Refuse

STREAM = "_breakwater_stream"
"""Attribute of a flow: gives its stream. It is no part of the flow's state, so that a copy has none."""

_wakes: set[asyncio.Task[None]] = set()


class Gate(Protocol):
    """What decides when a request is sent."""

    def turn(self) -> Forward | Refuse | None:
        """Say whether a request is sent now; asked when its last address is known, and each time that it is woken.

        None: it waits until it is woken. A refusal is in ``flow.response`` already.
        """

    def sent(self) -> None:
        """Hear that the request goes out, first and at every re-send."""


class Hold(Protocol):
    """What decides over one held response."""

    ended: bool
    """True once ``__call__`` has returned the last bytes that the client shall get."""
    severed: bool
    """True once the client's stream has to be cut."""

    def __call__(self, data: bytes) -> list[bytes]:
        """Bytes of a committed stream in, the chunks to pass on out; ``b""`` in means its end. Never yields an empty chunk."""

    def feed(self, data: bytes) -> Decision | None:
        """Judge the next bytes of a held response; None: go on holding."""

    def finish(self, *, cut: bool) -> Decision:
        """Judge a held response at its end; ``cut``: the upstream broke off."""

    def tick(self) -> Decision | None:
        """Look at the clock while holding."""

    def pause(self) -> float:
        """Seconds until the next ``tick`` is due."""

    def due(self) -> Decision | None:
        """Say what to do when the wait before a re-send is over; None: send."""

    def unsent(self) -> Decision | None:
        """Say what to do when a re-send could not reach the upstream; None: as for any failed request."""


def can_hold(flow: http.HTTPFlow) -> bool:
    """Tell whether a flow's stream can wait and hold; one of mitmproxy's own, as in its client replay, cannot."""
    return _stream_of(flow) is not None


def gate(flow: http.HTTPFlow, by: Gate) -> bool:
    """Send a request when ``by`` says so; False where it cannot wait."""
    if stream := _stream_of(flow):
        stream.gate = by
    return bool(stream)


def hold(flow: http.HTTPFlow, by: Hold) -> None:
    """Keep a response's headers until ``by`` decides. What another addon streams with gets the bytes that go on."""
    stream, response = _stream_of(flow), flow.response
    assert response
    stream.hold = by
    if not callable(response.stream):
        response.stream = by


def wake(flow: http.HTTPFlow) -> None:
    """Have a waiting request ask its gate, and a killed flow end. Does nothing for a client that has left."""
    stream = _stream_of(flow)
    if stream and (handler := _handler_of(flow.client_conn)):
        task = asyncio.get_running_loop().create_task(handler.server_event(stream.woken(stream)))
        _wakes.add(task)
        task.add_done_callback(_wakes.discard)


def _handler_of(client: connection.Client) -> Any:
    key: Any = client.id if client.transport_protocol != "udp" else (client.peername, client.sockname)
    addons: Any = ctx.master.addons
    return addons.get("proxyserver").connections.get(key)


def _stream_of(flow: http.HTTPFlow) -> Any:
    stream = None if flow.is_replay == "request" else getattr(flow, STREAM, None)
    return stream and stream()
