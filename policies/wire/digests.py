"""Digests of what a request asks, taken over slices of its bytes, so that no message tree is built."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw

if TYPE_CHECKING:
    from policies.calls import Wire

UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError)
_WEB = frozenset({"qwen-web", "zai-web"})
SEPARATOR = b"\x1e"
_CACHE_CONTROL = b'"cache_control"'
_CACHE_CONTROL_FIELD = re.compile(rb'"cache_control"\s*:\s*(?:\{[^{}"]*(?:"(?:[^"\\]|\\.)*"[^{}"]*)*\}|null)\s*(,\s*)?')
_BILLING_BLOCK = re.compile(rb'"text"\s*:\s*"x-anthropic-billing-header')
"""First system block of Claude Code 2.1.112 and later, recorded: its values change with every request."""


class _Asked(msgspec.Struct):
    """What makes two requests the same question; budgets, stream and flags change when a client sends one again."""

    model: Raw = Raw()
    system: Raw = Raw()
    instructions: Raw = Raw()
    messages: Raw = Raw()
    input: Raw = Raw()
    prompt: Raw = Raw()
    tools: Raw = Raw()
    functions: Raw = Raw()
    previous_response_id: Raw = Raw()
    """Stands for the history on the responses wire."""
    conversation: Raw = Raw()
    """Likewise."""


class _System(msgspec.Struct):
    system: Raw = Raw()
    instructions: Raw = Raw()
    messages: Raw = Raw()
    input: Raw = Raw()


class _NativeInput(msgspec.Struct):
    messages: Raw = Raw()


class _Message(msgspec.Struct):
    """What a web client's message says; its ids, timestamps and parents are new on every send."""

    role: Raw = Raw()
    content: Raw = Raw()
    files: Raw = Raw()


class _Role(msgspec.Struct):
    role: str = ""
    type: str = ""


_ASKED = msgspec.json.Decoder(_Asked)
_SYSTEM = msgspec.json.Decoder(_System)
_NATIVE = msgspec.json.Decoder(_NativeInput)
_ITEMS = msgspec.json.Decoder(list[Raw])
_WEB_MESSAGES = msgspec.json.Decoder(list[_Message])
_ROLE = msgspec.json.Decoder(_Role)

_SYSTEM_ROLES = frozenset({"system", "developer"})

_FIRST_ROLE = re.compile(rb'\[\s*\{\s*"role"\s*:\s*"(\w+)"')
_NEXT_ITEM = re.compile(r"[\s,]*")
_PLAIN = json.JSONDecoder(strict=False)
_ROLE_FIRST = re.compile(rb'\{\s*"role"\s*:\s*"(\w+)"')
DIGITS = 32
"""Hex digits of a digest."""


def asked(wire: Wire, body: bytes) -> str:
    """Hex digest of model, system, messages or input, and tools of a request body; of the bytes where it is no JSON object.

    Image and video requests are digested whole: their size, count and seed are what is asked.
    """
    if wire in {"images", "videos", "other"}:
        return hexdigest([body])
    try:
        head = _ASKED.decode(body)
    except UNREADABLE:
        return hexdigest([body])
    question = (head.messages, head.input, head.prompt)
    if not any(len(raw) for raw in question):
        return hexdigest([body])
    pieces: list[Iterable[bytes | memoryview]] = [[memoryview(head.model)], _system(head.system)]
    pieces += [[memoryview(raw)] for raw in (head.instructions, head.input, head.prompt)]
    pieces += [[memoryview(head.previous_response_id), b",", memoryview(head.conversation)]]
    pieces += [_messages(wire, head.messages), _uncached(head.tools), _uncached(head.functions)]
    return hexdigest(part for piece in pieces for part in (*piece, SEPARATOR))


def system_prompt(wire: Wire, body: bytes) -> str:
    """Hex digest of the system prompt, empty where there is none."""
    try:
        head = _SYSTEM.decode(body)
    except UNREADABLE:
        return ""
    if _given(head.system):
        return hexdigest(_system(head.system))
    if _given(head.instructions):
        return hexdigest([memoryview(head.instructions)])
    leading = _leading(wire, head)
    if not leading:
        return ""
    return hexdigest(part for item in leading for part in message(wire, item))


def _leading(wire: Wire, head: _System) -> list[Raw]:
    """The system messages that a conversation begins with; the rest of a long one is not looked at."""
    first = _FIRST_ROLE.match(head.messages) if len(head.messages) else None
    if first is not None and first[1].decode("ascii", "replace") not in _SYSTEM_ROLES:
        return []
    leading: list[Raw] = []
    for item in _first_items(head.messages) if first else items(wire, head.messages, head.input):
        if role(item) not in _SYSTEM_ROLES:
            break
        leading.append(item)
    return leading


def _first_items(messages: Raw) -> Iterator[Raw]:
    """Items one by one. Latin-1 keeps an index into the text an index into the bytes, and JSON's own signs as they are."""
    data = memoryview(messages)
    text, at = bytes(data).decode("latin-1"), 1
    while (at := _NEXT_ITEM.match(text, at).end()) < len(text) and text[at] == "{":  # type: ignore[union-attr]
        _, end = _PLAIN.raw_decode(text, at)
        yield Raw(bytes(data[at:end]))
        at = end


def _given(raw: Raw) -> bool:
    return len(raw) > 4 or (len(raw) > 0 and bytes(raw) != b"null")


def hexdigest(parts: Iterable[bytes | memoryview]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()[:DIGITS]


def items(wire: Wire, messages: Raw, given: Raw) -> list[Raw]:
    """The messages as slices: ``messages``, else the responses wire's ``input`` list, else native's ``input.messages``."""
    raw = messages
    if not len(raw) and len(given):
        raw = given
        if wire == "dashscope-native":
            try:
                raw = _NATIVE.decode(given).messages
            except UNREADABLE:
                return []
    if not len(raw):
        return []
    try:
        return _ITEMS.decode(raw)
    except UNREADABLE:
        return []


def role(item: Raw) -> str:
    first = _ROLE_FIRST.match(item)
    if first is not None:
        return first[1].decode("ascii", "replace")
    try:
        read = _ROLE.decode(item)
    except UNREADABLE:
        return ""
    return read.role or read.type


def message(wire: Wire, item: Raw) -> list[bytes | memoryview]:
    if wire in _WEB:
        try:
            message = msgspec.json.decode(item, type=_Message)
        except UNREADABLE:
            return [memoryview(item)]
        return _said(message)
    return _uncached(item)


def _messages(wire: Wire, raw: Raw) -> list[bytes | memoryview]:
    if wire not in _WEB or not len(raw):
        return _uncached(raw)
    try:
        messages = _WEB_MESSAGES.decode(raw)
    except UNREADABLE:
        return [memoryview(raw)]
    return [part for message in messages for part in (*_said(message), SEPARATOR)]


def _said(message: _Message) -> list[bytes | memoryview]:
    return [memoryview(message.role), b",", memoryview(message.content), b",", memoryview(message.files)]


def _system(raw: Raw) -> list[bytes | memoryview]:
    """The system prompt without its billing block and its cache marks."""
    try:
        blocks = _ITEMS.decode(raw) if len(raw) else []
    except UNREADABLE:
        return _uncached(raw)  # one text
    kept = [block for block in blocks if _BILLING_BLOCK.search(block) is None]
    return [part for block in kept for part in (*_uncached(block), b",")]


def _uncached(raw: Raw) -> list[bytes | memoryview]:
    """A slice without its ``cache_control`` fields, which clients move from block to block.

    Inside a text the quotes of such a field are escaped, so only a real one matches.
    """
    data = memoryview(raw)
    whole = bytes(data)
    at = whole.find(_CACHE_CONTROL)
    if at < 0:
        return [whole]
    parts: list[bytes | memoryview] = []
    start = 0
    while at >= 0:
        match = _CACHE_CONTROL_FIELD.match(whole, at)
        if match is None:
            at = whole.find(_CACHE_CONTROL, at + 1)
            continue
        parts.append(data[start:at] if match[1] else whole[start:at].rstrip().removesuffix(b","))
        start = match.end()
        at = whole.find(_CACHE_CONTROL, start)
    return [*parts, data[start:]]
