"""``stream_large_bodies``: however little of a request mitmproxy keeps, its challenge is told, also before all of it is sent."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.e2e.conftest import QUICK, Proxies, upstream_rows
from tests.e2e.lab.client import Connection, ask
from tests.e2e.lab.client_h2 import H2Connection
from tests.e2e.lab.early import Early
from tests.e2e.lab.operated import get, status
from tests.e2e.lab.proxy import Proxy
from tests.e2e.lab.script import Place, Reply
from tests.e2e.lab.wires import (
    COMPLETIONS,
    MTOP,
    PAGE,
    account,
    asked,
    compact,
    event,
    openai,
    openai_message,
    page,
    streamed,
    whole,
)

Places = Callable[..., Place]
BYTES = ("1", "2", "8", "9", "1k")
CHALLENGES: dict[str, Reply] = {"object": whole(MTOP), "frame": streamed([event(MTOP)]), "page": page()}
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n%b"
EARLY = {
    "object": (b"application/json", compact(MTOP)),
    "frame": (b"text/event-stream", event(MTOP)),
    "page": (b"text/html", PAGE),
}


def streaming(proxies: Proxies, limit: str) -> Proxy:
    return proxies({**QUICK, "breaker": {"open_seconds": 0}}, options=(f"stream_large_bodies={limit}",))


@pytest.mark.parametrize("limit", BYTES)
def test_the_hold_passes_its_test_and_the_warning_names_the_option(proxies: Proxies, limit: str) -> None:
    log = streaming(proxies, limit).log
    assert "cannot hold" not in log
    assert "stream_large_bodies hides large requests" in log


@pytest.mark.parametrize("kind", CHALLENGES)
@pytest.mark.parametrize("limit", BYTES)
def test_a_challenge_is_told_however_little_is_kept_of_a_request(
    proxies: Proxies, place: Places, limit: str, kind: str
) -> None:
    proxy, here = streaming(proxies, limit), place().always(CHALLENGES[kind])
    for scheme in ("http", "https"):
        answer = ask(proxy, here.url(COMPLETIONS, scheme), asked(scheme), account(here.host))
        assert (answer.status, answer.retry_after) == (503, 1)
    with H2Connection(proxy, here.host) as connection:
        assert connection.finish(connection.open(COMPLETIONS, asked("2"), account(here.host))).status == 503
    assert status(proxy)["counts"]["sends"][here.host] == len(here.hits) == 3


@pytest.mark.parametrize("limit", BYTES)
def test_an_answer_passes_however_little_is_kept_of_a_request(proxies: Proxies, place: Places, limit: str) -> None:
    frames = openai("one", "two")
    proxy, here = streaming(proxies, limit), place().then(streamed(frames), whole(openai_message()))
    bodies = [ask(proxy, here.url(COMPLETIONS), asked(text), account(here.host)).body for text in "12"]
    assert bodies == [b"".join(frames), compact(openai_message())]


# -- an answer before the request is there -----------------------------------------------------------------------


@pytest.mark.parametrize("kind", EARLY)
@pytest.mark.parametrize("goes_on", [True, False], ids=["goes on", "leaves"])
def test_a_challenge_of_an_upload_that_is_still_under_way_is_told(proxies: Proxies, kind: str, goes_on: bool) -> None:
    media_type, body = EARLY[kind]
    with Early(HEAD % (media_type, len(body), body)) as early:
        rows = {**upstream_rows(), "early": {"hosts": [f"127.0.0.1:{early.port}"], "family": "zai"}}
        config = {**QUICK, "breaker": {"open_seconds": 0}, "upstreams": rows}
        proxy = proxies.fresh(config, options=["stream_large_bodies=1k"]).start()
        try:
            said = asked("large " * 3000)
            with Connection(proxy, f"http://127.0.0.1:{early.port}{COMPLETIONS}") as client:
                head = f"POST http://127.0.0.1:{early.port}{COMPLETIONS} HTTP/1.1\r\nhost: x\r\n"
                head += f"authorization: Bearer early\r\ncontent-length: {len(said)}\r\n\r\n"
                client.write(head.encode() + said[:5000])
                answer = client.answer()
                assert (answer.status, answer.retry_after) == (503, 1)
                if goes_on:
                    client.write(said[5000:])
            assert get(proxy, "/healthz").status == 200
            assert early.requests == 1 == status(proxy)["counts"]["sends"]["early"]
            assert status(proxy)["counts"]["findings"]
        finally:
            proxy.stop()
