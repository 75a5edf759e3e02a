"""Timeline of the last hour: per minute and upstream what was sent, refused here, waiting and paused, as the page draws it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from operations.metrics import Counts

MINUTES = 60
WIDTH, HEIGHT = 10, 40
"""Of one minute in the picture."""


@dataclass(slots=True)
class Mark:
    """One upstream in one minute."""

    sent: int = 0
    refused: int = 0
    waiting: int = 0
    """The most at a time."""
    paused: bool = False


@dataclass(frozen=True, slots=True)
class Bar:
    """One minute of a picture, in its units; ``x`` is its left edge, heights are counted from below."""

    x: int
    sent: float
    refused: float
    waiting: float
    paused: bool


@dataclass(slots=True)
class Timeline:
    """A bounded ring of minutes: what is older than an hour is gone."""

    minutes: deque[tuple[int, dict[str, Mark]]] = field(default_factory=lambda: deque(maxlen=MINUTES))
    _seen: dict[str, tuple[int, int]] = field(default_factory=dict)

    def look(self, counts: Counts, paused: Iterable[str], waiting: Mapping[str, int], wall: float) -> None:
        """Note what has been counted since the last look; ``wall`` is the wall clock in seconds."""
        minute = int(wall // 60)
        if not self.minutes or self.minutes[-1][0] != minute:
            self.minutes.append((minute, {}))
        marks = self.minutes[-1][1]
        for upstream in {*counts.sends, *(name for name, _ in counts.avoided)}:
            now = counts.sends.get(upstream, 0), counts.avoided_at(upstream)
            before = self._seen.get(upstream, (0, 0))
            if now != before:
                mark = marks.setdefault(upstream, Mark())
                mark.sent, mark.refused = mark.sent + now[0] - before[0], mark.refused + now[1] - before[1]
                self._seen[upstream] = now
        for upstream in paused:
            marks.setdefault(upstream, Mark()).paused = True
        for upstream, number in waiting.items():
            mark = marks.setdefault(upstream, Mark())
            mark.waiting = max(mark.waiting, number)

    def pictures(self, wall: float) -> dict[str, tuple[Bar, ...]]:
        """A row of bars for each upstream that had something in the hour, all to one scale, the newest at the right."""
        first = int(wall // 60) - MINUTES + 1
        marks = [(minute - first, of) for minute, of in self.minutes if 0 <= minute - first < MINUTES]
        most = max((mark.sent + mark.refused for _, of in marks for mark in of.values()), default=0)
        queue = max((mark.waiting for _, of in marks for mark in of.values()), default=0)
        tall, long = HEIGHT / max(most, 1), HEIGHT / max(queue, 1)
        rows: dict[str, list[Bar]] = {}
        for place, of in marks:
            for upstream, mark in of.items():
                bar = Bar(place * WIDTH, mark.sent * tall, mark.refused * tall, mark.waiting * long, mark.paused)
                rows.setdefault(upstream, []).append(bar)
        return {upstream: tuple(bars) for upstream, bars in sorted(rows.items())}
