"""How long an upstream asks to wait: from its header, from a key of its body, from its words."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Literal

from policies.kinds import Head

Source = Literal["header", "body", "text"]

KEYS = ("retry-after", "retry_after", "retryafter", "retry_after_seconds", "retry-after-seconds")
LONGEST = 400 * 86400.0
"""Seconds; more is no wait."""
_UNITS = (("ms", 0.001), ("milli", 0.001), ("毫", 0.001), ("s", 1), ("秒", 1), ("m", 60), ("分", 60), ("h", 3600), ("小", 3600))
"""Beginnings of a unit's name, and its seconds."""
_SPAN = r"(\d{1,9}(?:\.\d{1,9})?)\s*(ms|milliseconds?|毫秒|secs?|seconds?|s|秒钟?|mins?|minutes?|分钟|m|hours?|小时|h)(?![a-z])"
_AGAIN = re.compile(
    rf"(?:(?:try|retry|retrying) (?:again )?(?:in|after)|wait(?: for)?|available in|resets? in|请(?:在|等待)?)\s*(?:about |~)?{_SPAN}(?:\s*{_SPAN})?",
    re.IGNORECASE,
)
_RESET = re.compile(
    r"(?:reset[s]?(?: at| on)?:?|available (?:again )?(?:at|after)|将在|于)\s*"
    r"(\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(?::\d{2})?(?:\.\d+)?\s?(?:Z|UTC|[+-]\d{2}:?\d{2})?(?:\s?\(?UTC[+-]\d{1,2}\)?)?)",
    re.IGNORECASE,
)
_MOMENT = re.compile(
    r"(?P<day>\d{4}-\d{2}-\d{2})[T ](?P<clock>\d{2}:\d{2}(?::\d{2})?)(?:\.\d+)?\s?(?P<utc>Z|\(?UTC\)?(?![+-]))?"
    r"(?:\(?(?:UTC)?(?P<ahead>[+-]\d{1,2}):?(?P<minutes>\d{2})?\)?)?",
    re.IGNORECASE,
)


def wait_of(head: Head, fields: Iterable[Mapping[str, object]], words: str) -> tuple[float | None, Source | None]:
    """Seconds and where they were read, header before body before words; (None, None) where nothing is said."""
    if seconds := in_header(head):
        return seconds, "header"
    if seconds := next(filter(None, map(_in_body, fields)), None):
        return seconds, "body"
    seconds = in_words(words)
    return (seconds, "text") if seconds else (None, None)


def in_header(head: Head) -> float | None:
    """Retry-After in seconds; a date counts from the answer's own Date, else from when it came. Then ``retry-after-ms``."""
    value = head.get("retry-after").strip()
    return _number(value) or (_until(value, head) if value else None) or _milliseconds(head.get("retry-after-ms"))


def kept_as_it_is(head: Head) -> bool:
    """True for a Retry-After that every client keeps: seconds from 1 to 59, no date, no ``retry-after-ms`` alone."""
    return 1 <= (_number(head.get("retry-after")) or 0) < 60


def in_words(words: str) -> float | None:
    """Seconds of "try again in 2s", "retry after 1m30s", "请 3 秒后重试"."""
    found = _AGAIN.search(words)
    return _span(*found.groups()) if found else None


def reset_in(words: str) -> str | None:
    """The reset time that a message names, as written; UTC+8 where no zone stands."""
    found = _RESET.search(words)
    return found[1].strip() if found else None


def until(reset: str, wall: float) -> float | None:
    """Seconds from ``wall`` (Unix seconds) to a reset time; UTC+8 where it names no zone, as z.ai writes it."""
    found = _MOMENT.match(reset)
    if found is None:
        return None
    hours = int(found["ahead"] or (0 if found["utc"] else 8))
    offset = hours * 3600 + int(found["minutes"] or 0) * (-60 if hours < 0 else 60)
    try:
        then = datetime.fromisoformat(f"{found['day']}T{found['clock']}+00:00").timestamp() - offset
    except ValueError:
        return None
    return _sane(then - wall)


def hours_in(fields: Iterable[Mapping[str, object]]) -> float | None:
    """Seconds of ``num``, which chat.qwen.ai counts in hours."""
    hours = next(filter(None, (_number(body.get("num")) for body in fields)), None)
    return _sane(hours * 3600) if hours else None


def _in_body(body: Mapping[str, object]) -> float | None:
    if seconds := next(filter(None, (_number(body.get(key)) for key in KEYS)), None):
        return seconds
    for key in KEYS[:3]:
        value = body.get(key)
        if isinstance(value, str) and (span := re.fullmatch(_SPAN, value.strip(), re.IGNORECASE)):
            return _span(*span.groups())
    return _milliseconds(body.get("retry_after_ms"))


def _span(*parts: str | None) -> float | None:
    """Seconds of a count and its unit, or of two of them (``1 m``, ``30 s``)."""
    pairs = ((float(count), unit.lower()) for count, unit in zip(parts[::2], parts[1::2], strict=True) if count and unit)
    return _sane(sum(count * next(each for name, each in _UNITS if unit.startswith(name)) for count, unit in pairs))


def _milliseconds(value: object) -> float | None:
    number = _number(value)
    return number / 1000 if number else None


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    if isinstance(value, str) and not re.fullmatch(r"\s*\d{1,12}(?:\.\d{1,9})?\s*", value, re.ASCII):
        return None
    try:
        return _sane(float(value))
    except OverflowError:
        return None


def _sane(seconds: float) -> float | None:
    return seconds if math.isfinite(seconds) and 0 < seconds <= LONGEST else None


def _until(date: str, head: Head) -> float | None:
    try:
        then = _zoned(parsedate_to_datetime(date)).timestamp()
        sent = head.get("date")
        since = _zoned(parsedate_to_datetime(sent)).timestamp() if sent else head.received
        return None if since is None else _sane(then - since)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def _zoned(moment: datetime) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
