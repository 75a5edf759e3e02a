"""A certificate authority made for one test run and thrown away with it."""

from __future__ import annotations

import datetime as dt
import ssl
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

NAMES = ("sealed.test", "localhost")
"""Who checks the certificate asks for these; a wildcard below a top-level domain is not accepted by OpenSSL."""


class Authority:
    """Signs one certificate, for `NAMES`."""

    def __init__(self, folder: Path) -> None:
        self.ca_path = folder / "lab-ca.pem"
        self.chain_path = folder / "lab-server.pem"
        root_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
        root = _certificate("Throw-away test CA", root_key, None, None)
        leaf = _certificate("sealed.test", key, root, root_key)
        self.ca_path.write_bytes(root.public_bytes(serialization.Encoding.PEM))
        private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        self.chain_path.write_bytes(leaf.public_bytes(serialization.Encoding.PEM) + private)

    def server_context(self, protocols: Sequence[str]) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.chain_path)
        context.set_alpn_protocols(list(protocols))
        return context


_MAY_SIGN = x509.KeyUsage(
    digital_signature=True,
    key_cert_sign=True,
    crl_sign=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)


def _certificate(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: x509.Certificate | None,
    issuer_key: ec.EllipticCurvePrivateKey | None,
) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = dt.datetime.now(dt.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=2))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
    )
    # Python 3.13 verifies strictly: a certificate has to say whose key signed it.
    signer = (issuer_key or key).public_key()
    builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    builder = builder.add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer), critical=False)
    if issuer is None:
        builder = builder.add_extension(_MAY_SIGN, critical=True)
    if issuer:
        names = [x509.DNSName(name) for name in NAMES]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(issuer_key or key, hashes.SHA256())
