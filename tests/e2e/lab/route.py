"""A mitmproxy script: sends every host name to the scripted upstream, by port.

443 becomes its TLS port with HTTP/1.1, 8443 its TLS port with HTTP/2, 9 a port where nobody listens,
everything else the clear one. Loopback addresses go where they say.
"""

import logging
import os

from mitmproxy.proxy.server_hooks import ServerConnectionHookData

PORTS = {port: int(os.environ[f"LAB_PORT_{port}"]) for port in (80, 443, 8443, 9)}
asked: dict[str, tuple[str, int]] = {}


def server_connect(data: ServerConnectionHookData) -> None:
    assert data.server.address
    host, port = data.server.address[:2]
    if host == "127.0.0.1":
        return
    asked[data.server.id] = (host, port)
    if port == 8443:
        data.server.alpn_offers = (b"h2",)
    data.server.address = ("127.0.0.1", PORTS.get(port, PORTS[80]))


def server_connected(data: ServerConnectionHookData) -> None:
    # The address that was asked for is put back, past the guard of an open connection: mitmproxy compares it when it
    # looks for a connection to use again, and would otherwise never find one.
    if data.server.id in asked:
        vars(data.server)["address"] = asked[data.server.id]


def server_disconnected(data: ServerConnectionHookData) -> None:
    asked.pop(data.server.id, None)


def running() -> None:
    logging.getLogger(__name__).info("lab: running")
