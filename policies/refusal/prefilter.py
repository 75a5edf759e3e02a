"""Whether bytes of a running stream may hold a refusal: plain needles first, no JSON."""

from __future__ import annotations

import re
from collections.abc import Iterable

from policies.answer.shapes import FINISH_REASONS


def _row(pattern: str) -> re.Pattern[str]:
    """Of bytes read as Latin-1: what is white space there is none in JSON."""
    return re.compile(pattern, re.ASCII)


_SAYS = r'"\s*:(?!\s*(?:null|true|""|\[\]|\{\}|0\s*[,}]|200\s*[,}]|"0"|"200"))'
"""Behind a key: a value that is more than nothing or a success."""
_REASON = r'(?:finish|stop)_reason"\s*:\s*"'
ROWS: tuple[tuple[str, re.Pattern[str] | None], ...] = (
    ('"error', _row(r'"errors?' + _SAYS)),
    *((exact, None) for exact in (':"error"', ': "error"', "event:error", "event: error", "response.error", "response.failed")),
    *((key, _row(r'"' + key + _SAYS)) for key in ("ret", "code", "success")),
    ("detail", _row(r'"details?' + _SAYS)),
    ("rgv587_flag", None),
    ("captcha_error_type", None),
    ("http_status/", _row(r"http_status/[45]")),
    *((reason, _row(_REASON + reason)) for reason in FINISH_REASONS),
    ("<", _row(r"<\s*(?:!doctype|html|head|body|script|meta|title)")),
    ("/punish", None),
)
"""What a refusal's bytes hold, in lower case: first a plain needle, then the pattern that only a refusal's key or tag has."""


_FIRST = ("error", '"ret', '"code', '"success', "detail", "rgv587", "captcha", "http_st", "/punish", "<", "e.failed")
"""A part that each row cannot be without, but for those with a reason: looked for in every chunk of every stream."""
_REASON_KEY = 'reason"'
_REASON_SAID = _row(r'reason"\s*:\s*"')
"""Most say null."""


def near(data: bytes, more: Iterable[bytes] = ()) -> bool:
    """False where no refusal can be in the bytes. ``more``: further needles, in lower case."""
    low = data.lower()
    text = low.decode("latin-1")  # in which Python finds a needle twice as fast
    for part in _FIRST:
        if part in text:
            break
    else:
        if _REASON_KEY not in text or _REASON_SAID.search(text) is None:
            return any(needle in low for needle in more) if more else False
    return _is_near(text) or any(needle in low for needle in more)


def _is_near(text: str) -> bool:
    return any(needle in text and (pattern is None or pattern.search(text)) for needle, pattern in ROWS)
