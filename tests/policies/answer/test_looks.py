"""A flood of short frames is judged a bounded number of times, and what follows it is still told and noted."""

from __future__ import annotations

from typing import Any

import pytest

from policies.answer.reader import Reader
from policies.kinds import Family, Finding, Head, Kind
from policies.refusal.recogniser import Recogniser
from tests.policies.refusal.replies import surface

SSE = Head(200, (("content-type", "text/event-stream"),))
JSON = Head(200, (("content-type", "application/json"),))
HELLO = b'data: {"choices":[{"index":0,"delta":{"content":"hi"}}]}\n\n'
REFUSAL = b'data: {"error":{"code":"1305","message":"overloaded"}}\n\n'
PING = b'event: ping\ndata: {"type":"ping"}\n\n'
FLOODS: dict[str, tuple[Head, bytes]] = {
    "line feeds": (SSE, b"\n"),
    "returns": (SSE, b"\r"),
    "comments": (SSE, b":\n\n"),
    "empty data": (SSE, b"data:\n\n"),
    "objects of nothing": (SSE, b"data:{}\n\n"),
    "ids": (SSE, b"id:1\n\n"),
    "pings": (SSE, PING),
    "suspicious frames": (SSE, b'data:{"ret":1}\n\n'),
    "lines of nothing": (JSON, b"{}\n"),
    "lines that are no answer": (JSON, b'{"a":1}\n'),
}
LENGTH, BLANK = 100_000, 270_000
"""Bytes of a flood: more than what is held of it before it passes; of blank lines more is held."""


class Counting(Recogniser):
    def __init__(self) -> None:
        super().__init__()
        self.looks = 0

    def frame(self, *given: Any) -> Finding | None:
        self.looks += 1
        return super().frame(*given)

    def document(self, *given: Any, **named: Any) -> Finding:
        self.looks += 1
        return super().document(*given, **named)


def passed(own: Reader, chunks: list[bytes]) -> tuple[bytes, list[Finding]]:
    """An answer as the proxy reads it: held until it is decided, then tapped."""
    out, found = bytearray(), list[Finding]()
    for number, chunk in enumerate(chunks):
        late = own.decided is not None
        if not late and own.feed(chunk) is None:
            continue
        for each in [chunk] if late else chunks[: number + 1]:
            tapped = own.tap(each)
            out += b"".join(tapped.passed)
            found += [tapped.finding] if tapped.finding else []
    return bytes(out), found


@pytest.mark.parametrize("answered", [True, False])
@pytest.mark.parametrize("name", FLOODS)
def test_it_is_judged_a_bounded_number_of_times_and_passes(name: str, *, answered: bool) -> None:
    """In small chunks and in large ones, which take turns."""
    size = (50, 65536)[(list(FLOODS).index(name) + answered) % 2]
    head, unit = FLOODS[name]
    body = unit * ((BLANK if unit.isspace() else LENGTH) // len(unit))
    lead = [HELLO] if answered and head is SSE else []
    chunks = [*lead, *(body[at : at + size] for at in range(0, len(body), size))]
    counting = Counting()
    out, found = passed(Reader(surface(Family.ZAI), head, counting), chunks)
    assert (out, found) == (b"".join(chunks), [])
    assert counting.looks <= len(body) // 40


@pytest.mark.parametrize("count", [1, 300])
def test_a_refusal_behind_pings_is_told(count: int) -> None:
    own = Reader(surface(Family.ZAI), SSE, Recogniser())
    finding = own.feed(PING * count + REFUSAL)
    assert finding is not None
    assert finding.kind is Kind.OVERLOAD


def test_an_answer_behind_a_flood_is_noted_once_bytes_have_come() -> None:
    own = Reader(surface(Family.ZAI), SSE, Recogniser())
    passed(own, [b"\n" * 65536] * 5)
    assert not own.answered
    passed(own, [HELLO] * 5)
    assert own.answered


def test_a_refusal_in_a_long_answer_of_suspicious_frames_is_told() -> None:
    suspicious = HELLO.replace(b"hi", b"a page begins with <html> and <head>, and its words are in the body of it")
    own = Reader(surface(Family.ZAI), SSE, Recogniser())
    out, found = passed(own, [suspicious] * 1_000 + [REFUSAL])
    assert out == suspicious * 1_000
    assert [finding.kind for finding in found] == [Kind.OVERLOAD]
