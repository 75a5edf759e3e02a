"""Whether bytes of a running stream may hold a refusal: plain needles first, no JSON."""

from __future__ import annotations

import re
from collections.abc import Iterable

from policies.wire.codes.common import FINISH_REASONS

_SAYS = r'"\s*:(?!\s*(?:null|true|""|\[\]|\{\}|0\s*[,}]|200\s*[,}]|"0"|"200"))'
"""Behind a key: a value that is more than nothing or a success."""
_REASON = r'(?:finish|stop)_reason"\s*:\s*"'
ROWS: tuple[tuple[str, re.Pattern[str] | None], ...] = (
    ('"error', re.compile(r'"errors?' + _SAYS)),
    *(
        (exact, None)
        for exact in (':"error"', ': "error"', "event:error", "event: error", "response.error", "response.failed")
    ),
    *((key, re.compile(r'"' + key + _SAYS)) for key in ("ret", "code", "success")),
    ("detail", re.compile(r'"details?' + _SAYS)),
    ("rgv587_flag", None),
    ("captcha_error_type", None),
    ("http_status/", re.compile(r"http_status/[45]")),
    *((reason, re.compile(_REASON + reason)) for reason in FINISH_REASONS),
    ("<", re.compile(r"<\s*(?:!doctype|html|head|body|script|meta|title)")),
    ("_____tmd_____/punish", None),
)
"""What a refusal's bytes hold, in lower case: first a plain needle, then the pattern that only a refusal's key or tag has."""


_FIRST = ("error", '"ret', '"code', '"success', "detail", "rgv587", "captcha", "http_st", "_tmd_", "<", "e.failed")
"""A part that each row cannot be without, but for those with a reason: looked for in every chunk of every stream."""
_REASON_KEY = 'reason"'
_REASON_SAID = re.compile(r'reason"\s*:\s*"')
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
