"""What a row of a code table says."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from policies.kinds import Challenge, Crowd, Kind


@dataclass(frozen=True, slots=True)
class Row:
    """One fact: codes and, where the code alone does not tell, how the message begins."""

    name: str
    kind: Kind
    source: str
    codes: tuple[str, ...] = ()
    """Compared without regard to case. Empty: the message alone tells."""
    text: str = ""
    """Regular expression that the message begins with; empty: any message."""
    status: int | None = None
    """The status that the answer has where it does not hide in another; None: the usual one of its kind."""
    challenge: Challenge | None = None
    words_tell: bool = False
    """A row by text may say otherwise: one code for a throttle, a spent quota and an overload."""
    crowd: Crowd | None = None
    """Too many calls at a time."""
    transient: bool = False
    """For a challenge: a slower repetition may pass."""

    def begins(self, words: str) -> bool:
        return not self.text or _compiled(self.text).match(words) is not None


@cache
def _compiled(text: str) -> re.Pattern[str]:
    return re.compile(text, re.IGNORECASE)
