"""The side-request guard: a title, warm-up or probe that cannot fit its window is refused before it is sent."""

from __future__ import annotations

import math
from dataclasses import dataclass

from policies.calls import Call
from policies.kinds import Role, Wire
from policies.request import media, tokens
from policies.settings import SideRequestSettings


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


def check(call: Call, settings: SideRequestSettings, window: int | None) -> Oversize | None:
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
