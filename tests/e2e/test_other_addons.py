"""Other addons, and those that come with mitmproxy: what they answer, send elsewhere or stream is judged by where it goes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import QUICK, Proxies, upstream_rows
from tests.e2e.lab.client import Answer, ask
from tests.e2e.lab.operated import get, press, status
from tests.e2e.lab.proxy import LAB, PROJECT, Proxy
from tests.e2e.lab.script import Place, Reply
from tests.e2e.lab.upstream import Upstream
from tests.e2e.lab.web import Web
from tests.e2e.lab.wires import (
    COMPLETIONS,
    MESSAGES,
    MTOP,
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
FOREIGN, GUARDED, MAPPED = "foreign.test", "z700.test", "z701.test"
CONFIG: dict[str, Any] = {**QUICK, "breaker": {"open_seconds": 0}}
CHALLENGES: dict[str, Reply] = {"object": whole(MTOP), "frame": streamed([event(MTOP)]), "page": page()}


def sends(proxy: Proxy, host: str) -> int:
    return int(status(proxy)["counts"]["sends"].get(host, 0))


def measured(proxy: Proxy, host: str) -> float:
    """Sends of an upstream in /metrics; 0 where it has none."""
    lines = get(proxy, "/metrics").body.decode().splitlines()
    found = [
        line.rpartition(" ")[2] for line in lines if line.startswith(f'breakwater_upstream_sends_total{{upstream="{host}"')
    ]
    return sum(map(float, found))


def send(proxy: Proxy, url: str, text: str = "hi", *more: tuple[str, str]) -> Answer:
    return ask(proxy, url, asked(text), [*account(url), *more])


# -- streams -----------------------------------------------------------------------------------------------------

WISHES = ("true", "false", "callable")


@pytest.fixture(params=["before", "after"])
def streaming(request: pytest.FixtureRequest, proxies: Proxies) -> Proxy:
    """A proxy with an addon that streams, loaded before ours or after it."""
    if request.param == "after":
        return proxies(CONFIG, scripts=(LAB / "streamer.py",))
    options = (f"breakwater_config={_config(proxies)}",)
    return proxies(addon=False, scripts=(LAB / "streamer.py", PROJECT / "addon.py"), options=options)


def _config(proxies: Proxies) -> Path:
    path = proxies.folder / "streaming.yaml"
    path.write_text(json.dumps({"upstreams": upstream_rows(), **CONFIG}))
    return path


@pytest.mark.parametrize("wish", WISHES)
@pytest.mark.parametrize("kind", CHALLENGES)
def test_a_challenge_is_told_whatever_another_addon_says_of_its_stream(
    streaming: Proxy, place: Places, wish: str, kind: str
) -> None:
    here = place().always(CHALLENGES[kind])
    answer = send(streaming, here.url(COMPLETIONS), wish, ("x-lab-stream", wish))
    assert (answer.status, answer.retry_after) == (503, 1)


@pytest.mark.parametrize("wish", WISHES)
def test_an_answer_comes_as_another_addon_wants_it(streaming: Proxy, place: Places, wish: str) -> None:
    frames = openai("one", "two")
    here = place().then(streamed(frames), whole(openai_message()))
    stream, message = (send(streaming, here.url(COMPLETIONS), text, ("x-lab-stream", wish)) for text in ("1", "2"))
    sent = b"".join(frames), compact(openai_message())
    assert (stream.body, message.body) == (tuple(each.upper() for each in sent) if wish == "callable" else sent)
    assert (stream.whole, message.whole) == (True, True)


# -- addons that come with mitmproxy -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mapping(proxies: Proxies, tmp_path_factory: pytest.TempPathFactory, upstream: Upstream) -> Iterator[Proxy]:
    local = tmp_path_factory.mktemp("mapped")
    (local / "challenge.json").write_bytes(compact(MTOP))
    options = [
        f"map_local=|{MAPPED}/api|{local / 'challenge.json'}",
        f"map_remote=|//{FOREIGN}/in/|//{GUARDED}/",
        f"map_remote=|//{GUARDED}/out/|//{FOREIGN}/",
        f"block_list=|~d {MAPPED} & ~u blocked|403",
    ]
    proxy = proxies.fresh({"upstreams": upstream_rows(), **CONFIG}, options=options).start()
    yield proxy
    proxy.stop()


def test_a_file_in_the_place_of_a_guarded_host_is_judged_and_nothing_counts_as_sent(mapping: Proxy, upstream: Upstream) -> None:
    here = upstream.place(MAPPED)
    answer = send(mapping, here.url(MESSAGES))
    assert (answer.status, answer.retry_after) == (529, 1)
    assert (here.hits, sends(mapping, MAPPED), measured(mapping, MAPPED)) == ([], 0, 0)


def test_what_is_blocked_goes_out_as_blocked_and_nothing_counts_as_sent(mapping: Proxy, upstream: Upstream) -> None:
    here = upstream.place(MAPPED)
    assert send(mapping, f"http://{MAPPED}/blocked/v1/messages").status == 403
    assert (here.hits, sends(mapping, MAPPED)) == ([], 0)


@pytest.mark.parametrize("kind", CHALLENGES)
def test_a_request_that_is_mapped_to_a_guarded_host_is_guarded(mapping: Proxy, upstream: Upstream, kind: str) -> None:
    here, before = upstream.place(GUARDED).always(CHALLENGES[kind]), sends(mapping, GUARDED)
    answer = send(mapping, f"http://{FOREIGN}/in{MESSAGES}", kind)
    assert (answer.status, answer.retry_after) == (529, 1)
    assert len(here.hits) == 1
    assert sends(mapping, GUARDED) - before == 1


@pytest.mark.parametrize("kind", CHALLENGES)
def test_a_request_that_is_mapped_away_from_a_guarded_host_is_not_judged(mapping: Proxy, upstream: Upstream, kind: str) -> None:
    there, before = upstream.place(FOREIGN).always(CHALLENGES[kind]), sends(mapping, GUARDED)
    answer = send(mapping, f"http://{GUARDED}/out{MESSAGES}", kind)
    assert (answer.status, answer.header("x-breakwater")) == (200, None)
    assert len(there.hits) == 1
    assert sends(mapping, GUARDED) == before == measured(mapping, GUARDED)


def test_an_open_breaker_holds_for_what_is_mapped_to_its_host_alone(proxies: Proxies, upstream: Upstream) -> None:
    options = [f"map_remote=|//{FOREIGN}/in/|//{GUARDED}/", f"map_remote=|//{GUARDED}/out/|//{FOREIGN}/"]
    config = {"queue": {"seconds": 0}, "breaker": {"strikes": 1, "open_seconds": 60}}
    here, there = upstream.place(GUARDED).always(whole(MTOP)), upstream.place(FOREIGN).always(whole(openai_message()))
    proxy = proxies(config, options=options)
    assert [send(proxy, f"http://{FOREIGN}/in{MESSAGES}", text).status for text in "123"] == [529] * 3
    assert (len(here.hits), sends(proxy, GUARDED)) == (1, 1)
    assert send(proxy, f"http://{GUARDED}/out{COMPLETIONS}").status == 200
    assert len(there.hits) == 1


def test_an_answer_of_server_replay_is_judged_and_nothing_counts_as_sent(
    proxies: Proxies, upstream: Upstream, tmp_path: Path
) -> None:
    here = upstream.place("z702.test").always(whole(MTOP))
    saved = tmp_path / "saved.flow"
    bare = proxies.fresh(addon=False, options=[f"save_stream_file={saved}"]).start()
    assert send(bare, here.url(MESSAGES)).status == 200
    bare.stop()
    proxy = proxies.fresh(
        {"upstreams": upstream_rows(), **CONFIG}, options=[f"server_replay={saved}", "keepserving=true"]
    ).start()
    try:
        answer = send(proxy, here.url(MESSAGES))
        assert (answer.status, answer.retry_after) == (529, 1)
        assert (len(here.hits), sends(proxy, here.host), measured(proxy, here.host)) == (1, 0, 0)
    finally:
        proxy.stop()


# -- replay of a flow that was seen live -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory, upstream: Upstream) -> Iterator[Web]:
    config = {"upstreams": upstream_rows(), **CONFIG}
    proxy = Web(tmp_path_factory.mktemp("replayed") / "proxy", upstream, config=config).start()
    yield proxy
    proxy.stop()


@pytest.mark.parametrize("first", ["answer", "challenge"])
@pytest.mark.parametrize("kind", [*CHALLENGES, "answer"])
def test_mitmwebs_replay_of_a_flow_is_judged_and_keeps_its_content(web: Web, place: Places, first: str, kind: str) -> None:
    answer = whole(openai_message("whole"))
    here = place().then(answer if first == "answer" else whole(MTOP))
    seen = send(web, here.url(COMPLETIONS), "first")
    before = web.flow(host=here.host)
    press(web, "reset", upstream=here.host)  # else the wait that was told holds for the replay too
    here.always(CHALLENGES.get(kind, streamed(openai("again"))))
    again = web.replay(before)
    assert here.hits[1].body == here.hits[0].body
    assert again["response"]["status_code"] == (200 if kind == "answer" else 503)
    content = web.content(again)
    assert (
        content == b"".join(openai("again"))
        if kind == "answer"
        else b"upstream_waf_challenge" in content or b"upstream_unavailable" in content
    )
    assert seen.status == (200 if first == "answer" else 503)
    assert sends(web, here.host) == 2 == measured(web, here.host)


def test_a_replay_changes_nothing_of_the_flow_that_it_was_copied_from(web: Web, place: Places) -> None:
    here = place().then(streamed(openai("first")), whole(MTOP))
    assert send(web, here.url(COMPLETIONS)).status == 200
    before = web.flow(host=here.host)
    shown = web.content(before), web.shown(before)
    copied = web.replay(web.duplicate(before))
    assert copied["response"]["status_code"] == 503
    assert "challenge" in copied["comment"]
    after = web.by_id(before["id"])
    connections = {name: before[name] for name in ("client_conn", "server_conn")}  # they may end meanwhile
    assert (after | connections, web.content(after), web.shown(after)) == (before, *shown)
