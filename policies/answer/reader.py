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
from policies.answer.tap import Recogniser, Tap, Tapped
from policies.calls import Surface
from policies.kinds import Finding, Head, Kind

_UNREAD = frozenset({Kind.ANSWER, Kind.NOTHING})
"""What the hold may say of an answer that the tap still has to watch."""


class Reader:
    """One answer of one attempt. Keeps at most ``hold_bytes`` of a document and one unfinished frame of a stream."""

    def __init__(
        self, surface: Surface, head: Head, recogniser: Recogniser, hold_bytes: int = 262144, *, first_only: bool = False
    ) -> None:
        """``first_only``: what the first chunk shows decides, since nothing says how much there is to come."""
        self._head = head
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
        self._framer = Framer()
        self._looks = Looks()
        self._usage = 0
        self._tap = Tap(surface, head, recogniser)
        self.early: Finding | None = recogniser.head(surface, head)
        """What status and headers alone say."""
        self.preamble = False
        """At least one comment, ping, preamble frame or keep-alive blank has come."""
        self.decided: Finding | None = None

    @property
    def answered(self) -> bool:
        """An answer has been seen, in the hold or after it."""
        return self._tap.answered or (self.decided is not None and self.decided.kind is Kind.ANSWER)

    @property
    def usage_input(self) -> int | None:
        """Input tokens, cache reads and writes included, as the answer's envelope states them."""
        return max(self._usage, self._tap.usage_input) or None

    @property
    def kept_back(self) -> bytes:
        """What the tap has taken and not let go yet: the caller's, should the reader fail."""
        return self._tap.kept_back

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
            self._tap.through |= self._form is Form.DOCUMENT
            return self.cap()
        return None

    def cap(self) -> Finding:
        """Time or bytes for holding are used up: what is there is judged."""
        return self.decided or self._decide(self._judge(whole=False, cut=False))

    def finish(self, *, cut: bool) -> Finding:
        """The body is over, or its connection broke. A broken page whose markers have come is still the challenge."""
        if self.decided is not None:
            return self.decided
        finding = self._judge(whole=not cut, cut=cut)
        if self._form is Form.DOCUMENT:
            self._tap.through = True
            if not cut and finding.kind is Kind.ANSWER:
                self._usage = documents.input_tokens(bytes(self._document)) or self._usage
        return self._decide(replace(finding, cut=True) if cut else finding)

    def tap(self, chunk: bytes) -> Tapped:
        return self._tap.tap(chunk)

    @property
    def passes(self) -> Callable[[bytes], bool]:
        """Gives True for a chunk that ``tap`` would let go as it is, which most are."""
        return self._tap.passes

    def tap_finish(self) -> Tapped:
        return self._tap.tap_finish()

    def _decide(self, finding: Finding) -> Finding:
        self.decided = finding
        if finding.kind not in _UNREAD and not finding.ends_answer:
            self._tap.through = True  # whoever commits this means it to pass as it is
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
            self._tap.through = True
            return self._tap.look_at(data, whole=False)
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
            if self._tap.look_at_frame(Frame(b"", line, (), raw)) is not None:
                self._tap.by_line()
                return self._tap.look_at(line, whole=True)
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
            finding = self._tap.look_at_frame(frame)
            self._state_usage(raw, frame.data)
            if finding is not None:
                return finding
            self.preamble = True
        self.preamble = self.preamble or self._framer.has_comment(data)
        return None

    def _judge(self, *, whole: bool, cut: bool) -> Finding:
        if self._form is Form.DOCUMENT or self._start:
            return self._tap.look_at(bytes(self._document or self._start), whole=whole)
        tail = self._framer.rest
        if not tail.strip():
            return self._nothing("cut" if cut else "empty" if self._form is None else "preamble-only")
        return self._tail(tail, whole=whole) or self._nothing("cut" if cut else "hold-cap")

    def _tail(self, tail: bytes, *, whole: bool) -> Finding | None:
        """The unfinished last frame of a stream of which no answer has come."""
        frame = parse(tail)
        document = bare_document(frame)
        if document is not None:
            return self._tap.look_at(document, whole=whole)
        if whole:
            self._state_usage(tail, frame.data)
            return self._tap.look_at_frame(frame) or self._nothing("preamble-only")
        if not self._tap.suspicious(tail):
            return None
        finding = self._tap.look_at_frame(frame)
        if finding is None or finding.kind in _UNREAD:
            finding = self._tap.look_at(frame.data, whole=False)
        return None if finding.kind in _UNREAD else finding

    def _state_usage(self, raw: bytes | bytearray, data: bytes) -> None:
        if documents.USAGE in raw:
            self._usage = documents.input_tokens(data) or self._usage

    def _nothing(self, row: str) -> Finding:
        """No body that says anything: the head speaks, where it says anything."""
        if self.early is not None:
            return self.early
        return self._tap.look_at(b"", whole=True) if self._head.status >= 400 else Finding(Kind.NOTHING, row=row)
