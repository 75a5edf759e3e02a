"""`breakwater doctor`: what is here, what is missing and what is misconfigured, a line each."""

from __future__ import annotations

import http.client
import os
import shutil
import ssl
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import certifi
from cryptography import x509

from breakwater import asking, authorities, env
from breakwater.cli import HOST, Parser, app, common, confdir, reach, settings_of, version
from breakwater.start import uvloop_fault

OK, NOTE, BAD = "ok", "--", "!!"
DAYS_BEFORE_ITS_END = 30


class Line(NamedTuple):
    sign: str
    text: str


def main(words: Sequence[str]) -> int:
    parser = Parser(prog="breakwater doctor", description="Says what is here, what is missing, what is misconfigured.")
    common(parser)
    parser.add_argument("--offline", action="store_true", help="ask no upstream")
    parser.epilog = f"{OK}: as it should be; {NOTE}: to know; {BAD}: to mend (exit status 1)"
    asked = parser.parse_args(words)
    worst = 0
    for sign, text in _lines(asked.port, asked.sets, offline=asked.offline):
        print(f"{sign} {text}", flush=True)
        worst = max(worst, sign == BAD)
    return int(worst)


def _lines(port: int, sets: list[str], *, offline: bool) -> Iterator[Line]:
    folder = confdir(sets)
    yield Line(OK, f"Breakwater {version()}, mitmproxy {metadata.version('mitmproxy')}, Python {sys.version.split()[0]}")
    fault = uvloop_fault()
    yield Line(NOTE if fault else OK, f"loop: asyncio; uvloop: {fault}" if fault else "loop: uvloop")
    settings, line = _config(settings_of(sets).get("breakwater_config"))
    yield line
    yield from _authority(folder)
    found = asking.who(port)
    yield from _port(port, found, folder)
    yield from _clients(port, folder)
    if settings is None:
        return
    from policies.request.surfaces import Surfaces  # noqa: PLC0415 - reached with the config

    at = Surfaces(settings.upstreams).at
    for mistake in env.mistakes(os.environ, port, lambda host, number: at(host, number) is not None):
        yield Line(BAD, mistake)
    if not offline:
        proxied = port if found.kind is asking.Kind.BREAKWATER else None
        for address in _to_ask(settings, found.status):
            answers, words = _ask(address, proxied, folder)
            yield Line(OK if answers else BAD, words)


def _config(named: str | None) -> tuple[Any, Line]:
    """The settings, None where the file cannot be used, and what to say of it."""
    reach()
    from policies.request.surfaces import BUILT_IN  # noqa: PLC0415 - importable since a moment
    from policies.settings_file import SettingsError, parse  # noqa: PLC0415

    path = Path(named or app() / "config.yaml").expanduser()
    try:
        settings = parse(path.read_text("utf-8"), str(path), os.environ, BUILT_IN)
    except SettingsError as error:
        return None, Line(BAD, str(error))
    except (OSError, ValueError) as error:
        return None, Line(BAD, f"{path}: cannot be read: {error}")
    return settings, Line(OK, f"config: {path}: {settings.mode}, {len(settings.upstreams)} upstreams")


def _authority(folder: Path) -> Iterator[Line]:
    own, key = authorities.own(folder), folder / "mitmproxy-ca.pem"
    if not own.exists():
        yield Line(NOTE, f"CA: none in {folder} yet; start, run and env make it")
        return
    try:
        days = (x509.load_pem_x509_certificate(own.read_bytes()).not_valid_after_utc - datetime.now(UTC)).days
        private = not key.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO)
    except (OSError, ValueError) as fault:
        yield Line(BAD, f"CA: {own} cannot be read: {fault if isinstance(fault, OSError) else 'it is no certificate'}")
        return
    yield Line(OK if days > DAYS_BEFORE_ITS_END else BAD, f"CA: {own}, {days} days left")
    if not private:
        yield Line(BAD, f"CA: {key} can be read by others: chmod 600")


def _port(port: int, found: asking.Found, folder: Path) -> Iterator[Line]:
    if found.kind is asking.Kind.NOTHING:
        free = asking.is_free(port)
        yield Line(OK if free else BAD, f"port {port}: {'free' if free else 'cannot be listened on'}")
    elif found.kind is asking.Kind.OTHER:
        yield Line(BAD, f"port {port}: taken by {found.kind.value}")
    else:
        yield Line(OK, f"port {port}: Breakwater {found.status['version']} runs there, {found.status.get('mode')}")
        own = authorities.own(folder)
        if not own.exists() or not asking.is_trusted(port, own):
            yield Line(BAD, f"port {port}: that Breakwater has another CA than {folder}")


def _clients(port: int, folder: Path) -> Iterator[Line]:
    own = authorities.own(folder)
    authority = own.read_bytes() if own.exists() else b""
    sent = env.is_sent_here(os.environ, port)
    for client in env.CLIENTS:
        if not shutil.which(client.program):
            yield Line(NOTE, f"{client.name}: not here")
        elif not sent:
            yield Line(NOTE, f"{client.name}: here; breakwater run -- {client.program}")
        elif env.trusts(client, os.environ, authority):
            yield Line(OK, f"{client.name}: here; this shell sends it to {HOST}:{port}, and it trusts the CA")
        else:
            named = " or ".join(client.authorities)
            yield Line(BAD, f"{client.name}: this shell sends it to {HOST}:{port}, but {named} does not hold the CA")


SECONDS = 5.0
UNREACHED = (502, 504)
"""What mitmproxy says of an upstream that it cannot reach."""
USUAL = "api.z.ai"
"""Whom to ask where no upstream is in use."""


def _to_ask(settings: Any, status: Mapping[str, Any]) -> list[str]:
    """The user's own upstreams and those in use, one host of each: `host` or `host:port`."""
    from policies.request.surfaces import BUILT_IN  # noqa: PLC0415 - reached with the config

    used = {row["name"] for row in status.get("upstreams", ()) if row.get("sent")}
    rows = [row for row in settings.upstreams if row not in BUILT_IN or row.name in used]
    hosts = [next((host for host in row.hosts if not host.startswith("*")), None) for row in rows]
    return [host for host in hosts if host] or [USUAL]


def _ask(address: str, proxy: int | None, folder: Path) -> tuple[bool, str]:
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
    context = ssl.create_default_context(cafile=certifi.where())
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
