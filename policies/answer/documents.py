"""What form a body has, and its JSON, read so that nothing odd in it raises."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
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
        return _read(_LENIENT.decode, data.decode("utf-8", "replace"))
    return value


def leading(text: str) -> object:
    """The JSON value that a text begins with, whatever follows it; UNREADABLE where it begins with none."""
    value = _read(_LENIENT.raw_decode, text)
    return value[0] if isinstance(value, tuple) else value


def begun(data: bytes) -> object:
    """What is certain of a JSON document that was cut: all up to its last complete member or element."""
    text = data.removeprefix(BOM).decode("utf-8", "replace")
    certain = _certain(text)
    return _read(_LENIENT.decode, certain) if certain else UNREADABLE


def _read(decode: Callable[[str], object], text: str) -> object:
    try:
        return decode(text)
    except (ValueError, RecursionError):
        return UNREADABLE


def _certain(text: str) -> str:
    """A text up to its last complete member or element, its brackets closed; empty where there is none, or it is no JSON."""
    open_brackets: list[str] = []
    end = depth = 0
    for token in _TOKEN.finditer(text):
        mark, ends = token.group(), token.end()
        if mark in _CLOSER:
            open_brackets.append(_CLOSER[mark])
            if len(open_brackets) > DEEPEST:
                return ""
            continue
        if mark in _BRACKETS:
            if not open_brackets or open_brackets.pop() != mark:
                return ""
        elif mark == ",":
            ends = token.start()
        elif not (token[1] and open_brackets) or (
            open_brackets[-1] == "}" and not text[max(0, token.start() - 2) : token.start()].rstrip().endswith(":")
        ):
            continue  # no whole string, or a key
        end, depth = ends, len(open_brackets)
    return text[:end] + "".join(reversed(open_brackets[:depth]))


def _whole(digits: str) -> int | None:
    return int(digits) if len(digits) <= 300 else None


_LENIENT = json.JSONDecoder(parse_constant=lambda _: None, parse_int=_whole, strict=False)
"""Reads NaN, infinities and endless digits as null."""


class _Usage(msgspec.Struct):
    input_tokens: int | None = None
    prompt_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None


class _Holder(msgspec.Struct):
    usage: _Usage | None = None


class _Nested(msgspec.Struct):
    message: _Holder | None = None
    """anthropic ``message_start``."""
    response: _Holder | None = None
    """openai ``response.completed``."""
    data: _Holder | None = None
    """chat.z.ai."""


_USAGE_AT_TOP = msgspec.json.Decoder(_Holder)
_USAGE_BELOW = msgspec.json.Decoder(_Nested)
USAGE = b'"usage"'
USAGE_STATED = re.compile(rb'"usage"\s*:\s*\{')


def input_tokens(data: bytes) -> int | None:
    """Tokens of the input, cache reads and writes included; None where the document states none.

    Only anthropic counts its cache apart (``cache_read_input_tokens``, ``cache_creation_input_tokens``); the others
    have it inside ``input_tokens`` or ``prompt_tokens``.
    """
    if USAGE not in data:
        return None
    try:
        usage = _USAGE_AT_TOP.decode(data).usage
        if usage is None:
            nested = _USAGE_BELOW.decode(data)
            usage = next((at.usage for at in (nested.message, nested.response, nested.data) if at and at.usage), None)
    except msgspec.MsgspecError:  # no JSON, or a field of another shape: nothing is stated
        return None
    if usage is None:
        return None
    base = usage.input_tokens if usage.input_tokens is not None else usage.prompt_tokens
    parts = [count for count in (base, usage.cache_read_input_tokens, usage.cache_creation_input_tokens) if count]
    return sum(parts) if base is not None or parts else None
