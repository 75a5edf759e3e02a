"""What a person should know about the way this mitmproxy was started: one WARNING each, once."""

from __future__ import annotations

import ipaddress
import logging
import re
from collections.abc import Callable
from typing import Any

import mitmproxy.version
from mitmproxy import ctx

logger = logging.getLogger("breakwater")

MITMWEB_FIXED = (11, 1, 2)
"""CVE-2025-23217 (GHSA-wg33-5h85-7q5p): before it a page elsewhere could reach mitmweb's interface through the proxy."""

_said: set[str] = set()


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def _listens_beyond(options: Any) -> bool:
    """Each mode listens where it says so itself, else where ``listen_host`` says, else everywhere."""
    for mode in options.mode:
        found = re.search(r"@(?:(?P<host>.+):)?\d+$", mode)
        if not _is_loopback((found and found["host"]) or options.listen_host):
            return True
    return False


def _version() -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", mitmproxy.version.VERSION)[:3])


CAUTIONS: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    (
        "listen",
        _listens_beyond,
        "listening beyond loopback: anyone who reaches this port can use it as a proxy; add --listen-host 127.0.0.1",
    ),
    (
        "stream_large_bodies",
        lambda options: bool(options.stream_large_bodies),
        "stream_large_bodies hides large requests: they cannot be estimated, remembered or sent again",
    ),
    (
        "eager",
        lambda options: options.connection_strategy == "eager",
        (
            "connection_strategy is eager: an upstream is connected to even where a request is refused here; "
            "add --set connection_strategy=lazy"
        ),
    ),
    (
        "mitmweb",
        lambda options: hasattr(options, "web_port") and _version() < MITMWEB_FIXED,
        (
            f"mitmweb of mitmproxy {mitmproxy.version.VERSION} has a published advisory (CVE-2025-23217): "
            "use mitmdump, or a newer mitmproxy"
        ),
    ),
)


def at_start() -> None:
    """Say what is worth saying about the options as they are now, each thing once."""
    for name, applies, words in CAUTIONS:
        if name not in _said and applies(ctx.options):
            _said.add(name)
            logger.warning("Breakwater: %s", words)
