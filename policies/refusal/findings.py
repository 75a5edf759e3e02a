"""Findings made whole: what an answer says beside its kind, without what must not leave it: captcha links and tokens, credentials."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from policies.calls import Surface
from policies.kinds import Challenge, Family, Finding, Head, Kind
from policies.refusal import error_kinds, retry_hints
from policies.refusal.envelopes import Envelope

TOLD_STATUSES = frozenset({429, 503, 529})
LONG_WAIT = 3600
"""Seconds. A 429 that no row knows and that asks for more is no rate limit but a spent quota."""
NO_ENVELOPE = Envelope()
TEXT_CHARACTERS = 500
EXCERPT_BYTES = 2048

_RUN = re.compile(r"[^\s\"'<>]+")
_CAPTCHA = ("_____tmd_____", "/punish?", "bixi.alicdn.com/punish", "x5secdata")
"""A run of characters with one of these is a captcha link."""
_SINGLE_USE = (
    r"((?:x5secdata|x5sec|x5step|captcha_verify_param|captchaVerifyParam|certifyId|securityToken|arg1)"
    r"[\\\"']{0,3}\s*[=:]\s*[\\\"']{0,3})[^\s\"'&<>\\,}]+"
)
_WAF = r"(aliyun_waf_\w{1,8}[\"']?\s+content=[\"']?)[^\"'>\s]+"
_CREDENTIAL = r"\b(?:sk-[\w.\-]{8,}|eyJ[\w\-]{6,}\.[\w\-.]{6,}|Bearer\s+[\w.\-+/=~]{8,})"

_CUTS = (
    (re.compile(_SINGLE_USE, re.IGNORECASE), r"\1[cut]"),
    (re.compile(_WAF, re.IGNORECASE), r"\1[cut]"),
    (re.compile(_CREDENTIAL), "[cut]"),
)


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


def complete(seen: Seen, found: Finding, envelope: Envelope = NO_ENVELOPE) -> Finding:
    """What was found, with everything that the answer says beside it."""
    head, chain = seen.head, envelope.chain()
    fields = tuple(body for part in chain for body in part.fields)
    words = next((part.message for part in reversed(chain) if part.message), "")
    wait, source = retry_hints.wait_of(head, fields, words)
    kind, transient, reset = found.kind, found.transient, retry_hints.reset_in(words)
    if wait is None and kind is Kind.QUOTA and seen.surface.family is Family.QWEN_WEB:
        wait = retry_hints.hours_in(fields)
        source = "body" if wait else None
    if kind is Kind.RATE_LIMIT and not error_kinds.known(found) and ((wait or 0) > LONG_WAIT or reset):
        kind, transient = Kind.QUOTA, False
    in_range = head.status in (503, 529) and retry_hints.kept_as_it_is(head)
    return replace(
        found,
        kind=kind,
        code=found.code or None,
        text=redacted(words),
        wait=wait,
        wait_source=source,
        reset=reset,
        status=error_kinds.real_status(found, head.status, seen.named or envelope.status),
        transient=transient and not _own(head),
        honest=_told(head) or (in_range and kind not in error_kinds.LASTING),
        excerpt=excerpt(seen.data),
    )


def of_status(seen: Seen) -> Finding:
    """What the status alone says."""
    return complete(seen, error_kinds.by_status(seen.head.status))


def captcha(seen: Seen, row: str) -> Finding:
    return complete(seen, Finding(Kind.CHALLENGE, row, challenge=Challenge.CAPTCHA))


def _own(head: Head) -> bool:
    """An error of another Breakwater before this one. A success is none, whatever its headers say."""
    return head.status >= 400 and bool(head.get("x-breakwater"))


def _told(head: Head) -> bool:
    """Another Breakwater has told the client already: a status that says so and a wait that clients keep."""
    return _own(head) and head.status in TOLD_STATUSES and retry_hints.kept_as_it_is(head)


# -- what must not leave it ----------------------------------------------------------------------------------------


def redacted(words: str) -> str:
    """At most 500 characters of an upstream's message, on one line, without captcha link, token or credential."""
    return " ".join(_cut(words[:4096]).split())[:TEXT_CHARACTERS]


def excerpt(body: bytes) -> bytes:
    """At most 2 KiB of an upstream's body, without captcha link, token or credential."""
    kept = _cut(body[: 4 * EXCERPT_BYTES].decode("utf-8", "replace")).encode("utf-8", "replace")
    return kept[:EXCERPT_BYTES]


def _cut(words: str) -> str:
    words = words.encode("utf-8", "replace").decode()
    for pattern, instead in _CUTS:
        words = pattern.sub(instead, words)
    if any(mark in words.lower() for mark in _CAPTCHA):
        words = _RUN.sub(_without_link, words)  # afterwards: it takes the names by which the values above are known
    return words


def _without_link(run: re.Match[str]) -> str:
    return "[captcha link]" if any(mark in run[0].lower() for mark in _CAPTCHA) else run[0]
