"""What form a body has, and its JSON, read so that nothing odd in it raises."""

from __future__ import annotations

import json
import re
from enum import StrEnum

import msgspec

from policies.answer.frames import BOM

UNREADABLE = object()
"""What :func:`parse` gives for bytes that are no JSON; None is a JSON value."""

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+(")?|[{}\[\],]', re.DOTALL)
"""A string that is not closed reaches to the end of the text, so that no start is tried twice."""
_CLOSER = {"{": "}", "[": "]"}
_BRACKETS = frozenset(_CLOSER.values())
DEEPEST = 200
"""Brackets within brackets in a document that was cut; no envelope goes deeper."""
_STARTERS = (b"data:", b"event:", b"id:", b"retry:", b":")
_LEAD = re.compile(rb"(?:\xef\xbb\xbf|[ \t\r\n])++")
_LONGEST = max(map(len, _STARTERS))
_DOCUMENT_TYPES = ("application/json", "text/html", "application/problem+json")


class Form(StrEnum):
    DOCUMENT = "document"
    """JSON or HTML: judged as a whole."""
    STREAM = "stream"
    """Server-sent events: judged frame by frame."""
    OPAQUE = "opaque"
    """Anything else: nothing to judge."""


def lead(start: bytes) -> bytes:
    """A body without the byte order marks and the blanks before its first sign."""
    blank = _LEAD.match(start)
    return start[blank.end() :] if blank else start


def form_of(start: bytes, media_type: str) -> Form | None:
    """The form of a body that starts so, whatever it calls itself; None while that is open (blank, half a field name)."""
    begun = lead(start)
    if not begun or (len(begun) < len(BOM) and BOM.startswith(begun)):
        return None
    if begun[:1] in b"{[<":
        return Form.DOCUMENT
    if begun.startswith(_STARTERS):
        return Form.STREAM
    if len(begun) < _LONGEST and any(starter.startswith(begun) for starter in _STARTERS):
        return None
    if media_type == "text/event-stream":
        return Form.STREAM
    return Form.DOCUMENT if media_type in _DOCUMENT_TYPES else Form.OPAQUE


def parse(data: bytes) -> object:
    """The JSON value, or UNREADABLE. Invalid UTF-8 and lone surrogates inside strings are put up with."""
    data = data.removeprefix(BOM)
    try:
        value: object = msgspec.json.decode(data)
    except (msgspec.MsgspecError, RecursionError):
        return parse_text(data.decode("utf-8", "replace"))
    return value


def parse_text(text: str) -> object:
    """As :func:`parse`, for text. NaN, infinities and endless digits are read as null."""
    try:
        value: object = json.loads(text, parse_constant=_no_number, parse_int=_whole, strict=False)
    except (ValueError, RecursionError):
        return UNREADABLE
    return value


def leading(text: str) -> object:
    """The JSON value that a text begins with, whatever follows it."""
    decoder = json.JSONDecoder(parse_constant=_no_number, parse_int=_whole, strict=False)
    try:
        value, _ = decoder.raw_decode(text)
    except (ValueError, RecursionError):
        return UNREADABLE
    return value


def begun(data: bytes) -> object:
    """What is certain of a JSON document that was cut: all up to its last complete member or element."""
    text = data.removeprefix(BOM).decode("utf-8", "replace")
    end = _complete(text)
    if not end:
        return UNREADABLE
    open_brackets: list[str] = []
    for token in _TOKEN.finditer(text, 0, end):
        mark = token.group()
        if mark in _CLOSER:
            open_brackets.append(_CLOSER[mark])
        elif mark in _BRACKETS:
            open_brackets.pop()
    return parse_text(text[:end] + "".join(reversed(open_brackets)))


def _complete(text: str) -> int:
    """Where the last complete member or element ends; 0 where there is none, or the text is no JSON."""
    open_brackets: list[str] = []
    end = 0
    for token in _TOKEN.finditer(text):
        mark = token.group()
        if mark in _CLOSER:
            open_brackets.append(_CLOSER[mark])
            if len(open_brackets) > DEEPEST:
                return 0
        elif mark in _BRACKETS:
            if not open_brackets or open_brackets.pop() != mark:
                return 0
            end = token.end()
        elif mark == ",":
            end = token.start()
        elif (
            token[1]
            and open_brackets
            and (open_brackets[-1] == "]" or text[max(0, token.start() - 2) : token.start()].rstrip().endswith(":"))
        ):
            end = token.end()
    return end


def _no_number(_: str) -> None:
    return None


def _whole(digits: str) -> int | None:
    return int(digits) if len(digits) <= 300 else None
