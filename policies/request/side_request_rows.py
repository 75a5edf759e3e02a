"""Side requests known by their text: title generators and warm-ups that ask for a large output and bring no tools."""

from __future__ import annotations

import json
from collections.abc import Sequence

import msgspec
from msgspec import Raw

from policies.settings import TraitRow

BUILT_IN: tuple[TraitRow, ...] = (
    TraitRow("claude-code title 2.1.332", "system", "You are naming a coding session", "Claude Code 2.1.332, recorded"),
    TraitRow("claude-code title 2.1.112", "system", "Generate a concise, sentence-case title", "Claude Code 2.1.112, recorded"),
    TraitRow(
        "claude-code topic", "system", "Analyze if this message indicates a new conversation topic", "Claude Code 2.0.76 cli.js"
    ),
    TraitRow("opencode title", "system", "You are a title generator", "opencode 1.18.33, recorded"),
    TraitRow("claude-code title schema", "schema", "title", "Claude Code 2.1.112 and 2.1.332, recorded"),
    TraitRow("claude-code warm-up", "user", "Warmup", "Claude Code 2.0.76, recorded"),
    TraitRow("claude-code quota probe", "user", "quota", "Claude Code 2.1.112 cli.js"),
)
"""The probes with ``max_tokens: 1`` (``test``, ``Hi``, ``.``, ``count``) need no row: their budget tells them."""

SCHEMA_PROPERTIES = 2
"""A schema with more properties than this extracts data: a main request that happens to want a title too."""
LONG = 65_536
"""Bytes of messages above which only their beginning is looked at."""

_UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError)


class _Block(msgspec.Struct):
    text: str = ""
    type: str = "text"


class _Message(msgspec.Struct):
    role: str = ""
    content: str | list[_Block] | None = None


class _Schema(msgspec.Struct):
    properties: dict[str, Raw] = {}


class _Format(msgspec.Struct):
    type: str = ""
    schema: _Schema = msgspec.field(default_factory=_Schema)


class _OutputConfig(msgspec.Struct):
    format: _Format = msgspec.field(default_factory=_Format)


_SYSTEM = msgspec.json.Decoder(str | list[_Block])
_MESSAGES = msgspec.json.Decoder(list[_Message])
_PIECEWISE = json.JSONDecoder()
_OUTPUT_CONFIG = msgspec.json.Decoder(_OutputConfig)
_SYSTEM_ROLES = frozenset({"system", "developer"})


def match(system: Raw, messages: Raw, output_config: Raw, rows: Sequence[TraitRow]) -> str | None:
    """Name of the first row that fits; ask only where ``tools`` is absent or empty."""
    wanted = {row.where for row in rows}
    blocks, users = _texts(system, messages) if wanted & {"system", "user"} else ([], [])
    properties = _properties(output_config) if "schema" in wanted else frozenset()
    for row in rows:
        if (
            (row.where == "system" and any(block.lstrip().startswith(row.text) for block in blocks))
            or (row.where == "user" and len(users) == 1 and users[0].strip() == row.text)
            or (row.where == "schema" and row.text in properties)
        ):
            return row.name
    return None


def _texts(system: Raw, messages: Raw) -> tuple[list[str], list[str]]:
    """Texts of the system blocks (leading system messages of the openai wire included) and of the one user message.

    A user with more to say than one message is no warm-up, and neither is a talk of more than ``LONG`` bytes.
    """
    blocks = _system_blocks(system)
    users: list[str] = []
    for message in _opening(messages):
        if message.role in _SYSTEM_ROLES and not users:
            blocks += _contents(message)
        elif message.role == "user" and not users:
            users += _contents(message)
        else:
            return blocks, []
    return blocks, [] if len(messages) > LONG else users


def _opening(messages: Raw) -> list[_Message]:
    """The messages; of a long talk only the leading ones up to its first user or assistant."""
    try:
        if len(messages) <= LONG:
            return _MESSAGES.decode(messages) if len(messages) else []
        return _leading(bytes(memoryview(messages)[:LONG]).decode("utf-8", "ignore"))
    except _UNREADABLE:
        return []


def _leading(start: str) -> list[_Message]:
    found: list[_Message] = []
    at = start.find("{")
    while at > 0:
        try:
            value, end = _PIECEWISE.raw_decode(start, at)
        except ValueError:
            return found  # it goes on beyond what is looked at
        found.append(msgspec.convert(value, _Message))
        if found[-1].role not in _SYSTEM_ROLES:
            return found
        at = start.find("{", end)
    return found


def _contents(message: _Message) -> list[str]:
    if message.content is None:
        return []
    return [message.content] if isinstance(message.content, str) else [block.text for block in message.content]


def _system_blocks(system: Raw) -> list[str]:
    try:
        value = _SYSTEM.decode(system)
    except _UNREADABLE:
        return []
    return [value] if isinstance(value, str) else [block.text for block in value]


def _properties(output_config: Raw) -> frozenset[str]:
    try:
        wanted = _OUTPUT_CONFIG.decode(output_config).format
    except _UNREADABLE:
        return frozenset()
    names = frozenset(wanted.schema.properties) if wanted.type == "json_schema" else frozenset()
    return names if len(names) <= SCHEMA_PROPERTIES else frozenset()
