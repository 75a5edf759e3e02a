"""Digests of what a request asks, taken over slices of its bytes, so that no message tree is built."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from msgspec import Raw

from policies.kinds import Wire
from policies.request.body import UNREADABLE, RequestBody
from policies.request.message_list import SEPARATOR, MessageList, hexdigest, items, message, role, uncached

_WHOLE = frozenset({Wire.IMAGES, Wire.VIDEOS, Wire.OTHER})
_BILLING_BLOCK = re.compile(rb'"text"\s*:\s*"x-anthropic-billing-header')
"""First system block of Claude Code 2.1.112 and later, recorded: its values change with every request."""
_SYSTEM_ROLES = frozenset({"system", "developer"})
_FIRST_ROLE = re.compile(rb'\[\s*\{\s*"role"\s*:\s*"(\w+)"')
_NEXT_ITEM = re.compile(r"[\s,]*")
_PLAIN = json.JSONDecoder(strict=False, parse_int=str)
"""Digits stay text: Python refuses to read some thousand of them as a number."""


def asked(wire: Wire, body: bytes, fields: RequestBody | None, history: MessageList) -> str:
    """Hex digest of model, system, messages or input, and tools of a request; of its bytes where it is no JSON object.

    Budgets, stream and flags are left out: they change when a client sends a request again. Image and video requests
    are digested whole: their size, count and seed are what is asked. ``fields`` and ``history`` are the body's.
    """
    if wire in _WHOLE or fields is None:
        return hexdigest([body])
    if not (len(fields.messages) or len(fields.input) or len(fields.prompt)):
        return hexdigest([body])
    listed = not len(fields.messages) and wire is not Wire.DASHSCOPE_NATIVE
    given = _said(fields.input, history) if listed else memoryview(fields.input)
    parts = [_said(fields.messages, history), SEPARATOR, given, SEPARATOR, *_system(fields.system)]
    for raw in (fields.model, fields.instructions, fields.prompt, fields.previous_response_id, fields.conversation):
        parts += [SEPARATOR, memoryview(raw)]
    return hexdigest([*parts, SEPARATOR, *uncached(fields.tools), SEPARATOR, *uncached(fields.functions)])


def _said(raw: Raw, history: MessageList) -> bytes | memoryview:
    """Digest of a list of messages, which the evidence asks for too; anything else as it stands."""
    return history.prefix(0).encode() if len(raw) and history.items else memoryview(raw)


def system_prompt(wire: Wire, fields: RequestBody, history: MessageList) -> str:
    """Hex digest of the system prompt, empty where there is none."""
    if _given(fields.system):
        return hexdigest(_system(fields.system))
    if _given(fields.instructions):
        return hexdigest([memoryview(fields.instructions)])
    leading = _leading(fields, history)
    return hexdigest([part for item in leading for part in message(wire, item)]) if leading else ""


def _leading(fields: RequestBody, history: MessageList) -> list[Raw]:
    """The system messages that a conversation begins with; the rest of a long one is not looked at."""
    first = _FIRST_ROLE.match(fields.messages) if len(fields.messages) else None
    if first is not None and first[1].decode("ascii", "replace") not in _SYSTEM_ROLES:
        return []
    leading: list[Raw] = []
    for item in _first_items(fields.messages) if first else history.items:
        if role(item) not in _SYSTEM_ROLES:
            break
        leading.append(item)
    return leading


def _first_items(messages: Raw) -> Iterator[Raw]:
    """Items one by one. Latin-1 keeps an index into the text an index into the bytes, and JSON's own signs as they are."""
    data = memoryview(messages)
    text, at = bytes(data).decode("latin-1"), 1
    while (at := _NEXT_ITEM.match(text, at).end()) < len(text) and text[at] == "{":  # type: ignore[union-attr]
        try:
            _, end = _PLAIN.raw_decode(text, at)
        except UNREADABLE:
            return
        yield Raw(bytes(data[at:end]))
        at = end


def _given(raw: Raw) -> bool:
    return len(raw) > 4 or (len(raw) > 0 and bytes(raw) != b"null")


def _system(raw: Raw) -> list[bytes | memoryview]:
    """The system prompt without its billing block and its cache marks."""
    blocks = items(raw)
    if not blocks:
        return [] if raw and bytes(raw).startswith(b"[") else uncached(raw)  # one text
    kept = [block for block in blocks if _BILLING_BLOCK.search(block) is None]
    return [part for block in kept for part in (*uncached(block), b",")]
