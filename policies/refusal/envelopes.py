"""Error envelopes: from every shape in which an upstream wraps an error to one normalised value.

Only the envelope is read. An object that carries an answer (choices, content, output, images, a task id) is none,
whatever its strings say, unless it has an error beside it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from policies.answer import documents, shapes
from policies.answer.shapes import text_of
from policies.refusal import overflow

CODE_KEYS = ("code", "error_code", "errorcode", "err_code", "errcode", "verify_code")
TYPE_KEYS = ("type", "error_type", "errortype", "captcha_error_type", "status", "status_name")
MESSAGE_KEYS = (
    "message", "msg", "details", "detail", "error_message", "error_msg", "errormessage", "errmsg", "template", "reason",
    "status_message",
)  # fmt: skip
STATUS_KEYS = ("status", "status_code", "statuscode", "http_status", "httpstatus", "http_code")
TOLD_OBJECTS = ("batch", "fine_tuning", "file", "upload", "vector_store", "eval")
"""Kept objects that tell of their own failure: to be told of it is the answer (platform.openai.com batches)."""
DEPTH = 5
MESSAGE_CHARACTERS = 8192

_BRACKETS = re.compile(r"\s*\[(\w{3,6})\]\s*(?:\[(.*)|(.*))", re.DOTALL)
_REQUEST_ID = re.compile(r"\]\s*\[[^\[\]]*+\]?\s*$")
_COLON_STATUS = re.compile(r"[:：]\s*\[([45]\d\d)\]\s*(\S.*)", re.DOTALL)
_ALGORITHM = re.compile(r"\s*<(\d{3,8})>\s*(?:([A-Za-z][\w.]*)\s*:\s*)?(.*)", re.DOTALL)
_WRAPPED = re.compile(
    r"(?:\w(?:Error|Exception)\s*[:\-]|HTTP(?:/[\d.]+)? \d{3}[\w ]{0,40}[:\-]|^(?:[45]\d\d[:\s]*)+|: [45]\d\d\)?[\w ]{0,40}:|"
    r"[Uu]pstream (?:request )?(?:error|failed|returned|responded)[\w ,]{0,40}[:\-]|[Ss]tatus code:? \d{3}\b.{0,300}[Bb]ody:|"
    r"(?:[Ss]tatus|[Ee]rror)(?: code)?:? ?\(?\d{3}\)?[\w ]{0,40}[:,\-]?|[Pp]rovider returned error\s*[:\-]|"
    r"[Ee]rror message (?:\w+ ){0,4}(?:is|was)\s*:?)\s*$"
)
_QUOTED = re.compile(r"(?<!\w)b?['\"]$")
"""Before JSON that Python printed as bytes or text (LiteLLM)."""
_LITERAL = re.compile(r"'((?:[^'\\]|\\.)*+)'|\"(?:[^\"\\]|\\.)*+\"|\b(?:None|True|False)\b", re.DOTALL)
_CONSTANTS = {"None": "null", "True": "true", "False": "false"}
_NAME = re.compile(r"[A-Za-z][\w.\-]{2,60}")


@dataclass(frozen=True, slots=True)
class Envelope:
    """One error, normalised."""

    code: str = ""
    """The code field as text; a number keeps its digits."""
    type: str = ""
    message: str = ""
    """The words alone, without ``[code]`` brackets, request id or ``<400> InternalError.Algo…:`` prefix."""
    in_text: str = ""
    """A code that stood in the message: ``[1302][…]`` or ``<400> InternalError.Algo…:``."""
    status: int | None = None
    """The HTTP status that the body names."""
    fields: tuple[Mapping[str, object], ...] = field(default=(), repr=False)
    """The objects that the envelope was read from, keys in lower case, the nearest to the error first."""
    inner: Envelope | None = None
    """Another provider's error, nested as JSON."""

    @property
    def codes(self) -> tuple[str, ...]:
        """Everything that may be a code, the most telling first."""
        named = self.message if _NAME.fullmatch(self.message) else ""
        return tuple(dict.fromkeys(code for code in (self.code, self.in_text, self.type, named) if code))

    @property
    def specific(self) -> bool:
        """True where it carries a code of its own, not merely an HTTP status."""
        return any(code and not is_status(code) for code in (self.code, self.in_text))

    def chain(self) -> tuple[Envelope, ...]:
        """The envelope and those nested in it, outermost first."""
        return (self, *self.inner.chain()) if self.inner else (self,)


def is_status(code: str) -> bool:
    """True for digits that are an HTTP error status."""
    return len(code) == 3 and code.isascii() and code.isdigit() and code[0] in "45"


def read(document: object, *, refused: bool, depth: int = 0) -> Envelope | None:
    """The error in a JSON value, or None. ``refused``: status or event name already say that it is one."""
    if depth > DEPTH:
        return None
    if isinstance(document, dict):
        return _from_object(shapes.lowered(document), refused=refused, depth=depth)
    if isinstance(document, list) and document and isinstance(document[0], dict):
        return read(document[0], refused=refused, depth=depth + 1)
    if not refused:
        return None
    return _from_words(document, {}, depth) if isinstance(document, str) else Envelope()


def _from_words(words: str, body: Mapping[str, object], depth: int) -> Envelope:
    """An error that is only words, or JSON as a string, alone or behind a wrapper's words."""
    words = words[:MESSAGE_CHARACTERS].strip()
    said = body.get("message")  # beside an error that is a mere name: Spring, Fastify
    inner = _nested(words, depth) or (_from_words(said, {}, depth) if isinstance(said, str) and said.strip() else None)
    return _unwrapped(Envelope(_code(body), "", words, "", _status(body), (body,) if body else (), inner))


def _from_object(body: Mapping[str, object], *, refused: bool, depth: int) -> Envelope | None:
    kept = not refused and str(body.get("object")).startswith(TOLD_OBJECTS)
    error = None if kept else body.get("error") or body.get("errors")
    if isinstance(error, list):
        error = error[0] if error else None
    if isinstance(error, dict) and shapes.hollow(error) and shapes.is_answer(body):
        error = None  # relays in Go write out an error that they do not have
    if isinstance(error, dict) and error:
        core = shapes.lowered(error)
        inside = None if _tells(core) or depth > DEPTH else _inside(core, refused=True, depth=depth + 1)
        return inside or _core(core, (core, body), depth)
    if isinstance(error, str) and error.strip():
        return _from_words(error, body, depth)
    failed = shapes.failed(body)
    refused = refused or failed
    if refused and isinstance(body.get("response"), dict):
        return read(body["response"], refused=True, depth=depth + 1)
    if not failed and shapes.is_answer(body):
        return None
    if shapes.is_failure(body.get("ret")):
        code, _, words = shapes.joined(body.get("ret")).partition("::")
        return Envelope(code, message=words.strip(), fields=(body,))
    inside = _inside(body, refused=refused, depth=depth)
    return inside or (_core(body, (body,), depth) if refused or shapes.says_failure(body) else None)


def _inside(body: Mapping[str, object], *, refused: bool, depth: int) -> Envelope | None:
    """An error one level down: ``data.error``, ``data.code``, ``detail`` as an object or as JSON text."""
    for key in ("data", "detail", "details", "body", "result"):
        value = body.get(key)
        if isinstance(value, dict):
            low = shapes.lowered(value)
            found = read(value, refused=False, depth=depth + 1)
            if found is None and key != "result" and (refused or body.get("success") is False) and _tells(low):
                found = _core(low, (low, body), depth)
            if found is not None:
                return found
        elif isinstance(value, str) and key == "detail" and not _code(body):
            return _core(body, (body,), depth)
    return None


def _tells(body: Mapping[str, object]) -> bool:
    return any(body.get(key) for key in (*CODE_KEYS, *MESSAGE_KEYS))


def _core(core: Mapping[str, object], fields: tuple[Mapping[str, object], ...], depth: int) -> Envelope:
    inner: Envelope | None = None
    words = ""
    for key in (*MESSAGE_KEYS, "error"):
        value = core.get(key)
        if isinstance(value, dict) and value and inner is None:
            inner = read(value, refused=True, depth=depth + 1)
        elif isinstance(value, list) and value and isinstance(value[0], dict) and not words:
            words = text_of(value[0].get("msg"))
        elif isinstance(value, str) and value.strip() and not words:
            words = value[:MESSAGE_CHARACTERS].strip()
    metadata = core.get("metadata")
    raw = metadata.get("raw") if isinstance(metadata, dict) else None
    if isinstance(raw, dict):
        inner = inner or read(raw, refused=True, depth=depth + 1)
    elif isinstance(raw, str):
        inner = inner or _nested(raw[:MESSAGE_CHARACTERS], depth)
    status = _status(core) or next((named for outer in fields if (named := _status(outer))), None)
    code = next((code for body in (core, *fields) if (code := _code(body))), "")
    return _unwrapped(Envelope(code, _type(core, fields), words, "", status, fields, inner or _nested(words, depth)))


def _unwrapped(envelope: Envelope) -> Envelope:
    words, in_text, named = _without_wrapping(envelope.message)
    status = envelope.status or (int(envelope.code) if is_status(envelope.code) else named)
    return replace(envelope, message=words, in_text=in_text, status=status)


def _without_wrapping(words: str) -> tuple[str, str, int | None]:
    """Message, code and status of ``[1302][text][request id]``, ``<400> InternalError.Algo.X: text`` and ``…: [503] text``."""
    for beginning in overflow.beginnings(words):
        if (found := _BRACKETS.match(beginning)) and (code := found[1]).isdigit():
            inside = found[2]
            text = found[3] if inside is None else _REQUEST_ID.sub("", inside)
            text = (text.removesuffix("]") if text == inside else text).strip()
            return text, code, int(code) if is_status(code) else None
        if found := _ALGORITHM.match(beginning):
            return found[3].strip(), found[2] or "", int(found[1]) if is_status(found[1]) else None
    named = _COLON_STATUS.search(words)
    return (named[2].strip(), "", int(named[1])) if named else (words, "", None)


def _nested(words: str, depth: int) -> Envelope | None:
    """An error as JSON text. Behind other words only where those name an exception or a status: messages quote input."""
    text = words.removeprefix("data:").lstrip() if words.startswith("data:") else words
    start = text.find("{", 0, 400)
    before = _QUOTED.sub("", text[: max(start, 0)]).rstrip("[ ")
    if start < 0 or depth >= DEPTH or (before and not _WRAPPED.search(before)):
        return None
    value = _leading(text[start:])
    if not isinstance(value, dict):
        return None
    low = shapes.lowered(value)
    if not (low.get("error") or _tells(low) or low.get("data") or shapes.is_failure(low.get("ret"))):
        return None
    return read(value, refused=True, depth=depth + 1)


def _leading(text: str) -> object:
    """The object that a text begins with: JSON, JSON with its quotes escaped once more, or as Python prints it."""
    if text.startswith('{\\"'):
        text = text.replace('\\"', '"')
    elif text.startswith("{'"):
        text = _LITERAL.sub(_as_json, text)
    return documents.leading(text)


def _as_json(literal: re.Match[str]) -> str:
    if literal[1] is None:
        return _CONSTANTS.get(literal[0], literal[0])
    return '"' + literal[1].replace("\\'", "'").replace('"', '\\"') + '"'


def _code(body: Mapping[str, object]) -> str:
    codes = (text_of(body.get(key)) for key in CODE_KEYS)
    return next((code for code in codes if code.lower() not in shapes.SUCCESS_CODES), "")


def _type(core: Mapping[str, object], fields: tuple[Mapping[str, object], ...]) -> str:
    for body in (core, *fields):
        for key in TYPE_KEYS:
            value = body.get(key)
            if isinstance(value, (str, int)) and (name := text_of(value)) and name not in ("error", "chat:completion"):
                return "" if key == "status" and is_status(name) else name
    return ""


def _status(body: Mapping[str, object]) -> int | None:
    for key in STATUS_KEYS:
        if is_status(named := text_of(body.get(key))):
            return int(named)
    return None
