"""Whether bytes of a running stream may hold a refusal: plain needles first, no JSON."""

from __future__ import annotations

import re
from collections.abc import Iterable

from policies.wire.codes.common import FINISH_REASONS

_SAYS = rb'"\s*:(?!\s*(?:null|true|""|\[\]|\{\}|0\s*[,}]|200\s*[,}]|"0"|"200"))'
"""Behind a key: a value that is more than nothing or a success."""
_REASON = rb'(?:finish|stop)_reason"\s*:\s*"'
ROWS: tuple[tuple[bytes, re.Pattern[bytes] | None], ...] = (
    (b'"error', re.compile(rb'"errors?' + _SAYS)),
    *(
        (exact, None)
        for exact in (b':"error"', b': "error"', b"event:error", b"event: error", b"response.error", b"response.failed")
    ),
    *((key, re.compile(rb'"' + key + _SAYS)) for key in (b"ret", b"code", b"success")),
    (b"detail", re.compile(rb'"details?' + _SAYS)),
    (b"rgv587_flag", None),
    (b"captcha_error_type", None),
    (b"http_status/", re.compile(rb"http_status/[45]")),
    *((reason.encode(), re.compile(_REASON + reason.encode())) for reason in FINISH_REASONS),
    (b"<", re.compile(rb"<\s*(?:!doctype|html|head|body|script|meta|title)")),
    (b"_____tmd_____/punish", None),
)
"""What a refusal's bytes hold, in lower case: first a plain needle, then the pattern that only a refusal's key or tag has."""


_FIRST = re.compile(rb'error|"(?:ret|code|success)|detail|rgv587|captcha|http_st|reason"\s*:\s*"|_tmd_|<|e\.failed')
"""A part that each row cannot be without, in one pass: this is looked for in every chunk of every stream."""


def near(data: bytes, more: Iterable[bytes] = ()) -> bool:
    """False where no refusal can be in the bytes. ``more``: further needles, in lower case."""
    low = data.lower()
    if _FIRST.search(low) is None and not any(needle in low for needle in more):
        return False
    for needle, pattern in ROWS:
        if needle in low and (pattern is None or pattern.search(low)):
            return True
    return any(needle in low for needle in more)
