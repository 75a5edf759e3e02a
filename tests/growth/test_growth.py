"""Work per byte is bounded: what an input costs grows with its bytes, whatever they are and however they are cut."""

from __future__ import annotations

import collections
import contextlib
import json
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

import pytest

from policies.answer import encodings
from tests.growth import readers, shapes
from tests.growth.counting import Metered
from tests.growth.readers import Reading
from tests.growth.shapes import Shape

LONG = os.environ.get("BREAKWATER_GROWTH") == "long"
"""Everything against everything, ten times as long: beyond every cap. Some minutes."""
TIMES, AT_MOST = (8, 3.0) if LONG else (5, 2.0)
"""How many times as long the larger input is, and times that a byte may cost more in it."""
WHOLE, SINGLE = (8_000, 1_200) if LONG else (300, 70)
"""Bytes of the smaller input, in one piece and in single bytes."""
SECONDS_AT_MOST = 0.05
"""For one pattern over the longest text that it is given; the slowest takes a fiftieth of it."""


class Case(NamedTuple):
    name: str
    reading: Reading
    shape: Shape
    single: bool = False


BODIES = {**shapes.STREAMS, **shapes.DOCUMENTS, **shapes.MESSAGES, **shapes.PAGES}
STREAMS = BODIES if LONG else shapes.STREAMS
DOCUMENTS = BODIES if LONG else {**shapes.DOCUMENTS, **shapes.MESSAGES, **shapes.PAGES}
LATER = BODIES if LONG else {**shapes.STREAMS, **shapes.PAGES}
FIELDS = BODIES if LONG else {**shapes.MESSAGES, **shapes.STREAMS}
Table = tuple[tuple[str, Reading, Mapping[str, Shape]], ...]
WHOLE_ONLY: Table = (
    ("a body of events", readers.held(readers.SSE), STREAMS),
    ("a document", readers.held(readers.JSON), DOCUMENTS),
    ("a page", readers.held(readers.HTML), shapes.PAGES),
    ("a stream after its time", readers.capped, LATER),
    ("a stream that has answered", readers.committed, LATER),
    ("lines after the first", readers.lines, {**STREAMS, **shapes.DOCUMENTS}),
    ("a head", readers.head, FIELDS),
    ("a request", readers.request("ANTHROPIC"), {**shapes.REQUESTS, **shapes.DOCUMENTS}),
    ("a request of the openai wire", readers.request("OPENAI"), shapes.REQUESTS),
    ("a request of a web client", readers.request("QWEN_WEB"), shapes.REQUESTS),
    ("a request of the native wire", readers.request("DASHSCOPE_NATIVE"), shapes.REQUESTS),
    ("a config", readers.config, {**shapes.CONFIGS, **(shapes.DOCUMENTS if LONG else {})}),
    ("a state file", readers.state, {**shapes.STATES, **shapes.DOCUMENTS}),
    ("an answer as text", readers.text("anthropic"), {**shapes.TEXTS, **STREAMS}),
    ("an answer of the openai wire as text", readers.text("openai"), shapes.TEXTS),
    ("an answer of the native wire as text", readers.text("dashscope-native"), shapes.TEXTS),
)


def third(inputs: Mapping[str, Shape], number: int) -> Mapping[str, Shape]:
    """Readers that share their splitting with one that has all inputs take turns."""
    return inputs if LONG else dict(list(inputs.items())[number::3])


UNMENDED = {name: shapes.STREAMS[name] for name in ("a comment line without end", "a page with blank lines")}
"""Inputs that a test below puts to a product without its mends."""

IN_SINGLE_BYTES: Table = (
    ("a body of events", readers.held(readers.SSE), STREAMS),
    ("a stream after its time", readers.capped, third(STREAMS, 0)),
    ("a document", readers.held(readers.JSON), third(STREAMS, 1)),
    ("a stream that has answered", readers.committed, {**UNMENDED, **third(STREAMS, 1), **third(shapes.PAGES, 0)}),
    ("lines after the first", readers.lines, third(STREAMS, 2)),
)


def cases() -> Iterator[Case]:
    for single, table in ((False, WHOLE_ONLY), (True, IN_SINGLE_BYTES)):
        for reader, reading, inputs in table:
            for name, shape in inputs.items():
                yield Case(f"{reader}: {name}{', in single bytes' if single else ''}", reading, shape, single)
    for coding, inputs in readers.ENCODED.items():
        for name, shape in inputs.items():
            yield Case(f"an answer in {coding}: {name}", readers.encoded(coding), shape)
            if LONG or name in ("answers", "members of nothing") or "," not in coding:  # else as each coding by itself
                yield Case(f"an answer in {coding}: {name}, in single bytes", readers.encoded(coding), shape, single=True)
            yield Case(f"a request in {coding}: {name}", readers.decoded(coding), shape)


CASES = {case.name: case for case in cases()}


@cache
def product() -> Metered:
    return loaded()


def loaded(changes: Any = None) -> Metered:
    metered = Metered(changes)
    metered.load(readers.MODULES)
    return metered


def cost(metered: Metered, case: Case, size: int) -> int:
    """What so many bytes cost where the product stands; of an encoded body, of what it holds."""
    body = case.shape(size)
    pieces = [body[at : at + 1] for at in range(len(body))] if case.single else [body]
    before = metered.meter.total
    case.reading(metered, pieces)
    return metered.meter.total - before


def growth(metered: Metered, case: Case, times: int = 1) -> float:
    """Times that a byte costs more in the longer input."""
    return grown(metered, [case], times)[case.name]


def grown(metered: Metered, cases: Iterable[Case], times: int | None = None) -> dict[str, float]:
    """Times that a byte costs more in the longer input, for each of these."""
    found = {}
    with metered.standing():
        for case in cases:
            size = (SINGLE if case.single else WHOLE) * (times or longer(case))
            found[case.name] = cost(metered, case, TIMES * size) / cost(metered, case, size) / TIMES
    return found


def longer(case: Case) -> int:
    """Python reads 4300 digits and no more."""
    return 3 if "digits" in case.name and not (case.single or LONG) else 1


READERS = sorted({name.partition(": ")[0] for name in CASES})


@pytest.mark.parametrize("reader", READERS)
def test_the_cost_of_a_byte_does_not_grow_with_the_input(reader: str) -> None:
    found = grown(product(), (case for case in CASES.values() if case.name.startswith(f"{reader}: ")))
    assert {name: times for name, times in found.items() if times > AT_MOST} == {}


@cache
def texts(length: int) -> tuple[str, ...]:
    return tuple(_texts(length))


def _texts(length: int) -> Iterator[str]:
    for shape in ({**BODIES, **shapes.REQUESTS} if LONG else shapes.PAGES).values():
        yield shape(length)[:length].decode("latin-1")
    for shape in shapes.MESSAGES.values():
        with contextlib.suppress(ValueError):  # not every one of them can be read
            yield json.loads(shape(length - 100))["error"]["message"]


LONGEST = 10_000 if LONG else 5_000
"""Bytes of a text that every pattern goes over."""
USING = ("brackets", "wrappers", "waits", "links", "scripts", "attributes", "quotes", "a page with blank lines", "messages")
"""Inputs between which every pattern is used."""


def seconds(pattern: re.Pattern[Any], method: str, text: str) -> float:
    """Of the processor, the least of three: what else runs on the machine only adds."""
    subject: Any = text.encode("latin-1", "replace") if isinstance(pattern.pattern, bytes) else text
    instead: Any = b"" if isinstance(subject, bytes) else ""
    taken = []
    for _ in range(3):
        start = time.process_time()
        if method == "finditer":
            collections.deque(pattern.finditer(subject), maxlen=0)
        elif method == "sub":
            pattern.sub(instead, subject)
        else:
            getattr(pattern, method)(subject)
        taken.append(time.process_time() - start)
        if taken[-1] < SECONDS_AT_MOST:
            break
    return min(taken)


def slow(pattern: re.Pattern[Any], method: str, length: int) -> str:
    """The first text that takes too long."""
    return next((text[:80] for text in texts(length) if seconds(pattern, method, text) >= SECONDS_AT_MOST), "")


def test_no_pattern_goes_over_a_text_again_and_again() -> None:
    """What the count does not see. In seconds: a second look at each place would cost a thousand times as much."""
    metered = product()
    with metered.standing():
        for case in CASES.values():
            if case.name.partition(": ")[2] in USING and not case.single:
                cost(metered, case, LONGEST)
    used = dict(metered.meter.patterns)
    assert len(used) > 100
    for (pattern, method), length in used.items():
        assert not slow(pattern, method, min(length, LONGEST)), (pattern, method)


def test_a_pattern_that_does_is_seen() -> None:
    assert slow(re.compile(r"\]\s*\[[^\[\]]*\]?\s*$"), "search", 4_500)


WITHOUT: Mapping[str, tuple[tuple[str, str], ...]] = {
    "policies/answer/tap.py": (("size >= self._page_judged * PAGE_GROWTH", "size > self._page_judged"),),
    "policies/answer/frames.py": (
        ('(b"\\n" in chunk or b"\\r" in chunk) and ', ""),
        ("max(at, heard - 1)", "at"),
    ),
    "policies/answer/encodings.py": (
        ("MOST_MEMBERS = 256", "MOST_MEMBERS = 1 << 30"),
        ("piece = view[at : at + step]", "piece = memoryview(bytes(view[at:]))[: step if not self.grows else None]"),
    ),
    "policies/refusal/challenges.py": (('_ENDLESS_REFERENCE.sub("\\ufffd", " ".join(words))', '" ".join(words)'),),
    "policies/answer/answer_text.py": (
        ("calls = self._calls[heading]", "calls = sum(1 for name in self._tools.values() if name.startswith(heading)) + 1"),
    ),
}
"""The mends, taken away."""
NOTICED = (
    "a stream that has answered: a page with blank lines",
    "a body of events: a comment line without end, in single bytes",
    "a stream after its time: comment lines, in single bytes",
    "a request in gzip: members of nothing",
    "a request in zstd: members of nothing",
    "an answer in gzip: members of nothing",
    *(() if encodings._ZSTD_BOUNDS else ("a request in zstd: noise",)),
)


@cache
def unmended() -> Metered:
    return loaded(WITHOUT)


@pytest.mark.parametrize("name", NOTICED)
def test_without_its_mend_the_growth_is_seen(name: str) -> None:
    assert growth(unmended(), CASES[name]) > AT_MOST


@pytest.mark.parametrize(
    ("name", "times"),
    [
        ("an answer as text: tools", 32),
        ("a stream that has answered: a comment line without end, in single bytes", 3),
        ("a stream that has answered: a page with blank lines, in single bytes", 3),
    ],
)
def test_without_its_mend_the_growth_is_seen_in_longer_ones(name: str, times: int) -> None:
    assert growth(product(), CASES[name], times) <= AT_MOST
    assert growth(unmended(), CASES[name], times) > AT_MOST


def test_without_its_mend_the_exception_is_seen() -> None:
    with pytest.raises(ValueError, match="digits"):
        growth(unmended(), CASES["a page: a character of digits"], 3)
