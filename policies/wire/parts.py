"""A part of an answer: preamble, content or ending."""

from __future__ import annotations

import re
from collections.abc import Mapping

from policies.findings import ANSWER, Finding
from policies.wire import shapes
from policies.wire.codes.common import FINISH_REASONS
from policies.wire.frames import Frame


def ended(body: Mapping[str, object]) -> Finding | None:
    """What a finish_reason or stop_reason says, where it says more than that the answer is over."""
    for reason in shapes.reasons(body):
        kind = FINISH_REASONS.get(reason.lower())
        if kind is not None:
            return Finding(kind, row=f"finish:{reason.lower()}", code=reason.lower(), ends_answer=True)
    return None


def kind_of(value: object) -> Finding | None:
    """None for preamble, else an answer or how it ended."""
    if not isinstance(value, dict):
        return ANSWER
    if not value:
        return None
    return part(shapes.lowered(value))


def part(low: Mapping[str, object]) -> Finding | None:
    """The same of an object with its keys in lower case."""
    return ended(low) or (None if shapes.is_preamble(low) else ANSWER)


def named_status(frame: Frame) -> int | None:
    """The status in the comment ``:HTTP_STATUS/429`` of a DashScope stream."""
    for comment in frame.comments:
        found = re.match(rb"\s*HTTP_STATUS/(\d{3})\b", comment)
        if found:
            return int(found[1])
    return None
