"""Start-up: the mistakes that end it beside those in the config file itself, and what a person should know, one WARNING each."""

from __future__ import annotations

import difflib
import ipaddress
import logging
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mitmproxy.version
from mitmproxy import ctx

from policies.settings import Settings
from policies.settings_file import SettingsError

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


CAUTIONS: tuple[tuple[Callable[[Any], bool], str], ...] = (
    (
        _listens_beyond,
        "listening beyond loopback: anyone who reaches this port can use it as a proxy; add --listen-host 127.0.0.1",
    ),
    (
        lambda options: bool(options.stream_large_bodies),
        "stream_large_bodies hides large requests: they cannot be estimated, remembered or sent again",
    ),
    (
        lambda options: options.connection_strategy == "eager",
        (
            "connection_strategy is eager: an upstream is connected to even where a request is refused here; "
            "add --set connection_strategy=lazy"
        ),
    ),
    (
        lambda options: hasattr(options, "web_port") and _version() < MITMWEB_FIXED,
        (
            f"mitmweb of mitmproxy {mitmproxy.version.VERSION} has a published advisory (CVE-2025-23217): "
            "use mitmdump, or a newer mitmproxy"
        ),
    ),
)


def warn() -> None:
    """Say what is worth saying about the options as they are now, each thing once."""
    for applies, words in CAUTIONS:
        if words not in _said and applies(ctx.options):
            _said.add(words)
            logger.warning("Breakwater: %s", words)


PREFIX = "breakwater"


def misspelt(options: Any) -> Iterator[str]:
    """A line for each of mitmproxy's options that was set, that no addon knows, and that was meant for this one."""
    ours = {name.removeprefix(PREFIX): name for name in sorted(options.keys()) if name.startswith(PREFIX)}
    for name in options.deferred:
        near = difflib.get_close_matches(name, ours.values(), n=1, cutoff=0.85)
        if name.startswith(PREFIX):
            near = [ours[rest] for rest in difflib.get_close_matches(name.removeprefix(PREFIX), ours, n=1)]
        if near or name.startswith(PREFIX):
            hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(ours.values())}"
            yield f"{name if name.isprintable() else ascii(name)}: unknown option; {hint}"


def check_writable(settings: Settings, config: str) -> None:
    """Raise a ``SettingsError`` that names ``config`` and the key of a path at which nothing can be written.

    Leaves no file behind. A file that is there is appended to (evidence), or replaced by one beside it (state).
    """
    for key, path in (("evidence_path", settings.evidence_path), ("state_path", settings.state_path)):
        try:
            if path is not None:
                _try(Path(path).expanduser(), replaced=key == "state_path")
        except (OSError, ValueError, RuntimeError) as error:
            shown = path if path is None or path.isprintable() else ascii(path)
            raise SettingsError(
                f"{config}: {key}: {shown} cannot be written ({getattr(error, 'strerror', None) or error})"
            ) from None


def _try(file: Path, *, replaced: bool) -> None:
    if file.is_dir():
        raise IsADirectoryError(None, "it is a folder")
    if file.exists() and not replaced:
        # O_NONBLOCK: a pipe in the file's place must not stop the start.
        os.close(os.open(file, os.O_WRONLY | os.O_APPEND | getattr(os, "O_NONBLOCK", 0)))
    else:
        target = file.resolve()
        with tempfile.NamedTemporaryFile(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent):
            pass
