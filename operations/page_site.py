"""Where the status page is: at ``breakwater.internal`` through the proxy, and at the proxy's own address."""

from __future__ import annotations

import ipaddress

from mitmproxy import http

HOST = "breakwater.internal"
NAMES = frozenset({"127.0.0.1", "localhost", "::1"})
"""Names of the proxy's own address. No other one counts: a name of somebody else's may be pointed at loopback."""
DIRECT = frozenset({"regular", "upstream"})
"""Modes in which a request can be for the proxy itself; in the others all of it is an upstream's."""
HTTP = 80


def site(flow: http.HTTPFlow) -> str:
    """Authority under which a request asks for the page, in lower case; empty where it asks for something else."""
    asked = flow.request
    if asked.host == HOST:
        return HOST
    here = flow.client_conn.sockname
    if not here or asked.port != here[1] or asked.host.lower() not in NAMES:
        return ""
    if flow.client_conn.proxy_mode.type_name not in DIRECT or not is_loopback(flow.client_conn.peername):
        return ""
    name = f"[{asked.host}]" if ":" in asked.host else asked.host.lower()
    authority = (asked.host_header or "").lower()
    return authority if authority == f"{name}:{asked.port}" or (asked.port == HTTP and authority == name) else ""


def is_loopback(peer: tuple[str, ...] | tuple[str, int] | tuple[str, int, int, int] | None) -> bool:
    """Tell whether a peer's address is this machine's loopback, written as IPv4, IPv6 or the one within the other."""
    try:
        address = ipaddress.ip_address(peer[0] if peer else "")
    except ValueError:
        return False
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback
