"""Upstreams that `doctor` asks for a sign of life: one `HEAD /` each, without a key, as clients do before a request."""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from breakwater import authorities
from breakwater.places import HOST, reach

SECONDS = 5.0
UNREACHED = (502, 504)
"""What mitmproxy says of an upstream that it cannot reach."""
USUAL = "api.z.ai"
"""Whom to ask where no upstream is in use."""


def finder(settings: Any) -> Callable[[str, int], Any]:
    """A host and its port to their upstream, None where that is not guarded."""
    reach()
    from policies.request.surfaces import Surfaces  # noqa: PLC0415 - importable since a moment

    return Surfaces(settings.upstreams).at


def to_ask(settings: Any, status: Mapping[str, Any]) -> list[str]:
    """The user's own upstreams and those in use, one host of each: `host` or `host:port`."""
    from policies.request.surfaces import BUILT_IN  # noqa: PLC0415 - `finder` came first

    used = {row["name"] for row in status.get("upstreams", ()) if row.get("sent")}
    rows = [row for row in settings.upstreams if row not in BUILT_IN or row.name in used]
    hosts = [next((host for host in row.hosts if not host.startswith("*")), None) for row in rows]
    return [host for host in hosts if host] or [USUAL]


def ask(address: str, proxy: int | None, folder: Path) -> tuple[bool, str]:
    """Whether it answers, and the sentence that says so; through the Breakwater at this port where there is one."""
    host, _, port = address.rpartition(":") if address.count(":") == 1 else (address, "", "")
    number = int(port) if port.isdigit() else 443
    way = "through Breakwater" if proxy else "directly"
    try:
        status = _head(host, number, proxy, folder)
    except ssl.SSLError as fault:
        return False, f"{address}: TLS failed, asked {way}: {fault.reason or fault}"
    except (OSError, http.client.HTTPException) as fault:
        return False, f"{address}: no answer, asked {way}: {fault or type(fault).__name__}"
    if proxy and status in UNREACHED:
        return False, f"{address}: no answer, asked {way} (status {status})"
    return True, f"{address}: answers, asked {way} (status {status})"


def _head(host: str, port: int, proxy: int | None, folder: Path) -> int:
    context = ssl.create_default_context(cafile=str(authorities.usual()))
    if authorities.own(folder).exists():
        context.load_verify_locations(str(authorities.own(folder)))
    context.load_default_certs()
    end = (HOST, proxy) if proxy else (host, port)
    if port == 443:
        link: http.client.HTTPConnection = http.client.HTTPSConnection(*end, timeout=SECONDS, context=context)
        if proxy:
            link.set_tunnel(host, port)
    else:  # a gateway of the user's own with a port speaks HTTP in the clear, mostly
        link = http.client.HTTPConnection(*end, timeout=SECONDS)
    try:
        link.request("HEAD", "/" if port == 443 or not proxy else f"http://{host}:{port}/")
        return link.getresponse().status
    finally:
        link.close()
