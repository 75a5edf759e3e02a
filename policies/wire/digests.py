"""Digests of what a request asks, taken over slices of its bytes, so that no message tree is built."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw

if TYPE_CHECKING:
    from policies.calls import Wire

_UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError)
_WEB = frozenset({"qwen-web", "zai-web"})
_SEPARATOR = b"\x1e"
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


class _History(msgspec.Struct):
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
_HISTORY = msgspec.json.Decoder(_History)
_NATIVE = msgspec.json.Decoder(_NativeInput)
_ITEMS = msgspec.json.Decoder(list[Raw])
_WEB_MESSAGES = msgspec.json.Decoder(list[_Message])
_ROLE = msgspec.json.Decoder(_Role)

_SYSTEM_ROLES = frozenset({"system", "developer"})

MARKERS = frozenset({
    "tool_use", "tool_result", "tool_call", "function_call", "function_call_output", "image", "image_url", "input_image",
    "document", "file", "input_file", "input_audio", "video", "video_url", "thinking", "redacted_thinking", "reasoning",
    "server_tool_use", "web_search_tool_result",
})  # fmt: skip
"""Values of ``type`` in messages and their parts (Anthropic, OpenAI, responses wires)."""
_TYPE = re.compile(rb'"type":\s*"([a-z_]+)"')
_KEY_MARKERS = (
    ("tool_call", b'"tool_calls"', 1 << 25),
    ("tool_result", b'"tool_call_id"', 1 << 20),
    ("file", b'"files":[{', 1 << 18),
)
"""Kinds that are told by a key, and the largest body in bytes in which each is looked for: a web client's is small, and a
``tool`` message of a large one shows in the roles."""
_ROLE_FIRST = re.compile(rb'\{\s*"role"\s*:\s*"(\w+)"')
DIGITS = 32
"""Hex digits of a digest."""


def asked(wire: Wire, body: bytes) -> str:
    """Hex digest of model, system, messages or input, and tools of a request body; of the bytes where it is no JSON object.

    Image and video requests are digested whole: their size, count and seed are what is asked.
    """
    if wire in {"images", "videos", "other"}:
        return _hexdigest([body])
    try:
        head = _ASKED.decode(body)
    except _UNREADABLE:
        return _hexdigest([body])
    question = (head.messages, head.input, head.prompt)
    if not any(len(raw) for raw in question):
        return _hexdigest([body])
    pieces: list[Iterable[bytes | memoryview]] = [[memoryview(head.model)], _system(head.system)]
    pieces += [[memoryview(raw)] for raw in (head.instructions, head.input, head.prompt)]
    pieces += [[memoryview(head.previous_response_id), b",", memoryview(head.conversation)]]
    pieces += [_messages(wire, head.messages), _uncached(head.tools), _uncached(head.functions)]
    return _hexdigest(part for piece in pieces for part in (*piece, _SEPARATOR))


def system_prompt(wire: Wire, body: bytes) -> str:
    """Hex digest of the system prompt, empty where there is none."""
    try:
        head = _SYSTEM.decode(body)
    except _UNREADABLE:
        return ""
    if _given(head.system):
        return _hexdigest(_system(head.system))
    if _given(head.instructions):
        return _hexdigest([memoryview(head.instructions)])
    leading: list[Raw] = []
    for item in _items(wire, head.messages, head.input):
        if _role(item) not in _SYSTEM_ROLES:
            break
        leading.append(item)
    if not leading:
        return ""
    return _hexdigest(part for item in leading for part in _message(wire, item))


class History:
    """The messages of one body, read once for what the evidence asks about them."""

    def __init__(self, wire: Wire, body: bytes) -> None:
        self._wire = wire
        try:
            head = _HISTORY.decode(body)
        except _UNREADABLE:
            head = _History()
        self._items = _items(wire, head.messages, head.input)
        self._hashed = hashlib.sha256()
        self._count = 0

    @cached_property
    def roles(self) -> tuple[str, ...]:
        """In the order of the messages; an item of the responses wire without a role gives its type."""
        return tuple(_role(item) for item in self._items)

    def prefix(self, but: int = 2) -> str:
        """Hex digest of all messages but the last ``but``, empty where there are no more than that.

        A later history's ``prefix(added)`` equals an earlier one's ``prefix(0)`` where a client only added messages.
        Longer prefixes that are asked for after shorter ones go on where those ended.
        """
        wanted = len(self._items) - max(0, but)
        if wanted <= 0:
            return ""
        if wanted < self._count:
            self._hashed, self._count = hashlib.sha256(), 0
        for item in self._items[self._count : wanted]:
            for part in (*_message(self._wire, item), _SEPARATOR):
                self._hashed.update(part)
        self._count = wanted
        return self._hashed.hexdigest()[:DIGITS]


def prefix(wire: Wire, body: bytes, but: int = 2) -> str:
    """``History.prefix`` of a body that is asked once."""
    return History(wire, body).prefix(but)


def roles(wire: Wire, body: bytes) -> tuple[str, ...]:
    """``History.roles`` of a body that is asked once."""
    return History(wire, body).roles


def markers(body: bytes) -> frozenset[str]:
    """Kinds of content in a body, by their bytes: a text that quotes one is escaped and does not count."""
    found = {value.decode() for value in set(_TYPE.findall(body))} & MARKERS
    return frozenset(found | {name for name, needle, most in _KEY_MARKERS if len(body) <= most and needle in body})


def _given(raw: Raw) -> bool:
    return len(raw) > 4 or (len(raw) > 0 and bytes(raw) != b"null")


def _hexdigest(parts: Iterable[bytes | memoryview]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()[:DIGITS]


def _items(wire: Wire, messages: Raw, given: Raw) -> list[Raw]:
    """The messages as slices: ``messages``, else the responses wire's ``input`` list, else native's ``input.messages``."""
    raw = messages
    if not len(raw) and len(given):
        raw = given
        if wire == "dashscope-native":
            try:
                raw = _NATIVE.decode(given).messages
            except _UNREADABLE:
                return []
    if not len(raw):
        return []
    try:
        return _ITEMS.decode(raw)
    except _UNREADABLE:
        return []


def _role(item: Raw) -> str:
    first = _ROLE_FIRST.match(item)
    if first is not None:
        return first[1].decode("ascii", "replace")
    try:
        read = _ROLE.decode(item)
    except _UNREADABLE:
        return ""
    return read.role or read.type


def _message(wire: Wire, item: Raw) -> list[bytes | memoryview]:
    if wire in _WEB:
        try:
            message = msgspec.json.decode(item, type=_Message)
        except _UNREADABLE:
            return [memoryview(item)]
        return _said(message)
    return _uncached(item)


def _messages(wire: Wire, raw: Raw) -> list[bytes | memoryview]:
    if wire not in _WEB or not len(raw):
        return _uncached(raw)
    try:
        messages = _WEB_MESSAGES.decode(raw)
    except _UNREADABLE:
        return [memoryview(raw)]
    return [part for message in messages for part in (*_said(message), _SEPARATOR)]


def _said(message: _Message) -> list[bytes | memoryview]:
    return [memoryview(message.role), b",", memoryview(message.content), b",", memoryview(message.files)]


def _system(raw: Raw) -> list[bytes | memoryview]:
    """The system prompt without its billing block and its cache marks."""
    try:
        blocks = _ITEMS.decode(raw) if len(raw) else []
    except _UNREADABLE:
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
