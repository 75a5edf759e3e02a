"""Tokens of a request's prompt, within 0.85 to 1.2 of the Qwen vocabulary, at the price of reading it once.

A body of up to ``LARGE`` bytes is opened and its texts are priced byte by byte. A larger one is priced as it stands and by
samples, since opening it costs more than reading it; one with long encoded data is opened even so.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

from policies.kinds import Wire
from policies.request import byte_prices, media
from policies.settings import EstimateWeights

_UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError)

LARGE = 262_144
"""Bytes of a body from which it is priced without being opened."""
ESCAPES = 64
"""Escaped characters (``\\uXXXX``) in the samples of a large body above which they are decoded before it is priced."""
MESSAGE = 4
"""Tokens around each message of the chat template: ``<|im_start|>role`` and ``<|im_end|>`` with their line ends."""

PROMPT_FIELDS = ("system", "instructions", "messages", "input", "prompt", "contents")
"""Top-level fields whose texts become the prompt; the rest of a request is its envelope."""
JSON_FIELDS = ("tools", "functions")
"""Top-level fields that stand in the prompt as JSON, keys and all."""
WEB_MESSAGE_FIELDS = frozenset({"role", "content", "files"})
ENVELOPE = frozenset({
    "type", "id", "role", "tool_use_id", "tool_call_id", "call_id", "cache_control", "signature", "encrypted_content",
    "status", "media_type", "mime_type", "detail", "index", "file_id",
})  # fmt: skip
"""Fields of messages and parts that carry no prompt text (a signature is long, and no model reads it as text)."""
PLAIN = frozenset({"text", "input_text", "output_text"})
"""Types of parts that are a text and nothing else."""
ARGUMENTS = frozenset({"input", "arguments", "args"})
"""Fields of a tool call that stand in the prompt as JSON."""
BESIDE = ("title", "context", "text")
"""Texts of a part that is priced by its kind, beside the thing itself."""
_WEB = frozenset({Wire.QWEN_WEB, Wire.ZAI_WEB})
_SEALED = (b'"signature"', b'"encrypted_content"')
"""A large body with one of these in its samples is opened: what they hold is long and is no text."""


class _Prompt(msgspec.Struct):
    system: Raw = Raw()
    instructions: Raw = Raw()
    messages: Raw = Raw()
    input: Raw = Raw()
    prompt: Raw = Raw()
    contents: Raw = Raw()
    tools: Raw = Raw()
    functions: Raw = Raw()


_PROMPT = msgspec.json.Decoder(_Prompt)


def estimate(body: bytes, wire: Wire, weights: EstimateWeights) -> int:
    """Tokens of the prompt in a request body. What is no JSON object counts as text; never raises."""
    web = wire in _WEB
    try:
        standing = None if web or len(body) <= LARGE else _standing_tokens(body, weights)
        if standing is not None:
            return standing
        document = msgspec.json.decode(body)
    except _UNREADABLE:
        return byte_prices.text_tokens(body, weights)
    if not isinstance(document, dict):
        return byte_prices.text_tokens(body, weights)
    texts: list[str] = []
    apart = _collect(document, web, texts)
    return apart + byte_prices.text_tokens("\n".join(texts).encode(), weights)


def _standing_tokens(body: bytes, weights: EstimateWeights) -> int | None:
    """Tokens of a large body, from samples of its JSON as it stands; None where it has to be opened."""
    prompt = _PROMPT.decode(body)
    standing = b"\n".join(memoryview(getattr(prompt, name)) for name in (*PROMPT_FIELDS, *JSON_FIELDS))
    blocks = byte_prices.samples(standing)
    if any(b" " not in block and b"\\" not in block and block.isascii() for block in blocks):
        return None  # a whole block without a blank: encoded data
    sampled = b"".join(blocks)
    if any(mark in sampled for mark in _SEALED):
        return None
    covered = len(sampled)
    if sampled.isascii() and sampled.count(b"\\u") > ESCAPES:
        sampled = sampled.decode("raw_unicode_escape", "replace").encode("utf-8", "surrogatepass")
    return byte_prices.escaped_steps(sampled, weights) * len(standing) // covered // byte_prices.STEP


def _collect(document: dict[str, Any], web: bool, texts: list[str]) -> int:
    """Put the prompt's texts into ``texts``; the tokens of everything else: parts with a price, and message frames."""
    apart = 0
    texts += [_as_json(document[name]) for name in JSON_FIELDS if document.get(name)]
    todo: list[Any] = [document[name] for name in PROMPT_FIELDS if name in document]
    while todo:
        value = todo.pop()
        if isinstance(value, str):
            texts.append(value)
        elif isinstance(value, list):
            todo += value
        elif isinstance(value, dict):
            kind, text = value.get("type"), value.get("text")
            if isinstance(text, str) and isinstance(kind, str) and kind in PLAIN:
                texts.append(text)
                continue
            apart += MESSAGE if "role" in value else 0
            price = media.price(value)
            if price is None:
                _open(value, web and "role" in value, texts, todo)
            else:
                apart += price
                texts += [beside for name in BESIDE if isinstance(beside := value.get(name), str)]
    return apart


def _open(value: dict[str, Any], web: bool, texts: list[str], todo: list[Any]) -> None:
    for name, item in value.items():
        if name in ENVELOPE or (web and name not in WEB_MESSAGE_FIELDS):
            continue
        if name in ARGUMENTS and isinstance(item, dict) and "name" in value:
            texts.append(_as_json(item))
        elif isinstance(item, str):
            texts.append(item)
        elif isinstance(item, list | dict):
            todo.append(item)


def _as_json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
