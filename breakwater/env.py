"""`breakwater env`: the variables as lines for a shell (sh, bash, zsh, fish); and what `doctor` finds in those of a shell."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from breakwater import asking, authorities
from breakwater.cli import HOST, Parser, common, confdir

PROXY = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")
NO_PROXY = ("NO_PROXY", "no_proxy")
AUTHORITIES = ("NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "CODEX_CA_CERTIFICATE")
NODE = "NODE_USE_ENV_PROXY"
LOCAL = ("localhost", "127.0.0.1", "::1")
BASE_URLS = ("ANTHROPIC_BASE_URL", "OPENAI_BASE_URL", "ZAI_BASE_URL", "DASHSCOPE_HTTP_BASE_URL")


class Client(NamedTuple):
    """A program, its name for a person, and the variables of which any one makes it trust a CA."""

    program: str
    name: str
    authorities: tuple[str, ...]


# Source: each client run through mitmproxy with one variable at a time (the table in docs/command.md).
CLIENTS = (
    Client("claude", "Claude Code", ("NODE_EXTRA_CA_CERTS",)),
    Client("qwen", "Qwen Code", ("NODE_EXTRA_CA_CERTS",)),
    Client("codex", "Codex", ("CODEX_CA_CERTIFICATE", "SSL_CERT_FILE")),
    Client("opencode", "opencode", ("NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE")),
    Client("curl", "curl", ("CURL_CA_BUNDLE", "SSL_CERT_FILE")),
)


def main(words: Sequence[str]) -> int:
    parser = Parser(prog="breakwater env", description='Lines for a shell: eval "$(breakwater env)"')
    common(parser)
    asked = parser.parse_args(words)
    bundle = authorities.bundle(confdir(asked.sets).absolute(), os.environ)
    for name, value in variables(asked.port, bundle, os.environ).items():
        print(f"export {name}={shlex.quote(value)}")
    found = asking.who(asked.port).kind
    if found is not asking.Kind.BREAKWATER:
        print(f"breakwater: {HOST}:{asked.port} has {found.value} yet; breakwater start", file=sys.stderr)
    return 0


def variables(port: int, bundle: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """What is set, over the environment that there is: its exceptions from proxying stay, but for `*`."""
    entries = ",".join(environment.get(name, "") for name in NO_PROXY).split(",")
    beside = [entry.strip() for entry in entries if entry.strip(" *")]
    return {
        **dict.fromkeys(PROXY, f"http://{HOST}:{port}"),
        **dict.fromkeys(NO_PROXY, ",".join(dict.fromkeys([*beside, *LOCAL]))),
        **dict.fromkeys(AUTHORITIES, str(bundle)),
        NODE: "1",
    }


# -- of a shell's environment ------------------------------------------------------------------------------------------


def is_sent_here(environment: Mapping[str, str], port: int) -> bool:
    """Tell whether programs of this shell use the proxy at this port for HTTPS."""
    url = environment.get("https_proxy") or environment.get("HTTPS_PROXY") or ""
    return _address(url) in {(host, port) for host in LOCAL}


def trusts(client: Client, environment: Mapping[str, str], authority: bytes) -> bool:
    """Tell whether a variable of this shell names a file that holds this certificate."""
    files = [Path(environment.get(name, "")) for name in client.authorities]
    return bool(authority) and any(authority.strip() in file.read_bytes() for file in files if authorities.is_readable(file))


def mistakes(environment: Mapping[str, str], port: int, is_guarded: Callable[[str, int], bool]) -> list[str]:
    """What in these variables cannot be meant, a sentence each."""
    given = {name: value for name, value in environment.items() if value}
    found = [
        f"{name}={given[name]} is another proxy than {HOST}:{port}; `start --mode upstream:{given[name]}` goes on through it"
        for name in PROXY[:2]
        if name in given and not is_sent_here({"https_proxy": given[name]}, port)
    ]
    found += [
        f"{name} names {given[name]}, which cannot be read"
        for name in AUTHORITIES
        if name in given and not authorities.is_readable(Path(given[name]))
    ]
    exceptions = [name for name in NO_PROXY if given.get(name, "").strip() == "*"]
    if exceptions and is_sent_here(given, port):
        found.append(f"{exceptions[0]}=* keeps every host from the proxy")
    for name in BASE_URLS:
        host, number = _address(given.get(name, ""))
        if host and host not in LOCAL and not is_guarded(host, number):
            found.append(f"{name} names {host}, which is no upstream of the config: it passes undecrypted")
    return found


def _address(url: str) -> tuple[str, int]:
    """Host and port of a URL; of nothing, and of what is no URL, an empty host."""
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        return "", 0
    return parts.hostname or "", port
