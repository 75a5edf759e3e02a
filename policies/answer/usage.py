"""Input tokens as an answer states them, read from its envelope and never from what a model wrote."""

from __future__ import annotations

import re

import msgspec


class _Usage(msgspec.Struct):
    input_tokens: int | None = None
    prompt_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None


class _Holder(msgspec.Struct):
    usage: _Usage | None = None


class _Top(msgspec.Struct):
    usage: _Usage | None = None


class _Nested(msgspec.Struct):
    message: _Holder | None = None
    """anthropic ``message_start``."""
    response: _Holder | None = None
    """openai ``response.completed``."""
    data: _Holder | None = None
    """chat.z.ai."""


_TOP = msgspec.json.Decoder(_Top)
_NESTED = msgspec.json.Decoder(_Nested)
MARKER = b'"usage"'
STATED = re.compile(rb'"usage"\s*:\s*\{')


def input_tokens(data: bytes) -> int | None:
    """Tokens of the input, cache reads and writes included; None where the document states none.

    Only anthropic counts its cache apart (``cache_read_input_tokens``, ``cache_creation_input_tokens``); the others
    have it inside ``input_tokens`` or ``prompt_tokens``.
    """
    if MARKER not in data:
        return None
    try:
        usage = _TOP.decode(data).usage
        if usage is None:
            nested = _NESTED.decode(data)
            usage = next((at.usage for at in (nested.message, nested.response, nested.data) if at and at.usage), None)
    except msgspec.MsgspecError:  # no JSON, or a field of another shape: nothing is stated
        return None
    if usage is None:
        return None
    base = usage.input_tokens if usage.input_tokens is not None else usage.prompt_tokens
    parts = [count for count in (base, usage.cache_read_input_tokens, usage.cache_creation_input_tokens) if count]
    return sum(parts) if base is not None or parts else None
