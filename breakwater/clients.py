"""Clients that `doctor` looks for, and what in an environment keeps them from Breakwater."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from breakwater.env import AUTHORITIES, NO_PROXY, PROXY
from breakwater.places import HOST


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

BASE_URLS = ("ANTHROPIC_BASE_URL", "OPENAI_BASE_URL", "ZAI_BASE_URL", "DASHSCOPE_HTTP_BASE_URL")
LOOPBACK = ("127.0.0.1", "localhost", "::1")


def is_sent_here(environment: Mapping[str, str], port: int) -> bool:
    """Tell whether programs of this shell use the proxy at this port for HTTPS."""
    url = environment.get("https_proxy") or environment.get("HTTPS_PROXY") or ""
    return _address(url) in {(host, port) for host in LOOPBACK}


def trusts(client: Client, environment: Mapping[str, str], authority: bytes) -> bool:
    """Tell whether a variable of this shell names a file that holds this certificate."""
    named = (environment.get(name) for name in client.authorities)
    return any(authority and authority.strip() in _content(path) for path in named if path)


def mistakes(environment: Mapping[str, str], port: int, is_guarded: Callable[[str, int], bool]) -> list[str]:
    """What in these variables cannot be meant, a sentence each."""
    found = [
        f"{name}={environment[name]} is another proxy than {HOST}:{port}; `start --mode upstream:{environment[name]}` "
        "goes on through it"
        for name in PROXY[:2]
        if environment.get(name) and not is_sent_here({"https_proxy": environment[name]}, port)
    ]
    found += [
        f"{name} names {environment[name]}, which cannot be read"
        for name in AUTHORITIES
        if environment.get(name) and not Path(environment[name]).is_file()
    ]
    exceptions = [name for name in NO_PROXY if environment.get(name, "").strip() == "*"]
    if exceptions and is_sent_here(environment, port):
        found.append(f"{exceptions[0]}=* keeps every host from the proxy")
    for name in BASE_URLS:
        host, number = _address(environment.get(name, ""))
        if host and host not in LOOPBACK and not is_guarded(host, number):
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


def _content(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""
