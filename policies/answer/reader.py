"""Reads one upstream answer: held until it is known what it is, then tapped while it passes.

Hold: ``feed`` until it gives a finding, ``finish`` at the end or the cut, ``cap`` when the time for holding is used up.
Commit: every byte that was held goes through ``tap``, then every chunk as it comes, then ``tap_finish``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from policies.answer import documents
from policies.answer.documents import UNREADABLE, Form, form_of, lead
from policies.answer.documents import parse as json_of
from policies.answer.encodings import decoder
from policies.answer.frames import Frame, Framer, Looks, bare_document, parse
from policies.answer.head import Head
from policies.answer.tap import Recogniser, Tap, Tapped
from policies.calls import Surface
from policies.kinds import Finding, Kind

__all__ = ["Reader", "Recogniser", "Tapped"]

_UNREAD = frozenset({Kind.ANSWER, Kind.NOTHING})
"""What the hold may say of an answer that the tap still has to watch."""


class Reader:
    """One answer of one attempt. Keeps at most ``hold_bytes`` of a document and one unfinished frame of a stream."""

    def __init__(
        self, surface: Surface, head: Head, recogniser: Recogniser, hold_bytes: int = 262144, *, first_only: bool = False
    ) -> None:
        """``first_only``: what the first chunk shows decides, since nothing says how much there is to come."""
        self._surface = surface
        self._head = head
        self._recogniser = recogniser
        self._hold_bytes = hold_bytes
        self._first_only = first_only
        self._decoder = decoder(head.get("content-encoding"))
        self._taken = 0
        self._decoded = 0
        self._form: Form | None = None
        self._start = b""
        self._document = bytearray()
        self._lines: Framer | None = Framer(hold_bytes, lines=True)
        """Of a document that may be one a line; None once it is not."""
        self._by_line = False
        self._framer = Framer()
        self._looks = Looks()
        self._usage: int | None = None
        self._tap: Tap | None = None
        self._through = False  # the body is judged already: what is committed goes on unread
        self.early: Finding | None = recogniser.head(surface, head)
        """What status and headers alone say."""
        self.preamble = False
        """At least one comment, ping, preamble frame or keep-alive blank has come."""
        self.decided: Finding | None = None

    @property
    def answered(self) -> bool:
        """An answer has been seen, in the hold or after it."""
        tapped = self._tap is not None and self._tap.answered
        return tapped or (self.decided is not None and self.decided.kind is Kind.ANSWER)

    @property
    def usage_input(self) -> int | None:
        """Input tokens, cache reads and writes included, as the answer's envelope states them."""
        tapped = self._tap.usage_input if self._tap else None
        return max(self._usage or 0, tapped or 0) or None

    @property
    def kept_back(self) -> bytes:
        """What the tap has taken and not let go yet: the caller's, should the reader fail."""
        return self._tap.kept_back if self._tap else b""

    def feed(self, chunk: bytes) -> Finding | None:
        """None while undecided. The caller keeps the bytes."""
        if self.decided is not None:
            return self.decided
        self._taken += len(chunk)
        if self._decoder is None:
            return self._decide(self._nothing("unreadable"))
        data = self._decoder.feed(chunk)
        self._decoded += len(data)
        self._looks.came(len(data))
        finding = self._read(data) if data else None
        if finding is not None:
            return self._decide(finding)
        stuck = self._decoder.broken or self._decoder.limit_reached or self._framer.overrun or self._looks.spent
        if stuck or max(self._taken, self._decoded) > self._hold_bytes or (self._first_only and self._form is not None):
            if self._form is Form.DOCUMENT:
                self._through = True
            return self.cap()
        return None

    def cap(self) -> Finding:
        """Time or bytes for holding are used up: what is there is judged."""
        if self.decided is not None:
            return self.decided
        return self._decide(self._judge(whole=False, cut=False))

    def finish(self, *, cut: bool) -> Finding:
        """The body is over, or its connection broke. A broken page whose markers have come is still the challenge."""
        if self.decided is not None:
            return self.decided
        finding = self._judge(whole=not cut, cut=cut)
        if self._form is Form.DOCUMENT:
            self._through = True
            if not cut and finding.kind is Kind.ANSWER:
                self._usage = documents.input_tokens(bytes(self._document))
        return self._decide(replace(finding, cut=True) if cut else finding)

    def tap(self, chunk: bytes) -> Tapped:
        if self._tap is None:
            self._tap = Tap(self._surface, self._head, self._recogniser, through=self._through, lines=self._by_line)
        return self._tap.tap(chunk)

    @property
    def passes(self) -> Callable[[bytes], bool] | None:
        """Gives True for a chunk that ``tap`` would let go as it is, which most are; there once ``tap`` was asked."""
        return self._tap.passes if self._tap else None

    def tap_finish(self) -> Tapped:
        return self._tap.tap_finish() if self._tap else Tapped()

    def _decide(self, finding: Finding) -> Finding:
        self.decided = finding
        if finding.kind not in _UNREAD and not finding.ends_answer:
            self._through = True  # whoever commits this means it to pass as it is
        self._framer, self._document = Framer(), bytearray()
        return finding

    def _read(self, data: bytes) -> Finding | None:
        if self._form is None:
            data = lead(self._start + data)
            self._form = form_of(data, self._head.media_type)
            self._start = data if self._form is None else b""
            self.preamble = not data
        if self._form is Form.STREAM:
            return self._frames(data)
        if self._form is Form.OPAQUE:
            self._through = True
            return self._recogniser.document(self._surface, self._head, data, whole=False)
        if self._form is Form.DOCUMENT:
            self._document += data
            return self._line(data)
        return None

    def _line(self, data: bytes) -> Finding | None:
        """What the first line says that is a JSON document of its own and no preamble: such a body is read line by line."""
        for raw in self._lines.split(data) if self._lines is not None else ():
            line = raw.strip()
            if not line:
                continue
            if self._looks.spent or json_of(line) is UNREADABLE:
                self._lines = None
                return None
            self._looks.take()
            if self._recogniser.frame(self._surface, self._head, Frame(b"", line, (), raw)) is not None:
                self._by_line = True
                return self._odd(line, whole=True)
            self.preamble = True
        return None

    def _frames(self, data: bytes) -> Finding | None:
        raws = self._framer.split(data)
        for number, raw in enumerate(raws):
            if self._looks.spent:
                return None
            self._looks.take()
            frame = parse(raw)
            document = bare_document(frame)
            if document is not None:
                self._form = Form.DOCUMENT
                self._document += document + b"".join(raws[number + 1 :]) + self._framer.rest
                self._lines = None
                return None
            finding = self._recogniser.frame(self._surface, self._head, frame)
            self._state_usage(frame)
            if finding is not None:
                return finding
            self.preamble = True
        if not self.preamble and self._framer.has_comment(data):
            self.preamble = True
        return None

    def _judge(self, *, whole: bool, cut: bool) -> Finding:
        if self._form is Form.DOCUMENT:
            return self._recogniser.document(self._surface, self._head, bytes(self._document), whole=whole)
        if self._form is None:
            return self._odd(self._start, whole=whole) if self._start else self._nothing("cut" if cut else "empty")
        return self._tail(whole=whole, cut=cut)

    def _tail(self, *, whole: bool, cut: bool) -> Finding:
        """A stream of which no answer has come: its unfinished last frame."""
        tail = self._framer.rest
        if not tail.strip():
            return self._nothing("cut" if cut else "preamble-only")
        frame = parse(tail)
        document = bare_document(frame)
        if document is not None:
            return self._odd(document, whole=whole)
        if whole:
            self._state_usage(frame)
            return self._recogniser.frame(self._surface, self._head, frame) or self._nothing("preamble-only")
        if self._recogniser.suspicion(self._surface)(tail):
            finding = self._recogniser.frame(self._surface, self._head, frame)
            if finding is None or finding.kind in _UNREAD:
                finding = self._odd(frame.data, whole=False)
            if finding.kind not in _UNREAD:
                return finding
        return self._nothing("cut" if cut else "hold-cap")

    def _state_usage(self, frame: Frame) -> None:
        if documents.USAGE in frame.raw:
            self._usage = documents.input_tokens(frame.data) or self._usage

    def _odd(self, body: bytes, *, whole: bool) -> Finding:
        return self._recogniser.document(self._surface, self._head, body, whole=whole)

    def _nothing(self, row: str) -> Finding:
        """No body that says anything: the head speaks, where it says anything."""
        if self.early is not None:
            return self.early
        return self._odd(b"", whole=True) if self._head.status >= 400 else Finding(Kind.NOTHING, row=row)
