"""The page at http://breakwater.internal/ through a real proxy: buttons, metrics, and who may not press."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlencode

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as metrics

from operations.metrics import SERIES
from tests.e2e.lab.client import ask
from tests.e2e.lab.operated import PAGE, breaker, get, press, status, token
from tests.e2e.lab.proxy import Proxy
from tests.e2e.lab.script import Place
from tests.e2e.lab.wires import MESSAGES, MTOP, account, anthropic, asked, event, streamed, whole

Places = Callable[..., Place]

FORM = ("content-type", "application/x-www-form-urlencoded")
OVERFLOW = {"error": {"message": "This model's maximum context length is 65536 tokens. However, you requested 86046 tokens."}}


def send(proxy: Proxy, here: Place, text: str, **more: object) -> tuple[int, str | None]:
    answer = ask(proxy, here.url(MESSAGES), asked(text, **more), account(here.host))
    return answer.status, answer.header("x-breakwater")


def test_open_pauses_an_upstream_and_close_lets_it_through(guarded: Proxy, place: Places) -> None:
    here = place()
    assert here.host in press(guarded, "open", upstream=here.host).json()["said"]
    row = breaker(guarded, here.host)
    assert row["state"] == "open"
    assert 0 < row["seconds_left"] <= 60
    assert send(guarded, here, "one") == (529, "breaker_open")
    press(guarded, "close", upstream=here.host)
    here.then(streamed(anthropic()))
    assert send(guarded, here, "one") == (200, None)
    assert breaker(guarded, here.host)["state"] == "closed"


def test_reset_closes_and_forgets_the_remembered_refusals(guarded: Proxy, place: Places) -> None:
    here = place().then(whole(MTOP), streamed(anthropic()))
    assert send(guarded, here, "same") == (529, "challenge_busy")
    assert send(guarded, here, "same") == (529, "remembered_wait")
    assert "1 remembered refusal" in press(guarded, "reset", upstream=here.host).json()["said"]
    assert breaker(guarded, here.host)["strikes"] == 0
    assert send(guarded, here, "same") == (200, None)


def test_forget_takes_a_learnt_window_back(guarded: Proxy, place: Places) -> None:
    here = place("dashscope").then(whole(OVERFLOW, 400))
    send(guarded, here, "long", model="learnt-here")
    assert [row["tokens"] for row in status(guarded)["windows"] if row["model"] == "learnt-here"] == [65536]
    press(guarded, "forget", model="learnt-here")
    assert [row for row in status(guarded)["windows"] if row["model"] == "learnt-here"] == []


def test_a_button_for_nothing_says_why(guarded: Proxy) -> None:
    assert "No upstream 'nowhere'" in press(guarded, "open", upstream="nowhere").json()["said"]


@pytest.mark.parametrize(
    ("sent", "headers"),
    [
        ({}, [("origin", PAGE)]),
        ({"token": "guessed"}, [("origin", PAGE)]),
        ({"token": ""}, [("origin", "http://evil.example")]),
        ({"token": ""}, []),
    ],
    ids=["no token", "wrong token", "right token from elsewhere", "right token from nowhere"],
)
def test_a_post_without_the_token_of_the_page_is_refused(
    guarded: Proxy, place: Places, sent: dict[str, str], headers: list[tuple[str, str]]
) -> None:
    here = place()
    form = {"action": "open", "upstream": here.host, **{name: value or token(guarded) for name, value in sent.items()}}
    assert ask(guarded, f"{PAGE}/act", urlencode(form).encode(), [FORM, *headers]).status == 403
    assert breaker(guarded, here.host)["state"] == "closed"


def test_a_get_never_acts(guarded: Proxy, place: Places) -> None:
    here = place()
    query = urlencode({"action": "open", "upstream": here.host, "token": token(guarded)})
    assert get(guarded, f"/act?{query}").status == 404
    assert breaker(guarded, here.host)["state"] == "closed"


def test_every_answer_is_sealed_and_healthz_says_ok(guarded: Proxy) -> None:
    for path in ("/", "/status.json", "/metrics", "/healthz", "/nothing"):
        answer = get(guarded, path)
        assert "default-src 'none'" in (answer.header("content-security-policy") or "")
        assert answer.header("cache-control") == "no-store"
    assert get(guarded, "/healthz").body == b"ok\n"
    assert get(guarded, "/nothing").status == 404


@pytest.mark.parametrize("accept", ["", "application/openmetrics-text; version=1.0.0"])
def test_prometheus_reads_what_has_happened(guarded: Proxy, place: Places, accept: str) -> None:
    here = place().then(whole(MTOP), whole(MTOP), whole(MTOP))
    late = place().then(streamed([*anthropic()[:3], event(MTOP)]))
    for number in range(4):
        send(guarded, here, f"number {number}")
    send(guarded, late, "late")
    answer = get(guarded, "/metrics", [("accept", accept)])
    parse = open_metrics if accept else metrics
    values = {
        (sample.name, *(value for name, value in sorted(sample.labels.items()) if name != "le")): sample.value
        for family in parse(answer.body.decode())
        for sample in family.samples
    }
    assert ("openmetrics" in (answer.header("content-type") or "")) == bool(accept)
    assert values["breakwater_breaker_state", "open", here.host] == 1
    assert values["breakwater_breaker_state", "closed", here.host] == 0
    assert 0 < values["breakwater_breaker_seconds_left", here.host] <= 60
    assert values["breakwater_upstream_sends_total", here.host] == 3
    assert values["breakwater_sends_avoided_total", "breaker_open", here.host] == 1
    assert values["breakwater_answers_replaced_total", "challenge_busy", here.host] == 3
    assert values["breakwater_findings_total", "challenge", here.host] == 3
    assert values["breakwater_breaker_opened_total", here.host] == 1
    assert values["breakwater_in_stream_refusals_total", "challenge", late.host] == 1
    assert values["breakwater_hold_seconds_count", late.host] == 1
    parts = {f"breakwater_hold_seconds{end}" for end in ("_bucket", "_count", "_sum")}
    assert {name for name, *_ in values if not name.endswith("_created")} <= {row.name for row in SERIES} | parts
