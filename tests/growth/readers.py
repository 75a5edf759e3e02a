"""Every reader of outside bytes, as a function over the pieces in which they come."""

from __future__ import annotations

import contextlib
import gzip
import tempfile
import zlib
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from tests.growth.counting import Metered
from tests.growth.shapes import HELLO
from tests.policies.answer.test_encodings import compress_brotli, zstd

Pieces = Sequence[bytes]
Reading = Callable[[Metered, Pieces], object]

MODULES = (
    "policies.answer.reader",
    "policies.answer.answer_text",
    "policies.answer.encodings",
    "policies.refusal.recogniser",
    "policies.request.reading",
    "policies.request.tokens",
    "policies.request.surfaces",
    "policies.research.evidence",
    "policies.settings_file",
    "operations.state_file",
)
SSE = (("content-type", "text/event-stream"),)
JSON = (("content-type", "application/json"),)
HTML = (("content-type", "text/html"),)


def _reader(product: Metered, headers: tuple[tuple[str, str], ...], wire: str = "OPENAI") -> Any:
    kinds = product["policies.kinds"]
    surface = product["policies.calls"].Surface("zai", kinds.Family.ZAI, getattr(kinds.Wire, wire), kinds.Role.GENERATION)
    head = product["policies.kinds"].Head(200, headers)
    return product["policies.answer.reader"].Reader(surface, head, product["policies.refusal.recogniser"].Recogniser())


def _read(own: Any, pieces: Pieces) -> None:
    """Held to its finding or its end, then committed as it came."""
    if not any(own.feed(piece) is not None for piece in pieces):
        own.finish(cut=False)
    _tap(own, pieces)


def _tap(own: Any, pieces: Pieces) -> None:
    for piece in pieces:
        own.tap(piece)
    own.tap_finish()


def held(headers: tuple[tuple[str, str], ...]) -> Reading:
    return lambda product, pieces: _read(_reader(product, headers), pieces)


def capped(product: Metered, pieces: Pieces) -> None:
    own = _reader(product, SSE)
    own.cap()
    _tap(own, pieces)


def committed(product: Metered, pieces: Pieces) -> None:
    own = _reader(product, SSE)
    own.feed(HELLO)
    own.tap(HELLO)
    _tap(own, pieces)


def lines(product: Metered, pieces: Pieces) -> None:
    line = b'{"choices":[{}]}\n'
    own = _reader(product, JSON)
    own.feed(line)
    own.tap(line)
    _tap(own, pieces)


def encoded(coding: str) -> Reading:
    return lambda product, pieces: _read(_reader(product, (*SSE, ("content-encoding", coding))), pieces)


def decoded(coding: str) -> Reading:
    """A request's body, which comes whole."""
    return lambda product, pieces: product["policies.answer.encodings"].decode(b"".join(pieces), coding)


def head(product: Metered, pieces: Pieces) -> None:
    value = b"".join(pieces).decode("latin-1")
    heads, hints = product["policies.kinds"], product["policies.refusal.retry_hints"]
    for name in ("retry-after", "retry-after-ms", "date"):
        own = heads.Head(429, ((name, value), ("retry-after", "Wed, 21 Oct 2026 07:28:00 GMT")))
        hints.wait_of(own, ({"retry_after": value, "num": value},), value)
        hints.kept_as_it_is(own)


def request(wire: str) -> Reading:
    def read(product: Metered, pieces: Pieces) -> None:
        kinds, body = product["policies.kinds"], b"".join(pieces)
        surface = product["policies.calls"].Surface("zai", kinds.Family.ZAI, getattr(kinds.Wire, wire), kinds.Role.GENERATION)
        call = product["policies.request.reading"].read(
            surface, "POST", "/", lambda _: "", "", body, size=len(body), account="a", hashed=lambda text: text
        )
        evidence = product["policies.research.evidence"]
        notes = evidence.Evidence()
        history = call.history
        for _ in range(2):
            facts = evidence.Facts(
                wall=1.0,
                upstream="zai",
                wire="openai",
                model=call.model,
                session=call.session,
                account="a",
                size=len(body),
                digest=call.digest,
                prefix=history.prefix,
                roles=history.roles,
                markers=product["policies.request.body"].markers(body),
                token=call.one_time_token,
            )
            msgspec.json.encode(notes.note(facts, product["policies.kinds"].ANSWER))
        weights = product["policies.settings"].EstimateWeights()
        product["policies.request.tokens"].estimate(body, surface.wire, weights)

    return read


def config(product: Metered, pieces: Pieces) -> None:
    settings = product["policies.settings_file"]
    with contextlib.suppress(settings.SettingsError):
        settings.parse(b"".join(pieces).decode(), "config.yaml", {}, product["policies.request.surfaces"].BUILT_IN)


def state(product: Metered, pieces: Pieces) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "state.json"
        file.write_bytes(b"".join(pieces))
        product["operations.state_file"].load(file)


def text(wire: str) -> Reading:
    return lambda product, pieces: product["policies.answer.answer_text"].assemble(wire, b"".join(pieces))


def _empty_members(pack: Callable[[bytes], bytes], held_in_each: bytes = b"") -> Callable[[int], bytes]:
    member = pack(held_in_each)
    return lambda size: member * max(1, size // len(member))


def _noise(pack: Callable[[bytes], bytes]) -> Callable[[int], bytes]:
    """So many bytes that no coding makes shorter."""
    digest = import_module("hashlib").shake_128(b"growth")
    return lambda size: pack(digest.digest(size))


ENCODED: dict[str, dict[str, Callable[[int], bytes]]] = {
    coding: {
        "members of nothing": _empty_members(pack),
        "members of a byte": _empty_members(pack, b"\n"),
        "members of an answer": _empty_members(pack, HELLO),
        "noise": _noise(pack),
        "zeros behind a member": lambda size, pack=pack: pack(HELLO) + b"\0" * size,  # type: ignore[misc]
        "answers": lambda size, pack=pack: pack(HELLO * (size // len(HELLO) + 1)),  # type: ignore[misc]
        "zeros": lambda size, pack=pack: pack(b"\0" * size * 50),  # type: ignore[misc]
    }
    for coding, pack in (
        ("gzip", gzip.compress),
        ("deflate", zlib.compress),
        ("br", compress_brotli),
        ("zstd", zstd),
        ("gzip, gzip", lambda data: gzip.compress(gzip.compress(data))),
        ("zstd, br", lambda data: compress_brotli(zstd(data))),
    )
}
