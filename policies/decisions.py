"""Decisions: values with a reason code. Log, flow comment, header, metric and test read them, and nothing beside them."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from policies.comments import Comment
from policies.kinds import Finding


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of our own, complete."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes = field(repr=False)
    reason: str
    """Reason code, also sent as ``X-Breakwater``."""


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """Words and figures that any decision comes with."""

    reason: str = ""
    """Reason code; empty where no rule decided."""
    comment: Comment | None = None
    """One sentence for a person; None where nothing is worth one."""
    finding: Finding | None = None
    """What the upstream's answer was; None before there is one."""
    wait: int | None = None
    """Seconds told to the client in Retry-After; None where none are."""
    attempts: int = 0
    """Sends so far; of a ``Resend`` the one to come included."""
    not_again: str = ""
    """Why a refused replay is not sent again, a ``replays.Why``; empty where that was no question."""


class Forward(Said, frozen=True):
    """Send the request upstream. In ``mode: observe`` its reason and comment say what would have been done instead."""

    after: float = 0.0
    """Seconds of pacing before."""


class Refuse(Said, frozen=True):
    """Answer here; nothing is sent upstream."""

    answer: Answer


class Commit(Said, frozen=True):
    """Let the upstream's answer through as it is, but for the headers named here (None removes one)."""

    headers: tuple[tuple[str, str | None], ...] = ()


class Replace(Said, frozen=True):
    """Answer in the upstream's place."""

    answer: Answer


class Resend(Said, frozen=True):
    """Send the request once more, headers still held."""

    after: float
    """Seconds from now."""


class End(Said, frozen=True):
    """End a running stream at the refusal in it."""

    frame: bytes
    """The wire's own error frame; for a stream that takes no plain text the end is a cut without it."""
    withheld: bool
    """Bytes of the upstream's were kept back for good: no frame can follow."""


class Queue(Said, frozen=True):
    """Let the request wait unsent until its turn comes."""


Admission = Forward | Refuse | Queue
Decision = Commit | Replace | Resend | Queue
