"""Tells a browser from a program by its TLS ClientHello."""

from __future__ import annotations

from collections.abc import Sequence

from policies.kinds import Family

RECORD_SIZE_LIMIT = 28
DELEGATED_CREDENTIALS = 34
"""Extension types; only Firefox sends both (RFC 8449, RFC 9345)."""


WEB_CHATS = frozenset({Family.QWEN_WEB, Family.ZAI_WEB})
"""Sites that ask a person for a check: what a browser does there is its own business."""


def is_person(family: Family, cipher_suites: Sequence[int], extension_types: Sequence[int]) -> bool:
    """True for a browser on a web chat; one that asks an API is a client like any other."""
    return family in WEB_CHATS and is_browser(cipher_suites, extension_types)


def is_browser(cipher_suites: Sequence[int], extension_types: Sequence[int]) -> bool:
    """True for Chromium and Safari (reserved GREASE values, RFC 8701) and for Firefox.

    OpenSSL (curl, Python) and Node send neither. A bridge that copies a browser's TLS looks like a browser.
    """
    if any(map(_is_grease, cipher_suites)) or any(map(_is_grease, extension_types)):
        return True
    return RECORD_SIZE_LIMIT in extension_types and DELEGATED_CREDENTIALS in extension_types


def _is_grease(value: int) -> bool:
    """0x0a0a, 0x1a1a, … 0xfafa: both bytes equal, low nibbles `a`."""
    return value & 0x0F0F == 0x0A0A and value >> 8 == value & 0xFF
