"""What an error envelope means: overflow, quota and account are asked before anything that may pass by itself."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from policies.kinds import Challenge, Family, Finding, Kind
from policies.refusal import codes, overflow
from policies.refusal.codes import Row
from policies.refusal.envelopes import Envelope, is_status

TABLES: dict[Family | None, tuple[tuple[str, tuple[Row, ...]], ...]] = {
    Family.ZAI: (("zai", codes.ZAI_ROWS),),
    Family.ZCODE: (("zcode", codes.ZCODE_ROWS), ("zai", codes.ZAI_ROWS)),
    Family.ZAI_WEB: (("zai-web", codes.ZAI_WEB_ROWS), ("zai", codes.ZAI_ROWS)),
    Family.DASHSCOPE: (("dashscope", codes.DASHSCOPE_ROWS),),
    Family.QWEN_WEB: (("qwen-web", codes.QWEN_WEB_ROWS), ("dashscope", codes.DASHSCOPE_ROWS)),
    None: (("common", codes.ROWS),),
}
"""Per family, its tables with their names, in reading order; None: what is read after any family's own."""
LASTING = frozenset({Kind.OVERFLOW, Kind.QUOTA, Kind.ACCOUNT, Kind.FILTER, Kind.CHALLENGE})
"""Kinds that words alone may say even beside a code that no row knows."""
HIDDEN_STATUS: dict[Kind, int] = {
    Kind.QUOTA: 429,
    Kind.RATE_LIMIT: 429,
    Kind.ACCOUNT: 401,
    Kind.FILTER: 400,
    Kind.OVERFLOW: 400,
    Kind.CALLER_ERROR: 400,
    Kind.UPSTREAM_ERROR: 502,
}
"""The status of an error that hid in a 200, where neither the code's row nor the answer names one."""
DEEPEST = 5
"""Parts of a dotted code."""
_ALGORITHM = "internalerror.algo."
_PASSING = (Kind.RATE_LIMIT, Kind.OVERLOAD)
_OVERLOAD_STATUSES = (429, 503, 529)
_CAPTCHA_FAMILIES = (Family.QWEN_WEB, Family.ZAI_WEB, Family.ZCODE)

Named = tuple[str, Row]
"""A row with its id, ``table:name``."""


def _by_code(rows: Iterable[Named]) -> dict[str, list[Named]]:
    found: dict[str, list[Named]] = {}
    for named in rows:
        for code in named[1].codes.lower().split():
            found.setdefault(code, []).append(named)
    return found


_ROWS = {family: [(f"{table}:{row.name}", row) for table, rows in tables for row in rows] for family, tables in TABLES.items()}
_CODES = {family: _by_code(rows) for family, rows in _ROWS.items()}
_TEXTS = {family: [named for named in rows if not named[1].codes] for family, rows in _ROWS.items()}


def meaning(family: Family, envelope: Envelope, http: int) -> Finding:
    """What the error is, without its words and its wait; its status is the one that its row names.

    ``http``: the status of the answer, or the one that a hidden error names, 0 where there is none.
    """
    chain = envelope.chain()
    found = (
        _overflow(chain)
        or _of_chain(family, chain)
        or next((found for part in reversed(chain[1:]) if (found := _generic(part, 0) or _nested_status(part))), None)
        or _generic(envelope, http)
    )
    if found is None:
        named = next((part.status for part in chain if part.status), None)
        words = "\n".join(part.message for part in chain)
        code = next((part.code or part.type for part in chain if part.code or part.type), "")
        found = by_status(http or named or 0, code, specific=envelope.specific, words=words)
    if found.kind in _PASSING and found.crowd is None:
        texts = [words for part in chain for words in overflow.beginnings(part.message)]
        rows = [row for _, row in (*_TEXTS[family], *_TEXTS[None]) if row.crowd]
        found = replace(found, crowd=next((row.crowd for words in texts for row in rows if row.begins(words)), None))
    return found


def known(finding: Finding) -> bool:
    """False where only a status, or nothing at all, spoke for it."""
    return finding.row.partition(":")[0] not in ("unknown", "status")


def by_status(http: int, code: str = "", *, specific: bool = False, words: str = "") -> Finding:
    """What a status says where no row knows the body; 0: an error without any status."""
    kind, transient = Kind.UPSTREAM_ERROR, http >= 500
    row, status = f"status:{http}" if http else "unknown", http or None
    if http == 529:
        kind = Kind.OVERLOAD
    elif http == 429:
        kind, transient = Kind.RATE_LIMIT, True
    elif http in (401, 402) and not specific:
        kind = Kind.ACCOUNT
    elif 400 <= http < 500:
        kind, transient = Kind.CALLER_ERROR, _marked(words)
    elif not http and (told := _hidden_by_words(words)):
        kind, row, status = told.kind, f"unknown:{told.name}", told.status
    return Finding(kind, row, code, status=status, transient=transient)


def _hidden_by_words(words: str) -> Row | None:
    """What an error of no known code in a success says of a second try: none where its message speaks of its caller."""
    if not words or codes.PASSING.search(words):
        return None
    return next((row for row in codes.HIDDEN_WORDS if re.search(row.text, words, re.IGNORECASE)), None)


def _marked(words: str) -> bool:
    return any(marker in words.lower() for marker in codes.MARKERS)


def _overflow(chain: Sequence[Envelope]) -> Finding | None:
    for part in chain:
        found = overflow.row_of(part.message)
        if found is None and not any(code.lower() in overflow.CODES for code in part.codes):
            continue
        structured = next((tokens for nested in chain if (tokens := overflow.window_field(nested.fields))), None)
        window = structured or (found[1] if found else None)
        row = f"overflow:{found[0].name}" if found else "overflow:code"
        return Finding(Kind.OVERFLOW, row, part.code or part.type or part.in_text, status=400, window=window)
    return None


def _of_chain(family: Family, chain: Sequence[Envelope]) -> Finding | None:
    """The outermost part that a row of the family knows; one that only wraps another's error yields to it."""
    first: Finding | None = None
    for part in chain:
        found = _of_family(family, part)
        if found is not None and not (found.kind is Kind.UPSTREAM_ERROR and part.inner):
            return found
        first = first or found
    return first


def _of_family(family: Family, part: Envelope) -> Finding | None:
    text = _text_row(family, part.message)
    for code in part.codes:
        row = _code_row(family, code, part.message)
        if row is not None:
            return _of_row(text if text is not None and row[1].words_tell else row, code, part)
        if "captcha" in code.lower() and family in _CAPTCHA_FAMILIES:
            return Finding(Kind.CHALLENGE, f"{family}:captcha", code, challenge=Challenge.CAPTCHA)
    if text is not None and (text[1].kind in LASTING or not part.specific):
        return _of_row(text, part.code or part.type, part)
    return None


def _generic(part: Envelope, http: int) -> Finding | None:
    text = _text_row(None, part.message)
    if text is None or text[1].kind not in LASTING:
        for code in part.codes:
            row = _code_row(None, code, part.message)
            if row is not None and _trusted(row[1], part, code, http):
                return _of_row(row, code, part)
        if text is None or part.specific:
            return None
    return _of_row(text, part.code or part.type, part)


def _trusted(row: Row, part: Envelope, code: str, http: int) -> bool:
    """A type of the dialect counts less than the status line, and less than a code of the upstream's own."""
    if http >= 400 and row.name in codes.HIDDEN_ONLY:
        return False
    if row.kind in _PASSING and code != part.code and part.specific and http >= 400:
        return http in _OVERLOAD_STATUSES
    return True


def _nested_status(part: Envelope) -> Finding | None:
    return by_status(part.status, part.code or part.type, words=part.message) if part.status else None


def _of_row(named: Named, code: str, part: Envelope) -> Finding:
    name, row = named
    status, transient = row.status, row.transient or row.kind in _PASSING
    if row.kind is Kind.UPSTREAM_ERROR:
        status = part.status if status is None else status
        transient = (status or 0) >= 500
    elif row.kind is Kind.CALLER_ERROR:
        transient = _marked(part.message)
    code = code if code and not is_status(code) else part.code or code
    return Finding(row.kind, name, code, challenge=row.challenge, status=status, transient=transient, crowd=row.crowd)


def real_status(found: Finding, http: int, named: int | None) -> int | None:
    """The status that an error should have had: its row's, else its kind's, else the named one. None where it has one.

    Where no row knows it, or it is the upstream's own, the named one comes before the kind's.
    """
    if http >= 400 or found.kind in (Kind.CHALLENGE, Kind.OVERLOAD):
        return None
    usual = HIDDEN_STATUS.get(found.kind)
    if found.status or (known(found) and found.kind is not Kind.UPSTREAM_ERROR):
        named = found.status or usual
    return named if named and named >= 400 else usual


# -- the tables ---------------------------------------------------------------------------------------------------


def _text_row(family: Family | None, message: str) -> Named | None:
    """The first row that a message begins with, behind wrapper words or not."""
    texts = overflow.beginnings(message) if message else ()
    return next((named for words in texts for named in _TEXTS[family] if named[1].begins(words)), None)


def _code_row(family: Family | None, code: str, words: str) -> Named | None:
    """The row for a code. ``A.B.C`` that is no row is read as ``A.B``, then ``A``."""
    rows = (named for spelling in _spellings(code.lower()) for named in _CODES[family].get(spelling, ()))
    return next((named for named in rows if named[1].begins(words)), None)


def _spellings(code: str) -> Iterator[str]:
    """The code and its beginnings, first without the prefix ``InternalError.Algo.``."""
    for name in dict.fromkeys((code.removeprefix(_ALGORITHM), code)):
        parts = name.split(".")[:DEEPEST]
        for count in range(len(parts), 0, -1):
            yield ".".join(parts[:count])
