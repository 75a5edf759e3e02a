"""mitmweb: why a flow was decided as it was, filters that find it, and a flow that is intercepted or killed by hand."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from tests.e2e.conftest import NO_QUEUE, upstream_rows
from tests.e2e.lab.client import Connection, ask
from tests.e2e.lab.operated import breaker, until
from tests.e2e.lab.script import Gate, Place
from tests.e2e.lab.upstream import Upstream
from tests.e2e.lab.web import Web
from tests.e2e.lab.wires import (
    MESSAGES,
    MTOP,
    OVERLOAD_1305,
    account,
    anthropic,
    anthropic_message,
    asked,
    event,
    streamed,
    whole,
)

Places = Callable[..., Place]

PROBED = [f"z{number}.test" for number in range(220, 230)]
PING = event({"type": "ping"})


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory, upstream: Upstream) -> Iterator[Web]:
    rows = upstream_rows()
    for host in PROBED:
        rows[host]["breaker"] = {"strikes": 1, "open_seconds": 0.3}
    config = {"upstreams": rows, **NO_QUEUE, "replay": {"gap_seconds": 60, "base_seconds": 0}, "evidence": True}
    proxy = Web(tmp_path_factory.mktemp("mitmweb") / "proxy", upstream, config=config).start()
    yield proxy
    proxy.stop()


def send(web: Web, here: Place, text: str = "hi") -> int:
    return ask(web, here.url(MESSAGES), asked(text), account(here.host)).status


# -- what is seen ---------------------------------------------------------------------------------------------


def test_a_challenged_flow_says_why(web: Web, place: Places) -> None:
    here = place().then(streamed([event(MTOP)]))
    assert send(web, here) == 529
    flow = web.flow(host=here.host)
    assert flow["comment"] == "Breakwater challenge_busy: A challenge (busy) [mtop:ret] inside a 200 became a 529: wait 30 s."
    assert flow["marked"] == "⚠"
    text, _ = web.shown(flow)
    for line in ("reason           challenge_busy", "recognised by    mtop:ret", "told to wait     30 s", "sends upstream   1"):
        assert line in text.split("\n")
    assert "the upstream's answer that was replaced" in text
    assert "RGV587" in text
    assert "xgTOKEN" not in text
    assert web.shown(flow, "auto")[0] == text


def test_a_streamed_answer_is_put_together_as_text(web: Web, place: Places) -> None:
    here = place().then(streamed(anthropic("It ", "is ", "so.")))
    assert send(web, here) == 200
    flow = web.flow(host=here.host)
    assert (flow["comment"], flow["marked"]) == ("", "")
    assert web.shown(flow)[0].endswith("[text]\nIt is so.")


# -- filters --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def decided(web: Web, upstream: Upstream) -> dict[str, str]:
    """One flow of each kind; its host by what was done."""
    places = {
        name: upstream.place(f"z{number}.test")
        for number, name in enumerate(("refused", "replaced", "resent", "passed", "told"), 230)
    }
    places["refused"].always(whole(MTOP))
    assert [send(web, places["refused"], f"question {number}") for number in range(4)] == [529] * 4
    places["replaced"].then(whole(MTOP))
    assert send(web, places["replaced"]) == 529
    places["resent"].then(whole(anthropic_message()), whole(OVERLOAD_1305, 429), whole(anthropic_message()))
    assert [send(web, places["resent"], f"question {number}") for number in range(2)] == [200, 200]
    places["passed"].then(whole({"error": {"code": "1308", "message": "Usage limit reached for 5 hours"}}, 429))
    assert send(web, places["passed"]) == 429
    places["told"].then(streamed(anthropic("The breaker is open: challenge_busy, said Breakwater. marker no_entry")))
    assert send(web, places["told"]) == 200
    return {name: place.host for name, place in places.items()}


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("~marker no_entry", {"refused"}),
        ("~marker warning", {"refused", "replaced"}),
        ("~marker repeat", {"resent"}),
        ("~marker orange", {"passed"}),
        ("~comment Breakwater", {"refused", "replaced", "resent", "passed"}),
        ('~comment "breaker is open"', {"refused"}),
        ("~comment challenge_busy", {"refused", "replaced"}),
        ("~comment breaker_open", {"refused"}),
        ("~meta challenge_busy", {"refused", "replaced"}),
        ("~meta quota", {"passed"}),
    ],
)
def test_the_filters_of_the_readme_find_the_flows_and_no_words_of_a_model(
    web: Web, decided: dict[str, str], expression: str, found: set[str]
) -> None:
    hosts = {flow.request.host for flow in web.filtered(expression)}  # type: ignore[attr-defined]
    assert {name for name, host in decided.items() if host in hosts} == found


# -- commands -------------------------------------------------------------------------------------------------


def test_the_commands_answer(web: Web, place: Places, decided: dict[str, str]) -> None:
    here = place()
    said = web.command("breakwater.status")["value"]
    assert {row.partition(":")[0] for row in said} >= set(decided.values())
    assert all("\n" not in row for row in said)
    assert "opened" in web.command("breakwater.open", here.host)["value"]
    assert send(web, here) == 529
    assert "closed" in web.command("breakwater.close", here.host)["value"]
    assert "closed" in web.command("breakwater.reset", here.host)["value"]
    assert "Forgot 0" in web.command("breakwater.forget", "no-model")["value"]
    assert web.command("breakwater.windows")["value"] == ["No window has been learnt."]
    assert "A " in "\n".join(web.command("breakwater.report")["value"])
    explained = web.command("breakwater.explain", f"~d {decided['replaced']}")["value"]
    assert "reason           challenge_busy" in explained
    clicked = web.flow(host=decided["passed"])  # as its address bar names it, and its content view
    assert "reason           quota" in web.command("breakwater.explain", f"@{clicked['id']}")["value"]
    assert f"in a command     @{clicked['id']}" in web.shown(clicked)[0]
    line = json.loads(web.command("breakwater.export", f"~d {decided['replaced']}")["value"])
    assert line["kind"] == "challenge"
    assert "xgTOKEN" not in line["response"]["body"]
    assert "No upstream" in web.command("breakwater.open", "nowhere")["error"]


# -- by hand --------------------------------------------------------------------------------------------------


def half_open(web: Web, upstream: Upstream, host: str) -> Place:
    """A place whose breaker waits for its probe."""
    here = upstream.place(host).then(whole(MTOP))
    assert send(web, here, "opens") == 529
    until(lambda: breaker(web, host)["state"] == "half_open", "the window's end")
    return here


def assert_freed(web: Web, here: Place, connection: Connection) -> None:
    """The killed client is gone, and the very next request is the probe and closes the breaker."""
    with pytest.raises(ConnectionResetError):
        connection.head()
    assert_free(web, here)


def assert_free(web: Web, here: Place) -> None:
    until(lambda: breaker(web, here.host)["state"] == "half_open", "the probe being free")
    before = len(here.hits)
    here.then(streamed(anthropic()))
    assert send(web, here, "next") == 200
    assert len(here.hits) == before + 1
    assert breaker(web, here.host)["state"] == "closed"


def test_killing_a_probe_whose_headers_are_held_frees_it(web: Web, upstream: Upstream) -> None:
    here, gate = half_open(web, upstream, PROBED[0]), Gate()
    here.then(streamed([PING, gate], end="hang"))
    with Connection(web, here.url(MESSAGES + "?held")) as connection:
        connection.send(asked("probe"), account(here.host))
        gate.wait_reached()
        gate.open()
        until(lambda: breaker(web, here.host)["state"] == "probing", "the probe")
        web.kill(web.flow(host=here.host, path=MESSAGES + "?held"))
        assert_freed(web, here, connection)
    here.wait_left(here.hits[1])


def test_killing_a_probe_that_has_no_headers_yet_frees_it(web: Web, upstream: Upstream) -> None:
    here, gate = half_open(web, upstream, PROBED[1]), Gate()
    here.then(streamed(anthropic(), before=gate))
    with Connection(web, here.url(MESSAGES + "?silent")) as connection:
        connection.send(asked("probe"), account(here.host))
        here.wait_hits(2)
        web.kill(web.flow(host=here.host, path=MESSAGES + "?silent"))
        until(lambda: breaker(web, here.host)["state"] == "half_open", "the probe being free")
        gate.open()
        assert_freed(web, here, connection)


@pytest.mark.parametrize("host", PROBED[2:4])
def test_a_request_that_is_intercepted_takes_no_probe_until_it_is_resumed(web: Web, upstream: Upstream, host: str) -> None:
    here = half_open(web, upstream, host)
    web.intercept(f"~q & ~d {host}")
    with Connection(web, here.url(MESSAGES + "?intercepted")) as connection:
        connection.send(asked("probe"), account(host))
        flow = web.flow(host=host, path=MESSAGES + "?intercepted", intercepted=True)
        web.intercept("")
        assert breaker(web, host)["state"] == "half_open"
        if host == PROBED[2]:
            web.kill(flow)
            assert_free(web, here)
        else:
            here.then(streamed(anthropic()))
            web.resume(flow)
            assert connection.answer().status == 200
            assert breaker(web, host)["state"] == "closed"
