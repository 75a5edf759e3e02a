"""Certificate authorities: mitmproxy's own, and a bundle of the usual ones with it for what knows one file only."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import os
import secrets
import ssl
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from breakwater.places import CommandError

KEY_BITS = 2048
"""mitmproxy's own default."""
OF_THE_USER = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS")
"""Variables that name a file of further authorities, such as a company's."""
BUNDLE = "breakwater-ca-bundle"


def own(folder: Path) -> Path:
    """The certificate that clients have to trust."""
    return folder / "mitmproxy-ca-cert.pem"


def ensure(folder: Path) -> Path:
    """Make mitmproxy's CA where there is none yet; its certificate."""
    if not (folder / "mitmproxy-ca.pem").exists() or not own(folder).exists():
        certs: Any = importlib.import_module("mitmproxy.certs")
        try:
            certs.CertStore.from_store(folder, "mitmproxy", KEY_BITS)
        except (OSError, ValueError) as fault:
            raise CommandError(f"{folder}: mitmproxy's CA cannot be made or read there: {_why(fault)}") from None
    try:
        _check(own(folder), folder / "mitmproxy-ca.pem")
    except (OSError, ValueError) as fault:  # an ssl.SSLError is an OSError
        raise CommandError(f"{folder}: mitmproxy's CA cannot be read: {_why(fault)}") from None
    return own(folder)


def _check(certificate: Path, both: Path) -> None:
    """Fail where one of mitmproxy's files cannot be read, or its key is another one's."""
    context = ssl.create_default_context(cafile=str(certificate))
    if b"ENCRYPTED" not in both.read_bytes():  # else mitmproxy's option cert_passphrase opens it
        context.load_cert_chain(str(both))


def bundle(folder: Path, environment: Mapping[str, str]) -> Path:
    """A file of the usual authorities, those that the environment names, and mitmproxy's; written where it is stale."""
    named = sources(folder, environment)
    text = b"".join(path.read_bytes().rstrip(b"\n") + b"\n" for path in (*named, ensure(folder)))
    suffix = "" if named == [usual()] else "-" + hashlib.sha256(repr(named).encode()).hexdigest()[:8]
    path = folder / f"{BUNDLE}{suffix}.pem"
    with contextlib.suppress(OSError):
        if path.read_bytes() == text:
            return path
    fresh = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    try:
        fresh.write_bytes(text)
        fresh.replace(path)
    except OSError as fault:
        raise CommandError(f"{path}: cannot be written: {_why(fault)}") from None
    return path


def usual() -> Path:
    certifi: Any = importlib.import_module("certifi")
    return Path(certifi.where())


def sources(folder: Path, environment: Mapping[str, str]) -> list[Path]:
    """Files of authorities without mitmproxy's: certifi's, and what the environment names beside our own files."""
    named = [Path(environment[name]) for name in OF_THE_USER if environment.get(name)]
    ours = {own(folder).resolve()}
    theirs = [
        path for path in named if path.resolve() not in ours and not path.name.startswith(BUNDLE) and _readable(path)
    ]
    return [usual(), *dict.fromkeys(theirs)]


def _readable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.R_OK)


def _why(fault: Exception) -> str:
    return fault.strerror if isinstance(fault, OSError) and fault.strerror else str(fault)


def days_left(not_after: str) -> float:
    """Days until a certificate's `notAfter`, as the ssl module writes it."""
    return (ssl.cert_time_to_seconds(not_after) - time.time()) / 86400
