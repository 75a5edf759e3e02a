"""One decision, read by header, comment, metadata, log, page and metric alike."""

from __future__ import annotations

import logging
import re
from typing import Any

import pytest
from mitmproxy import http
from mitmproxy.test import tflow

from operations import status
from operations.clock import clock
from operations.controller import Controller
from tests.policies.exchanges import MTOP, OK, settings


def exchanged(controller: Controller, text: bytes, body: bytes) -> http.HTTPFlow:
    """A flow whose answer could not be held, as on a replay by mitmproxy: its body is judged as a whole."""
    flow: Any = tflow.tflow()
    asked = b'{"model":"glm-5.2","max_tokens":9999,"messages":[{"role":"user","content":"%b"}]}' % text
    flow.request = http.Request.make("POST", "https://api.z.ai/api/anthropic/v1/messages", asked)
    controller.request(flow)
    if not flow.response:
        flow.response = http.Response.make(200, body, {"content-type": "application/json"})
        controller.responseheaders(flow)
    controller.response(flow)
    assert isinstance(flow, http.HTTPFlow)
    return flow


@pytest.mark.parametrize(("before", "reason", "sends"), [(0, "challenge_busy", 1), (1, "breaker_open", 0)])
def test_what_is_said_of_it_is_one_value(caplog: pytest.LogCaptureFixture, before: int, reason: str, sends: int) -> None:
    caplog.set_level(logging.INFO)
    controller = Controller(settings("breaker: {strikes: 1}"))
    for _ in range(before):
        exchanged(controller, b"earlier", MTOP)
    flow = exchanged(controller, b"now", MTOP)
    row, noted, counts = controller.decisions[0], flow.metadata["breakwater"], controller.counters.freeze()
    assert flow.response
    assert flow.response.status_code == row.status == 529
    assert flow.response.headers["X-Breakwater"] == row.reason == noted["reason"] == reason
    assert flow.response.headers["Retry-After"] == str(row.wait) == str(noted["told"])
    assert flow.comment == f"Breakwater {row.reason}: {row.comment}"
    assert f"Breakwater: zai {reason}: {str(row.comment).removesuffix('.')} (" in caplog.text
    assert f", flow {flow.id})" in caplog.text
    assert all(re.fullmatch(r"Breakwater: zai \w+: .*, flow [-0-9a-f]{36}\)", line) for line in caplog.messages)
    assert (row.attempts, noted["attempts"]) == (sends, sends)
    assert (counts.avoided if before else counts.replaced)["zai", reason] == 1


def test_what_is_only_observed_is_shown_as_that_when_the_request_comes() -> None:
    controller = Controller(settings("mode: observe"))
    controller.state.breakers.named("zai")[0].open(clock().now)
    flow = exchanged(controller, b"a", OK)
    row = controller.decisions[0]
    assert flow.response
    assert (row.reason, row.status, flow.response.status_code) == ("breaker_open", None, 200)
    assert str(row.comment).startswith("Only observed: it would have been refused here")
    assert flow.comment == f"Breakwater {row.reason}: {row.comment}"
    assert flow.marked == ":warning:"


def test_nothing_is_sent_again_where_nothing_can_wait() -> None:
    controller = Controller(settings("replay: {gap_seconds: 60}"))
    exchanged(controller, b"a", OK)
    limited = exchanged(controller, b"b", b'{"error":{"code":"1302","message":"Rate limit reached for requests"}}')
    assert limited.response
    assert limited.response.status_code == 429


def test_a_request_that_is_upstream_already_is_not_refused() -> None:
    controller = Controller(settings("breaker: {strikes: 1}"))
    flow: Any = exchanged(controller, b"a", MTOP)
    again: Any = tflow.tflow(req=flow.request.copy())
    again.request.stream = True
    controller.request(again)
    assert again.response is None
    assert not controller.live[again].refused_here


def test_where_evidence_is_off_the_report_says_so() -> None:
    assert "evidence: true" in status.report_text(status.report_of(Controller(settings())))
    assert "Too few" in status.report_text(status.report_of(Controller(settings("evidence: true"))))
