"""The corpus again in every spelling of the wire: one answer gets one decision, whatever carries it."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

import pytest

from policies.answer.encodings import decoder
from policies.decisions import Commit, Decision, End, Replace
from policies.exchange import Exchange
from policies.judge import Judge
from policies.kinds import Head, Kind, Role
from policies.request import reading
from tests.policies.answer.test_encodings import compress_brotli, zstd
from tests.policies.exchanges import Controller
from tests.policies.refusal.replies import Reply, corpus
from tests.rows import over

SIZES = (1, 7, 1000)
FINE_BYTES = 1200
"""Chunks of 1 and 7 bytes up to here, of 1000 behind it: what decides stands at the front."""
DECODED = 1 << 20


@dataclass(frozen=True)
class Carried:
    """One answer as it goes over the wire."""

    head: Head
    body: bytes
    cut: bool


def plain(reply: Reply) -> Carried:
    """The answer without its content coding."""
    fields = tuple((k, v) for k, v in reply.head.headers if k.lower() not in ("content-encoding", "content-length"))
    decoding = decoder(reply.head.get("content-encoding"))
    assert decoding is not None
    return Carried(Head(reply.head.status, fields), decoding.feed(reply.body), reply.cut)


def packed_gzip(data: bytes, *, cut: bool) -> bytes:
    if not cut:
        return gzip.compress(data)
    packer = zlib.compressobj(wbits=31)
    return packer.compress(data) + packer.flush(zlib.Z_SYNC_FLUSH)


def packed_brotli(data: bytes, *, cut: bool) -> bytes:
    if not cut:
        return compress_brotli(data)
    packer: Any = import_module("brotli").Compressor()
    return bytes(packer.process(data) + packer.flush())


def packed_zstd(data: bytes, *, cut: bool) -> bytes:
    whole = bytes(zstd(data))
    return whole[:-1] if cut and len(data) < DECODED else whole


CODINGS: dict[str, Callable[..., bytes]] = {"gzip": packed_gzip, "br": packed_brotli, "zstd": packed_zstd}


def encoded(name: str) -> Callable[[Carried], Carried]:
    def mutate(carried: Carried) -> Carried:
        head = Head(carried.head.status, (*carried.head.headers, ("Content-Encoding", name)))
        return Carried(head, CODINGS[name](carried.body, cut=carried.cut), carried.cut)

    return mutate


def spelled(change: Callable[[bytes], bytes]) -> Callable[[Carried], Carried]:
    return lambda carried: Carried(carried.head, change(carried.body), carried.cut)


MUTATIONS: dict[str, Callable[[Carried], Carried]] = {
    "as it came": lambda carried: carried,
    "crlf": spelled(lambda body: body.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")),
    "bom": spelled(lambda body: b"\xef\xbb\xbf" + body),
    "comment": spelled(lambda body: b": keep-alive\n\n" + body),
    **{name: encoded(name) for name in CODINGS},
}


def applies(reply: Reply, mutation: str) -> bool:
    if not reply.body:
        return mutation == "as it came"
    if mutation == "comment":
        return "event-stream" in reply.head.media_type
    return not (mutation == "zstd" and reply.cut)  # a cut zstd block decodes to nothing: another answer


def pieces(body: bytes, size: int) -> Iterator[bytes]:
    at = 0
    while at < len(body):
        step = size if at < FINE_BYTES else max(size, 1000)
        yield body[at : at + step]
        at += step


@dataclass(frozen=True)
class Outcome:
    """What the client gets and what is written down, but for ids and the bytes' spelling."""

    decision: str
    status: int | None
    headers: tuple[tuple[str, str | None], ...]
    found: tuple[Kind, str, float | None, int | None]
    tapped: tuple[Kind, str] | None
    state: str
    """Of the breaker, with one strike allowed."""


def sized(reply: Reply, carried: Carried) -> Head:
    """The head, off the generation paths with a length: without one only a first chunk is looked at there."""
    if reply.surface.role is Role.GENERATION:
        return carried.head
    return Head(carried.head.status, (*carried.head.headers, ("Content-Length", str(len(carried.body)))))


def outcome(reply: Reply, carried: Carried, size: int) -> Outcome:
    controller = Controller("breaker: {strikes: 1}")
    ex = exchange(controller, reply)
    controller.rules.admit(ex, controller.now, controller.wall)
    judge = Judge(ex, sized(reply, carried), controller.now)
    decision: Decision | None = None
    held: list[bytes] = []
    ends: list[End] = []
    for chunk in pieces(carried.body, size):
        if decision is None:
            held.append(chunk)
            decision = judge.feed(chunk, controller.now, controller.wall)
            ends += passed(controller, judge, held if isinstance(decision, Commit) else [])
        elif isinstance(decision, Commit):
            ends += passed(controller, judge, [chunk])
    if decision is None:
        decision = judge.finish(cut=carried.cut, now=controller.now, wall=controller.wall)
        ends += passed(controller, judge, held if isinstance(decision, Commit) else [])
    if isinstance(decision, Commit) and not carried.cut:
        ends += passed(controller, judge, [b""])
    controller.settle(ex)
    return told(controller, ex, decision, ends)


def exchange(controller: Controller, reply: Reply) -> Exchange:
    asked = b'{"model":"m","max_tokens":32000,"stream":true,"tools":[{"name":"t"}],"messages":[]}'
    call = reading.read(
        reply.surface,
        "POST",
        "/",
        lambda _: "",
        "",
        asked,
        size=len(asked),
        account="a",
        hashed=lambda text: text,
    )
    return Exchange(controller.state, "flow", call, controller.now, "site.test")


def passed(controller: Controller, judge: Judge, chunks: list[bytes]) -> list[End]:
    """What ends a committed answer in one of its chunks; the empty one is its end."""
    return [end for chunk in chunks if (end := judge.tap(chunk, controller.now, controller.wall)[1])]


def told(controller: Controller, ex: Exchange, decision: Decision, ends: list[End]) -> Outcome:
    assert decision.finding
    status, headers = None, tuple[tuple[str, str | None], ...]()
    if isinstance(decision, Replace):
        status, headers = decision.answer.status, tuple(decision.answer.headers)
    elif isinstance(decision, Commit):
        headers = decision.headers
    finding, last = decision.finding, ends[-1].finding if ends else None
    found = (finding.kind, finding.row, finding.wait, finding.window)
    tapped = (last.kind, last.row) if last else None
    state = controller.state.breaker(ex.call).state(controller.now).state.value
    return Outcome(type(decision).__name__, status, headers, found, tapped, state)


@over("mutation", MUTATIONS)
@pytest.mark.parametrize("reply", corpus(), ids=[reply.id for reply in corpus()])
def test_the_same_answer_gets_the_same_decision(reply: Reply, mutation: str) -> None:
    """An answer as it came in every size of chunks; in the other spellings the sizes take turns."""
    if not applies(reply, mutation):
        return
    carried = MUTATIONS[mutation](plain(reply))
    turn = corpus().index(reply) + list(MUTATIONS).index(mutation)
    for size in SIZES if mutation == "as it came" else (SIZES[turn % len(SIZES)],):
        assert outcome(reply, carried, size) == in_one_piece(reply.id), size


@cache
def in_one_piece(name: str) -> Outcome:
    reply = next(reply for reply in corpus() if reply.id == name)
    return outcome(reply, plain(reply), DECODED)
