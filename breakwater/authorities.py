"""Certificate authorities: mitmproxy's own, and a bundle of the usual ones with it for what knows one file only."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import ssl
from collections.abc import Mapping
from pathlib import Path

import certifi

from breakwater.cli import CommandError, why

KEY_BITS = 2048
"""mitmproxy's own default."""
OF_THE_USER = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS")
"""Variables that name a file of further authorities, such as a company's."""
BUNDLE = "breakwater-ca-bundle"


def own(folder: Path) -> Path:
    """The certificate that clients have to trust."""
    return folder / "mitmproxy-ca-cert.pem"


def ensure(folder: Path) -> Path:
    """Make mitmproxy's CA where there is none yet; its certificate. Checked: its files can be read, and belong together."""
    certificate, both = own(folder), folder / "mitmproxy-ca.pem"
    try:
        if not both.exists() or not certificate.exists():
            from mitmproxy.certs import CertStore  # noqa: PLC0415 - half a second that a CA at hand need not wait for

            CertStore.from_store(folder, "mitmproxy", KEY_BITS)
        context = ssl.create_default_context(cafile=str(certificate))
        if b"ENCRYPTED" not in both.read_bytes():  # else mitmproxy's option cert_passphrase opens it
            context.load_cert_chain(str(both))
    except (OSError, ValueError) as fault:  # an ssl.SSLError is an OSError
        raise CommandError(f"{folder}: mitmproxy's CA cannot be made or read there: {why(fault)}") from None
    return certificate


def bundle(folder: Path, environment: Mapping[str, str]) -> Path:
    """A file of certifi's authorities, those that the environment names, and mitmproxy's; written where it is stale."""
    ours = ensure(folder)
    named = [Path(environment.get(name, "")) for name in OF_THE_USER]
    theirs = [
        file for file in named if is_readable(file) and file.resolve() != ours.resolve() and not file.name.startswith(BUNDLE)
    ]
    sources = [Path(certifi.where()), *dict.fromkeys(theirs)]
    text = b"".join(file.read_bytes().rstrip(b"\n") + b"\n" for file in (*sources, ours))
    suffix = f"-{hashlib.sha256(repr(sources).encode()).hexdigest()[:8]}" if theirs else ""
    path = folder / f"{BUNDLE}{suffix}.pem"
    with contextlib.suppress(OSError):
        if path.read_bytes() == text:
            return path
    fresh = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    try:
        fresh.write_bytes(text)
        fresh.replace(path)
    except OSError as fault:
        raise CommandError(f"{path}: cannot be written: {why(fault)}") from None
    return path


def is_readable(file: Path) -> bool:
    return os.access(file, os.R_OK) and file.is_file()
