"""What form a body has, by its first bytes: a content-type of a refusal is often wrong."""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import StrEnum
from typing import Protocol

from policies.answer.frames import BOM, Frame
from policies.answer.head import Head
from policies.calls import Surface
from policies.findings import Finding


class Form(StrEnum):
    DOCUMENT = "document"
    """JSON or HTML: judged as a whole."""
    STREAM = "stream"
    """Server-sent events: judged frame by frame."""
    OPAQUE = "opaque"
    """Anything else: nothing to judge."""


_STARTERS = (b"data:", b"event:", b"id:", b"retry:", b":")
_LONGEST = max(map(len, _STARTERS))
_DOCUMENT_TYPES = ("application/json", "text/html", "application/problem+json")
_BARE = re.compile(rb"^[ \t]*[{\[<]", re.MULTILINE)


def form_of(start: bytes, media_type: str) -> Form | None:
    """The form of a body that starts so; None while that is open (blank so far, or half a field name)."""
    lead = start.removeprefix(BOM).lstrip(b" \t\r\n")
    if not lead or (len(start) < len(BOM) and BOM.startswith(start)):
        return None
    if lead[:1] in b"{[<":
        return Form.DOCUMENT
    if lead.startswith(_STARTERS):
        return Form.STREAM
    if len(lead) < _LONGEST and any(starter.startswith(lead) for starter in _STARTERS):
        return None
    if media_type == "text/event-stream":
        return Form.STREAM
    return Form.DOCUMENT if media_type in _DOCUMENT_TYPES else Form.OPAQUE


def bare_document(frame: Frame) -> bytes | None:
    """The document that stands without ``data:`` where a frame should (an error after keep-alive comments)."""
    where = _BARE.search(frame.raw.replace(b"\r", b"\n"))
    if where is None or (frame.data and b"data:" in frame.raw[: where.start()]):
        return None
    return frame.raw[where.start() :]


class Recogniser(Protocol):
    """Reads the envelope of an answer and says what it is."""

    def head(self, surface: Surface, head: Head) -> Finding | None:
        """What status and headers alone say."""

    def document(self, surface: Surface, head: Head, body: bytes, *, whole: bool) -> Finding:
        """A JSON, HTML or other body; not ``whole`` where it was cut or is longer than what is held."""

    def frame(self, surface: Surface, head: Head, frame: Frame) -> Finding | None:
        """One frame: None for a keep-alive or preamble, else the first answer or the refusal."""

    def suspicion(self, surface: Surface) -> Callable[[bytes], bool]:
        """Cheap, on bytes: gives False where neither a refusal nor an ending that means one can be in them."""
