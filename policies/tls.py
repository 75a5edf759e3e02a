"""Which TLS connection is decrypted, and which is tunnelled unread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from policies.kinds import Family
from policies.request.surfaces import Surfaces
from policies.settings import Settings

RECORD_SIZE_LIMIT = 28
DELEGATED_CREDENTIALS = 34
"""Extension types; only Firefox sends both (RFC 8449, RFC 9345)."""
WEB_CHATS = frozenset({Family.QWEN_WEB, Family.ZAI_WEB})
"""Sites that ask a person for a check: what a browser does there is its own business. One that asks an API is a client."""


class Treatment(StrEnum):
    """What becomes of a TLS connection."""

    USUAL = "usual"
    """Whatever mitmproxy does with it."""
    TUNNEL = "tunnel"
    """Not decrypted: nothing configured is there."""
    PERSON = "person"
    """Not decrypted: a browser on a web chat."""


@dataclass(frozen=True, slots=True)
class ClientHello:
    """The first words of a TLS client, and where its connection leads."""

    address: tuple[str, int] | None
    """Host and port that the connection leads to; None where it ends at the proxy itself (an ``https://`` proxy)."""
    ends_here: bool
    """The proxy is the server that the client means (reverse mode), whatever stands behind it."""
    sni: str | None
    cipher_suites: Sequence[int]
    extension_types: Sequence[int]


def treatment(hello: ClientHello, surfaces: Surfaces, settings: Settings) -> Treatment:
    """The treatment of a connection: only what is on its way through, to a host that nobody guards, is left unread."""
    if hello.address is None or hello.ends_here:
        return Treatment.USUAL
    upstream = surfaces.at(*hello.address, hello.sni)
    if upstream is None:
        return Treatment.TUNNEL if settings.decrypt == "guarded" else Treatment.USUAL
    person = upstream.family in WEB_CHATS and is_browser(hello.cipher_suites, hello.extension_types)
    return Treatment.PERSON if person and settings.browsers == "tunnel" else Treatment.USUAL


def is_browser(cipher_suites: Sequence[int], extension_types: Sequence[int]) -> bool:
    """True for Chromium and Safari (reserved GREASE values, RFC 8701) and for Firefox.

    OpenSSL (curl, Python) and Node send neither. A bridge that copies a browser's TLS looks like a browser.
    """
    firefox = RECORD_SIZE_LIMIT in extension_types and DELEGATED_CREDENTIALS in extension_types
    return firefox or any(map(_is_grease, (*cipher_suites, *extension_types)))


def _is_grease(value: int) -> bool:
    """0x0a0a, 0x1a1a, … 0xfafa: both bytes equal, low nibbles `a`."""
    return value & 0x0F0F == 0x0A0A and value >> 8 == value & 0xFF
