"""Finding: what an upstream's answer is, read from the envelope and never from what a model wrote."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from policies.kinds import Challenge, Crowd, Kind


@dataclass(frozen=True, slots=True)
class Finding:
    """Kind of an answer, the row of the tables that tells it, and what it says about waiting."""

    kind: Kind
    row: str = ""
    """Id of the table row or rule that recognised it, for log, metadata and tests."""
    code: str | None = None
    """The upstream's own code as text."""
    text: str = ""
    """The upstream's own message, at most 500 characters, without captcha URL or token."""
    challenge: Challenge | None = None
    wait: float | None = None
    """Seconds that the upstream itself asks for; may exceed any cap."""
    wait_source: Literal["header", "body", "text"] | None = None
    reset: str | None = None
    """A reset time as the upstream wrote it (UTC+8 where it names no zone)."""
    status: int | None = None
    """The status this answer should have had, where it hides in another one (a 200)."""
    window: int | None = None
    """Tokens of the context window that an overflow text states."""
    transient: bool = False
    """A second, slower try may cure it (a rate limit, an overload, a 5xx, zcode 3007, a 4xx with a marker row)."""
    honest: bool = False
    """Already told truthfully: 529/503 with a Retry-After of 1 to 59 and no challenge in it, or another Breakwater's
    429, 503 or 529 with a Retry-After of 1 to 59."""
    crowd: Crowd | None = None
    """Too many calls at a time; None where it says something else."""
    ends_answer: bool = False
    """Named by a finish_reason or stop_reason: it ends an answer, is counted as its kind and passes unchanged."""
    cut: bool = False
    """The upstream's connection ended before the body did."""
    excerpt: bytes = field(default=b"", repr=False)
    """At most 2 KiB of the upstream's body, captcha token cut out, kept on the flow for mitmweb."""


ANSWER = Finding(Kind.ANSWER, row="answer")
