"""Tokens of a text from its bytes alone: each byte is priced by its class and the class of the byte before it.

Theory of operation. The vocabulary cuts a text where the kind of character changes (a word with the blank before it, each
digit, a run of punctuation, a line end), so two neighbours tell the price. ``bytes.translate`` writes one hex digit per
byte, its class; ``unhexlify`` packs two neighbours into one byte; a second ``translate`` turns each pair into its price, and
the low half of ``adler32`` is the sum of a block. Nothing loops over bytes in Python.
"""

from __future__ import annotations

import zlib
from binascii import unhexlify
from functools import lru_cache

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

_RANGES: tuple[tuple[int, int, int], ...] = (
    (0x00, 0x7F, PUNCTUATION),
    (0x30, 0x39, DIGIT),
    (0x41, 0x5A, UPPER),
    (0x61, 0x7A, LOWER),
    (0x20, 0x20, SPACE),
    (0x09, 0x09, SPACE),
    (0x0A, 0x0A, NEWLINE),
    (0x0D, 0x0D, NEWLINE),
    (0x22, 0x22, QUOTE),
    (0x5C, 0x5C, BACKSLASH),
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
_FREE = f"{CONTINUATION:x}".encode()


def text_tokens(text: bytes, weights: EstimateWeights) -> int:
    """Tokens of a UTF-8 text; within the first ``EXACT`` bytes it never falls when text is added anywhere."""
    prices = _prices(weights)
    steps = _steps(text[:EXACT], prices)
    sampled = b"".join(samples(text, EXACT))
    if sampled:
        steps += _steps(sampled, prices) * (len(text) - EXACT) // len(sampled)
    return -(-steps // STEP)


def escaped_steps(json: bytes, weights: EstimateWeights) -> int:
    """Price of JSON as it stands, in steps: its own quotes and keys are free, its escapes are read as what they mean."""
    return _steps(json, _escaped_prices(weights))


def samples(text: bytes, start: int = 0) -> list[bytes]:
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
        return weights.word_after_space if before in {SPACE, NEWLINE} else weights.word
    if kind == LOWER:
        return weights.letter
    return weights.capital if before == UPPER else weights.hump
