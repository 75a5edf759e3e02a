import gzip
import importlib
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.answer.encodings import MEMBER_BYTES, MOST_MEMBERS, Decoder, decode
from policies.answer.encodings import decoder as decoder_or_none
from tests.rows import over

TEXT = ('data: {"choices":[{"delta":{"content":"哎哟喂"}}]}\n\n' * 50).encode()


def zstd(data: bytes) -> Any:
    for name in ("compression.zstd", "backports.zstd"):
        try:
            return importlib.import_module(name).compress(data)
        except ImportError:
            continue
    return importlib.import_module("zstandard").ZstdCompressor().compress(data)


def raw_deflate(data: bytes) -> Any:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


def compress_brotli(data: bytes) -> bytes:
    return bytes(importlib.import_module("brotli").compress(data))


def decoder(name: str, limit: int = 1 << 20) -> Decoder:
    own = decoder_or_none(name, limit)
    assert own is not None
    return own


CODINGS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "Deflate ": raw_deflate,
    "br": compress_brotli,
    "zstd": zstd,
    "gzip, br": lambda data: compress_brotli(gzip.compress(data)),
    "br, gzip": lambda data: gzip.compress(compress_brotli(data)),
    "zstd, deflate": lambda data: zlib.compress(zstd(data)),
    "identity": lambda data: data,
    "": lambda data: data,
}


@over("name", CODINGS)
@over("size", [1, 13, 100_000])
def test_a_body_is_decoded_whatever_the_chunking(name: str, size: int) -> None:
    packed = CODINGS[name](TEXT)
    own = decoder(name)
    assert b"".join(own.feed(packed[at : at + size]) for at in range(0, len(packed), size)) == TEXT
    assert not own.broken
    assert not own.limit_reached


@over("name", CODINGS)
def test_a_whole_body_is_decoded(name: str) -> None:
    assert decode(CODINGS[name](TEXT), name) == TEXT


@pytest.mark.parametrize(("name", "pack"), [("gzip", gzip.compress), ("zstd", zstd)])
def test_members_and_frames_in_a_row_are_one_body(name: str, pack: Any) -> None:
    assert decode(pack(b"one ") + pack(b"two"), name) == b"one two"


def test_padding_after_a_gzip_member_is_ignored() -> None:
    assert decode(gzip.compress(b"one") + b"\0" * 8, "gzip") == b"one"


def test_what_is_decoded_before_a_flush_comes_at_once() -> None:
    packer = zlib.compressobj(wbits=31)
    own = decoder("gzip")
    assert own.feed(packer.compress(b"frame one") + packer.flush(zlib.Z_SYNC_FLUSH)) == b"frame one"
    assert own.feed(packer.compress(b"frame two") + packer.flush(zlib.Z_SYNC_FLUSH)) == b"frame two"


@pytest.mark.parametrize("name", ["compress", "gzip, snappy", "aws-chunked"])
def test_an_unknown_coding_has_no_decoder(name: str) -> None:
    assert decoder_or_none(name) is None
    assert decode(b"x", name) is None


BOMB = b"\0" * (16 << 20)
BOMBS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda data: gzip.compress(data, 1),
    "deflate": lambda data: zlib.compress(data, 1),
    "br": lambda data: bytes(importlib.import_module("brotli").compress(data, quality=1)),
    "zstd": zstd,
    "gzip, gzip": lambda data: gzip.compress(gzip.compress(data, 1), 1),
}


@over("name", BOMBS)
def test_a_bomb_gives_its_bound_and_then_nothing(name: str) -> None:
    packed = BOMBS[name](BOMB)
    own = decoder(name, limit=10_000)
    assert own.feed(packed) == BOMB[:10_000]
    assert own.limit_reached
    assert not own.broken
    assert own.feed(packed) == b""
    assert decode(packed, name, 10_000) is None


@over("name", ["gzip", "br", "zstd", "", "deflate"])
def test_a_body_of_exactly_the_bound_is_whole(name: str) -> None:
    assert decode(CODINGS[name](TEXT), name, len(TEXT)) == TEXT
    assert decode(CODINGS[name](TEXT), name, len(TEXT) - 1) is None


@pytest.mark.parametrize("name", ["gzip", "br", "zstd"])
def test_the_bound_can_be_counted_anew_for_every_chunk(name: str) -> None:
    own = decoder(name, limit=len(TEXT))
    packed = CODINGS[name](TEXT * 10)
    out = b""
    for at in range(0, len(packed), 5):
        own.renew(5)
        out += own.feed(packed[at : at + 5])
    if not own.limit_reached:  # brotli may give it all at its last byte
        assert out == TEXT * 10


@given(st.sampled_from(["gzip", "deflate", "br", "zstd"]), st.binary(max_size=60), st.integers(0, 100))
def test_a_broken_body_never_raises_and_stays_broken(name: str, noise: bytes, keep: int) -> None:
    own = decoder(name)
    own.feed(CODINGS[name](TEXT)[:keep] + noise)
    own.feed(noise)
    if own.broken:
        assert own.feed(CODINGS[name](TEXT)) == b""


@over("name", ["gzip", "deflate", "br", "zstd"])
def test_plain_text_under_a_coding_is_broken(name: str) -> None:
    own = decoder(name)
    assert own.feed(b'{"ret":["FAIL_SYS_USER_VALIDATE"]} and some more bytes of it') == b""
    assert own.broken


def test_a_header_that_names_codings_without_end_is_not_followed() -> None:
    assert decoder_or_none("gzip, br, gzip, zstd") is not None
    assert decoder_or_none(", ".join(["gzip"] * 1000)) is None


@over(("name", "pack"), [("gzip", gzip.compress), ("zstd", zstd)])
@over("size", [1, 50, 1 << 20])
def test_members_without_end_that_hold_nothing_are_given_up(name: str, pack: Any, size: int) -> None:
    own = decoder(name)
    body = pack(b"") * (MOST_MEMBERS + 1)
    assert b"".join(own.feed(body[at : at + size]) for at in range(0, len(body), size)) == b""
    assert own.broken


@over(("name", "pack"), [("gzip", gzip.compress), ("zstd", zstd)])
@over("size", [50, 1 << 20])
def test_any_number_of_members_that_hold_a_frame_each_is_read(name: str, pack: Any, size: int) -> None:
    own = decoder(name, 1 << 22)
    frame = TEXT[:MEMBER_BYTES]
    body = pack(frame) * (4 * MOST_MEMBERS)
    read = b"".join(own.feed(body[at : at + size]) for at in range(0, len(body), size))
    assert read == frame * (4 * MOST_MEMBERS)


def test_what_a_stream_may_decode_to_is_bounded_by_what_came_of_it() -> None:
    own = decoder("zstd", 1 << 20)
    packed = zstd(b"\0" * (8 << 20))
    for at in range(0, len(packed), 8):
        own.renew(8)
        own.feed(packed[at : at + 8])
    assert own.limit_reached
