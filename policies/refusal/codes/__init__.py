"""The code tables: per family, one row a fact, looked up in the order of the families' own reading."""

from __future__ import annotations

import re
from collections.abc import Iterator

from policies.kinds import Crowd, Family
from policies.refusal.codes import common, dashscope, zai
from policies.refusal.codes.rows import Row

TABLES: dict[Family, tuple[tuple[str, tuple[Row, ...], tuple[Row, ...]], ...]] = {
    Family.ZAI: (("zai", zai.ROWS, zai.TEXTS),),
    Family.ZCODE: (("zcode", zai.ZCODE_ROWS, zai.ZCODE_TEXTS), ("zai", zai.ROWS, zai.TEXTS)),
    Family.ZAI_WEB: (("zai-web", zai.WEB_ROWS, zai.WEB_TEXTS), ("zai", zai.ROWS, zai.TEXTS)),
    Family.DASHSCOPE: (("dashscope", dashscope.ROWS, dashscope.TEXTS),),
    Family.QWEN_WEB: (("qwen-web", dashscope.WEB_ROWS, dashscope.WEB_TEXTS), ("dashscope", dashscope.ROWS, dashscope.TEXTS)),
}
"""Per family, its tables in reading order: name, rows by code, rows by text alone."""

COMMON = ("common", common.ROWS, common.TEXTS)
_ALGORITHM = "internalerror.algo."
DEEPEST = 5
"""Parts of a dotted code."""


def _by_code(tables: tuple[tuple[str, tuple[Row, ...], tuple[Row, ...]], ...]) -> dict[str, list[tuple[str, Row]]]:
    found: dict[str, list[tuple[str, Row]]] = {}
    for table, rows, _ in tables:
        for row in rows:
            for code in row.codes:
                found.setdefault(code.lower(), []).append((f"{table}:{row.name}", row))
    return found


_CODES = {family: _by_code(tables) for family, tables in TABLES.items()}
_COMMON_CODES = _by_code((COMMON,))
_TEXTS = {
    family: tuple((f"{table}:{row.name}", row) for table, _, rows in tables for row in rows)
    for family, tables in TABLES.items()
}
_COMMON_TEXTS = tuple((f"common:{row.name}", row) for row in common.TEXTS)


def by_code(family: Family, code: str, words: str) -> tuple[str, Row] | None:
    """The family's row for a code, with its id. ``A.B.C`` that is no row is read as ``A.B``, then ``A``."""
    return _first(_CODES[family], code, words)


def common_by_code(code: str, words: str) -> tuple[str, Row] | None:
    return _first(_COMMON_CODES, code, words)


def by_text(family: Family, words: str) -> tuple[str, Row] | None:
    """The family's row that a message begins with, with its id."""
    return next(((name, row) for name, row in _TEXTS[family] if row.begins(words)), None)


def common_by_text(words: str) -> tuple[str, Row] | None:
    return next(((name, row) for name, row in _COMMON_TEXTS if row.begins(words)), None)


def crowd(family: Family, words: str) -> Crowd | None:
    """When a message means "too many calls at a time", whatever its code."""
    return next((row.crowd for _, row in (*_TEXTS[family], *_COMMON_TEXTS) if row.crowd and row.begins(words)), None)


def hidden_by_words(words: str) -> Row | None:
    """What an error of no known code in a success says of a second try: none where its message speaks of its caller."""
    if not words or common.PASSING.search(words):
        return None
    return next((row for row in common.HIDDEN_WORDS if re.search(row.text, words, re.IGNORECASE)), None)


def _first(table: dict[str, list[tuple[str, Row]]], code: str, words: str) -> tuple[str, Row] | None:
    for spelling in _spellings(code.lower()):
        for name, row in table.get(spelling, ()):
            if row.begins(words):
                return name, row
    return None


def _spellings(code: str) -> Iterator[str]:
    """The code and its beginnings, first without the prefix ``InternalError.Algo.``."""
    for name in dict.fromkeys((code.removeprefix(_ALGORITHM), code)):
        parts = name.split(".")[:DEEPEST]
        for count in range(len(parts), 0, -1):
            yield ".".join(parts[:count])
