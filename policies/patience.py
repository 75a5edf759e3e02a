"""Patience: how long a client bears to see no headers, told by its own request or known of its kind."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

SPARE_SECONDS = 20.0
"""A waiting request is told this long before its client would give up: enough to send, to hold and to answer."""
HEADERS_SPARE_SECONDS = 5.0
"""Headers of a request that was sent go out this long before its client would give up."""
UNKNOWN_SECONDS = 45.0
"""The tightest client known (Codewhale, from a report); taken where nothing is known of a client."""
NODE_SECONDS = 300.0
"""Node's own fetch ends at 301 s, whatever the SDK on it says (measured with Claude Code 2.1.112)."""
MOST_SECONDS = 86400.0
"""A header that says more than a day is none."""

_NUMBER = re.compile(r"[0-9]{1,6}(?:\.[0-9]{1,6})?", re.ASCII)


@dataclass(frozen=True, slots=True)
class ClientRow:
    """Seconds that a kind of client bears without headers, known by the beginning of its User-Agent."""

    agent: str
    seconds: float
    source: str


ROWS = (
    ClientRow("opencode", 300.0, "opencode 1.18.33 measured: leaves at 300 s"),
    ClientRow("codex", 585.0, "Codex 0.171.0 measured: still there at 585 s"),
    ClientRow("QwenCode", 119.0, "Qwen Code 0.24.4 on the openai wire measured: leaves at 120 s"),
    ClientRow("claude-cli/0.", 119.0, "Qwen Code 0.24.4 on the anthropic wire measured: leaves at 120 s"),
)


class Patience(msgspec.Struct, frozen=True):
    """What one client bears, in seconds after its request came."""

    limit: float
    """Until it leaves, where it saw no headers."""
    waits: float
    """Unsent, here; 0 where it is told at once."""

    @property
    def headers(self) -> float:
        """The latest moment at which headers of an answer go out, never negative."""
        return max(0.0, self.limit - HEADERS_SPARE_SECONDS)


def of(headers: Mapping[str, str], clients: Mapping[str, float], seconds: float) -> Patience:
    """Patience of the client that sent these headers, whose names are in small letters.

    ``clients`` are further rows (beginning of the User-Agent to seconds), asked before ours, the longest first.
    ``seconds`` is the most that anybody waits here; 0 turns waiting off.
    """
    limit = _stated(headers) or _known(headers.get("user-agent", ""), clients)
    return Patience(limit, max(0.0, min(limit - SPARE_SECONDS, seconds)))


def _stated(headers: Mapping[str, str]) -> float | None:
    """Seconds that the SDK in the client says: Python's by its read timeout, Node's by its timeout."""
    if (said := headers.get("x-stainless-read-timeout")) and (read := _seconds(said)) is not None:
        return read
    if (said := headers.get("x-stainless-timeout")) and (whole := _seconds(said)) is not None:
        return min(whole, NODE_SECONDS)
    return None


def _seconds(text: str) -> float | None:
    """A plain positive number of at most a day; anything else says nothing."""
    return float(text) if _NUMBER.fullmatch(text.strip()) and 0 < float(text) <= MOST_SECONDS else None


def _known(agent: str, clients: Mapping[str, float]) -> float:
    for beginning in sorted(clients, key=len, reverse=True) if clients else ():
        value = clients[beginning]
        if agent.startswith(beginning) and math.isfinite(value) and value >= 0:
            return value
    for row in ROWS:
        if agent.startswith(row.agent):
            return row.seconds
    return UNKNOWN_SECONDS
