"""The contract between the layer that holds a response and what decides over it."""

from __future__ import annotations

from typing import Protocol

from policies.decisions import Decision


class Hold(Protocol):
    """What decides over one held response. None of its methods may raise, wait or block."""

    held: bool
    """False: the layer streams as it always does, through ``__call__`` alone."""
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
        """Asked when the wait before a re-send is over; None: send."""

    def unsent(self) -> Decision | None:
        """Say what to do when a re-send could not reach the upstream; None: as for any failed request."""
