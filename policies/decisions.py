"""What is done with an exchange: one value with a reason code, read by flow comment, log, header, metric and test alike."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of our own, complete."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes = field(repr=False)
    reason: str
    """Reason code, also sent as ``X-Breakwater``."""


@dataclass(frozen=True, slots=True)
class Forward:
    """Send the request upstream, after ``after`` seconds of pacing."""

    after: float = 0.0


@dataclass(frozen=True, slots=True)
class Refuse:
    """Answer here; nothing is sent upstream."""

    answer: Answer
    comment: str
    wait: int | None = None
    """Seconds told to the client, or None where a retry is hopeless."""


@dataclass(frozen=True, slots=True)
class Commit:
    """Let the upstream's answer through as it is, but for the headers named here (None removes one)."""

    headers: tuple[tuple[str, str | None], ...] = ()


@dataclass(frozen=True, slots=True)
class Replace:
    """Answer in the upstream's place."""

    answer: Answer
    comment: str
    wait: int | None = None


@dataclass(frozen=True, slots=True)
class Resend:
    """Send the same request again, ``after`` seconds from now, headers still held."""

    after: float
    attempt: int
    """The number of the send to come, 2 and up."""
    of: int


@dataclass(frozen=True, slots=True)
class Queue:
    """Let the request wait unsent until its turn comes."""


Admission = Forward | Refuse | Queue
Decision = Commit | Replace | Resend | Queue
