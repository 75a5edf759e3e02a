"""Variables of the environment that send a client through Breakwater and let it trust mitmproxy's CA."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from breakwater.places import HOST

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
