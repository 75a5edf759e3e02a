"""What an upstream's answer is: from its head, from a whole body, or from one frame of a stream."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from itertools import islice

from policies.answer import documents, shapes
from policies.answer.documents import Form, form_of
from policies.answer.frames import BOM, Frame, frames
from policies.calls import Surface
from policies.kinds import ANSWER, Family, Finding, Head, Kind, Role
from policies.refusal import challenges, envelopes, error_kinds, signatures
from policies.refusal.envelopes import Envelope
from policies.refusal.findings import Seen, captcha, complete, of_status
from policies.settings import SignatureRow

REDIRECTS = frozenset({301, 302, 303, 307, 308})
FRAMES = 65
"""Of a body of events that are looked at."""
_QUIET_EVENTS = frozenset({b"ping", b"keepalive", b"keep-alive", b"keep_alive", b"heartbeat"})


class Recogniser:
    """Stateless but for the user's signatures, which are asked before every table."""

    def __init__(self, rows: tuple[SignatureRow, ...] = ()) -> None:
        self._signatures = rows
        self._own_needles = lru_cache(maxsize=64)(partial(signatures.needles, rows))

    def head(self, surface: Surface, head: Head) -> Finding | None:
        """What status and headers alone say. A body that is an answer, or another challenge, says it better."""
        seen = Seen(surface, head, b"")
        if head.status in REDIRECTS and any(mark in head.get("location") for mark in challenges.PUNISH):
            return captcha(seen, "head:punish")
        if head.get("bxpunish").strip() == "1":
            return captcha(seen, "head:bxpunish")
        if surface.family is Family.ZCODE and head.status >= 300 and head.get("x-aliyun-captcha-verify-param"):
            return captcha(seen, "head:captcha-verify-param")
        return None

    def document(self, surface: Surface, head: Head, body: bytes, *, whole: bool) -> Finding:
        """A JSON, HTML or other body; not ``whole`` where it was cut or is longer than what is held: only what is certain."""
        seen = Seen(surface, head, body)
        if not body or body.isspace():
            return self._empty(seen)
        if challenges.is_page(body):
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
        named, name = shapes.named_status(frame), event.decode("latin-1")
        failed = name in shapes.FAILED_EVENTS or (named or 0) >= 400
        seen = Seen(surface, head, data or frame.raw, named, failed=failed)
        if not data:
            return self._bare(seen, frame)
        if data == b"[DONE]" or (event in _QUIET_EVENTS and not seen.failed):
            return None
        if challenges.is_page(data):
            row = challenges.page_row(head, data)
            return captcha(seen, row) if row else ANSWER
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
        return partial(may_refuse, more=self._own_needles(surface.family)) if self._signatures else may_refuse

    # -- bodies -----------------------------------------------------------------------------------------------

    def _empty(self, seen: Seen) -> Finding:
        if seen.head.status < 400:
            return Finding(Kind.NOTHING, row="empty")
        return self._refused(seen, {}) or of_status(seen)

    def _page(self, seen: Seen) -> Finding:
        signed = self._signed(seen, words=_words(seen.data[:8192]))
        if signed is not None:
            return signed
        if row := challenges.page_row(seen.head, seen.data):
            return captcha(seen, row)
        return of_status(seen) if seen.refused else _passing(seen.surface, "html")

    def _events(self, seen: Seen) -> Finding:
        """A body of events: its first refusal counts, as long as no answer has begun."""
        for frame in islice(frames(seen.data), FRAMES):
            finding = self.frame(seen.surface, seen.head, frame)
            if finding is not None and (finding.kind is not Kind.ANSWER or not seen.refused):
                return finding
        return of_status(seen) if seen.refused else Finding(Kind.NOTHING, row="preamble-only")

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
            if bare is not None and error_kinds.known(bare) and seen.surface.role is Role.GENERATION:
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
            if refusal is not None and (seen.refused or error_kinds.known(refusal)):
                return refusal
            if shapes.is_answer(shapes.lowered(value)):
                return ANSWER
        if seen.refused:
            return self._refused(seen, text[:8192]) or of_status(seen)
        signed = self._signed(seen, words=text[:8192])
        if signed is not None:
            return signed
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
            if finding is not None and error_kinds.known(finding):
                return finding
        return ANSWER

    # -- refusals ---------------------------------------------------------------------------------------------

    def _refused(self, seen: Seen, value: object) -> Finding | None:
        """The refusal in a JSON value, or in the words of an error, or None."""
        envelope = envelopes.read(value, refused=seen.refused)
        signed = self._signed(seen, document=value, envelope=envelope)
        if signed is not None:
            return signed
        fields = tuple(body for part in envelope.chain() for body in part.fields) if envelope else ()
        bodies = (shapes.lowered(value), *fields) if isinstance(value, dict) else fields
        if verdict := next(filter(None, map(challenges.verdict, bodies)), None):
            words = verdict.text or (envelope.message if envelope else "")
            return complete(seen, verdict, Envelope(message=words, fields=fields))
        if envelope is None:
            if not seen.refused:
                return None
            envelope = Envelope()
        http = seen.head.status if seen.head.status >= 400 else seen.named or envelope.status or 0
        return complete(seen, error_kinds.meaning(seen.surface.family, envelope, http), envelope)

    def _signed(
        self, seen: Seen, *, document: object = None, envelope: Envelope | None = None, words: str = ""
    ) -> Finding | None:
        """What the first of the user's rows that holds says of it."""
        if not self._signatures:
            return None
        status = seen.head.status
        subject = signatures.Subject(seen.surface.family, status, document, envelope, words)
        row = signatures.first(self._signatures, subject)
        if row is None:
            return None
        kind, challenge = signatures.meaning(row)
        if kind is Kind.ANSWER:
            return ANSWER
        transient = kind in (Kind.RATE_LIMIT, Kind.OVERLOAD) or (kind is Kind.UPSTREAM_ERROR and status >= 500)
        envelope = envelope or Envelope()
        code = envelope.code or envelope.type
        found = Finding(kind, f"signature:{row.name}", code, challenge=challenge, transient=transient)
        finding = complete(seen, found, envelope)
        if finding.wait is None and row.wait is not None:
            return replace(finding, wait=row.wait, wait_source="body")
        return finding


def _passing(surface: Surface, row: str) -> Finding:
    """A success without any refusal in it: on a generation path it is no answer either."""
    return Finding(Kind.NOTHING if surface.role is Role.GENERATION else Kind.ANSWER, row=row)


def _words(data: bytes) -> str:
    return data.decode("utf-8", "replace")


# -- bytes of a running stream: plain needles first, no JSON ----------------------------------------------------------


def _row(pattern: str) -> re.Pattern[str]:
    """Of bytes read as Latin-1: what is white space there is none in JSON."""
    return re.compile(pattern, re.ASCII)


_SAYS = r'"\s*:(?!\s*(?:null|true|""|\[\]|\{\}|0\s*[,}]|200\s*[,}]|"0"|"200"))'
"""Behind a key: a value that is more than nothing or a success."""
_REASON = r'(?:finish|stop)_reason"\s*:\s*"'
_NEEDLES: tuple[tuple[str, re.Pattern[str] | None], ...] = (
    ('"error', _row(r'"errors?' + _SAYS)),
    *((exact, None) for exact in (':"error"', ': "error"', "event:error", "event: error", "response.error", "response.failed")),
    *((key, _row(r'"' + key + _SAYS)) for key in ("ret", "code", "success")),
    ("detail", _row(r'"details?' + _SAYS)),
    ("rgv587_flag", None),
    ("captcha_error_type", None),
    ("http_status/", _row(r"http_status/[45]")),
    *((reason, _row(_REASON + reason)) for reason in shapes.FINISH_REASONS),
    ("<", _row(r"<\s*(?:!doctype|html|head|body|script|meta|title)")),
    ("/punish", None),
)
"""What a refusal's bytes hold, in lower case: first a plain needle, then the pattern that only a refusal's key or tag has."""
_FIRST = ("error", '"ret', '"code', '"success', "detail", "rgv587", "captcha", "http_st", "/punish", "<", "e.failed")
"""A part that each row cannot be without, but for those with a reason: looked for in every chunk of every stream."""
_REASON_KEY = 'reason"'
_REASON_SAID = _row(r'reason"\s*:\s*"')
"""Most say null."""


def may_refuse(data: bytes, more: Iterable[bytes] = ()) -> bool:
    """False where no refusal can be in the bytes. ``more``: further needles, in lower case."""
    low = data.lower()
    text = low.decode("latin-1")  # in which Python finds a needle twice as fast
    for part in _FIRST:
        if part in text:
            break
    else:
        if _REASON_KEY not in text or _REASON_SAID.search(text) is None:
            return any(needle in low for needle in more) if more else False
    return _is_near(text) or any(needle in low for needle in more)


def _is_near(text: str) -> bool:
    return any(needle in text and (pattern is None or pattern.search(text)) for needle, pattern in _NEEDLES)
