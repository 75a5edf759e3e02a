"""What must not leave an upstream's body: captcha links and tokens, credentials."""

from __future__ import annotations

import re

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


def text(words: str) -> str:
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
