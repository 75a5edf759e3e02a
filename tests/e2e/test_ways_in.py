"""Ways to a guarded host: none goes around the guard, and what leads elsewhere is left as a bare mitmproxy leaves it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import QUICK, Proxies
from tests.e2e.lab import ways
from tests.e2e.lab.certificates import Authority
from tests.e2e.lab.client import Way, ask, connect, trusting
from tests.e2e.lab.client_h2 import H2Connection
from tests.e2e.lab.hello import issuer
from tests.e2e.lab.http3 import Upstream3, ask_http3
from tests.e2e.lab.operated import get, status
from tests.e2e.lab.proxy import Front, Proxy
from tests.e2e.lab.script import Place, Reply
from tests.e2e.lab.upstream import Upstream
from tests.e2e.lab.wires import JSON, MESSAGES, MTOP, PAGE, account, asked, compact, event, page, streamed, whole

Places = Callable[..., Place]
ELSEWHERE = "elsewhere.test"
MITMPROXY, UPSTREAM = "mitmproxy", "Throw-away test CA"
CHALLENGES: dict[str, Reply] = {"object": whole(MTOP), "frame": streamed([event(MTOP)]), "page": page()}
CLIENTS: tuple[tuple[Way, str], ...] = ((ways.by_address, "regular"), (ways.by_socks, "socks5"))


@pytest.fixture
def by_mode(proxies: Proxies) -> Callable[[str], Proxy]:
    return lambda mode: proxies({**QUICK, "breaker": {"open_seconds": 0}}, mode=mode)


@contextlib.contextmanager
def reverse(proxies: Proxies, mode: str, *, addon: bool = True, **more: Any) -> Iterator[Proxy]:
    proxy = proxies.fresh({**QUICK, **more}, mode=mode, options=["keep_host_header=true"], addon=addon).start()
    try:
        yield proxy
    finally:
        proxy.stop()


def sends(proxy: Proxy, here: Place) -> int:
    return int(status(proxy)["counts"]["sends"].get(here.host, 0))


def over_h2(proxy: Proxy, here: Place, way: Way) -> int | None:
    with H2Connection(proxy, here.host, way=way) as connection:
        return connection.finish(connection.open(MESSAGES, asked("over HTTP/2"), account(here.host))).status


# -- bare addresses ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", CHALLENGES)
@pytest.mark.parametrize(("way", "mode"), CLIENTS, ids=["connect", "socks5"])
def test_a_bare_address_is_the_host_that_the_client_names_in_its_hello(
    by_mode: Callable[[str], Proxy], place: Places, way: Way, mode: str, kind: str
) -> None:
    proxy, here = by_mode(mode), place().always(CHALLENGES[kind])
    answer = ask(proxy, here.url(MESSAGES, "https"), asked(), account(here.host), way=way)
    assert (answer.status, answer.retry_after) == (529, 1)
    assert over_h2(proxy, here, way) == 529
    assert [hit.protocol for hit in here.hits] == ["1.1", "2"]
    if mode == "regular":
        assert sends(proxy, here) == 2


@pytest.mark.parametrize(("way", "mode"), CLIENTS, ids=["connect", "socks5"])
def test_what_passes_at_a_bare_address_passes_unchanged(
    by_mode: Callable[[str], Proxy], place: Places, way: Way, mode: str
) -> None:
    proxy, here = by_mode(mode), place().always(Reply(200, chunks=[b"as it was"]))
    assert ask(proxy, here.url("/x", "https"), asked(), account(here.host), way=way).body == b"as it was"
    with H2Connection(proxy, here.host, way=way) as connection:
        assert connection.finish(connection.open("/x", asked(), account(here.host))).body == b"as it was"


def test_a_bare_address_with_another_host_in_the_hello_is_tunnelled(guarded: Proxy, place: Places) -> None:
    assert issuer(guarded, ELSEWHERE, at=ways.BARE) == UPSTREAM
    assert issuer(guarded, place().host, at=ways.BARE) == MITMPROXY


def test_the_target_of_a_tunnel_counts_and_not_another_name_in_the_hello(
    by_mode: Callable[[str], Proxy], upstream: Upstream, place: Places
) -> None:
    here, proxy = place(), by_mode("regular")
    assert issuer(proxy, here.host, at=ELSEWHERE) == UPSTREAM
    upstream.place(ELSEWHERE).then(whole(MTOP))  # by the Host header, which decides nothing
    answer = ask(proxy, f"https://{ELSEWHERE}{MESSAGES}", asked(), account(here.host), way=ways.to(here.host))
    assert answer.status == 529


def test_the_host_header_decides_nothing(by_mode: Callable[[str], Proxy], upstream: Upstream, place: Places) -> None:
    here = place().then(whole(MTOP))
    upstream.place(ELSEWHERE).then(whole(MTOP))
    to_bare = f"http://{ways.BARE}{MESSAGES}"
    proxy = by_mode("regular")
    answer = ask(proxy, here.url(MESSAGES), asked(), account(here.host), target=to_bare)
    assert (answer.status, answer.header("x-breakwater")) == (200, None)
    answer = ask(proxy, f"http://{ELSEWHERE}{MESSAGES}", asked(), account(here.host), target=here.url(MESSAGES))
    assert answer.status == 529
    assert sends(proxy, here) == 1


# -- TLS that ends at the proxy ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", CHALLENGES)
def test_a_proxy_that_is_spoken_to_over_tls_guards_in_the_clear_and_inside_a_tunnel(
    by_mode: Callable[[str], Proxy], place: Places, kind: str
) -> None:
    proxy, here = by_mode("regular"), place().always(CHALLENGES[kind])
    answer = ask(proxy, here.url(MESSAGES), asked("clear"), account(here.host), way=ways.over_tls)
    assert answer.status == 529
    answer = ask(proxy, here.url(MESSAGES, "https"), asked("1"), account(here.host), way=ways.tunnel_over_tls)
    assert answer.status == 529
    assert over_h2(proxy, here, ways.tunnel_over_tls) == 529


def test_a_proxy_that_is_spoken_to_over_tls_shows_its_page_and_tunnels_what_is_elsewhere(
    guarded: Proxy, upstream: Upstream
) -> None:
    assert get(guarded, "/healthz").status == 200
    page_url = "http://breakwater.internal/healthz"
    assert ask(guarded, page_url, method="GET", way=ways.over_tls).status == 200
    upstream.place("sealed.test").then(whole(MTOP))

    def sealed(plain: Any, proxy: Front, host: str, port: int, protocols: Sequence[str]) -> Any:
        outer = ways.over_tls(plain, proxy, host, port, protocols)
        connect(outer, host, port)
        return ways.TlsOver(outer, trusting(upstream.ca_path, protocols), host)

    answer = ask(guarded, "https://sealed.test/v1/messages", asked(), way=sealed)
    assert (answer.status, answer.header("x-breakwater")) == (200, None)


@pytest.mark.parametrize("scheme", ["https", "http"])
@pytest.mark.parametrize("addon", [True, False], ids=["guarded", "bare"])
def test_reverse_to_a_host_that_is_not_guarded_decrypts_as_a_bare_mitmproxy_does(
    proxies: Proxies, upstream: Upstream, scheme: str, addon: bool
) -> None:
    here = upstream.place(ELSEWHERE).always(whole(MTOP))
    with reverse(proxies, f"reverse:{scheme}://{ELSEWHERE}", addon=addon) as proxy:
        assert issuer(proxy, ELSEWHERE, straight=True) == MITMPROXY
        answer = ask(proxy, here.url(MESSAGES, "https"), asked(), way=ways.straight)
        assert (answer.status, answer.header("x-breakwater")) == (200, None)


@pytest.mark.parametrize("scheme", ["https", "http"])
def test_reverse_to_a_guarded_host_is_guarded_for_a_client_with_tls_and_without(
    proxies: Proxies, place: Places, scheme: str
) -> None:
    here = place().always(page())
    with reverse(proxies, f"reverse:{scheme}://{here.host}") as proxy:
        url = here.url(MESSAGES, "https")
        assert ask(proxy, url, asked("1"), account("1"), way=ways.straight).status == 529
        with_name = ask(proxy, f"https://localhost{MESSAGES}", asked("2"), [*account("2")], way=ways.straight)
        assert (with_name.status, PAGE in with_name.body) != (200, True)
        clear = ask(proxy, here.url(MESSAGES), asked("3"), account("3"), target=MESSAGES)
        assert clear.status in (529, 503)


def test_reverse_to_a_bare_address_is_the_host_that_the_client_names(proxies: Proxies, place: Places) -> None:
    here = place().always(page())
    with reverse(proxies, f"reverse:https://{ways.BARE}") as proxy:
        assert ask(proxy, here.url(MESSAGES, "https"), asked(), account("1"), way=ways.straight).status == 529
        assert issuer(proxy, ELSEWHERE, straight=True) == MITMPROXY


@pytest.mark.parametrize("addon", [True, False], ids=["guarded", "bare"])
def test_reverse_tls_stays_as_a_bare_mitmproxy_does_it(
    proxies: Proxies, upstream: Upstream, place: Places, addon: bool
) -> None:
    here = place().always(Reply(200, chunks=[b"raw"]))
    with reverse(proxies, f"reverse:tls://{here.host}:443", addon=addon) as proxy:
        assert issuer(proxy, here.host, straight=True) == MITMPROXY
        answer = ask(proxy, here.url("/x", "https"), asked(), way=ways.straight, target="/x")
        assert answer.body == b"raw"


# -- over UDP ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("told", [True, False], ids=["guarded", "elsewhere"])
def test_http3_is_guarded_as_any_where_its_host_is_and_left_alone_elsewhere(
    proxies: Proxies, tmp_path: Path, told: bool
) -> None:
    upstream3 = Upstream3(Authority(tmp_path), [JSON], compact(MTOP)).start()
    rows = {"over-quic": {"hosts": [f"127.0.0.1:{upstream3.port}" if told else "127.0.0.1:1"], "family": "zai"}}
    mode = f"reverse:http3://127.0.0.1:{upstream3.port}"
    try:
        with reverse(proxies, mode, upstreams=rows) as proxy:
            answers = [ask_http3(proxy.port, "localhost", MESSAGES, asked(text), account(text))[0] for text in "12"]
            assert answers == ([529, 529] if told else [200, 200])
            assert upstream3.hits == 2
    finally:
        upstream3.stop()
