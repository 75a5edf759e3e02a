"""ClientHellos of TLS 1.2, in which certificates come in the clear: who answers shows without a whole handshake."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Sequence
from typing import BinaryIO

from cryptography import x509
from cryptography.x509.oid import NameOID

from tests.e2e.lab.client import connect
from tests.e2e.lab.proxy import Proxy

TIMEOUT_SECONDS = 20.0
ECDHE_ECDSA, ECDHE_RSA = 0xC02B, 0xC02F
GREASE = 0x3A3A
PROGRAM: tuple[Sequence[int], Sequence[int]] = ((ECDHE_ECDSA, ECDHE_RSA), ())
CHROMIUM: tuple[Sequence[int], Sequence[int]] = ((GREASE, ECDHE_ECDSA, ECDHE_RSA), (GREASE,))
FIREFOX: tuple[Sequence[int], Sequence[int]] = ((ECDHE_ECDSA, ECDHE_RSA), (28, 34))
"""Cipher suites, and the extensions by which a browser is known."""


def issuer(
    proxy: Proxy,
    host: str,
    kind: tuple[Sequence[int], Sequence[int]] = PROGRAM,
    *,
    at: str | None = None,
    straight: bool = False,
) -> str:
    """Common name of who signed the certificate that this client gets for this host, through the proxy.

    ``at``: the address of the tunnel, where it is not the host itself; ``straight``: without a tunnel, to the proxy itself.
    """
    with socket.create_connection(("127.0.0.1", proxy.port), TIMEOUT_SECONDS) as plain:
        if not straight:
            connect(plain, at or host, 443)
        plain.sendall(hello(host, *kind))
        return _issuer(_certificate(plain.makefile("rb")))


def hello(host: str, ciphers: Sequence[int], marks: Sequence[int]) -> bytes:
    name = host.encode()
    kinds = [
        *((mark, b"\x00\x02\x04\x03" if mark == 34 else b"\x40\x01" if mark == 28 else b"") for mark in marks),
        (0, struct.pack(">HBH", len(name) + 3, 0, len(name)) + name),
        (10, b"\x00\x04\x00\x1d\x00\x17"),
        (11, b"\x01\x00"),
        (13, b"\x00\x06\x04\x03\x08\x04\x04\x01"),
    ]
    extensions = b"".join(struct.pack(">HH", kind, len(data)) + data for kind, data in kinds)
    suites = b"".join(struct.pack(">H", suite) for suite in ciphers)
    body = b"\x03\x03" + os.urandom(32) + b"\x00" + struct.pack(">H", len(suites)) + suites + b"\x01\x00"
    body += struct.pack(">H", len(extensions)) + extensions
    message = b"\x01" + struct.pack(">I", len(body))[1:] + body
    return b"\x16\x03\x01" + struct.pack(">H", len(message)) + message


def _certificate(read: BinaryIO) -> x509.Certificate:
    """The leaf in the first Certificate message of the handshake."""
    data = b""
    while True:
        while len(data) < 4 or len(data) < 4 + int.from_bytes(data[1:4]):
            head = read.read(5)
            assert head, "the connection ended before a certificate came"
            assert head[0] == 22, f"no handshake: {head!r}"
            data += read.read(int.from_bytes(head[3:5]))
        size = 4 + int.from_bytes(data[1:4])
        message, data = data[:size], data[size:]
        if message[0] == 11:
            return x509.load_der_x509_certificate(message[10 : 10 + int.from_bytes(message[7:10])])


def _issuer(certificate: x509.Certificate) -> str:
    return str(certificate.issuer.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)
