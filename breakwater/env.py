"""`breakwater env`: the variables as lines for a shell (sh, bash, zsh, fish)."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from breakwater import asking, authorities
from breakwater.cli import Parser, common
from breakwater.places import HOST, confdir

PROXY = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")
NO_PROXY = ("NO_PROXY", "no_proxy")
AUTHORITIES = ("NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "CODEX_CA_CERTIFICATE")
NODE = "NODE_USE_ENV_PROXY"
LOCAL = ("localhost", "127.0.0.1", "::1")


def variables(port: int, bundle: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """What is set, over the environment that there is: its exceptions from proxying stay, but for `*`."""
    url = f"http://{HOST}:{port}"
    known = [
        entry.strip() for name in NO_PROXY for entry in environment.get(name, "").split(",") if entry.strip(" *")
    ]
    beside = ",".join(dict.fromkeys([*known, *LOCAL]))
    return {
        **dict.fromkeys(PROXY, url),
        **dict.fromkeys(NO_PROXY, beside),
        **dict.fromkeys(AUTHORITIES, str(bundle)),
        NODE: "1",
    }


def main(words: Sequence[str]) -> int:
    parser = Parser(prog="breakwater env", description='Lines for a shell: eval "$(breakwater env)"')
    common(parser)
    asked = parser.parse_args(list(words))
    bundle = authorities.bundle(confdir(asked.sets).absolute(), os.environ)
    for name, value in variables(asked.port, bundle, os.environ).items():
        print(f"export {name}={shlex.quote(value)}")
    found = asking.who(asked.port)
    if found.kind is not asking.Kind.BREAKWATER:
        print(f"breakwater: {HOST}:{asked.port} has {found.words} yet; breakwater start", file=sys.stderr)
    return 0
