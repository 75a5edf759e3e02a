"""Status and headers of an upstream's answer, as plain values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Head:
    """Status line and headers."""

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    """Pairs in wire order; names in any case."""
    received: float | None = None
    """Unix seconds, for a wait that is told as a date by an upstream that sends no Date."""

    def get(self, name: str) -> str:
        """The first value of a header, name in lower case; empty where absent."""
        for key, value in self.headers:
            if key.lower() == name:
                return value
        return ""

    @property
    def media_type(self) -> str:
        """Content-type without parameters, lower case."""
        return self.get("content-type").partition(";")[0].strip().lower()
