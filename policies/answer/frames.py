"""Server-sent events: bytes in, frames out, whatever the chunking."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

BOM = b"\xef\xbb\xbf"
TAIL_LIMIT = 1 << 20
"""Bytes of one unfinished frame that are kept at most."""
FIRST_LOOKS = 512
"""Frames of an answer that are judged however short they are."""
LOOK_BYTES = 128
"""Bytes of an answer for which one more is judged. Frames that say something are longer."""

# A line end followed by a line end. A CR that ends the buffer may be half of a CRLF, so it waits for the next byte.
_BLANK_LINE = re.compile(rb"(?:\r\n|\n|\r(?!\n))(?:\r\n|\n|\r(?=[^\n]))")
_LOOK_BACK = 3
"""A boundary is at most four bytes long."""
_SPEAKS = re.compile(rb"[\r\n][^:\r\n]")
"""The start of a line that is neither blank nor a comment."""
_COMMENT_LINE = re.compile(rb"(?:\xef\xbb\xbf)?[\r\n]*:[^\r\n]*[\r\n]")
_BARE = re.compile(rb"^[ \t]*[{\[<]", re.MULTILINE)


class Frame(msgspec.Struct, frozen=True):
    """One event of a stream, up to and with its blank line."""

    event: bytes
    """The ``event:`` field, empty where absent."""
    data: bytes
    """All ``data:`` lines, joined by a newline; empty where there are none."""
    comments: tuple[bytes, ...]
    """Comment lines without their colon (``HTTP_STATUS/429``, ``keep-alive``)."""
    raw: bytes
    """The bytes of the frame as they came, decoded where the stream was encoded."""


def parse(raw: bytes) -> Frame:
    """One frame from its bytes. A byte order mark at the start is skipped; unknown fields are ignored."""
    event = b""
    data: list[bytes] = []
    comments: list[bytes] = []
    for line in raw.removeprefix(BOM).splitlines():
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            data.append(value)
        elif name == b"event":
            event = value
        elif not name and line:
            comments.append(value)
    return Frame(event, b"\n".join(data), tuple(comments), raw)


class Looks:
    """Count of the frames or lines of one answer that are judged: a first few, then one for so many bytes.

    A frame of two bytes costs as much as one of two hundred, so a flood of them is not judged to its end.
    """

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = FIRST_LOOKS * LOOK_BYTES

    @property
    def spent(self) -> bool:
        """No look is left before more bytes come."""
        return self._left < LOOK_BYTES

    def came(self, count: int) -> None:
        """So many bytes came."""
        self._left += count

    def take(self, count: int = 1) -> None:
        self._left -= count * LOOK_BYTES


def bare_document(frame: Frame) -> bytes | None:
    """The document that stands without ``data:`` where a frame should (an error after keep-alive comments)."""
    where = _BARE.search(frame.raw.replace(b"\r", b"\n"))
    if where is None or (frame.data and b"data:" in frame.raw[: where.start()]):
        return None
    return frame.raw[where.start() :]


def frames(body: bytes) -> Iterator[Frame]:
    """The frames of a whole body; the last one may lack its blank line. Blank ones are left out."""
    framer = Framer(len(body))
    for raw in (*framer.split(body), framer.rest):
        if not raw.isspace() and raw:
            yield parse(raw)


class Framer:
    """Cuts a stream into frames, or with ``lines`` into its lines. What it gives, with ``rest``, is what it was fed.

    Every byte is looked at once, however it comes. A frame longer than ``limit`` bytes makes it give up: ``overrun`` is
    True, nothing is kept and nothing comes any more.
    """

    __slots__ = ("_buffer", "_carriage", "_heard", "_limit", "_lines", "_seen", "_speaks", "overrun")

    def __init__(self, limit: int = TAIL_LIMIT, *, lines: bool = False) -> None:
        self._buffer = bytearray()
        self._seen = 0
        self._heard = 0  # bytes of the tail that ``quiet`` has looked at
        self._speaks = False  # among them the start of a line that is neither blank nor a comment
        self._carriage = False
        self._limit = limit
        self._lines = lines
        self.overrun = False

    def split(self, chunk: bytes) -> list[bytes]:
        """The bytes of every frame that this chunk completes, unparsed."""
        if self.overrun:
            return []
        raws, held = list[bytes](), self._buffer
        buffer: bytes | bytearray = chunk
        if held:
            held += chunk
            buffer = held
        self._carriage = self._carriage or b"\r" in chunk
        start = 0
        end = self._boundary(buffer, max(0, self._seen - _LOOK_BACK))
        while end:
            raws.append(bytes(buffer[start:end]))
            start = end
            end = self._boundary(buffer, end)
        if buffer is held:
            del held[:start]
        else:
            held += memoryview(buffer)[start:]
        if start:
            self._heard, self._speaks = 0, False
        self._seen = len(held)
        if self._seen > self._limit:
            self.overrun, self._buffer, self._seen = True, bytearray(), 0
        return raws

    def _boundary(self, buffer: bytes | bytearray, start: int) -> int:
        """Where the frame ends; 0 where it does not. A stream without any CR, the usual one, needs no pattern."""
        if self._lines:
            return buffer.find(b"\n", start) + 1
        if not self._carriage:
            at = buffer.find(b"\n\n", start)
            return at + 2 if at >= 0 else 0
        where = _BLANK_LINE.search(buffer, start)
        return where.end() if where else 0

    @property
    def rest(self) -> bytes:
        """The unfinished tail."""
        return bytes(self._buffer)

    def __len__(self) -> int:
        """Bytes of the unfinished tail."""
        return len(self._buffer)

    def begins(self, pattern: re.Pattern[bytes]) -> bool:
        """True where the unfinished tail begins as ``pattern`` says, which must be of bounded length; copies nothing."""
        return pattern.match(self._buffer) is not None

    def has_comment(self, chunk: bytes) -> bool:
        """True where the unfinished tail begins with a whole comment line; ``chunk`` came last, and may have ended it."""
        return (b"\n" in chunk or b"\r" in chunk) and _COMMENT_LINE.match(self._buffer) is not None

    def quiet(self) -> bool:
        """True where the unfinished tail is nothing but blank and whole comment lines; looks at what is new of it."""
        buffer, heard = self._buffer, self._heard
        if not buffer or (len(buffer) < len(BOM) and BOM.startswith(buffer)):
            return not buffer
        if not self._speaks:
            at = len(BOM) if buffer.startswith(BOM) else 0
            begun = heard <= at < len(buffer) and buffer[at] not in b":\r\n"
            self._speaks = begun or _SPEAKS.search(buffer, max(at, heard - 1)) is not None
            self._heard = len(buffer)
        return not self._speaks and buffer[-1] in b"\r\n"
