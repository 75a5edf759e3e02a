"""What an upstream's answer is: from its head, from a whole body, or from one frame of a stream."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial

from policies.answer import documents, shapes
from policies.answer.documents import Form, form_of
from policies.answer.frames import BOM, Frame, frames
from policies.answer.head import Head
from policies.calls import Surface
from policies.findings import ANSWER, Finding
from policies.kinds import Challenge, Family, Kind, Role
from policies.refusal import envelopes, error_kinds, mtop, pages, prefilter, redaction, retry_hints, signatures
from policies.refusal.envelopes import Envelope
from policies.refusal.error_kinds import Meaning
from policies.settings import SignatureRow

REDIRECTS = frozenset({301, 302, 303, 307, 308})
TOLD_STATUSES = frozenset({429, 503, 529})
LONG_WAIT = 3600
"""Seconds. A 429 that no row knows and that asks for more is no rate limit but a spent quota."""
_QUIET_EVENTS = frozenset({b"ping", b"keepalive", b"keep-alive", b"keep_alive", b"heartbeat"})


@dataclass(frozen=True, slots=True)
class Seen:
    """What is judged: a body or the data of one frame, and what is known beside it."""

    surface: Surface
    head: Head
    data: bytes
    named: int | None = None
    """The status in an SSE comment."""
    failed: bool = False
    """The event's name or its status comment says that it is an error."""

    @property
    def refused(self) -> bool:
        return self.failed or self.head.status >= 400


class Recogniser:
    """Stateless but for the user's signatures, which are asked before every table."""

    def __init__(self, rows: tuple[SignatureRow, ...] = ()) -> None:
        self._signatures = rows
        self._own_needles = lru_cache(maxsize=64)(partial(signatures.needles, rows))

    def head(self, surface: Surface, head: Head) -> Finding | None:
        """What status and headers alone say. A body that is an answer, or another challenge, says it better."""
        row = ""
        if head.status in REDIRECTS and any(mark in head.get("location") for mark in mtop.PUNISH):
            row = "head:punish"
        elif head.get("bxpunish").strip() == "1":
            row = "head:bxpunish"
        elif surface.family is Family.ZCODE and head.status >= 300 and head.get("x-aliyun-captcha-verify-param"):
            row = "head:captcha-verify-param"
        return _captcha(row, head) if row else None

    def document(self, surface: Surface, head: Head, body: bytes, *, whole: bool) -> Finding:
        """A JSON, HTML or other body; not ``whole`` where it was cut or is longer than what is held: only what is certain."""
        seen = Seen(surface, head, body)
        if not body or body.isspace():
            return self._empty(seen)
        if pages.is_page(body):
            return self._page(seen)
        if form_of(body, "") is Form.STREAM:
            return self._events(seen)
        value = documents.parse(body)
        if value is documents.UNREADABLE:
            return self._broken(seen, whole=whole)
        return self._value(seen, value)

    def frame(self, surface: Surface, head: Head, frame: Frame) -> Finding | None:
        """One frame of a stream: None for a keep-alive or preamble, ANSWER for (part of) an answer, else the refusal."""
        data, event = frame.data.strip(), frame.event.strip().lower()
        named = shapes.named_status(frame)
        name = event.decode("latin-1")
        failed = name in shapes.FAILED_EVENTS or (named or 0) >= 400
        seen = Seen(surface, head, data or frame.raw, named, failed=failed)
        if not data:
            return self._bare(seen, frame)
        if data == b"[DONE]" or (event in _QUIET_EVENTS and not seen.failed):
            return None
        if pages.is_page(data):
            page = pages.challenge(head, data)
            return _captcha(f"page:{page.name}", head, data) if page else ANSWER
        value = documents.parse(data)
        if value is documents.UNREADABLE:
            return self._odd(seen)
        if isinstance(value, dict):
            value = shapes.typed(shapes.lowered(value), name)
            if self._unmarked(seen, value):
                return shapes.part_of(value)
        return self._refused(seen, value) or shapes.kind_of(value)

    def suspicion(self, surface: Surface) -> Callable[[bytes], bool]:
        """Gives False for bytes in which no refusal can be."""
        return partial(prefilter.near, more=self._own_needles(surface)) if self._signatures else prefilter.near

    # -- bodies -----------------------------------------------------------------------------------------------

    def _empty(self, seen: Seen) -> Finding:
        if seen.head.status < 400:
            return Finding(Kind.NOTHING, row="empty")
        return self._refused(seen, {}) or self._status_only(seen)

    def _page(self, seen: Seen) -> Finding:
        row = self._signature(seen, words=_words(seen.data[:8192]))
        if row is not None:
            return self._signed(seen, row, None)
        page = pages.challenge(seen.head, seen.data)
        if page is not None:
            return _captcha(f"page:{page.name}", seen.head, seen.data)
        return self._status_only(seen) if seen.refused else _passing(seen.surface, "html")

    def _status_only(self, seen: Seen) -> Finding:
        return self._finding(seen, error_kinds.by_status(seen.head.status, ""), Envelope())

    def _events(self, seen: Seen) -> Finding:
        """A body of events: its first refusal counts, as long as no answer has begun."""
        for number, frame in enumerate(frames(seen.data)):
            finding = self.frame(seen.surface, seen.head, frame)
            if finding is not None and (finding.kind is not Kind.ANSWER or not seen.refused):
                return finding
            if number >= 64:
                break
        return self._status_only(seen) if seen.refused else Finding(Kind.NOTHING, row="preamble-only")

    def _unmarked(self, seen: Seen, low: Mapping[str, object]) -> bool:
        """The short way of the usual answer: nothing that ``_refused`` looks at is in it."""
        return not (seen.refused or self._signatures) and shapes.plainly_answers(low)

    def _value(self, seen: Seen, value: object) -> Finding:
        low = shapes.lowered(value) if isinstance(value, dict) else {}
        if self._unmarked(seen, low) and not shapes.is_preamble(low):
            return shapes.ended(low) or ANSWER
        refusal = self._refused(seen, value)
        if refusal is not None:
            return refusal
        if low:
            if shapes.is_answer(low) and not shapes.is_preamble(low):
                return shapes.ended(low) or ANSWER
            bare = self._refused(replace(seen, failed=True), value)
            if bare is not None and _known(bare) and seen.surface.role is Role.GENERATION:
                return bare
        return _passing(seen.surface, "no-answer")

    def _broken(self, seen: Seen, *, whole: bool) -> Finding:
        """A body that is no JSON, or one that ends in its midst."""
        text = _words(seen.data)
        value = documents.leading(text.lstrip("\ufeff \t\r\n"))
        if value is documents.UNREADABLE:
            value = documents.begun(seen.data)
        if isinstance(value, dict):
            refusal = self._refused(seen, value)
            if refusal is not None and (seen.refused or _known(refusal)):
                return refusal
            if shapes.is_answer(shapes.lowered(value)):
                return ANSWER
        if seen.refused:
            return self._refused(seen, text[:8192]) or self._status_only(seen)
        row = self._signature(seen, words=text[:8192])
        if row is not None:
            return self._signed(seen, row, None)
        if seen.head.media_type.startswith(("image/", "video/", "audio/")):
            return ANSWER
        return _passing(seen.surface, "no-answer" if whole else "incomplete")

    def _bare(self, seen: Seen, frame: Frame) -> Finding | None:
        """A frame without data: a comment, an error event alone, or a document that stands where a frame should."""
        raw = frame.raw.removeprefix(BOM).strip()
        if raw[:1] in (b"{", b"[", b"<"):
            return self.document(seen.surface, seen.head, raw, whole=True)
        return self._refused(seen, {}) if seen.failed else None

    def _odd(self, seen: Seen) -> Finding:
        """A frame whose data is no JSON: words, or JSON that ends in its midst."""
        if seen.refused:
            return self._refused(seen, _words(seen.data)) or ANSWER
        if seen.data[:1] == b"{" and self.suspicion(seen.surface)(seen.data):
            value = documents.begun(seen.data)
            finding = self._refused(seen, value) if isinstance(value, dict) else None
            if finding is not None and _known(finding):
                return finding
        return ANSWER

    # -- refusals ---------------------------------------------------------------------------------------------

    def _refused(self, seen: Seen, value: object) -> Finding | None:
        """The refusal in a JSON value, or in the words of an error, or None."""
        envelope = envelopes.read(value, refused=seen.refused)
        row = self._signature(seen, document=value, envelope=envelope)
        if row is not None:
            return self._signed(seen, row, envelope)
        fields = tuple(body for part in envelope.chain() for body in part.fields) if envelope else ()
        bodies = (shapes.lowered(value), *fields) if isinstance(value, dict) else fields
        if verdict := next(filter(None, map(mtop.verdict, bodies)), None):
            found = Meaning(Kind.CHALLENGE, "mtop:ret", verdict.code, challenge=verdict.challenge)
            words = verdict.words or (envelope.message if envelope else "")
            return self._finding(seen, found, Envelope(message=words, fields=fields))
        if envelope is None:
            if not seen.refused:
                return None
            envelope = Envelope()
        http = seen.head.status if seen.head.status >= 400 else seen.named or envelope.status or 0
        return self._finding(seen, error_kinds.meaning(seen.surface.family, envelope, http), envelope)

    def _finding(self, seen: Seen, found: Meaning, envelope: Envelope) -> Finding:
        head, chain = seen.head, envelope.chain()
        fields = tuple(body for part in chain for body in part.fields)
        words = next((part.message for part in reversed(chain) if part.message), "")
        wait, source = retry_hints.wait_of(head, fields, words)
        kind, transient = found.kind, found.transient
        if wait is None and kind is Kind.QUOTA and seen.surface.family is Family.QWEN_WEB:
            wait = retry_hints.hours_in(fields)
            source = "body" if wait else None
        if kind is Kind.RATE_LIMIT and not found.known and ((wait or 0) > LONG_WAIT or retry_hints.reset_in(words)):
            kind, transient = Kind.QUOTA, False
        own = _own(head)
        in_range = head.status in (503, 529) and retry_hints.kept_as_it_is(head)
        return Finding(
            kind=kind,
            row=found.row,
            code=found.code or None,
            text=redaction.text(words),
            challenge=found.challenge,
            wait=wait,
            wait_source=source,
            reset=retry_hints.reset_in(words),
            status=error_kinds.real_status(found, head.status, seen.named or envelope.status),
            window=found.window,
            transient=transient and not own,
            honest=_told(head) or (in_range and kind not in error_kinds.LASTING),
            crowd=found.crowd,
            excerpt=redaction.excerpt(seen.data),
        )

    def _signature(
        self, seen: Seen, *, document: object = None, envelope: Envelope | None = None, words: str = ""
    ) -> SignatureRow | None:
        if not self._signatures:
            return None
        return signatures.first(self._signatures, signatures.Subject(seen.surface, seen.head.status, document, envelope, words))

    def _signed(self, seen: Seen, row: SignatureRow, envelope: Envelope | None) -> Finding:
        kind, challenge = signatures.meaning(row)
        if kind is Kind.ANSWER:
            return ANSWER
        transient = kind in (Kind.RATE_LIMIT, Kind.OVERLOAD) or (kind is Kind.UPSTREAM_ERROR and seen.head.status >= 500)
        code = (envelope.code or envelope.type) if envelope else ""
        found = Meaning(kind, f"signature:{row.name}", code, challenge=challenge, transient=transient)
        finding = self._finding(seen, found, envelope or Envelope())
        if finding.wait is None and row.wait is not None:
            return replace(finding, wait=row.wait, wait_source="body")
        return finding


def _known(finding: Finding) -> bool:
    """False where only a status, or nothing at all, spoke for it."""
    return finding.row.partition(":")[0] not in ("unknown", "status")


def _own(head: Head) -> bool:
    """An error of another Breakwater before this one. A success is none, whatever its headers say."""
    return head.status >= 400 and bool(head.get("x-breakwater"))


def _told(head: Head) -> bool:
    """Another Breakwater has told the client already: a status that says so and a wait that clients keep."""
    return _own(head) and head.status in TOLD_STATUSES and retry_hints.kept_as_it_is(head)


def _captcha(row: str, head: Head, body: bytes = b"") -> Finding:
    wait, source = retry_hints.wait_of(head, (), "")
    told, excerpt = _told(head), redaction.excerpt(body)
    return Finding(Kind.CHALLENGE, row, None, "", Challenge.CAPTCHA, wait, source, honest=told, excerpt=excerpt)


def _passing(surface: Surface, row: str) -> Finding:
    """A success without any refusal in it: on a generation path it is no answer either."""
    return Finding(Kind.NOTHING if surface.role is Role.GENERATION else Kind.ANSWER, row=row)


def _words(data: bytes) -> str:
    return data.decode("utf-8", "replace")
