"""What the evidence of replays asks about the messages of a request: whether they only grew, and of what kinds they are."""

from __future__ import annotations

import hashlib
import re
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw

from policies.wire.digests import DIGITS, SEPARATOR, UNREADABLE, items, message, role

if TYPE_CHECKING:
    from policies.calls import Wire

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


class _History(msgspec.Struct):
    messages: Raw = Raw()
    input: Raw = Raw()


_HISTORY = msgspec.json.Decoder(_History)


class History:
    """The messages of one body, read once for what the evidence asks about them."""

    def __init__(self, wire: Wire, body: bytes) -> None:
        self._wire = wire
        try:
            head = _HISTORY.decode(body)
        except UNREADABLE:
            head = _History()
        self.items = items(wire, head.messages, head.input)
        self._hashed = hashlib.sha256()
        self._count = 0

    @cached_property
    def roles(self) -> tuple[str, ...]:
        """In the order of the messages; an item of the responses wire without a role gives its type."""
        return tuple(role(item) for item in self.items)

    def prefix(self, but: int = 2) -> str:
        """Hex digest of all messages but the last ``but``, empty where there are no more than that.

        A later history's ``prefix(added)`` equals an earlier one's ``prefix(0)`` where a client only added messages.
        Longer prefixes that are asked for after shorter ones go on where those ended.
        """
        wanted = len(self.items) - max(0, but)
        if wanted <= 0:
            return ""
        if wanted < self._count:
            self._hashed, self._count = hashlib.sha256(), 0
        for item in self.items[self._count : wanted]:
            for part in (*message(self._wire, item), SEPARATOR):
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
