"""What an upstream's answer is: from its head, from a whole body, or from one frame of a stream."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from policies.calls import Family, Role, Surface
from policies.findings import ANSWER, Challenge, Finding, Kind
from policies.settings import SignatureRow
from policies.wire import documents, envelopes, meanings, mtop, pages, redaction, shapes, signatures, waits
from policies.wire.codes.common import FINISH_REASONS
from policies.wire.envelopes import Envelope
from policies.wire.frames import Frame
from policies.wire.head import Head
from policies.wire.meanings import Meaning

REDIRECTS = frozenset({301, 302, 303, 307, 308})
LONG_WAIT = 3600
"""Seconds. A 429 that no row knows and that asks for more is no rate limit but a spent quota."""
_QUIET_EVENTS = frozenset({b"ping", b"keepalive", b"keep-alive", b"keep_alive", b"heartbeat"})
_ENDINGS = rb'"(?:finish|stop)_reason"\s*:\s*"(?:' + b"|".join(reason.encode() for reason in FINISH_REASONS) + rb')"'
_SUSPECTS = (
    rb'"(?:ret|error|errors|code|success|detail|details|captcha_error_type|rgv587_flag)"\s*:'
    rb'(?!\s*(?:null|true|""|\[\]|\{\}|0\s*[,}]|200\s*[,}]|"0"|"200"))'
    rb"|event:\s*error|HTTP_STATUS/[45]|response\.(?:failed|error)|" + _ENDINGS + rb'|"(?:type|object)"\s*:\s*"error"'
    rb"|<\s*(?:!doctype|html|head|body|script|meta|title)|_____tmd_____/punish"
)


class Recogniser:
    """Stateless but for the user's signatures, which are asked before every table."""

    def __init__(self, signatures: tuple[SignatureRow, ...] = ()) -> None:
        self._signatures = signatures
        self._suspects = lru_cache(maxsize=64)(self._suspects_of)

    def head(self, surface: Surface, head: Head) -> Finding | None:
        """What status and headers alone say. A body that is an answer, or another challenge, says it better."""
        row = ""
        if head.status in REDIRECTS and any(mark in head.get("location") for mark in mtop.PUNISH):
            row = "head:punish"
        elif head.get("bxpunish").strip() == "1":
            row = "head:bxpunish"
        elif surface.family is Family.ZCODE and head.status >= 300 and head.get("x-aliyun-captcha-verify-param"):
            row = "head:captcha-verify-param"
        if not row:
            return None
        wait, source = waits.wait_of(head, (), "")
        return Finding(Kind.CHALLENGE, row, None, "", Challenge.CAPTCHA, wait, source, honest=bool(head.get("x-breakwater")))

    def document(self, surface: Surface, head: Head, body: bytes, *, whole: bool) -> Finding:
        """A JSON, HTML or other body; not ``whole`` where it was cut or is longer than what is held: only what is certain."""
        if not body.strip():
            return self._empty(surface, head)
        if pages.is_page(body):
            return self._page(surface, head, body)
        if documents.is_events(body):
            return self._events(surface, head, body)
        value = documents.parse(body)
        if value is not documents.UNREADABLE:
            return self._value(surface, head, value, body)
        return self._broken(surface, head, body)

    def frame(self, surface: Surface, head: Head, frame: Frame) -> Finding | None:
        """One frame of a stream: None for a keep-alive or preamble, ANSWER for (part of) an answer, else the refusal."""
        data, named = frame.data.strip(), _named_status(frame)
        failed = frame.event.strip().lower() == b"error" or (named or 0) >= 400
        if not data:
            return self._bare(surface, head, frame, named, failed=failed)
        if data == b"[DONE]" or (frame.event.strip() in _QUIET_EVENTS and not failed):
            return None
        if pages.is_page(data):
            page = pages.challenge(head, data)
            return _page_finding(page.name, head, data) if page else ANSWER
        value = documents.parse(data)
        if value is documents.UNREADABLE:
            if failed or head.status >= 400:
                return self._refused(surface, head, _words(data), data, named, failed=True) or ANSWER
            value = documents.begun(data) if data[:1] in b"{[" and self.suspicious(surface, data) else None
            finding = self._refused(surface, head, value, data, named) if isinstance(value, dict) else None
            return finding if finding and finding.row != "unknown" else ANSWER
        refusal = self._refused(surface, head, value, data, named, failed=failed)
        if refusal is not None:
            return refusal
        return _part(value)

    def suspicious(self, surface: Surface, data: bytes) -> bool:
        """Bytes only. False where no refusal can be in them."""
        return self._suspects(surface).search(data) is not None

    # -- bodies -----------------------------------------------------------------------------------------------

    def _empty(self, surface: Surface, head: Head) -> Finding:
        if head.status < 400:
            return Finding(Kind.NOTHING, row="empty")
        return self._refused(surface, head, {}, b"", None, failed=True) or Finding(Kind.NOTHING, row="empty")

    def _page(self, surface: Surface, head: Head, body: bytes) -> Finding:
        words = _words(body[:8192])
        row = signatures.first(self._signatures, surface, head.status, None, None, words)
        if row is not None:
            return self._signed(row, head, None, body)
        page = pages.challenge(head, body)
        if page is not None:
            return _page_finding(page.name, head, body)
        if head.status >= 400:
            return self._status_only(head, body)
        return _passing(surface, "html")

    def _status_only(self, head: Head, body: bytes) -> Finding:
        found = meanings.by_status(head.status, "")
        return self._finding(found, head, Envelope(), body, None)

    def _events(self, surface: Surface, head: Head, body: bytes) -> Finding:
        answer: Finding | None = None
        for number, frame in enumerate(documents.events(body)):
            finding = self.frame(surface, head, frame)
            if finding is not None and (finding.kind is not Kind.ANSWER or head.status >= 400):
                return finding
            answer = answer or finding
            if answer is not None or number >= 64:
                break
        if answer is None and head.status >= 400:
            return self._status_only(head, body)
        return answer or Finding(Kind.NOTHING, row="preamble-only")

    def _value(self, surface: Surface, head: Head, value: object, body: bytes) -> Finding:
        refusal = self._refused(surface, head, value, body, None)
        if refusal is not None:
            return refusal
        if isinstance(value, dict):
            low = shapes.lowered(value)
            if shapes.is_answer(low):
                return _ended(low) or ANSWER
            refusal = self._refused(surface, head, value, body, None, failed=True)
            if refusal is not None and refusal.row.partition(":")[0] not in ("unknown", "status") and surface.role is Role.GENERATION:
                return refusal
        return _passing(surface, "no-answer")

    def _broken(self, surface: Surface, head: Head, body: bytes) -> Finding:
        """A body that is no JSON, or one that ends in its midst."""
        text = _words(body)
        value = documents.leading(text.lstrip("\ufeff \t\r\n")) if text.lstrip("\ufeff \t\r\n")[:1] == "{" else documents.UNREADABLE
        if value is documents.UNREADABLE:
            value = documents.begun(body)
        if isinstance(value, dict):
            refusal = self._refused(surface, head, value, body, None)
            if refusal is not None and (head.status >= 400 or refusal.row != "unknown"):
                return refusal
            if shapes.is_answer(shapes.lowered(value)):
                return ANSWER
        if head.status >= 400:
            refusal = self._refused(surface, head, text[:8192], body, None, failed=True)
            return refusal or self._status_only(head, body)
        row = signatures.first(self._signatures, surface, head.status, None, None, text[:8192])
        if row is not None:
            return self._signed(row, head, None, body)
        if head.media_type.startswith(("image/", "video/", "audio/")):
            return ANSWER
        return _passing(surface, "no-answer")

    def _bare(self, surface: Surface, head: Head, frame: Frame, named: int | None, *, failed: bool) -> Finding | None:
        """A frame without data: a comment, an error event alone, or a document that stands where a frame should."""
        raw = frame.raw.removeprefix(documents.BOM).strip()
        if raw[:1] in (b"{", b"[", b"<"):
            return self.document(surface, head, raw, whole=True)
        if failed:
            return self._refused(surface, head, {}, frame.raw, named, failed=True)
        return None

    # -- refusals ---------------------------------------------------------------------------------------------

    def _refused(
        self, surface: Surface, head: Head, value: object, data: bytes, named: int | None, *, failed: bool = False,
    ) -> Finding | None:
        """The refusal in a JSON value, or None. ``failed``: the event's name or status comment says that it is one."""
        refused = failed or head.status >= 400
        envelope = envelopes.read(value, refused=refused)
        row = signatures.first(self._signatures, surface, head.status, value, envelope, "") if self._signatures else None
        if row is not None:
            return self._signed(row, head, envelope, data)
        if isinstance(value, dict) and (verdict := mtop.verdict(shapes.lowered(value))):
            found = Meaning(Kind.CHALLENGE, "mtop:ret", verdict.code, challenge=verdict.challenge)
            read = envelope or Envelope(message=verdict.words)
            return self._finding(found, head, read if read.message else Envelope(message=verdict.words, fields=read.fields), data, named)
        if envelope is None:
            if not refused:
                return None
            envelope = Envelope()
        http = head.status if head.status >= 400 else named or envelope.status or 0
        found = meanings.meaning(surface.family, envelope, http)
        return self._finding(found, head, envelope, data, named or envelope.status, hours=surface.family is Family.QWEN_WEB)

    def _finding(
        self, found: Meaning, head: Head, envelope: Envelope, data: bytes, named: int | None, *, hours: bool = False,
    ) -> Finding:
        chain = envelope.chain()
        fields = tuple(body for part in chain for body in part.fields)
        words = next((part.message for part in reversed(chain) if part.message), "")
        wait, source = waits.wait_of(head, fields, words)
        if hours and wait is None and found.kind is Kind.QUOTA and (wait := waits.hours_in(fields)) is not None:
            source = "body"
        kind, transient = found.kind, found.transient
        if kind is Kind.RATE_LIMIT and not found.known and ((wait or 0) > LONG_WAIT or waits.reset_in(words)):
            kind, transient = Kind.QUOTA, False
        told = bool(head.get("x-breakwater"))
        in_range = head.status in (503, 529) and 1 <= (waits.in_header(head) or 0) < 60
        return Finding(
            kind=kind,
            row=found.row,
            code=found.code or None,
            text=redaction.text(words),
            challenge=found.challenge,
            wait=wait,
            wait_source=source,
            reset=waits.reset_in(words),
            status=meanings.real_status(found, head.status, named),
            window=found.window,
            transient=transient and not told,
            honest=told or (in_range and kind is not Kind.CHALLENGE),
            excerpt=redaction.excerpt(data),
        )

    def _signed(self, row: SignatureRow, head: Head, envelope: Envelope | None, data: bytes) -> Finding:
        kind, challenge = signatures.meaning(row)
        if kind is Kind.ANSWER:
            return ANSWER
        transient = kind in (Kind.RATE_LIMIT, Kind.OVERLOAD) or (kind is Kind.UPSTREAM_ERROR and head.status >= 500)
        code = (envelope.code or envelope.type) if envelope else ""
        found = Meaning(kind, f"signature:{row.name}", code, challenge=challenge, transient=transient)
        finding = self._finding(found, head, envelope or Envelope(), data, envelope.status if envelope else None)
        if finding.wait is None and row.wait is not None:
            return Finding(**{name: getattr(finding, name) for name in Finding.__slots__} | {"wait": row.wait, "wait_source": "body"})
        return finding

    def _suspects_of(self, surface: Surface) -> re.Pattern[bytes]:
        own = [re.escape(needle) for needle in signatures.needles(self._signatures, surface)]
        return re.compile(b"|".join([_SUSPECTS, *own]), re.IGNORECASE)


def _page_finding(name: str, head: Head, body: bytes) -> Finding:
    wait, source = waits.wait_of(head, (), "")
    return Finding(
        Kind.CHALLENGE, f"page:{name}", None, "", Challenge.CAPTCHA, wait, source,
        honest=bool(head.get("x-breakwater")), excerpt=redaction.excerpt(body),
    )


def _passing(surface: Surface, row: str) -> Finding:
    """A success without any refusal in it: on a generation path it is no answer either."""
    return Finding(Kind.NOTHING, row=row) if surface.role is Role.GENERATION else ANSWER


def _ended(body: Mapping[str, object]) -> Finding | None:
    for reason in shapes.reasons(body):
        kind = FINISH_REASONS.get(reason.lower())
        if kind is not None:
            return Finding(kind, row=f"finish:{reason.lower()}", code=reason.lower(), ends_answer=True)
    return None


def _part(value: object) -> Finding | None:
    if not isinstance(value, dict):
        return ANSWER
    if not value:
        return None
    low = shapes.lowered(value)
    return _ended(low) or (None if shapes.is_preamble(low) else ANSWER)


def _named_status(frame: Frame) -> int | None:
    for comment in frame.comments:
        found = re.match(rb"\s*HTTP_STATUS/(\d{3})\b", comment)
        if found:
            return int(found[1])
    return None


def _words(data: bytes) -> str:
    return data.decode("utf-8", "replace")
