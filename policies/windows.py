"""Context windows: configured, known from the catalogue, or learnt from the number that an overflow text states."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, NamedTuple

import msgspec

from policies.calls import Call
from policies.request import catalogue

SMALLEST = 1_000
"""Tokens; a smaller number in a text is no window."""
LARGEST = 100_000_000
"""Tokens; a larger one neither."""
ABOVE_CATALOGUE = 1.1
"""Times the catalogue's window; what states more than that is read wrongly."""
LONG_CONTEXT = 1_000_000
"""Tokens that ``anthropic-beta: context-1m…`` or a ``[1m]`` suffix asks for."""
LIFETIME = 86_400.0
"""Seconds of wall clock for which a learnt window holds."""
CLOCK_STEP = 300.0
"""Seconds that the wall clock may have been set back before a row counts as none."""
SLACK_TOKENS, SLACK_SHARE = 256, 0.03
"""A success must exceed a learnt window by more than the larger of these (billion-context#570)."""
BOUND = 1_000
"""Learnt rows kept."""
_LONGEST_TEXT = 200
"""Characters kept of a name or a source."""
Text = Annotated[str, msgspec.Meta(max_length=_LONGEST_TEXT)]


class Window(NamedTuple):
    """Tokens that an input may fill, and who says so."""

    tokens: int
    source: str


class Key(NamedTuple):
    """Key of a learnt window: where it holds."""

    upstream: str
    model: str
    thinking: bool
    long_context: bool = False


@dataclass(frozen=True, slots=True)
class Learnt:
    """Window that an upstream stated itself."""

    upstream: Text
    model: Text
    thinking: bool
    tokens: Annotated[int, msgspec.Meta(ge=SMALLEST, le=LARGEST)]
    source: Text
    when: float
    """Wall clock, seconds since the epoch, of the last statement."""
    long_context: bool = False

    @property
    def key(self) -> Key:
        return Key(self.upstream, self.model, self.thinking, self.long_context)

    @property
    def until(self) -> float:
        return self.when + LIFETIME


class Windows:
    """The windows of one process; ``wall`` is the wall clock in seconds everywhere, since rows outlive a restart."""

    def __init__(self, additions: Mapping[str, int]) -> None:
        self._learnt: dict[Key, Learnt] = {}
        self.configure(additions)

    def configure(self, additions: Mapping[str, int]) -> None:
        """Take up the configured windows anew; what was learnt stays."""
        self._additions = {name.strip().lower(): tokens for name, tokens in additions.items()}

    def effective(self, call: Call, wall: float) -> Window | None:
        """The smaller of the configured or catalogue window and the learnt one; None where neither is known.

        A request for the long context has at least 1,000,000, and only what was learnt from such requests narrows it.
        """
        stated = self._stated(call)
        learnt = self._current(_key(call), wall)
        if call.long_context and (stated or self._current(_key(call)._replace(long_context=False), wall)):
            stated = max(stated or Window(0, ""), Window(LONG_CONTEXT, "long context asked for"))
        if learnt is not None and (stated is None or learnt.tokens < stated.tokens):
            return Window(learnt.tokens, f"learnt: {learnt.source}")
        return stated

    def learn(self, call: Call, tokens: int, source: str, wall: float) -> bool:
        """Keep a number that an overflow text states; False where it is no credible window of this model."""
        if not SMALLEST <= tokens <= LARGEST or tokens > self._ceiling(call):
            return False
        key = _key(call)
        self._keep(Learnt(*key[:3], tokens, source[:_LONGEST_TEXT], wall, call.long_context))
        return True

    def succeeded(self, call: Call, usage_input: int, wall: float) -> bool:
        """Take back every learnt window that this answered input exceeds; True where there was one.

        Thinking only narrows a window, so an input that fits with thinking on fits with thinking off as well.
        """
        rows = [self._current(_key(call)._replace(thinking=thinking), wall) for thinking in {call.thinking, False}]
        over = [row for row in rows if row and usage_input > row.tokens + max(SLACK_TOKENS, SLACK_SHARE * row.tokens)]
        for row in over:
            del self._learnt[row.key]
        return bool(over)

    def forget(self, model: str) -> int:
        """Forget what was learnt of a model on every upstream; the number of rows."""
        name = _name(model)
        return len([self._learnt.pop(key) for key in [*self._learnt] if key.model == name])

    def learnt(self) -> list[Learnt]:
        """Every learnt row, the newest first; expired ones are still among them until they are asked for."""
        return sorted(self._learnt.values(), key=lambda row: row.when, reverse=True)

    def load(self, rows: Iterable[Learnt], wall: float) -> int:
        """Take up the rows of a state file that still hold; the number taken."""
        taken = [replace(row, model=row.model.strip().lower()) for row in rows if _holds(row, wall)]
        for row in taken:
            self._keep(row)
        return len(taken)

    def _stated(self, call: Call) -> Window | None:
        name = call.model.lower()
        fitting = [pattern for pattern in self._additions if catalogue.fits(pattern, name)]
        if fitting:
            best = max(fitting, key=lambda pattern: (not pattern.endswith("*"), len(pattern)))
            return Window(self._additions[best], "config")
        entry = catalogue.look_up(call.surface.upstream, call.surface.family, call.model)
        if entry is None:
            return None
        return Window(entry.thinking if call.thinking and entry.thinking else entry.tokens, f"catalogue: {entry.source}")

    def _ceiling(self, call: Call) -> float:
        """The most that a credible statement may say."""
        known = self._stated(call)
        if known is None:
            return LARGEST
        return ABOVE_CATALOGUE * max(known.tokens, LONG_CONTEXT if call.long_context else 0)

    def _current(self, key: Key, wall: float) -> Learnt | None:
        row = self._learnt.get(key)
        if row is None or _holds(row, wall):
            return row
        del self._learnt[key]
        return None

    def _keep(self, row: Learnt) -> None:
        self._learnt[row.key] = row
        while len(self._learnt) > BOUND:
            del self._learnt[min(self._learnt.values(), key=lambda kept: kept.when).key]


def _key(call: Call) -> Key:
    return Key(call.surface.upstream[:_LONGEST_TEXT], _name(call.model), call.thinking, call.long_context)


def _name(model: str) -> str:
    return model.strip().lower()[:_LONGEST_TEXT]


def _holds(row: Learnt, wall: float) -> bool:
    return -CLOCK_STEP <= wall - row.when < LIFETIME
