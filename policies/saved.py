"""The state file as values: rows of what outlives a restart, and how two proxies that share one file merge theirs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

import msgspec

from policies.concurrency import LearntLimit
from policies.windows import Learnt

VERSION = 1
NO_TIME = 1e12
"""Seconds that no wall clock shows: what a state file says of the end of a wait stays below."""
LONGEST_SECONDS = 7 * 86400.0
"""A refusal that is to last longer is none."""
SAME_SECONDS = 1.0
"""Ends that differ by no more are one end: each is told by two clocks that drift."""

End = Annotated[float, msgspec.Meta(gt=0, lt=NO_TIME)]
"""Wall clock, seconds since the epoch."""


class OpenBreaker(msgspec.Struct, frozen=True):
    """Breaker that is not closed."""

    upstream: str
    account: str
    until: End = msgspec.field(name="ends_at")
    strikes: Annotated[int, msgspec.Meta(ge=0)] = 0

    @property
    def key(self) -> tuple[str, str]:
        return self.upstream, self.account


class StandingRefusal(msgspec.Struct, frozen=True):
    """Blocked account, or request that cannot succeed as it is."""

    kind: Literal["overflow", "body_size", "blocked"]
    account: str
    digest: str
    """Of the request; of a blocked account the upstream's name."""
    upstream: str
    until: End = msgspec.field(name="ends_at")
    left: Annotated[float, msgspec.Meta(gt=0, le=LONGEST_SECONDS)]
    """Seconds that it was to last from its beginning."""
    model: str = ""
    code: str | None = None

    @property
    def key(self) -> tuple[str, str]:
        return self.account, self.digest


class Saved(msgspec.Struct):
    """All that is kept. Each list is a section: a new one is a line here, and rows with an upstream, a key and an end."""

    version: int = VERSION
    saved_at: float = math.inf
    """Wall clock, seconds since the epoch; infinite where the file does not say."""
    key: str = ""
    """Of the hashes, in hex digits: two proxies that share a file share it, or one's accounts meant nothing to the other."""
    breakers: list[OpenBreaker] = []
    refusals: list[StandingRefusal] = []
    windows: list[Learnt] = []
    limits: list[LearntLimit] = []


SECTIONS: Mapping[str, Any] = {
    name: get_args(kind)[0] for name, kind in get_type_hints(Saved, include_extras=True).items() if get_origin(kind) is list
}
"""Type of the rows of each section, by its name."""

Known = dict[tuple[str, tuple[Any, ...]], float]
"""Ends of the rows that a proxy has seen in the file, by section and key."""


class Merged(NamedTuple):
    written: Saved
    """What the file shall hold."""
    news: Saved
    """What another proxy has learnt, still holds, and is to be taken up here."""


def decode(fields: Mapping[str, msgspec.Raw]) -> tuple[Saved, list[str]]:
    """What the fields of a state file say, and one sentence for each that is odd, which is left out."""
    saved, complaints = Saved(), []

    def read(text: msgspec.Raw, kind: Any, where: str) -> Any:
        try:
            return msgspec.json.decode(text, type=kind)
        except (msgspec.MsgspecError, ValueError, RecursionError) as reason:
            complaints.append(f"{where}: {reason}")
            return None

    for name, kind in (("saved_at", float), ("key", str)):
        if name in fields and (value := read(fields[name], kind, name)) is not None:
            setattr(saved, name, value)
    for name, kind in SECTIONS.items():
        texts = read(fields[name], list[msgspec.Raw], name) if name in fields else None
        rows = (read(text, kind, f"{name}[{number}]") for number, text in enumerate(texts or ()))
        setattr(saved, name, [row for row in rows if row is not None])
    return saved, complaints


def merge(mine: Saved, theirs: Saved, known: Known, wall: float) -> Merged:
    """Merge what this proxy holds with what the file says: the later end wins, so that nothing that protects is lost.

    What this proxy has seen in the file before and no longer holds, or holds shorter, was ended here and stays so.
    ``known`` is brought up to date with what is written.
    """
    written = Saved(saved_at=mine.saved_at, key=theirs.key or mine.key)
    news = Saved()
    for section in SECTIONS:
        rows = {row.key: row for row in getattr(mine, section)}
        for row in getattr(theirs, section):
            held = rows.get(row.key)
            seen = max(known.get((section, row.key), 0.0), held.until if held is not None else 0.0)
            if row.until > seen + SAME_SECONDS:
                rows[row.key] = row
                if row.until > wall:
                    getattr(news, section).append(row)
        setattr(written, section, list(rows.values()))
    for over in [row for row, end in known.items() if end <= wall]:
        del known[over]
    known |= seen_in(written)
    return Merged(written, news)


def seen_in(saved: Saved) -> Known:
    """The rows of a state, as what was seen in the file."""
    return {(section, row.key): row.until for section in SECTIONS for row in getattr(saved, section)}
