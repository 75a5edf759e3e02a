"""What an error envelope means: overflow, quota and account are asked before anything that may pass by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from policies.kinds import Challenge, Crowd, Family, Kind
from policies.refusal import codes, overflow
from policies.refusal.codes import common
from policies.refusal.codes.rows import Row
from policies.refusal.envelopes import Envelope, is_status

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
_OVERLOAD_STATUSES = (429, 503, 529)
_CAPTCHA_FAMILIES = (Family.QWEN_WEB, Family.ZAI_WEB, Family.ZCODE)


@dataclass(frozen=True, slots=True)
class Meaning:
    kind: Kind
    row: str
    code: str
    known: bool = True
    """False where no row knows it and only the status was read."""
    status: int | None = None
    challenge: Challenge | None = None
    transient: bool = False
    window: int | None = None
    crowd: Crowd | None = None


def meaning(family: Family, envelope: Envelope, http: int) -> Meaning:
    """``http``: the status of the answer, or the one that a hidden error names, 0 where there is none."""
    chain = envelope.chain()
    named = next((part.status for part in chain if part.status), None)
    found = (
        _overflow(chain)
        or _of_chain(family, chain)
        or next((found for part in reversed(chain[1:]) if (found := _generic(part, 0) or _nested_status(part))), None)
        or _generic(envelope, http)
    )
    if found is None:
        words = "\n".join(part.message for part in chain)
        code = next((part.code or part.type for part in chain if part.code or part.type), "")
        found = by_status(http or named or 0, code, specific=envelope.specific, words=words)
    if found.kind in (Kind.RATE_LIMIT, Kind.OVERLOAD) and found.crowd is None:
        said = (codes.crowd(family, words) for part in chain for words in overflow.beginnings(part.message))
        found = replace(found, crowd=next(filter(None, said), None))
    return found


def by_status(http: int, code: str, *, specific: bool = False, words: str = "") -> Meaning:
    """What a status says where no row knows the body; 0: an error without any status."""
    if http == 429:
        return Meaning(Kind.RATE_LIMIT, "status:429", code, known=False, status=http, transient=True)
    if http == 529:
        return Meaning(Kind.OVERLOAD, "status:529", code, known=False, status=http, transient=True)
    if http in (401, 402) and not specific:
        return Meaning(Kind.ACCOUNT, f"status:{http}", code, known=False, status=http)
    if 400 <= http < 500:
        marked = any(marker in words.lower() for marker in common.MARKERS)
        return Meaning(Kind.CALLER_ERROR, f"status:{http}", code, known=False, status=http, transient=marked)
    if not http and (told := codes.hidden_by_words(words)):
        return Meaning(told.kind, f"unknown:{told.name}", code, known=False, status=told.status)
    row = f"status:{http}" if http else "unknown"
    return Meaning(Kind.UPSTREAM_ERROR, row, code, known=False, status=http or None, transient=http >= 500)


def _overflow(chain: Sequence[Envelope]) -> Meaning | None:
    for part in chain:
        found = overflow.row_of(part.message)
        coded = next((code for code in part.codes if code.lower() in overflow.CODES), None)
        if found is None and coded is None:
            continue
        structured = next((tokens for nested in chain if (tokens := overflow.window_field(nested.fields))), None)
        window = structured or (found[1] if found else None)
        row = f"overflow:{found[0].name}" if found else "overflow:code"
        return Meaning(Kind.OVERFLOW, row, part.code or part.type or part.in_text, status=400, window=window)
    return None


def _of_chain(family: Family, chain: Sequence[Envelope]) -> Meaning | None:
    """The outermost part that a row of the family knows; one that only wraps another's error yields to it."""
    first: Meaning | None = None
    for part in chain:
        found = _of_family(family, part)
        if found is not None and not (found.kind is Kind.UPSTREAM_ERROR and part.inner):
            return found
        first = first or found
    return first


def _of_family(family: Family, part: Envelope) -> Meaning | None:
    texts = list(overflow.beginnings(part.message)) if part.message else []
    by_text = next((found for words in texts if (found := codes.by_text(family, words))), None)
    for code in part.codes:
        by_code = codes.by_code(family, code, part.message)
        if by_code is not None:
            told = by_text if by_code[1].words_tell and by_text is not None else by_code
            return _of_row(told, code, part)
        if "captcha" in code.lower() and family in _CAPTCHA_FAMILIES:
            return Meaning(Kind.CHALLENGE, f"{family}:captcha", code, challenge=Challenge.CAPTCHA)
    if by_text is not None and (by_text[1].kind in LASTING or not part.specific):
        return _of_row(by_text, part.code or part.type, part)
    return None


def _generic(part: Envelope, http: int) -> Meaning | None:
    texts = overflow.beginnings(part.message) if part.message else ()
    by_text = next((found for words in texts if (found := codes.common_by_text(words))), None)
    if by_text is not None and by_text[1].kind in LASTING:
        return _of_row(by_text, part.code or part.type, part)
    for code in part.codes:
        by_code = codes.common_by_code(code, part.message)
        if by_code is not None and _trusted(by_code[1], part, code, http):
            return _of_row(by_code, code, part)
    if by_text is not None and not part.specific:
        return _of_row(by_text, part.code or part.type, part)
    return None


def _trusted(row: Row, part: Envelope, code: str, http: int) -> bool:
    """A type of the dialect counts less than the status line, and less than a code of the upstream's own."""
    if http >= 400 and row.name in common.HIDDEN_ONLY:
        return False
    if row.kind in (Kind.OVERLOAD, Kind.RATE_LIMIT) and code != part.code and part.specific and http >= 400:
        return http in _OVERLOAD_STATUSES
    return True


def _nested_status(part: Envelope) -> Meaning | None:
    return by_status(part.status, part.code or part.type, words=part.message) if part.status else None


def _of_row(found: tuple[str, Row], code: str, part: Envelope) -> Meaning:
    name, row = found
    transient = row.transient or row.kind in (Kind.RATE_LIMIT, Kind.OVERLOAD)
    status = row.status
    if status is None and row.kind is Kind.UPSTREAM_ERROR:
        status = part.status
    if row.kind is Kind.UPSTREAM_ERROR:
        transient = (status or 0) >= 500
    if row.kind is Kind.CALLER_ERROR:
        transient = any(marker in part.message.lower() for marker in common.MARKERS)
    return Meaning(
        row.kind,
        name,
        code if code and not is_status(code) else part.code or code,
        True,
        status,
        row.challenge,
        transient,
        crowd=row.crowd,
    )


def real_status(found: Meaning, http: int, named: int | None) -> int | None:
    """The status that an error should have had: its row's, else its kind's, else the named one. None where it has one.

    Where no row knows it, or it is the upstream's own, the named one comes before the kind's.
    """
    if http >= 400 or found.kind in (Kind.CHALLENGE, Kind.OVERLOAD):
        return None
    usual = HIDDEN_STATUS.get(found.kind)
    if found.status or (found.known and found.kind is not Kind.UPSTREAM_ERROR):
        named = found.status or usual
    return named if named and named >= 400 else usual
