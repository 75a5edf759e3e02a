"""Where the page is: what a request must be to be for the proxy itself."""

from __future__ import annotations

from typing import Any

from mitmproxy import http
from mitmproxy.proxy import mode_specs
from mitmproxy.test import tflow

from operations.page import HOST, site
from tests.rows import over


def asked(
    host: str, port: int, header: str, *, peer: str = "127.0.0.1", mode: str = "regular", listens: int = 8080
) -> http.HTTPFlow:
    flow: Any = tflow.tflow()
    flow.request.host, flow.request.port = host, port
    flow.request.headers["host"] = header
    flow.client_conn.peername, flow.client_conn.sockname = (peer, 50000), ("127.0.0.1", listens)
    flow.client_conn.proxy_mode = mode_specs.ProxyMode.parse(mode)
    assert isinstance(flow, http.HTTPFlow)
    return flow


@over(
    ("flow", "found"),
    [
        (asked(HOST, 80, HOST), HOST),
        (asked("127.0.0.1", 8080, "127.0.0.1:8080"), "127.0.0.1:8080"),
        (asked("LocalHost", 8080, "LocalHost:8080"), "localhost:8080"),
        (asked("::1", 8080, "[::1]:8080", peer="::1"), "[::1]:8080"),
        (asked("127.0.0.1", 8080, "127.0.0.1:8080", peer="::ffff:127.0.0.1"), "127.0.0.1:8080"),
        (asked("localhost", 80, "localhost", listens=80), "localhost"),
        (asked("127.0.0.1", 8080, "127.0.0.1:8080", mode="upstream:http://proxy.example:3128"), "127.0.0.1:8080"),
        (asked("127.0.0.1", 8080, "127.0.0.1:8080", peer="192.0.2.7"), ""),
        (asked("127.0.0.1", 8080, "evil.example:8080"), ""),
        (asked("evil.example", 8080, "evil.example:8080"), ""),
        (asked("127.0.0.1", 8081, "127.0.0.1:8081"), ""),
        (asked("127.0.0.1", 8080, "127.0.0.1:8080", mode="reverse:http://127.0.0.1:8080"), ""),
        (asked("127.0.0.1", 8080, ""), ""),
    ],
)
def test_it_is_the_proxys_own_address_or_the_pages_name_and_nothing_else(flow: http.HTTPFlow, found: str) -> None:
    assert site(flow) == found
