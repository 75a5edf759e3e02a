"""Server-sent events: bytes in, frames out, whatever the chunking."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Frame:
    """One event of a stream, up to and with its blank line."""

    event: bytes
    """The ``event:`` field, empty where absent."""
    data: bytes
    """All ``data:`` lines, joined by a newline; empty where there are none."""
    comments: tuple[bytes, ...]
    """Comment lines without their colon (``HTTP_STATUS/429``, ``keep-alive``)."""
    raw: bytes
    """The bytes of the frame as they came, decoded where the stream was encoded."""
