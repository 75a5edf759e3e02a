"""What watches an answer after its commit: bytes first, JSON only where a marker is near."""

from __future__ import annotations

import re

import msgspec

from policies.answer import usage
from policies.answer.bodies import Form, Recogniser, bare_document, form_of
from policies.answer.encodings import Decoder, decoder
from policies.answer.frames import Frame, Framer, parse
from policies.answer.head import Head
from policies.calls import Surface
from policies.findings import Finding
from policies.kinds import Kind, Wire

HELD_BACK = 8192
"""Bytes of an unfinished frame that are kept back at most."""
PAGE_BYTES = 65536
"""Of a page in a stream, that are looked at."""
STOPPING = frozenset({Kind.CHALLENGE, Kind.OVERLOAD, Kind.RATE_LIMIT})
"""What closes a stream that has begun; any other refusal passes as it is."""

ANSWER_STARTS: tuple[tuple[bytes, str], ...] = (
    (rb"event: ?(?:content_block_|message_|ping)", "docs.anthropic.com streaming"),
    (rb'data: ?\{"type": ?"(?:content_block_|message_|ping")', "the same without event lines"),
    (
        rb"event: ?response\.(?:created|queued|in_progress|output_|content_part|reasoning|refusal|function_call)",
        "platform.openai.com responses streaming",
    ),
    (
        rb"event: ?response\.(?:custom_tool|web_search|file_search|code_interpreter|image_|mcp_|audio|completed)",
        "platform.openai.com responses streaming",
    ),
    (rb'data: ?\{"type": ?"response\.(?:output_|content_part|reasoning|function_call)', "the same without event lines"),
    (rb'data: ?\{ ?"(?:id|choices|object|created|model|system_fingerprint)": ?', "platform.openai.com chat streaming"),
    (rb'data: ?\{"response\.(?:created|info)"', "Rfym21/Qwen2API"),
    (rb'data: ?\{"type": ?"chat:completion", ?"data": ?\{"delta_content"', "z.ai web clients"),
    (rb'data: ?\{"output": ?', "help.aliyun.com native streaming"),
    (rb"(?:id: ?\d+\r?\n)event: ?result", "help.aliyun.com native streaming"),
    (rb"data: ?\[DONE\]", "platform.openai.com chat streaming"),
)
"""How the frames of an answer begin: such a frame passes before it is whole. With where the form is known from."""

_ANSWER_START = re.compile(rb"(?:\xef\xbb\xbf)?[\r\n]*(?:" + b"|".join(row for row, _ in ANSWER_STARTS) + rb")")

_QUIET = re.compile(rb"(?:\xef\xbb\xbf)?[\r\n]*(?::[^\r\n]*[\r\n]+)*\Z")
"""Nothing but blank and whole comment lines so far: they pass, whatever follows."""


class Tapped(msgspec.Struct, frozen=True):
    """What of a chunk goes on. No chunk is ever empty: an empty tuple holds back."""

    passed: tuple[bytes, ...] = ()
    finding: Finding | None = None
    """The refusal that closes the stream here; what it stands in is not in ``passed``."""
    withheld: bool = False
    """Cut the stream: encoded bytes were kept back for good, or a frame stands open, and no plain text fits there."""


_NOTHING = Tapped()


class Tap:
    """Watches one body from its first byte, the held ones included."""

    def __init__(self, surface: Surface, head: Head, recogniser: Recogniser, *, through: bool = False) -> None:
        """``through``: the body is judged already."""
        self._surface = surface
        self._head = head
        self._recogniser = recogniser
        self._suspicious = recogniser.suspicion(surface)
        encoding = head.get("content-encoding")
        self._decoder: Decoder | None = decoder(encoding) if encoding else None
        self._encoded = bool(encoding) and encoding.strip().lower() != "identity"
        self._framer = Framer()
        self._start = b""
        self._form: Form | None = None
        self._passed_of_frame = False
        self._kept = b""
        self._closed = False
        self._page = b""  # of a page that stands bare among the frames, as far as it has come
        # An answer with a status of its own has told the truth already.
        self._through = through or head.status >= 400 or (self._encoded and self._decoder is None)
        self.answered = False
        self.ended: Finding | None = None
        self.usage_input: int | None = None

    @property
    def kept_back(self) -> bytes:
        """Raw bytes that came and have not gone on yet."""
        return self._kept

    def tap(self, chunk: bytes) -> Tapped:
        if self._closed or not chunk:
            return _NOTHING
        if self._through or self.passes(chunk):
            return self._release(chunk)
        data = self._plain(chunk)
        if data is None:
            return self._release(chunk)
        passed = len(self._framer) - len(self._kept)
        raws = self._framer.split(data)
        if self._framer.overrun:
            self._through = True
        for number, raw in enumerate(raws):
            finding = self._look(raw)
            if finding is not None:
                return self._close(chunk, raws[: number + 1], passed, finding)
        if raws:
            self._passed_of_frame = False
        return self._go_on(chunk)

    def passes(self, chunk: bytes) -> bool:
        """The usual chunk: whole frames of a stream that has answered, and nothing in them that has to be looked at."""
        return (
            self.answered
            and chunk[-2:] == b"\n\n"
            and not (self._encoded or self._closed or self._page or len(self._framer))
            and not (usage.MARKER in chunk and self._states_usage(chunk))
            and not self._suspicious(chunk)
        )

    def _states_usage(self, data: bytes) -> bool:
        """Usage that is worth reading: anthropic states it twice, the others once, and null before."""
        return usage.STATED.search(data) is not None and (
            self._surface.wire is Wire.ANTHROPIC or not self.usage_input
        )

    def tap_finish(self) -> Tapped:
        """The end of the body: what was held back is judged and let go."""
        if self._closed:
            return _NOTHING
        tail = self._framer.rest
        finding = self._look(tail) if tail and not self._through else None
        if finding is None:
            return self._release(b"")
        self._closed = True
        return Tapped((), finding, withheld=self._encoded or self._passed_of_frame)

    def _plain(self, chunk: bytes) -> bytes | None:
        """The decoded chunk; None where nothing is to be watched from here on."""
        data = chunk
        if self._decoder is not None and self._encoded:
            self._decoder.renew()
            data = self._decoder.feed(chunk)
            if self._decoder.broken or self._decoder.limit_reached:
                self._through = True
                return None
        if self._form is None:
            self._start = (self._start + data)[:64]
            self._form = form_of(self._start, self._head.media_type)
            if self._form is Form.OPAQUE:
                self._through = True
                return None
        return data

    def _look(self, raw: bytes) -> Finding | None:
        """The refusal in one frame that closes the stream, if it is one. Notes usage and the answer's end."""
        near = self._states_usage(raw)
        suspicious = self._suspicious(raw)
        if not (suspicious or near or self._page) and self.answered:
            return None
        frame = parse(raw)
        if near:
            self.usage_input = max(usage.input_tokens(frame.data or raw) or 0, self.usage_input or 0) or None
        document = self._bare(frame) if suspicious or self._page else None
        if document is not None:
            finding: Finding | None = self._recogniser.document(self._surface, self._head, document, whole=True)
        else:
            finding = self._recogniser.frame(self._surface, self._head, frame)
        if finding is None:
            return None
        self.answered = self.answered or finding.kind is Kind.ANSWER
        if finding.ends_answer:
            self.ended = finding
            return None
        return finding if finding.kind in STOPPING else None

    def _bare(self, frame: Frame) -> bytes | None:
        """A bare document; of a page all that has come: a blank line in its script looks like the end of a frame."""
        document = bare_document(frame)
        if frame.data:
            self._page = b""
        elif self._page or (document is not None and document[:1] == b"<"):
            document = self._page = (self._page + frame.raw)[:PAGE_BYTES]
        return document

    def _close(self, chunk: bytes, raws: list[bytes], passed: int, finding: Finding) -> Tapped:
        """Ends with the last of ``raws``, ``passed`` bytes of the first of which are with the client already."""
        self._closed = True
        if self._encoded:
            return Tapped(finding=finding, withheld=True)
        if len(raws) > 1 or not self._passed_of_frame:
            raws = raws[:-1]  # a frame that has begun to pass is passed to its end: the error frame needs a clean line
        return Tapped(self._chunks((self._kept + chunk)[: sum(map(len, raws)) - passed] if raws else b""), finding)

    def _go_on(self, chunk: bytes) -> Tapped:
        tail = len(self._framer)
        if not tail or self._passed_of_frame or self._through:
            return self._release(chunk)
        if self._framer.begins(_ANSWER_START):
            self._passed_of_frame = True
            return self._release(chunk)
        if tail <= HELD_BACK and self._framer.begins(_QUIET):
            return self._release(chunk)
        if tail > HELD_BACK or (self._encoded and self._kept and len(self._kept) + len(chunk) > HELD_BACK):
            return self._too_long(chunk)
        if self._encoded:
            self._kept += chunk
            return _NOTHING
        whole = self._kept + chunk if self._kept else chunk
        keep = max(len(whole) - tail, 0)  # of an unfinished frame, comment lines may be with the client already
        self._kept = whole[keep:]
        return Tapped(self._chunks(whole[:keep]))

    def _too_long(self, chunk: bytes) -> Tapped:
        """More than may be held back: a page that shows its markers by now is told, all else goes on."""
        tail = self._framer.rest
        if self._suspicious(tail):
            document = bare_document(parse(tail))
            if document is not None:
                finding = self._recogniser.document(self._surface, self._head, document, whole=False)
                if finding.kind in STOPPING:
                    self._closed = True
                    if self._encoded:
                        return Tapped(finding=finding, withheld=True)
                    return Tapped(self._chunks((self._kept + chunk)[: -len(tail)]), finding)
        self._passed_of_frame = True
        return self._release(chunk)

    def _release(self, chunk: bytes) -> Tapped:
        if not self._kept:
            return Tapped((chunk,) if chunk else ())
        kept, self._kept = self._kept, b""
        return Tapped(self._chunks(kept + chunk))

    @staticmethod
    def _chunks(data: bytes) -> tuple[bytes, ...]:
        return (data,) if data else ()
