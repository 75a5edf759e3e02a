"""Ways to a host beside CONNECT by its name: by a bare address, through SOCKS, over TLS to the proxy itself."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Any

from tests.e2e.lab.client import connect, trusting
from tests.e2e.lab.proxy import Front

BARE = "192.0.2.7"
"""An address for documentation (RFC 5737); route.py sends it to the scripted upstream, as any name."""


class TlsOver:
    """TLS inside a stream that may be TLS itself, which Python's own sockets cannot do."""

    def __init__(self, outer: Any, context: ssl.SSLContext, host: str) -> None:
        self._outer, self._in, self._out = outer, ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_hostname=host)
        self._drive(self._tls.do_handshake)

    def sendall(self, data: bytes) -> None:
        self._drive(lambda: self._tls.write(data))

    def recv(self, most: int) -> bytes:
        return bytes(self._drive(lambda: self._tls.read(most)))

    def selected_alpn_protocol(self) -> str | None:
        return self._tls.selected_alpn_protocol()

    def settimeout(self, seconds: float) -> None:
        self._outer.settimeout(seconds)

    def close(self) -> None:
        self._outer.close()

    def _drive(self, step: Callable[[], Any]) -> Any:
        while True:
            try:
                made = step()
            except ssl.SSLWantReadError:
                self._flush()
                data = self._outer.recv(65536)
                self._in.write(data) if data else self._in.write_eof()
            else:
                self._flush()
                return made

    def _flush(self) -> None:
        if data := self._out.read():
            self._outer.sendall(data)


def by_address(plain: socket.socket, proxy: Front, host: str, port: int, protocols: Sequence[str]) -> Any:
    """CONNECT to a bare address; only the ClientHello names the host."""
    connect(plain, BARE, port)
    return trusting(proxy.ca_path, protocols).wrap_socket(plain, server_hostname=host)


def to(target: str) -> Callable[..., Any]:
    """CONNECT to this target, whatever host the ClientHello names."""

    def way(plain: socket.socket, proxy: Front, host: str, port: int, protocols: Sequence[str]) -> Any:
        connect(plain, target, port)
        return trusting(proxy.ca_path, protocols).wrap_socket(plain, server_hostname=host)

    return way


def by_socks(plain: socket.socket, proxy: Front, host: str, port: int, protocols: Sequence[str]) -> Any:
    """SOCKS5 to a bare address (RFC 1928)."""
    socks(plain, port)
    return trusting(proxy.ca_path, protocols).wrap_socket(plain, server_hostname=host)


def socks(plain: socket.socket, port: int) -> None:
    plain.sendall(b"\x05\x01\x00")
    assert plain.recv(2) == b"\x05\x00"
    plain.sendall(b"\x05\x01\x00\x01" + socket.inet_aton(BARE) + port.to_bytes(2))
    assert plain.recv(10)[:2] == b"\x05\x00"


def straight(plain: socket.socket, proxy: Front, host: str, _port: int, protocols: Sequence[str]) -> Any:
    """TLS to the proxy's own port, as the server that is meant (reverse mode)."""
    return trusting(proxy.ca_path, protocols).wrap_socket(plain, server_hostname=host)


def over_tls(plain: socket.socket, proxy: Front, _host: str, _port: int, _protocols: Sequence[str]) -> Any:
    """TLS to the proxy itself (an ``https://`` proxy), for requests in the clear."""
    context = trusting(proxy.ca_path)
    context.check_hostname = False
    return context.wrap_socket(plain, server_hostname="localhost")


def tunnel_over_tls(plain: socket.socket, proxy: Front, host: str, port: int, protocols: Sequence[str]) -> Any:
    """CONNECT inside TLS to the proxy itself."""
    outer = over_tls(plain, proxy, host, port, protocols)
    connect(outer, host, port)
    return TlsOver(outer, trusting(proxy.ca_path, protocols), host)
