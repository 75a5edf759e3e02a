"""The messages of a request as slices of its body: what they say whenever they are sent, by which roles, of what kinds."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

import msgspec
from msgspec import Raw

from policies.kinds import Wire
from policies.request.body import RequestBody, decoded

DIGITS = 32
"""Hex digits of a digest."""
SEPARATOR = b"\x1e"
ENDINGS = 8
"""A client adds one to four messages from one request to the next."""
WEB = frozenset({Wire.QWEN_WEB, Wire.ZAI_WEB})

_CACHE_CONTROL = b'"cache_control"'
_CACHE_CONTROL_FIELD = re.compile(rb'"cache_control"\s*:\s*(?:\{[^{}"]*(?:"(?:[^"\\]|\\.)*"[^{}"]*)*\}|null)\s*(,\s*)?')

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


class _NativeInput(msgspec.Struct):
    messages: Raw = Raw()


class _Message(msgspec.Struct):
    """Message of a web client; its ids, timestamps and parents are new on every send and left out."""

    role: Raw = Raw()
    content: Raw = Raw()
    files: Raw = Raw()


class _Role(msgspec.Struct):
    role: str = ""
    type: str = ""


_NATIVE = msgspec.json.Decoder(_NativeInput)
_ITEMS = msgspec.json.Decoder(list[Raw])
_MESSAGE = msgspec.json.Decoder(_Message)
_ROLE = msgspec.json.Decoder(_Role)
_ROLE_FIRST = re.compile(rb'\{\s*"role"\s*:\s*"(\w+)"')


class MessageList:
    """The messages of one body; each is looked at once, whatever is asked about them."""

    __slots__ = ("_endings", "_fields", "_items", "_wire")

    def __init__(self, wire: Wire, fields: RequestBody) -> None:
        self._wire = wire
        self._fields = fields
        self._items: list[Raw] | None = None
        self._endings: list[str] | None = None

    @property
    def items(self) -> list[Raw]:
        """``messages``, else the responses wire's ``input`` list, else native's ``input.messages``."""
        if self._items is None:
            fields = self._fields
            self._items = items(fields.messages) if len(fields.messages) else self._given(fields.input)
        return self._items

    def _given(self, raw: Raw) -> list[Raw]:
        return items(decoded(_NATIVE, raw, _NativeInput()).messages if self._wire is Wire.DASHSCOPE_NATIVE else raw)

    @property
    def roles(self) -> tuple[str, ...]:
        """Roles in the order of the messages; an item of the responses wire without a role gives its type."""
        return tuple([role(item) for item in self.items])

    def prefix(self, but: int = 2) -> str:
        """Hex digest of all messages but the last ``but``, empty where there are no more than that.

        A later history's ``prefix(added)`` equals an earlier one's ``prefix(0)`` where a client only added messages.
        """
        if self._endings is None:
            self._endings = self._digests(len(self.items), ENDINGS) if self.items else []
        but = max(0, but)
        if but < len(self._endings):
            return self._endings[but]
        return "" if but >= len(self.items) else self._digests(len(self.items) - but, 1)[0]

    def _digests(self, count: int, wanted: int) -> list[str]:
        """Digests of the first ``count`` messages, of one fewer, and so on, at most ``wanted`` of them."""
        digest, found = hashlib.sha256(), []
        for number, item in enumerate(self.items[:count], 1):
            for part in message(self._wire, item):
                digest.update(part)
            digest.update(SEPARATOR)
            if number > count - wanted:
                found.append(digest.hexdigest()[:DIGITS])
        return found[::-1]


def items(raw: Raw) -> list[Raw]:
    """The elements of an array; none of anything else."""
    found: list[Raw] = decoded(_ITEMS, raw, [])
    return found


def role(item: Raw) -> str:
    first = _ROLE_FIRST.match(item)
    if first is not None:
        return first[1].decode("ascii", "replace")
    read = decoded(_ROLE, item, _Role())
    return str(read.role or read.type)


def message(wire: Wire, item: Raw) -> list[bytes | memoryview]:
    """Bytes of one message that stay as they are each time it is sent."""
    if wire not in WEB:
        return uncached(item)
    read = decoded(_MESSAGE, item, None)
    if read is None:
        return [memoryview(item)]
    return [memoryview(read.role), b",", memoryview(read.content), b",", memoryview(read.files)]


def uncached(raw: Raw) -> list[bytes | memoryview]:
    """Slice without its ``cache_control`` fields: clients move them from block to block.

    Inside a text the quotes around its name are escaped, so only a real one matches.
    """
    whole = bytes(raw)
    at = whole.find(_CACHE_CONTROL)
    if at < 0:
        return [whole]
    data = memoryview(whole)
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


def hexdigest(parts: Iterable[bytes | memoryview]) -> str:
    return hashlib.sha256(b"".join(parts)).hexdigest()[:DIGITS]


def markers(body: bytes) -> frozenset[str]:
    """Kinds of content in a body, by their bytes: a text that quotes one is escaped and does not count."""
    found = {value.decode() for value in set(_TYPE.findall(body))} & MARKERS
    return frozenset(found | {name for name, needle, most in _KEY_MARKERS if len(body) <= most and needle in body})
