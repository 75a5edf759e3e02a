"""What the page, the metrics and the commands show: one frozen picture of the state, and the counters behind it.

Nothing in here may hold a credential, a prompt, an answer or a query string: whatever is in a `Status` is shown.
"""

from __future__ import annotations

import dataclasses
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeVar

BreakerState = Literal["closed", "half_open", "probing", "open"]
"""half_open: the window is over and the next generation request is the probe; probing: that request is out."""

HOLD_BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 100.0)
"""Upper edges in seconds; everything longer falls into the last, open one."""

LABELS_AT_MOST = 500
"""Different labels of one counter; what comes later is counted as `other`, so that no input can fill the memory."""

OTHER = "other"

Label = TypeVar("Label", str, tuple[str, str])


@dataclass(frozen=True, slots=True)
class UpstreamRow:
    """One breaker. With `scope: account` there is a row for each account that has struck."""

    name: str
    hosts: tuple[str, ...] = ()
    family: str = ""
    state: BreakerState = "closed"
    seconds_left: float | None = None
    """Of the open window; of the probe's lease while probing; None while closed or half_open."""
    strikes: int = 0
    strikes_to_open: int = 3
    sent: int = 0
    avoided: int = 0
    challenges: int = 0
    opened: int = 0
    account: str = ""
    """Prefix of the account's keyed hash, where the breaker is one account's."""


@dataclass(frozen=True, slots=True)
class DecisionRow:
    """One decision, newest first in a `Status`."""

    wall: float
    """Unix time, seconds."""
    flow_id: str
    upstream: str
    wire: str
    path: str
    """Without the query."""
    finding: str
    reason: str
    comment: str = ""
    wait: float | None = None
    """Seconds told to the client."""
    attempts: int = 1
    status: int | None = None


@dataclass(frozen=True, slots=True)
class WindowRow:
    """A context window learnt from an overflow text."""

    upstream: str
    model: str
    tokens: int
    thinking: bool = False
    source: str = ""
    """Which text stated it."""
    learnt_wall: float | None = None
    expires_wall: float | None = None


@dataclass(frozen=True, slots=True)
class RefusalRow:
    """A refusal that is remembered."""

    kind: str
    upstream: str
    account: str
    """Prefix of the keyed hash."""
    seconds_left: float


@dataclass(frozen=True, slots=True)
class Histogram:
    """Hold times of one upstream: a count for each of `HOLD_BUCKETS` and one for what is longer, not cumulative."""

    counts: tuple[int, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class Counts:
    """What has been counted since the start."""

    sends: Mapping[str, int] = field(default_factory=dict)
    """By upstream, re-sends included."""
    avoided: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """By upstream and reason."""
    findings: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """By upstream and kind."""
    replaced: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """By upstream and reason."""
    resends: Mapping[str, int] = field(default_factory=dict)
    in_stream: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """Refusals after the first answer frame, by upstream and kind."""
    opened: Mapping[str, int] = field(default_factory=dict)
    faults: Mapping[str, int] = field(default_factory=dict)
    holds: Mapping[str, Histogram] = field(default_factory=dict)

    def avoided_at(self, upstream: str) -> int:
        return sum(number for (name, _), number in self.avoided.items() if name == upstream)

    def found(self, upstream: str, kind: str) -> int:
        return self.findings.get((upstream, kind), 0)

    def as_json(self) -> dict[str, object]:
        return {
            "sends": dict(self.sends),
            "avoided": _nested(self.avoided),
            "findings": _nested(self.findings),
            "replaced": _nested(self.replaced),
            "resends": dict(self.resends),
            "in_stream_refusals": _nested(self.in_stream),
            "opened": dict(self.opened),
            "faults": dict(self.faults),
            "holds": {name: {"count": sum(h.counts), "seconds": round(h.seconds, 3)} for name, h in self.holds.items()},
        }


@dataclass(frozen=True, slots=True)
class Status:
    """Everything that is shown, at one moment."""

    now_wall: float
    version: str
    mode: str
    upstreams: tuple[UpstreamRow, ...] = ()
    decisions: tuple[DecisionRow, ...] = ()
    windows: tuple[WindowRow, ...] = ()
    refusals: tuple[RefusalRow, ...] = ()
    report_text: str = ""
    faults: Mapping[str, str] = field(default_factory=dict)
    """By kind of fault: one sentence about the last of that kind. How many, `counts.faults` says."""
    counts: Counts = field(default_factory=Counts)

    def as_json(self) -> dict[str, object]:
        rows = {
            name: [dataclasses.asdict(row) for row in getattr(self, name)]
            for name in ("upstreams", "decisions", "windows", "refusals")
        }
        return {
            "now": self.now_wall,
            "version": self.version,
            "mode": self.mode,
            **rows,
            "report": self.report_text,
            "faults": dict(self.faults),
            "counts": self.counts.as_json(),
        }


class Counters:
    """Counts in memory. Each method is one addition; `freeze` copies."""

    def __init__(self) -> None:
        self._sends: Counter[str] = Counter()
        self._avoided: Counter[tuple[str, str]] = Counter()
        self._findings: Counter[tuple[str, str]] = Counter()
        self._replaced: Counter[tuple[str, str]] = Counter()
        self._resends: Counter[str] = Counter()
        self._in_stream: Counter[tuple[str, str]] = Counter()
        self._opened: Counter[str] = Counter()
        self._faults: Counter[str] = Counter()
        self._holds: dict[str, list[int]] = {}
        self._held: Counter[str] = Counter()

    def sent(self, upstream: str) -> None:
        """A request went upstream: the first send and each re-send."""
        _add(self._sends, upstream, OTHER)

    def avoided(self, upstream: str, reason: str) -> None:
        """A request was answered here instead of being sent."""
        _add(self._avoided, (upstream, reason), (upstream, OTHER))

    def found(self, upstream: str, kind: str) -> None:
        _add(self._findings, (upstream, kind), (upstream, OTHER))

    def replaced(self, upstream: str, reason: str) -> None:
        """An upstream's answer was replaced by one of our own."""
        _add(self._replaced, (upstream, reason), (upstream, OTHER))

    def resent(self, upstream: str) -> None:
        """A request was sent again in place; `sent` counts that send too."""
        _add(self._resends, upstream, OTHER)

    def refused_in_stream(self, upstream: str, kind: str) -> None:
        _add(self._in_stream, (upstream, kind), (upstream, OTHER))

    def opened(self, upstream: str) -> None:
        """The breaker opened, or opened again after a challenged probe."""
        _add(self._opened, upstream, OTHER)

    def fault(self, kind: str) -> None:
        _add(self._faults, kind, OTHER)

    def held(self, upstream: str, seconds: float) -> None:
        """Response headers were held for so long before they went out."""
        seconds = max(seconds, 0.0)
        if upstream not in self._holds and len(self._holds) >= LABELS_AT_MOST:
            upstream = OTHER
        counts = self._holds.setdefault(upstream, [0] * (len(HOLD_BUCKETS) + 1))
        counts[bisect_left(HOLD_BUCKETS, seconds)] += 1
        # In microseconds, since a Counter counts whole things; exact however many are added.
        self._held[upstream] += round(seconds * 1_000_000)

    def freeze(self) -> Counts:
        holds = {name: Histogram(tuple(counts), self._held[name] / 1_000_000) for name, counts in self._holds.items()}
        return Counts(
            sends=dict(self._sends),
            avoided=dict(self._avoided),
            findings=dict(self._findings),
            replaced=dict(self._replaced),
            resends=dict(self._resends),
            in_stream=dict(self._in_stream),
            opened=dict(self._opened),
            faults=dict(self._faults),
            holds=holds,
        )


def _add(counter: Counter[Label], label: Label, rest: Label) -> None:
    if label not in counter and len(counter) >= LABELS_AT_MOST:
        label = rest
    counter[label] += 1


def _nested(pairs: Mapping[tuple[str, str], int]) -> dict[str, dict[str, int]]:
    nested: dict[str, dict[str, int]] = {}
    for (first, second), number in pairs.items():
        nested.setdefault(first, {})[second] = number
    return nested
