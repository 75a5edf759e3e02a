"""Recognisers that a user adds as data: asked before the built-in tables, with the power of these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from policies.answer.shapes import text_of
from policies.kinds import Challenge, Family, Kind
from policies.refusal.envelopes import Envelope
from policies.settings import SignatureRow

WRITTEN_BY_MODELS = frozenset({
    "choices", "content", "delta", "partial_json", "output", "output_text", "candidates", "arguments", "input", "tool_calls",
    "reasoning_content", "thinking", "delta_content", "text",
})  # fmt: skip
"""A path through one of these names no envelope field and never matches."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What a row is asked about: one answer or one frame."""

    family: Family
    status: int
    document: object = None
    """The JSON value."""
    envelope: Envelope | None = None
    words: str = ""
    """A body that is no JSON."""


def first(rows: Sequence[SignatureRow], subject: Subject) -> SignatureRow | None:
    """The first row that holds."""
    return next((row for row in rows if _holds(row, subject)), None)


def _holds(row: SignatureRow, subject: Subject) -> bool:
    if row.family not in (None, subject.family) or (row.status is not None and subject.status not in row.status):
        return False
    if row.field is row.equals is row.begins is None:
        return row.status is not None and subject.status >= 400
    return any(_fits(row, value) for value in _values(row, subject))


def _values(row: SignatureRow, subject: Subject) -> list[str]:
    if row.field is not None:
        return at(subject.document, row.field)
    values = [subject.words.strip()] if subject.words.strip() else []
    for part in subject.envelope.chain() if subject.envelope else ():
        values.extend((part.message, *part.codes) if row.begins is None else (part.message,))
    return values


def _fits(row: SignatureRow, value: str) -> bool:
    if row.equals is not None and value.casefold() != row.equals.casefold():
        return False
    return row.begins is None or value.casefold().startswith(row.begins.casefold())


def at(document: object, path: str) -> list[str]:
    """The texts at a dotted path of envelope fields; a list gives each of its texts."""
    value, parts = document, path.split(".")
    if not WRITTEN_BY_MODELS.isdisjoint(parts):
        return []
    for part in parts:
        if isinstance(value, list) and part.isascii() and part.isdigit() and int(part[:6]) < len(value):
            value = value[int(part[:6])]
        elif isinstance(value, Mapping) and part in value:
            value = value[part]
        else:
            return []
    return [text for item in (value[:64] if isinstance(value, list) else [value]) if (text := _text(item))]


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value[:8192].strip() if isinstance(value, str) else text_of(value)


def meaning(row: SignatureRow) -> tuple[Kind, Challenge | None]:
    """The kind, and the challenge, that ``finding`` names; a bare ``challenge`` is a captcha."""
    kind, _, challenge = row.finding.partition(":")
    return Kind(kind), Challenge(challenge or Challenge.CAPTCHA) if kind == Kind.CHALLENGE else None


def needles(rows: Sequence[SignatureRow], family: Family) -> tuple[bytes, ...]:
    """Bytes, in lower case, without which no row of this family can match."""
    found: list[str] = []
    for row in rows:
        if row.family in (None, family):
            tail = row.field.rsplit(".", 1)[-1] if row.field else ""
            if tail and not tail.isdigit():
                found.append(f'"{tail}"')
            elif row.begins or row.equals:
                found.append(row.begins or row.equals or "")
    return tuple(needle.encode("utf-8", "replace").lower() for needle in found)
