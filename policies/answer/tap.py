"""What watches an answer after its commit: bytes first, JSON only where a marker is near."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Protocol

import msgspec

from policies.answer import documents
from policies.answer.documents import Form, form_of, lead
from policies.answer.encodings import Decoder, decoder
from policies.answer.frames import Frame, Framer, Looks, bare_document, parse
from policies.calls import Surface
from policies.kinds import Finding, Head, Kind, Wire

LEAD_BYTES = 16
"""Of a body behind its blanks, by which its form is known."""
HELD_BACK = 8192
"""Bytes of an unfinished frame that are kept back at most."""
DOCUMENT_LOOKS = 4
"""Frames that cost as much as a document."""
PAGE_BYTES = 65536
"""Of a page in a stream, that are looked at."""
PAGE_GROWTH = 1.25
"""How much longer than at its last look a page in a stream has to be for another, so that all looks cost a few times one."""
STOPPING = frozenset({Kind.CHALLENGE, Kind.OVERLOAD, Kind.RATE_LIMIT})
"""What closes a stream that has begun; any other refusal passes as it is."""

_RESPONSES = "platform.openai.com responses streaming"
ANSWER_STARTS: tuple[tuple[bytes, str], ...] = (
    (rb"event: ?(?:content_block_|message_|ping)", "docs.anthropic.com streaming"),
    (rb'data: ?\{"type": ?"(?:content_block_|message_|ping")', "the same without event lines"),
    (rb"event: ?response\.(?:created|queued|in_progress|output_|content_part|reasoning|refusal|function_call)", _RESPONSES),
    (rb"event: ?response\.(?:custom_tool|web_search|file_search|code_interpreter|image_|mcp_|audio|completed)", _RESPONSES),
    (rb'data: ?\{"type": ?"response\.(?:output_|content_part|reasoning|function_call)', "the same without event lines"),
    (rb'data: ?\{ ?"(?:id|choices|object|created|model|system_fingerprint)": ?', "platform.openai.com chat streaming"),
    (rb'data: ?\{"response\.(?:created|info)"', "Rfym21/Qwen2API"),
    (rb'data: ?\{"type": ?"chat:completion", ?"data": ?\{"delta_content"', "z.ai web clients"),
    (rb'data: ?\{"output": ?', "help.aliyun.com native streaming"),
    (rb"(?:id: ?\d{1,20}\r?\n)event: ?result", "help.aliyun.com native streaming"),
    (rb"data: ?\[DONE\]", "platform.openai.com chat streaming"),
)
"""How the frames of an answer begin: such a frame passes before it is whole. With where the form is known from."""

_ANSWER_START = re.compile(rb"(?:\xef\xbb\xbf)?[\r\n]{0,4}(?:" + b"|".join(row for row, _ in ANSWER_STARTS) + rb")")


class Recogniser(Protocol):
    """What reading an answer asks of ``refusal/``, which stands above and knows frames and heads: the wall is this contract."""

    def head(self, surface: Surface, head: Head) -> Finding | None:
        """What status and headers alone say."""

    def document(self, surface: Surface, head: Head, body: bytes, *, whole: bool) -> Finding:
        """A JSON, HTML or other body; not ``whole`` where it was cut or is longer than what is held."""

    def frame(self, surface: Surface, head: Head, frame: Frame) -> Finding | None:
        """One frame: None for a keep-alive or preamble, else the first answer or the refusal."""

    def suspicion(self, surface: Surface) -> Callable[[bytes], bool]:
        """Cheap, on bytes: gives False where neither a refusal nor an ending that means one can be in them."""


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

    def __init__(self, surface: Surface, head: Head, recogniser: Recogniser) -> None:
        self._surface, self._head, self._recogniser = surface, head, recogniser
        self.suspicious = recogniser.suspicion(surface)
        """False for bytes that hold no refusal."""
        encoding = head.get("content-encoding")
        self._encoded = bool(encoding) and encoding.strip().lower() != "identity"
        self._decoder: Decoder | None = decoder(encoding) if self._encoded else None
        self._lines = False
        self._framer = Framer()
        self._looks = Looks()
        self._start = b""
        self._form: Form | None = None
        self._passed_of_frame = False
        self._kept = bytearray()
        self._closed = False
        self._page = bytearray()  # of a page that stands bare among the frames, as far as it has come
        self._page_judged = 0  # bytes of it, at the last look
        self.through = head.status >= 400 or (self._encoded and self._decoder is None)
        """Goes on unread: it is judged already, cannot be read, or has told the truth with a status of its own."""
        self.answered = False
        self.usage_input = 0

    def by_line(self) -> None:
        """Takes each line for a document of its own (NDJSON)."""
        self._lines, self._framer = True, Framer(lines=True)

    def look_at(self, body: bytes, *, whole: bool) -> Finding:
        return self._recogniser.document(self._surface, self._head, body, whole=whole)

    def look_at_frame(self, frame: Frame) -> Finding | None:
        return self._recogniser.frame(self._surface, self._head, frame)

    @property
    def kept_back(self) -> bytes:
        """Raw bytes that came and have not gone on yet."""
        return bytes(self._kept)

    def tap(self, chunk: bytes) -> Tapped:
        if self._closed or not chunk:
            return _NOTHING
        if self.through or self.passes(chunk):
            return self._release(chunk)
        data = self._plain(chunk)
        if data is None:
            return self._release(chunk)
        passed = len(self._framer) - len(self._kept)
        raws = self._framer.split(data)
        self.through = self._framer.overrun
        self._looks.came(len(data))
        for number, raw in enumerate(() if self._says_nothing(raws) else raws):
            if self._looks.spent:
                break
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
            and not (documents.USAGE in chunk and self._states_usage(chunk))
            and not self.suspicious(chunk)
        )

    def _says_nothing(self, raws: list[bytes]) -> bool:
        """True for many frames that need no look each."""
        if len(raws) < 2 or self._page or not (self.answered or self._looks.spent):
            return False
        data = b"".join(raws)
        return not (self._states_usage(data) or self.suspicious(data))

    def _states_usage(self, data: bytes) -> bool:
        """Usage that is worth reading: anthropic states it twice, the others once, and null before."""
        return documents.USAGE_STATED.search(data) is not None and (
            self._surface.wire is Wire.ANTHROPIC or not self.usage_input
        )

    def tap_finish(self) -> Tapped:
        """The end of the body: what was held back is judged and let go."""
        if self._closed:
            return _NOTHING
        tail = self._framer.rest
        finding = None
        if not self.through:
            finding = (self._look(tail) if tail else None) or self._look_at_page(last=True)
        if finding is None:
            return self._release(b"")
        self._closed = True
        # no event of ours can be put into an encoded body, between lines, or into a frame that stands open
        return Tapped((), finding, withheld=self._encoded or self._lines or self._passed_of_frame)

    def _plain(self, chunk: bytes) -> bytes | None:
        """The decoded chunk; None where nothing is to be watched from here on."""
        data = chunk
        if self._decoder is not None:
            self._decoder.renew(len(chunk))
            data = self._decoder.feed(chunk)
            self.through = self._decoder.broken or self._decoder.limit_reached
        if self._form is None and not self.through:
            self._start = lead(self._start + data)[:LEAD_BYTES]
            self._form = form_of(self._start, self._head.media_type)
            self.through = self._form is Form.OPAQUE
        return None if self.through else data

    def _look(self, raw: bytes) -> Finding | None:
        """The refusal in one frame that closes the stream, if it is one. Notes usage and the answer's end."""
        near = self._states_usage(raw)
        suspicious = self.suspicious(raw)
        if not (suspicious or near or self._page) and self.answered:
            return None
        self._looks.take(DOCUMENT_LOOKS if self._lines else 1)
        frame = parse(raw)
        if near:
            self.usage_input = max(documents.input_tokens(frame.data or raw) or 0, self.usage_input)
        document = bare_document(frame) if suspicious or self._page else None
        if self._page or (document is not None and document[:1] == b"<" and not frame.data):
            finding = self._of_page(frame)
            if finding is not None or not frame.data:
                return finding
        if document is not None:
            self._looks.take(DOCUMENT_LOOKS)
            return self._noted(self.look_at(document, whole=True))
        return self._noted(self.look_at_frame(frame))

    def _noted(self, finding: Finding | None) -> Finding | None:
        if finding is None:
            return None
        self.answered = self.answered or finding.kind is Kind.ANSWER
        return finding if finding.kind in STOPPING and not finding.ends_answer else None

    def _of_page(self, frame: Frame) -> Finding | None:
        """A piece of a page, in whose script a blank line looks like the end of a frame; data ends the page."""
        if not frame.data:
            self._page += frame.raw[: PAGE_BYTES - len(self._page)]
            return self._look_at_page(last=False)
        finding = self._look_at_page(last=True)
        self._page, self._page_judged = bytearray(), 0
        return finding

    def _look_at_page(self, *, last: bool) -> Finding | None:
        """The whole page so far, judged again only once it has grown by a part of itself, and at its end or its bound."""
        size = len(self._page)
        due = last or size == PAGE_BYTES or size >= self._page_judged * PAGE_GROWTH
        if size == self._page_judged or not due:
            return None
        self._page_judged = size
        return self._noted(self.look_at(bytes(self._page), whole=True))

    def _close(self, chunk: bytes, raws: list[bytes], passed: int, finding: Finding) -> Tapped:
        """Ends with the last of ``raws``, ``passed`` bytes of the first of which are with the client already."""
        if len(raws) > 1 or not self._passed_of_frame:
            raws = raws[:-1]  # a frame that has begun to pass is passed to its end: the error frame needs a clean line
        return self._ends(chunk, sum(map(len, raws)) - passed if raws else 0, finding)

    def _ends(self, chunk: bytes, passing: int, finding: Finding) -> Tapped:
        """The end of the stream behind so many of the bytes that are kept and come."""
        self._closed = True
        if self._encoded:
            return Tapped(finding=finding, withheld=True)
        return Tapped(_chunks(bytes(self._kept + chunk)[: max(0, passing)]), finding, withheld=self._lines)

    def _go_on(self, chunk: bytes) -> Tapped:
        tail = len(self._framer)
        if not tail or self._passed_of_frame or self.through:
            return self._release(chunk)
        if self._framer.begins(_ANSWER_START):
            self._passed_of_frame = True
            return self._release(chunk)
        if not self._start or (tail <= HELD_BACK and self._framer.quiet()):
            return self._release(chunk)
        if tail > HELD_BACK or (self._encoded and self._kept and len(self._kept) + len(chunk) > HELD_BACK):
            return self._too_long(chunk)
        self._kept += chunk
        if self._encoded:
            return _NOTHING
        let_go = max(len(self._kept) - tail, 0)  # of an unfinished frame, comment lines may be with the client already
        passing = bytes(self._kept[:let_go])
        del self._kept[:let_go]
        return Tapped(_chunks(passing))

    def _too_long(self, chunk: bytes) -> Tapped:
        """More than may be held back: a page that shows its markers by now is told, all else goes on."""
        tail = self._framer.rest
        document = bare_document(parse(tail)) if self.suspicious(tail) else None
        if document is not None:
            finding = self.look_at(document, whole=False)
            if finding.kind in STOPPING:
                return self._ends(chunk, len(self._kept) + len(chunk) - len(tail), finding)
        self._passed_of_frame = True
        return self._release(chunk)

    def _release(self, chunk: bytes) -> Tapped:
        if self._kept:
            chunk, self._kept = bytes(self._kept + chunk), bytearray()
        return Tapped((chunk,) if chunk else ())


def _chunks(data: bytes) -> tuple[bytes, ...]:
    return (data,) if data else ()
