"""Context windows (configured, of the catalogue, or learnt from an overflow's text), and the guard of side requests that do not fit."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, NamedTuple

import msgspec

from policies.calls import Call
from policies.kinds import Role, Wire
from policies.request import media, surfaces, tokens
from policies.settings import SideRequestSettings

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
        fitting = [pattern for pattern in self._additions if surfaces.fits(pattern, name)]
        if fitting:
            best = max(fitting, key=lambda pattern: (not pattern.endswith("*"), len(pattern)))
            return Window(self._additions[best], "config")
        entry = surfaces.model_window(call.surface.upstream, call.surface.family, call.model)
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


# -- the side-request guard: a title, warm-up or probe that cannot fit its window is refused before it is sent ------


@dataclass(frozen=True, slots=True)
class Oversize:
    """Figures of a side request that is refused, in tokens."""

    estimate: int
    window: int
    effective_window: int
    """The window less the reserved output."""


def is_side(call: Call, settings: SideRequestSettings) -> bool:
    """True for a request without tools that has a small output budget, or the text of a title or warm-up request.

    What cannot be read is a main request. A side request is one also where none is refused for its size
    (``enabled: false``): it is no previous answer of its session either way.
    """
    if call.surface.role is not Role.GENERATION or call.fields is None or call.tools:
        return False
    small = call.output_budget is not None and call.output_budget <= settings.max_output_tokens
    return small or call.trait is not None


def effective_window(call: Call, window: int) -> int:
    """The part of a window that the input may fill.

    The Anthropic wire counts input alone; the others reserve the output budget, of which at most a quarter of the
    window is believed: clients ask for more than they mean.
    """
    if call.surface.wire is Wire.ANTHROPIC or call.output_budget is None:
        return window
    return window - min(call.output_budget, window // 4)


def oversize(call: Call, settings: SideRequestSettings, window: int | None) -> Oversize | None:
    """The figures of a side request that cannot fit, None for everything that goes on."""
    if window is None or window <= 0 or not settings.enabled or not is_side(call, settings):
        return None
    fillable = effective_window(call, window)
    limit = math.ceil(settings.margin * fillable)
    if len(call.body) < limit and not media.may_hold(call.body):
        return None  # a token is a byte at least
    estimate = tokens.estimate(call.body, call.surface.wire, settings.weights)
    if estimate < limit:
        return None
    return Oversize(estimate, window, fillable)
