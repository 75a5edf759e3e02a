"""Tokens of a request's prompt, within 0.85 to 1.2 of the Qwen vocabulary, at the price of reading it once.

A body of up to ``LARGE`` bytes is opened and its texts are priced byte by byte. A larger one is priced as it stands and by
samples, since opening it costs more than reading it; one with long encoded data is opened even so.
"""

from __future__ import annotations

import zlib
from binascii import unhexlify
from functools import lru_cache
from typing import Any

import msgspec

from policies.kinds import Wire
from policies.request import media
from policies.request.body import UNREADABLE, WEB, read_body
from policies.settings import EstimateWeights

STEP = 64
"""Steps of one token in which prices are kept."""
HIGHEST = 127
"""Steps of the dearest pair; a block of them stays below adler32's modulus of 65521."""
BLOCK = 512
"""Bytes of prices that are summed at once."""
EXACT = 262_144
"""Bytes of a text of which every one is priced."""
SAMPLE = 2_048
"""Bytes of a block; where not every byte is priced, blocks at even distances stand for those between them."""
SAMPLED = 262_144
"""Bytes that are priced of a text of any length."""

(LOWER, UPPER, DIGIT, PUNCTUATION, SPACE, NEWLINE, CJK, WIDE, HANGUL, CYRILLIC, LATIN, OTHER, ASTRAL, CONTINUATION,
 QUOTE, BACKSLASH) = range(16)  # fmt: skip
_LETTERS = frozenset({LOWER, UPPER})
_MARKS = frozenset({PUNCTUATION, QUOTE, BACKSLASH})
_WEIGHTS = {
    DIGIT: "digit", CJK: "cjk", WIDE: "wide", HANGUL: "hangul", CYRILLIC: "cyrillic", LATIN: "latin", OTHER: "other",
    ASTRAL: "astral",
}  # fmt: skip
"""Classes whose weight is one whatever stands before them."""

_RANGES: tuple[tuple[int, int, int], ...] = (
    (0x00, 0x7F, PUNCTUATION), (0x30, 0x39, DIGIT), (0x41, 0x5A, UPPER), (0x61, 0x7A, LOWER), (0x20, 0x20, SPACE),
    (0x09, 0x09, SPACE), (0x0A, 0x0A, NEWLINE), (0x0D, 0x0D, NEWLINE), (0x22, 0x22, QUOTE), (0x5C, 0x5C, BACKSLASH),
    (0x80, 0xBF, CONTINUATION), (0xC0, 0xCF, LATIN), (0xD0, 0xD3, CYRILLIC), (0xD4, 0xDF, OTHER),
    (0xE0, 0xEF, WIDE), (0xE4, 0xE9, CJK), (0xEA, 0xED, HANGUL), (0xF0, 0xFF, ASTRAL),
)  # fmt: skip
"""First and last byte of each class; a later row wins."""
_CLASSES = bytes(ord(f"{[kind for first, last, kind in _RANGES if first <= byte <= last][-1]:x}") for byte in range(256))
"""The class of each byte, as a hex digit: two of them in a row are the byte of a pair."""
_START = f"{NEWLINE:x}".encode()
_FREE = f"{CONTINUATION:x}".encode()


def text_tokens(text: bytes, weights: EstimateWeights) -> int:
    """Tokens of a UTF-8 text; within the first ``EXACT`` bytes it never falls when text is added anywhere."""
    prices = _prices(weights)
    steps = _steps(text[:EXACT], prices)
    sampled = b"".join(_samples(text, EXACT))
    if sampled:
        steps += _steps(sampled, prices) * (len(text) - EXACT) // len(sampled)
    return -(-steps // STEP)


def _samples(text: bytes, start: int = 0) -> list[bytes]:
    """The blocks that stand for a text from ``start`` on."""
    distance = SAMPLE * -(-max(1, len(text) - start) // SAMPLED)
    return [text[at : at + SAMPLE] for at in range(start, len(text), distance)]


def _steps(text: bytes, prices: bytes) -> int:
    classes = _START + text.translate(_CLASSES) + _FREE
    steps = 0
    for start in (0, 1):  # every pair of neighbours begins at an even or at an odd byte
        pairs = unhexlify(classes[start : len(classes) - (len(classes) - start) % 2]).translate(prices)
        view = memoryview(pairs)
        # adler32 begins at 1 and sums modulo 65521, which no block reaches
        steps += sum((zlib.adler32(view[at : at + BLOCK]) & 0xFFFF) - 1 for at in range(0, len(pairs), BLOCK))
    return steps


@lru_cache(maxsize=8)
def _prices(weights: EstimateWeights) -> bytes:
    """Prices of the pairs of a text, cheapened to those of any detour: so an insertion never makes a text cheaper."""
    steps = [[_in_steps(_weight(weights, before, kind)) for kind in range(16)] for before in range(16)]
    for middle in range(16):
        for before in range(16):
            for kind in range(16):
                steps[before][kind] = min(steps[before][kind], steps[before][middle] + steps[middle][kind])
    return bytes(price for row in steps for price in row)


@lru_cache(maxsize=8)
def _escaped_prices(weights: EstimateWeights) -> bytes:
    """Prices of the pairs of JSON as it stands: its own quotes and keys are free, its escapes are read as what they mean."""
    return bytes(_in_steps(_escaped_weight(weights, before, kind)) for before in range(16) for kind in range(16))


def _in_steps(weight: float) -> int:
    return min(HIGHEST, max(0, round(weight * STEP)))


def _escaped_weight(weights: EstimateWeights, before: int, kind: int) -> float:
    if kind in {QUOTE, BACKSLASH}:
        return weights.escaped_quote if (before, kind) == (BACKSLASH, QUOTE) else 0.0
    if kind in _LETTERS and before in {QUOTE, BACKSLASH}:
        return weights.escaped_letter if before == BACKSLASH else 0.0
    return _weight(weights, before, kind)


def _weight(weights: EstimateWeights, before: int, kind: int) -> float:
    if kind in _LETTERS:
        return _letter(weights, before, kind)
    if kind in _MARKS:
        if before in _MARKS:
            return weights.punctuation_run
        return weights.punctuation_after_space if before == SPACE else weights.punctuation
    if kind == SPACE:
        first = {SPACE: weights.space_run, NEWLINE: weights.indentation, DIGIT: weights.space_after_digit}
        return first.get(before, weights.space)
    if kind == NEWLINE:
        return weights.newline_run if before == NEWLINE or before in _MARKS else weights.newline
    return float(getattr(weights, _WEIGHTS[kind])) if kind in _WEIGHTS else 0.0


def _letter(weights: EstimateWeights, before: int, kind: int) -> float:
    if before not in _LETTERS:
        return weights.word_after_space if before in {SPACE, NEWLINE} else weights.word
    if kind == LOWER:
        return weights.letter
    return weights.capital if before == UPPER else weights.hump


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
_SEALED = (b'"signature"', b'"encrypted_content"')
"""A large body with one of these in its samples is opened: what they hold is long and is no text."""


def estimate(body: bytes, wire: Wire, weights: EstimateWeights) -> int:
    """Tokens of the prompt in a request body. What is no JSON object counts as text; never raises."""
    web = wire in WEB
    try:
        standing = None if web or len(body) <= LARGE else _standing_tokens(body, weights)
        if standing is not None:
            return standing
        document = msgspec.json.decode(body)
    except UNREADABLE:
        return text_tokens(body, weights)
    if not isinstance(document, dict):
        return text_tokens(body, weights)
    texts: list[str] = []
    apart = _collect(document, web, texts)
    return apart + text_tokens("\n".join(texts).encode(), weights)


def _standing_tokens(body: bytes, weights: EstimateWeights) -> int | None:
    """Tokens of a large body, from samples of its JSON as it stands; None where it has to be opened."""
    prompt = read_body(body)
    if prompt is None:
        return None
    standing = b"\n".join(memoryview(getattr(prompt, name)) for name in (*PROMPT_FIELDS, *JSON_FIELDS))
    blocks = _samples(standing)
    if any(b" " not in block and b"\\" not in block and block.isascii() for block in blocks):
        return None  # a whole block without a blank: encoded data
    sampled = b"".join(blocks)
    if any(mark in sampled for mark in _SEALED):
        return None
    covered = len(sampled)
    if sampled.isascii() and sampled.count(b"\\u") > ESCAPES:
        sampled = sampled.decode("raw_unicode_escape", "replace").encode("utf-8", "surrogatepass")
    return _steps(sampled, _escaped_prices(weights)) * len(standing) // covered // STEP


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
