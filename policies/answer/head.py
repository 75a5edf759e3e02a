"""Status and headers of an upstream's answer, as plain values."""

from __future__ import annotations


class Head:
    """Status line and headers."""

    __slots__ = ("_first", "headers", "media_type", "received", "status")

    def __init__(self, status: int, headers: tuple[tuple[str, str], ...] = (), received: float | None = None) -> None:
        """``headers``: pairs in wire order, names in any case."""
        self.status = status
        self.headers = headers
        self.received = received
        """Unix seconds, for a wait that is told as a date by an upstream that sends no Date."""
        self._first = {name.lower(): value for name, value in reversed(headers)}
        self.media_type = self.get("content-type").partition(";")[0].strip().lower()
        """Content-type without parameters, lower case."""

    def get(self, name: str) -> str:
        """The first value of a header, name in lower case; empty where absent."""
        return self._first.get(name, "")
