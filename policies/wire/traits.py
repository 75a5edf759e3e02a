"""Side requests known by their text: title generators and warm-ups that ask for a large output and bring no tools."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Raw

from policies.settings import TraitRow

BUILT_IN: tuple[TraitRow, ...] = (
    TraitRow("claude-code title 2.1.332", "system", "You are naming a coding session", "Claude Code 2.1.332, recorded"),
    TraitRow(
        "claude-code title 2.1.112",
        "system",
        "Generate a concise, sentence-case title",
        "Claude Code 2.1.112, recorded",
    ),
    TraitRow(
        "claude-code topic",
        "system",
        "Analyze if this message indicates a new conversation topic",
        "Claude Code 2.0.76 cli.js",
    ),
    TraitRow("opencode title", "system", "You are a title generator", "opencode 1.18.33, recorded"),
    TraitRow("claude-code title schema", "schema", "title", "Claude Code 2.1.112 and 2.1.332, recorded"),
    TraitRow("claude-code warm-up", "user", "Warmup", "Claude Code 2.0.76, recorded"),
    TraitRow("claude-code quota probe", "user", "quota", "Claude Code 2.1.112 cli.js"),
)
"""The probes with ``max_tokens: 1`` (``test``, ``Hi``, ``.``, ``count``) need no row: their budget tells them."""

SCHEMA_PROPERTIES = 2
"""A schema with more properties than this extracts data: a main request that happens to want a title too."""


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
_MESSAGES = msgspec.json.Decoder(list[Raw])
_MESSAGE = msgspec.json.Decoder(_Message)
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
    """Texts of the system blocks (leading system messages of the openai wire included) and of the user's messages.

    Only the messages up to the second user message are opened: a longer talk is no warm-up.
    """
    blocks = _system_blocks(system)
    users: list[str] = []
    try:
        raws = _MESSAGES.decode(messages) if len(messages) else []
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return blocks, users
    leading = True
    for raw in raws:
        message = _message(raw)
        if message is None:
            return blocks, [*users, "", ""]
        texts = _contents(message)
        if leading and message.role in _SYSTEM_ROLES:
            blocks += texts
            continue
        leading = False
        users += texts
        if len(users) > 1 or message.role != "user":
            return blocks, ["", ""]
    return blocks, users


def _message(raw: Raw) -> _Message | None:
    try:
        return _MESSAGE.decode(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def _contents(message: _Message) -> list[str]:
    if message.content is None:
        return []
    return [message.content] if isinstance(message.content, str) else [block.text for block in message.content]


def _system_blocks(system: Raw) -> list[str]:
    try:
        value = _SYSTEM.decode(system)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return []
    return [value] if isinstance(value, str) else [block.text for block in value]


def _properties(output_config: Raw) -> frozenset[str]:
    try:
        wanted = _OUTPUT_CONFIG.decode(output_config).format
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return frozenset()
    names = frozenset(wanted.schema.properties) if wanted.type == "json_schema" else frozenset()
    return names if len(names) <= SCHEMA_PROPERTIES else frozenset()
