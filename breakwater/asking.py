"""Asking what runs on a port, and for its status, through the proxy: nothing but the standard library."""

from __future__ import annotations

import enum
import http.client
import json
import socket
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from breakwater.cli import HOST

PAGE = "breakwater.internal"
SECONDS = 5.0
"""How long to wait for the proxy; it answers this within milliseconds unless the machine is very busy."""
MOST_BYTES = 16 * 2**20


class Kind(enum.Enum):
    NOTHING = "nothing"
    BREAKWATER = "a Breakwater that runs there already"
    OTHER = "something that is not Breakwater"


@dataclass(frozen=True)
class Found:
    """What listens on a port; its status where that is Breakwater."""

    kind: Kind
    status: dict[str, Any] = field(default_factory=dict)
    broke_off: bool = False
    """True where it took the connection and said nothing, as a Breakwater that is just ending does."""


def who(port: int, seconds: float = SECONDS) -> Found:
    """Ask the port on the loopback address for Breakwater's status."""
    link = http.client.HTTPConnection(HOST, port, timeout=seconds)
    try:
        link.connect()
    except OSError:
        return Found(Kind.NOTHING)
    try:
        link.request("GET", f"http://{PAGE}/status.json", headers={"Host": PAGE, "Accept": "application/json"})
        answer = link.getresponse()
        status = json.loads(answer.read(MOST_BYTES)) if answer.status == http.client.OK else None
    except (OSError, ValueError, http.client.HTTPException):
        return Found(Kind.OTHER, broke_off=True)
    finally:
        link.close()
    if isinstance(status, dict) and "version" in status and "upstreams" in status:
        return Found(Kind.BREAKWATER, status)
    return Found(Kind.OTHER)


def is_free(port: int) -> bool:
    """Tell whether a proxy could listen there."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def is_trusted(port: int, authority: Path) -> bool:
    """Tell whether the proxy there decrypts with this CA: ask for its page through TLS."""
    context = ssl.create_default_context(cafile=str(authority))
    link = http.client.HTTPSConnection(HOST, port, timeout=SECONDS, context=context)
    link.set_tunnel(PAGE, 443)
    try:
        link.request("GET", "/healthz")
        return link.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        link.close()
