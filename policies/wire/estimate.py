"""How many tokens a request's prompt has, within 0.85 to 1.2 of the Qwen vocabulary, at the price of reading it once.

Theory of operation. The vocabulary cuts a text where the kind of character changes (a word with the blank before it, each
digit, a run of punctuation, a line end), so the price of a byte is told by its class and the class of the byte before it.
``bytes.translate`` writes one hex digit per byte, its class; ``unhexlify`` packs two neighbours into one byte; a second
``translate`` turns each pair into its price, and the low half of ``adler32`` is the sum of a block. Nothing loops in Python.
"""

from __future__ import annotations

import zlib
from binascii import unhexlify
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from policies.settings import EstimateWeights
from policies.wire import parts

if TYPE_CHECKING:
    from policies.calls import Wire

_UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError)

STEP = 64
"""Steps of one token in which prices are kept."""
HIGHEST = 127
"""Steps; a block's sum must stay below adler32's modulus of 65521."""
BLOCK = 512
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
"""Fields of messages and parts that carry no prompt text (a signature is long and is not read by the model as text)."""
ARGUMENTS = frozenset({"input", "arguments", "args"})
"""Fields of a tool call that stand in the prompt as JSON."""
_WEB = frozenset({"qwen-web", "zai-web"})

(LOWER, UPPER, DIGIT, PUNCTUATION, SPACE, NEWLINE, CJK, WIDE, HANGUL, CYRILLIC, LATIN, OTHER, ASTRAL, CONTINUATION) = range(14)
PADDING = 15
_LETTERS = frozenset({LOWER, UPPER})
_BLANKS = frozenset({SPACE, NEWLINE})

_RANGES: tuple[tuple[int, int, int], ...] = (
    (0x00, 0x7F, PUNCTUATION),
    (0x30, 0x39, DIGIT),
    (0x41, 0x5A, UPPER),
    (0x61, 0x7A, LOWER),
    (0x20, 0x20, SPACE),
    (0x09, 0x09, SPACE),
    (0x0A, 0x0A, NEWLINE),
    (0x0D, 0x0D, NEWLINE),
    (0x80, 0xBF, CONTINUATION),
    (0xC0, 0xCF, LATIN),
    (0xD0, 0xD3, CYRILLIC),
    (0xD4, 0xDF, OTHER),
    (0xE0, 0xEF, WIDE),
    (0xE4, 0xE9, CJK),
    (0xEA, 0xED, HANGUL),
    (0xF0, 0xFF, ASTRAL),
)
"""First and last byte of each class; a later row wins."""


def _classes() -> bytes:
    table = bytearray(256)
    for first, last, kind in _RANGES:
        for byte in range(first, last + 1):
            table[byte] = ord(f"{kind:x}")
    return bytes(table)


_CLASSES = _classes()
_START = f"{NEWLINE:x}".encode()
_PAD = f"{PADDING:x}".encode()


def tokens(body: bytes, wire: Wire, weights: EstimateWeights) -> int:
    """Tokens of the prompt in a request body. What is no JSON object counts as text; never raises."""
    texts: list[str] = []
    try:
        document = msgspec.json.decode(body)
    except _UNREADABLE:
        return text_tokens(body, weights)
    if not isinstance(document, dict):
        return text_tokens(body, weights)
    apart = _collect(document, wire in _WEB, texts)
    return apart + text_tokens("\n".join(texts).encode("utf-8", "surrogatepass"), weights)


def text_tokens(text: bytes, weights: EstimateWeights) -> int:
    """Tokens of a UTF-8 text; never falls when bytes are added to it."""
    prices = _prices(weights)
    classes = _START + text.translate(_CLASSES) + _PAD
    steps = 0
    for start in (0, 1):  # every pair of neighbours begins at an even or at an odd byte
        pairs = unhexlify(classes[start : len(classes) - (len(classes) - start) % 2]).translate(prices)
        view = memoryview(pairs)
        # adler32 begins at 1 and sums modulo 65521, which no block reaches
        steps += sum((zlib.adler32(view[at : at + BLOCK]) & 0xFFFF) - 1 for at in range(0, len(pairs), BLOCK))
    return -(-steps // STEP)


@lru_cache(maxsize=8)
def _prices(weights: EstimateWeights) -> bytes:
    """Price of each pair of classes in steps, cheapened to that of any detour: so an insertion never makes a text cheaper."""
    steps = [
        [min(HIGHEST, max(0, round(_weight(weights, before, kind) * STEP))) for kind in range(16)] for before in range(16)
    ]
    for middle in range(14):
        for before in range(16):
            for kind in range(16):
                steps[before][kind] = min(steps[before][kind], steps[before][middle] + steps[middle][kind])
    return bytes(price for row in steps for price in row)


def _weight(weights: EstimateWeights, before: int, kind: int) -> float:
    if kind in _LETTERS:
        return _letter(weights, before, kind)
    if kind == PUNCTUATION:
        if before == PUNCTUATION:
            return weights.punctuation_run
        return weights.punctuation_after_space if before == SPACE else weights.punctuation
    if kind == SPACE:
        first = {SPACE: weights.space_run, NEWLINE: weights.indentation, DIGIT: weights.space_after_digit}
        return first.get(before, weights.space)
    if kind == NEWLINE:
        return weights.newline_run if before in {NEWLINE, PUNCTUATION} else weights.newline
    by_kind = {
        DIGIT: weights.digit,
        CJK: weights.cjk,
        WIDE: weights.wide,
        HANGUL: weights.hangul,
        CYRILLIC: weights.cyrillic,
        LATIN: weights.latin,
        OTHER: weights.other,
        ASTRAL: weights.astral,
    }
    return by_kind.get(kind, 0.0)


def _letter(weights: EstimateWeights, before: int, kind: int) -> float:
    if before not in _LETTERS:
        return weights.word_after_space if before in _BLANKS else weights.word
    if kind == LOWER:
        return weights.letter
    return weights.capital if before == UPPER else weights.hump


def _collect(document: dict[str, Any], web: bool, texts: list[str]) -> int:
    """Put the prompt's texts into ``texts``; the tokens of everything else: parts with a price, and message frames."""
    apart = 0
    for name in JSON_FIELDS:
        if document.get(name):
            texts.append(_as_json(document[name]))
    todo: list[Any] = [document[name] for name in PROMPT_FIELDS if name in document]
    while todo:
        value = todo.pop()
        if isinstance(value, str):
            texts.append(value)
        elif isinstance(value, list):
            todo += value
        elif isinstance(value, dict):
            if "role" in value:
                apart += MESSAGE
            price = parts.price(value)
            if price is not None:
                apart += price
                todo += [value[name] for name in ("title", "context", "text") if isinstance(value.get(name), str)]
            else:
                _fields(value, web and "role" in value, texts, todo)
    return apart


def _fields(value: dict[str, Any], web: bool, texts: list[str], todo: list[Any]) -> None:
    for name, item in value.items():
        if name in ENVELOPE or (web and name not in WEB_MESSAGE_FIELDS):
            continue
        if name in ARGUMENTS and isinstance(item, dict) and value.keys() & {"name", "function"}:
            texts.append(_as_json(item))
        elif isinstance(item, str):
            texts.append(item)
        elif isinstance(item, list | dict):
            todo.append(item)


def _as_json(value: Any) -> str:
    return msgspec.json.encode(value).decode("utf-8", "replace")


def prompt_texts(body: bytes, wire: Wire) -> Iterator[str]:
    """The texts that are counted, for a person who wonders at a figure."""
    texts: list[str] = []
    document = msgspec.json.decode(body)
    if isinstance(document, dict):
        _collect(document, wire in _WEB, texts)
    yield from texts
