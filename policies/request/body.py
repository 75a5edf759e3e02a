"""The body of one request as slices of its bytes: its members, its messages, and digests of what it asks.

It is decoded once, and no message tree is built. Messages and digests are looked at only where somebody asks for them.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import msgspec
from msgspec import Raw

from policies.kinds import Wire

DIGITS = 32
"""Hex digits of a digest."""
SEPARATOR = b"\x1e"
ENDINGS = 8
"""A client adds one to four messages from one request to the next."""
WEB = frozenset({Wire.QWEN_WEB, Wire.ZAI_WEB})
SYSTEM_ROLES = frozenset({"system", "developer"})
UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError)
"""What reading a slice may raise."""
MARKERS = frozenset({
    "tool_use", "tool_result", "tool_call", "function_call", "function_call_output", "image", "image_url", "input_image",
    "document", "file", "input_file", "input_audio", "video", "video_url", "thinking", "redacted_thinking", "reasoning",
    "server_tool_use", "web_search_tool_result",
})  # fmt: skip
"""Values of ``type`` in messages and their parts (Anthropic, OpenAI, responses wires)."""

_WHOLE = frozenset({Wire.IMAGES, Wire.VIDEOS, Wire.OTHER})
_CACHE_CONTROL = re.compile(rb'"cache_control"\s*:\s*(?:\{[^{}"]*(?:"(?:[^"\\]|\\.)*"[^{}"]*)*\}|null)\s*(,\s*)?')
_BILLING_BLOCK = re.compile(rb'"text"\s*:\s*"x-anthropic-billing-header')
"""First system block of Claude Code 2.1.112 and later, recorded: its values change with every request."""
_ROLE_FIRST = re.compile(rb'\[?\s*\{\s*"role"\s*:\s*"(\w+)"')
_NEXT_ITEM = re.compile(r"[\s,]*")
_PLAIN = json.JSONDecoder(strict=False, parse_int=str)
"""Digits stay text: Python refuses to read some thousand of them as a number."""
_TYPE = re.compile(rb'"type":\s*"([a-z_]+)"')
_KEY_MARKERS = (
    ("tool_call", b'"tool_calls"', 1 << 25),
    ("tool_result", b'"tool_call_id"', 1 << 20),
    ("file", b'"files":[{', 1 << 18),
)
"""Kinds that are told by a key, and the largest body in bytes in which each is looked for: a web client's is small, and a
``tool`` message of a large one shows in the roles."""


class RequestBody(msgspec.Struct, gc=False):
    """The members of a request that any rule reads; every other one is skipped over."""

    model: Raw = Raw()
    max_tokens: Raw = Raw()
    max_completion_tokens: Raw = Raw()
    max_output_tokens: Raw = Raw()
    tools: Raw = Raw()
    functions: Raw = Raw()
    stream: Raw = Raw()
    thinking: Raw = Raw()
    enable_thinking: Raw = Raw()
    reasoning_effort: Raw = Raw()
    reasoning: Raw = Raw()
    parameters: Raw = Raw()
    metadata: Raw = Raw()
    prompt_cache_key: Raw = Raw()
    chat_id: Raw = Raw()
    captcha_verify_param: Raw = Raw()
    output_config: Raw = Raw()
    system: Raw = Raw()
    instructions: Raw = Raw()
    messages: Raw = Raw()
    input: Raw = Raw()
    prompt: Raw = Raw()
    contents: Raw = Raw()
    previous_response_id: Raw = Raw()
    """Stands for the history on the responses wire, as ``conversation`` does."""
    conversation: Raw = Raw()


class _Message(msgspec.Struct):
    """Message of any wire; a web client's ids, timestamps and parents are new on every send and left out."""

    role: Raw = Raw()
    type: Raw = Raw()
    content: Raw = Raw()
    files: Raw = Raw()


NOTHING = RequestBody()
_NULL = Raw(b"null")
Read = TypeVar("Read")
_BODY = msgspec.json.Decoder(RequestBody)
_ITEMS = msgspec.json.Decoder(list[Raw])
_MESSAGE = msgspec.json.Decoder(_Message)
_TEXT = msgspec.json.Decoder(str)


def read_body(body: bytes | Raw) -> RequestBody | None:
    """Members of a body; None for one that is no JSON object."""
    return decoded(_BODY, body, None)


def decoded(decoder: msgspec.json.Decoder[Any], raw: Raw | bytes | str, otherwise: Read) -> Any | Read:
    """What a decoder makes of a slice; ``otherwise`` for one that is absent or something else."""
    try:
        return decoder.decode(raw) if len(raw) else otherwise
    except UNREADABLE:
        return otherwise


def text_of(raw: Raw | str) -> str:
    """The JSON string in a slice, empty where it is absent or anything else."""
    return str(decoded(_TEXT, raw, ""))


class MessageList:
    """The messages of one body; each is looked at once, whatever is asked about them."""

    __slots__ = ("_endings", "_fields", "_items", "_wire")

    def __init__(self, wire: Wire, fields: RequestBody) -> None:
        self._wire = wire
        self._fields = fields
        self._items: list[Raw] | None = None
        self._endings: list[str] | None = None

    @property
    def raw(self) -> Raw:
        """Slice of ``messages``, else of the responses wire's ``input``, else of native's ``input.messages``."""
        if len(self._fields.messages):
            return self._fields.messages
        given = self._fields.input
        return (read_body(given) or NOTHING).messages if bytes(memoryview(given)[:1]) == b"{" else given

    @property
    def items(self) -> list[Raw]:
        if self._items is None:
            self._items = _items(self.raw)
        return self._items

    @property
    def roles(self) -> tuple[str, ...]:
        """Roles in the order of the messages; an item of the responses wire without a role gives its type."""
        return tuple([_role(item) for item in self.items])

    def prefix(self, but: int = 2) -> str:
        """Hex digest of all messages but the last ``but``, empty where there are no more than that.

        A later history's ``prefix(added)`` equals an earlier one's ``prefix(0)`` where a client only added messages.
        """
        if self._endings is None:
            self._endings = self._digests(len(self.items), ENDINGS)
        but = max(0, but)
        if but < len(self._endings):
            return self._endings[but]
        return "" if but >= len(self.items) else self._digests(len(self.items) - but, 1)[0]

    def _digests(self, count: int, wanted: int) -> list[str]:
        """Digests of the first ``count`` messages, of one fewer, and so on, at most ``wanted`` of them."""
        digest, found = hashlib.sha256(), []
        for number, item in enumerate(self.items[:count], 1):
            for part in _message(self._wire, item):
                digest.update(part)
            digest.update(SEPARATOR)
            if number > count - wanted:
                found.append(digest.hexdigest()[:DIGITS])
        return found[::-1]


def asked(wire: Wire, body: bytes, fields: RequestBody | None, history: MessageList) -> str:
    """Hex digest of model, system, messages or input, and tools of a request; of its bytes where it is no JSON object.

    Budgets, stream and flags are left out: they change when a client sends a request again. Image and video requests
    are digested whole: their size, count and seed are what is asked. ``fields`` and ``history`` are the body's.
    """
    if wire in _WHOLE or fields is None or not (len(fields.messages) or len(fields.input) or len(fields.prompt)):
        return _hexdigest([body])
    listed = not len(fields.messages) and wire is not Wire.DASHSCOPE_NATIVE
    given = _said(fields.input, history) if listed else memoryview(fields.input)
    parts = [_said(fields.messages, history), SEPARATOR, given, SEPARATOR, *_system(fields.system)]
    for raw in (fields.model, fields.instructions, fields.prompt, fields.previous_response_id, fields.conversation):
        parts += [SEPARATOR, memoryview(raw)]
    return _hexdigest([*parts, SEPARATOR, *_uncached(fields.tools), SEPARATOR, *_uncached(fields.functions)])


def system_prompt(wire: Wire, fields: RequestBody, history: MessageList) -> str:
    """Hex digest of the system prompt, empty where there is none."""
    if len(fields.system) and fields.system != _NULL:
        return _hexdigest(_system(fields.system))
    if len(fields.instructions) and fields.instructions != _NULL:
        return _hexdigest([memoryview(fields.instructions)])
    leading = _leading(fields, history)
    return _hexdigest([part for item in leading for part in _message(wire, item)]) if leading else ""


def markers(body: bytes) -> frozenset[str]:
    """Kinds of content in a body, by their bytes: a text that quotes one is escaped and does not count."""
    found = {value.decode() for value in set(_TYPE.findall(body))} & MARKERS
    return frozenset(found | {name for name, needle, most in _KEY_MARKERS if len(body) <= most and needle in body})


def _items(raw: Raw) -> list[Raw]:
    """The elements of an array; none of anything else."""
    found: list[Raw] = decoded(_ITEMS, raw, [])
    return found


def _role(item: Raw) -> str:
    if first := _ROLE_FIRST.match(item):
        return first[1].decode("ascii", "replace")
    read: _Message = decoded(_MESSAGE, item, _Message())
    return text_of(read.role) or text_of(read.type)


def _leading(fields: RequestBody, history: MessageList) -> list[Raw]:
    """The system messages that a conversation begins with; the rest of a long one is not looked at."""
    first = _ROLE_FIRST.match(fields.messages) if len(fields.messages) else None
    if first is not None and first[1].decode("ascii", "replace") not in SYSTEM_ROLES:
        return []
    listed = first_items(fields.messages) if first else history.items
    return list(itertools.takewhile(lambda item: _role(item) in SYSTEM_ROLES, listed))


def first_items(messages: Raw) -> Iterator[Raw]:
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


def _message(wire: Wire, item: Raw) -> list[bytes | memoryview]:
    """Bytes of one message that stay as they are each time it is sent."""
    read: _Message | None
    if wire not in WEB or (read := decoded(_MESSAGE, item, None)) is None:
        return _uncached(item)
    return [memoryview(read.role), b",", memoryview(read.content), b",", memoryview(read.files)]


def _uncached(raw: Raw) -> list[bytes | memoryview]:
    """Slice without its ``cache_control`` fields: clients move them from block to block.

    Inside a text the quotes around its name are escaped, so only a real one matches.
    """
    whole = bytes(raw)
    if whole.find(b'"cache_control"') < 0:  # quicker than ``in``
        return [whole]
    start, parts = 0, []
    for field in _CACHE_CONTROL.finditer(whole):
        before = whole[start : field.start()]
        parts.append(before if field[1] else before.rstrip().removesuffix(b","))
        start = field.end()
    return [*parts, whole[start:]]


def _said(raw: Raw, history: MessageList) -> bytes | memoryview:
    """Digest of a list of messages, which the evidence asks for too; anything else as it stands."""
    return history.prefix(0).encode() if len(raw) and history.items else memoryview(raw)


def _system(raw: Raw) -> list[bytes | memoryview]:
    """The system prompt without its billing block and its cache marks."""
    blocks = _items(raw)
    if not blocks:
        return [] if raw and bytes(raw).startswith(b"[") else _uncached(raw)  # one text
    kept = [block for block in blocks if _BILLING_BLOCK.search(block) is None]
    return [part for block in kept for part in (*_uncached(block), b",")]


def _hexdigest(parts: Iterable[bytes | memoryview]) -> str:
    return hashlib.sha256(b"".join(parts)).hexdigest()[:DIGITS]
