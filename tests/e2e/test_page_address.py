"""The page at the proxy's own address: for a browser on this machine, under no foreign name, and in no list or file."""

from __future__ import annotations

import http.client
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from mitmproxy.http import HTTPFlow
from mitmproxy.io import FlowReader

from tests.e2e.conftest import Proxies
from tests.e2e.lab.client import ask
from tests.e2e.lab.installed import Home, free_port
from tests.e2e.lab.operated import get
from tests.e2e.lab.proxy import Proxy
from tests.e2e.lab.script import Place
from tests.e2e.lab.upstream import Upstream
from tests.e2e.lab.web import Web
from tests.e2e.lab.wires import MESSAGES, anthropic, asked, streamed

Places = Callable[..., Place]


def direct(
    port: int, path: str = "/", *, host: str = "", method: str = "GET", body: str = "", headers: Mapping[str, str] | None = None
) -> tuple[int, str]:
    """What an ordinary browser gets that was given the proxy's address: status and body."""
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        link.request(method, path, body or None, {"Host": host or f"127.0.0.1:{port}", **(headers or {})})
        answer = link.getresponse()
        return answer.status, answer.read().decode()
    finally:
        link.close()


def test_a_browser_at_the_proxys_address_gets_the_page(guarded: Proxy) -> None:
    status, text = direct(guarded.port)
    assert status == 200
    assert "<title>" in text
    assert direct(guarded.port, "/healthz") == (200, "ok\n")
    assert direct(guarded.port, "/", host=f"localhost:{guarded.port}")[0] == 200


@pytest.mark.parametrize("host", ["evil.example:{port}", "evil.example", "127.0.0.1", "localhost:1", "breakwater.local:{port}"])
def test_under_a_foreign_name_nothing_is_shown(guarded: Proxy, host: str) -> None:
    status, text = direct(guarded.port, "/status.json", host=host.format(port=guarded.port))
    assert status >= 400
    assert "upstreams" not in text


def test_its_buttons_work_there_and_only_from_there(guarded: Proxy, place: Places) -> None:
    here = place()
    _, text = direct(guarded.port)
    token = text.split('name="token" value="')[1].split('"')[0]
    form = f"token={token}&action=open&upstream={here.host}"
    kind = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}

    def press(origin: str) -> int:
        return direct(guarded.port, "/act", method="POST", body=form, headers={**kind, "Origin": origin})[0]

    assert press("http://evil.example") == 403
    assert press("http://breakwater.internal") == 403
    assert press(f"http://127.0.0.1:{guarded.port}") == 200


def test_requests_of_the_page_are_in_no_log_and_no_flow_file(proxies: Proxies, tmp_path: Path, place: Places) -> None:
    saved, here = tmp_path / "saved.flow", place().then(streamed(anthropic()))
    proxy = proxies.fresh(options=("flow_detail=1", f"save_stream_file={saved}")).start()
    try:
        assert get(proxy, "/status.json").status == direct(proxy.port)[0] == direct(proxy.port, "/nothing")[0] - 204 == 200
        assert ask(proxy, here.url(MESSAGES), asked()).status == 200
    finally:
        proxy.stop()
    with saved.open("rb") as file:
        flows = [flow for flow in FlowReader(file).stream() if isinstance(flow, HTTPFlow)]
    assert [flow.request.host for flow in flows] == [here.host]
    assert here.host in proxy.log
    for sign in ("GET http", "status.json", "/nothing"):
        assert sign not in proxy.log


def test_a_password_is_asked_for_there_as_everywhere(proxies: Proxies) -> None:
    proxy = proxies.fresh(options=("proxyauth=me:secret",)).start()
    try:
        assert direct(proxy.port)[0] == 407
        assert direct(proxy.port, headers={"Proxy-Authorization": "Basic bWU6c2VjcmV0"})[0] == 200
    finally:
        proxy.stop()


def test_mitmwebs_list_holds_no_request_of_the_page(tmp_path: Path, upstream: Upstream, place: Places) -> None:
    here = place().then(streamed(anthropic()))
    rows: dict[str, Any] = {here.host: {"hosts": [here.host], "family": "zai"}}
    web = Web(tmp_path / "proxy", upstream, config={"upstreams": rows}).start()
    try:
        assert direct(web.port)[0] == get(web, "/").status == 200
        assert ask(web, here.url(MESSAGES), asked()).status == 200
        assert [flow["request"]["pretty_host"] for flow in web.flows()] == [here.host]
    finally:
        web.stop()


@pytest.mark.parametrize("modes", [[], ["--mode", "reverse:http://127.0.0.1:9"]], ids=["regular", "reverse"])
def test_start_opens_a_port_for_the_page_alone(home: Home, modes: list[str]) -> None:
    shown = free_port()
    home.start(*home.lab, "--page-port", str(shown), *modes)
    assert direct(shown, "/healthz") == (200, "ok\n")
    assert "upstreams" in direct(shown, "/status.json")[1]
    assert "upstreams" not in direct(shown, "/status.json", host=f"evil.example:{shown}")[1]
    if modes:  # all that comes to the other port is the upstream's
        assert direct(home.port, "/healthz")[0] == 502
