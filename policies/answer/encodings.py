"""Content codings, decoded piece by piece for reading only, with a bound on what comes out."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from importlib import import_module
from typing import Any, Protocol

ANSWER_LIMIT = 1 << 20
"""Decoded bytes of an answer that are looked at."""
REQUEST_LIMIT = 32 << 20
"""Decoded bytes of a request that are looked at; a larger one is a main request and passes."""

MOST_CODINGS = 4
"""A body that was encoded more often than this is not read: each layer costs memory, and a header can name a thousand."""
_SLICE = 64
"""Bytes fed at a time to a decoder that cannot bound its output."""
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


class Stage(Protocol):
    """One coding. ``decode`` gives at most about ``room`` bytes; after as many as that it is not asked again."""

    def decode(self, data: bytes, room: int) -> bytes: ...


class _Gzip:
    """One or more gzip members; zero padding or anything else after the last is ignored."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(31)
        self._done = False

    def decode(self, data: bytes, room: int) -> bytes:
        out = bytearray()
        while data and not self._done and len(out) < room:
            if self._member.eof:
                if not data.startswith(b"\x1f"):
                    self._done = True
                    break
                self._member = zlib.decompressobj(31)
            out += self._member.decompress(data, room - len(out))
            data = self._member.unused_data if self._member.eof else b""
        return bytes(out)


class _Deflate:
    """``deflate`` as RFC 9110 means it (zlib) and as some servers send it (raw)."""

    def __init__(self) -> None:
        self._first = b""
        self._stream: Any = None

    def decode(self, data: bytes, room: int) -> bytes:
        if self._stream is None:
            data = self._first + data
            if len(data) < 2:
                self._first = data
                return b""
            wrapped = data[0] & 0x0F == 8 and (data[0] << 8 | data[1]) % 31 == 0
            self._stream = zlib.decompressobj(15 if wrapped else -15)
        return b"" if self._stream.eof else bytes(self._stream.decompress(data, room))


class _Brotli:
    """Brotli before 1.2 has no output bound: small slices then keep a bomb to one meta-block (16 MiB) over it."""

    def __init__(self) -> None:
        self._stream: Any = brotli.Decompressor()

    def decode(self, data: bytes, room: int) -> bytes:
        return self._bounded(data, room) if _BROTLI_BOUNDS else _sliced(self._stream.process, data, room)

    def _bounded(self, data: bytes, room: int) -> bytes:
        out = bytearray(self._stream.process(data, output_buffer_limit=room))
        while len(out) < room and not self._stream.can_accept_more_data():
            more = self._stream.process(b"", output_buffer_limit=room - len(out))
            if not more:
                break
            out += more
        return bytes(out)


class _Zstd:
    """One or more zstd frames. zstandard has no output bound: a slice there yields at most 2 MiB."""

    def __init__(self) -> None:
        self._frame = self._new()

    @staticmethod
    def _new() -> Any:
        if _ZSTD_BOUNDS:
            return _ZSTD.ZstdDecompressor(options={_ZSTD.DecompressionParameter.window_log_max: _WINDOW_LOG})
        return _ZSTD.ZstdDecompressor(max_window_size=1 << _WINDOW_LOG).decompressobj()

    def decode(self, data: bytes, room: int) -> bytes:
        out = bytearray()
        while data and len(out) < room:
            if self._frame.eof:
                self._frame = self._new()
            if _ZSTD_BOUNDS:
                out += self._frame.decompress(data, max_length=room - len(out))
                data = self._frame.unused_data if self._frame.eof else b""
            else:
                piece, data = data[:_SLICE], data[_SLICE:]
                out += self._frame.decompress(piece)
                if self._frame.eof:
                    data = self._frame.unused_data + data
        return bytes(out)


def _sliced(process: Callable[[bytes], bytes], data: bytes, room: int) -> bytes:
    out = bytearray()
    for start in range(0, len(data), _SLICE):
        out += process(data[start : start + _SLICE])
        if len(out) >= room:
            break
    return bytes(out)


STAGES: dict[str, Callable[[], Stage]] = {
    "gzip": _Gzip,
    "x-gzip": _Gzip,
    "deflate": _Deflate,
    "br": _Brotli,
    "zstd": _Zstd,
}


class Decoder:
    """Decodes what it is fed, at most ``limit`` bytes in all, or since the last ``renew``.

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
        for stage in self._stages:
            try:
                data = stage.decode(data, self._room + 1)
            except _BROKEN:
                self.broken = True
                return b""
            if len(data) > self._room:
                self.limit_reached = True
                data = data[: self._room]
        if len(data) > self._room:  # no stage at all: identity
            self.limit_reached = True
            data = data[: self._room]
        self._room -= len(data)
        return data

    def renew(self) -> None:
        """Counts the limit anew: the tap bounds each chunk, not the stream."""
        self._room = self._limit


def decoder(content_encoding: str, limit: int = ANSWER_LIMIT) -> Decoder | None:
    """A decoder for the header's value, the coding applied last undone first; None where one of them is unknown."""
    if not content_encoding:
        return Decoder((), limit)
    names = [name.strip().lower() for name in content_encoding.split(",")]
    names = [name for name in names if name and name != "identity"]
    if len(names) > MOST_CODINGS or any(name not in STAGES for name in names):
        return None
    return Decoder(tuple(STAGES[name]() for name in reversed(names)), limit)


def decode(body: bytes, content_encoding: str, limit: int = REQUEST_LIMIT) -> bytes | None:
    """A whole body; None where its coding is unknown or broken, or it is longer than ``limit`` bytes."""
    own = decoder(content_encoding, limit)
    if own is None:
        return None
    out = own.feed(body)
    return None if own.broken or own.limit_reached else out
