"""Content codings, decoded piece by piece for reading only, with a bound on what comes out."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from importlib import import_module
from typing import Any

ANSWER_LIMIT = 1 << 20
"""Decoded bytes of an answer that are looked at."""
REQUEST_LIMIT = 32 << 20
"""Decoded bytes of a request that are looked at; a larger one is a main request and passes."""

MOST_CODINGS = 4
"""A body that was encoded more often than this is not read: each layer costs memory, and a header can name a thousand."""
MOST_MEMBERS = 256
MEMBER_BYTES = 64
"""Members of one body that may hold nothing, and decoded bytes for which one more is read: what has more is broken."""
EXPANSION = 256
"""Decoded bytes of a stream that are looked at for each byte that came, beyond the limit itself."""
_SLICE = 64
"""Bytes fed at first, and at a time to a decoder that cannot bound its output."""
_WINDOW_LOG = 23
"""zstd on the web needs no window above 8 MiB (RFC 9659)."""


def _load_zstd() -> tuple[Any, bool]:
    """The zstd that mitmproxy brought, and whether it bounds its output (12.x) or not (11.x)."""
    for name in ("compression.zstd", "backports.zstd"):
        try:
            return import_module(name), True
        except ImportError:
            continue
    return import_module("zstandard"), False


_ZSTD, _ZSTD_BOUNDS = _load_zstd()
brotli: Any = import_module("brotli")
_BROTLI_BOUNDS = hasattr(brotli.Decompressor, "can_accept_more_data")
_BROKEN = (zlib.error, brotli.error, _ZSTD.ZstdError, EOFError, ValueError)


Stage = Callable[[bytes, int], bytes]
"""One coding: gives at most about so many bytes of what it is fed; after as many as that it is not asked again."""


class _Members:
    """A body of one or more members in a row.

    They are counted, since a new one costs more than its bytes; and each is fed in pieces that grow, so that what lies
    behind a short one is not copied once for each.
    """

    def __init__(self, new: Callable[[], Any], begins: bytes = b"", *, grows: bool = True) -> None:
        """``begins``: how a member begins, whereas padding ends the body. ``grows``: False where ``new`` bounds no output."""
        self.new, self.begins, self.grows = new, begins, grows
        self._member = new()
        self._members = 1
        self._given = 0
        self._done = False

    def decode(self, data: bytes, room: int) -> bytes:
        out = bytearray()
        view, at, step = memoryview(data), 0, _SLICE
        while at < len(view) and not self._done and len(out) < room:
            if self._member.eof and not self._next(view[at : at + 1]):
                break
            piece = view[at : at + step]
            bound = (room - len(out),) if self.grows else ()
            decoded = self._member.decompress(piece, *bound)
            out += decoded
            self._given += len(decoded)
            at += len(piece)
            if self._member.eof:
                at, step = at - len(self._member.unused_data), _SLICE
            elif self.grows:
                step *= 2
        return bytes(out)

    def _next(self, first: memoryview) -> bool:
        if self.begins and first != self.begins:
            self._done = True
            return False
        self._members += 1
        if self._members > MOST_MEMBERS + self._given // MEMBER_BYTES:
            raise ValueError("members of nothing")
        self._member = self.new()
        return True


def _gzip() -> Stage:
    """One or more gzip members; zero padding or anything else after the last is ignored."""
    return _Members(lambda: zlib.decompressobj(31), b"\x1f").decode


def _zstd() -> Stage:
    """One or more zstd frames. zstandard has no output bound: a slice there yields at most 2 MiB."""
    if not _ZSTD_BOUNDS:
        return _Members(_ZSTD.ZstdDecompressor(max_window_size=1 << _WINDOW_LOG).decompressobj, grows=False).decode
    options = {_ZSTD.DecompressionParameter.window_log_max: _WINDOW_LOG}
    return _Members(lambda: _ZSTD.ZstdDecompressor(options=options)).decode


def _deflate() -> Stage:
    """``deflate`` as RFC 9110 means it (zlib) and as some servers send it (raw), which the first two bytes tell."""
    first, stream = b"", None

    def decode(data: bytes, room: int) -> bytes:
        nonlocal first, stream
        if stream is None:
            data = first = first + data
            if len(first) < 2:
                return b""
            wrapped = first[0] & 0x0F == 8 and (first[0] << 8 | first[1]) % 31 == 0
            stream = zlib.decompressobj(15 if wrapped else -15)
        return b"" if stream.eof else stream.decompress(data, room)

    return decode


def _brotli() -> Stage:
    """Brotli before 1.2 has no output bound: small slices then keep a bomb to one meta-block (16 MiB) over it."""
    stream: Any = brotli.Decompressor()

    def bounded(data: bytes, room: int) -> bytes:
        out = bytearray(stream.process(data, output_buffer_limit=room))
        while len(out) < room and not stream.can_accept_more_data():
            more = stream.process(b"", output_buffer_limit=room - len(out))
            if not more:
                break
            out += more
        return bytes(out)

    def sliced(data: bytes, room: int) -> bytes:
        out = bytearray()
        for start in range(0, len(data), _SLICE):
            out += stream.process(data[start : start + _SLICE])
            if len(out) >= room:
                break
        return bytes(out)

    return bounded if _BROTLI_BOUNDS else sliced


def _identity(data: bytes, room: int) -> bytes:
    return data[:room]


STAGES: dict[str, Callable[[], Stage]] = {"gzip": _gzip, "x-gzip": _gzip, "deflate": _deflate, "br": _brotli, "zstd": _zstd}


class Decoder:
    """Decodes what it is fed, at most ``limit`` bytes in all, and more with each ``renew``.

    A broken body sets ``broken``, a long one ``limit_reached``; nothing comes after either. Never raises.
    """

    def __init__(self, stages: tuple[Stage, ...], limit: int = ANSWER_LIMIT) -> None:
        self._stages = stages
        self._limit = limit
        self._room = limit
        self.broken = False
        self.limit_reached = False

    def feed(self, chunk: bytes) -> bytes:
        if self.broken or self.limit_reached or not chunk:
            return b""
        data = chunk
        try:
            for stage in self._stages:
                data = stage(data, self._room + 1)
                self.limit_reached = self.limit_reached or len(data) > self._room
                data = data[: self._room]
        except _BROKEN:
            self.broken = True
            return b""
        self._room -= len(data)
        return data

    def renew(self, came: int) -> None:
        """Makes room for what so many bytes may hold: the tap bounds what comes out by what came in, not the stream."""
        self._room = min(self._limit, self._room + EXPANSION * came)


def decoder(content_encoding: str, limit: int = ANSWER_LIMIT) -> Decoder | None:
    """A decoder for the header's value, the coding applied last undone first; None where one of them is unknown."""
    if not content_encoding:
        return Decoder((_identity,), limit)
    names = [name for part in content_encoding.split(",") if (name := part.strip().lower()) not in {"", "identity"}]
    if len(names) > MOST_CODINGS or not STAGES.keys() >= set(names):
        return None
    return Decoder(tuple(STAGES[name]() for name in reversed(names)) or (_identity,), limit)


def decode(body: bytes, content_encoding: str, limit: int = REQUEST_LIMIT) -> bytes | None:
    """A whole body; None where its coding is unknown or broken, or it is longer than ``limit`` bytes."""
    own = decoder(content_encoding, limit)
    if own is None:
        return None
    out = own.feed(body)
    return None if own.broken or own.limit_reached else out
