"""Whose certificate a client sees: nothing is decrypted that need not be, and a person's browser is left alone."""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import Proxies, upstream_rows
from tests.e2e.lab import chromium
from tests.e2e.lab.chromium import Chromium
from tests.e2e.lab.client import ask
from tests.e2e.lab.hello import CHROMIUM, FIREFOX, PROGRAM, issuer
from tests.e2e.lab.operated import get
from tests.e2e.lab.proxy import Proxy
from tests.e2e.lab.script import Place
from tests.e2e.lab.upstream import Upstream
from tests.e2e.lab.wires import MESSAGES, MTOP, QWEN_WEB, account, asked, whole

Places = Callable[..., Place]
UPSTREAM, MITMPROXY = "Throw-away test CA", "mitmproxy"
ELSEWHERE = "elsewhere.test"


@pytest.fixture(scope="module")
def everything(proxies: Proxies) -> Iterator[Proxy]:
    """A proxy that decrypts all, browsers included."""
    proxy = proxies.fresh({"upstreams": upstream_rows(), "decrypt": "all", "browsers": "guard"}).start()
    yield proxy
    proxy.stop()


@pytest.mark.parametrize("kind", [PROGRAM, CHROMIUM, FIREFOX], ids=["program", "chromium", "firefox"])
def test_a_host_that_is_not_configured_is_tunnelled_unread(guarded: Proxy, kind: tuple[list[int], list[int]]) -> None:
    assert issuer(guarded, ELSEWHERE, kind) == UPSTREAM


@pytest.mark.parametrize("family", ["zai", "qwen-web", "zai-web", "dashscope", "zcode"])
def test_a_program_at_a_configured_host_is_decrypted(guarded: Proxy, place: Places, family: str) -> None:
    assert issuer(guarded, place(family).host, PROGRAM) == MITMPROXY


@pytest.mark.parametrize("kind", [CHROMIUM, FIREFOX], ids=["chromium", "firefox"])
@pytest.mark.parametrize("family", ["qwen-web", "zai-web"])
def test_a_browser_on_a_web_chat_sees_the_chats_own_certificate_and_it_is_said_once(
    guarded: Proxy, place: Places, family: str, kind: tuple[list[int], list[int]]
) -> None:
    here, mark = place(family), guarded.log_lines
    assert [issuer(guarded, here.host, kind) for _ in range(3)] == [UPSTREAM] * 3
    guarded.wait_log(f"a browser at {here.host} is tunnelled undecrypted", since=mark)
    assert guarded.log_since(mark).count("is tunnelled undecrypted") == 1


def test_a_browsers_tls_at_an_api_is_decrypted_like_any(guarded: Proxy, place: Places) -> None:
    assert issuer(guarded, place("zai").host, CHROMIUM) == MITMPROXY


def test_decrypt_all_and_browsers_guard_decrypt_both(everything: Proxy, place: Places) -> None:
    assert issuer(everything, ELSEWHERE, PROGRAM) == MITMPROXY
    for kind in (CHROMIUM, FIREFOX):
        assert issuer(everything, place("qwen-web").host, kind) == MITMPROXY


def test_a_tunnelled_host_works_and_nothing_of_it_is_known(guarded: Proxy, upstream: Upstream, authority: Path) -> None:
    here = upstream.place(ELSEWHERE).then(whole(MTOP))
    context = ssl.create_default_context(cafile=str(authority))
    context.check_hostname = False  # OpenSSL takes no wildcard for a whole top-level domain
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # and the lab's certificates are plain ones
    connection = http.client.HTTPSConnection("127.0.0.1", guarded.port, context=context, timeout=20)
    connection.set_tunnel(here.host, 443)
    connection.request("POST", MESSAGES, asked(), dict(account(here.host)))
    answer = connection.getresponse()
    assert (answer.status, answer.getheader("x-breakwater")) == (200, None)
    assert b"RGV587" in answer.read()
    connection.close()
    assert len(here.hits) == 1
    assert ELSEWHERE not in get(guarded, "/status.json").body.decode()


@pytest.fixture
def authority(upstream: Upstream) -> Path:
    return upstream._authority.ca_path


@pytest.mark.skipif(chromium.FOUND is None, reason="needs a Chromium, which this machine has not")
def test_browsers_guard_holds_for_a_real_chromium(everything: Proxy, place: Places, tmp_path: Path) -> None:
    here = place("qwen-web").always(whole({"hello": "bridge"}))
    with Chromium(tmp_path / "profile", everything.port) as browser:
        browser.open(here.url("/", "https"))
        assert "bridge" in browser.evaluate("document.body.innerText")
        issuers = {seen["securityDetails"]["issuer"] for seen in browser.seen if here.host in seen["url"]}
    assert issuers == {MITMPROXY}
    here.then(whole(MTOP))
    assert ask(everything, here.url(QWEN_WEB, "https"), asked(), account(here.host)).status == 503
