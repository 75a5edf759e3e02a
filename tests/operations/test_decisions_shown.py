"""One decision, read by header, comment, metadata, log, page and metric alike."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from mitmproxy import http
from mitmproxy.test import tflow

from operations import status_of
from operations.controller import Controller
from tests.policies.exchanges import MTOP, settings


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
def test_what_is_said_of_it_is_one_value(
    caplog: pytest.LogCaptureFixture, before: int, reason: str, sends: int
) -> None:
    caplog.set_level(logging.INFO)
    controller = Controller(settings("breaker: {strikes: 1}"), {})
    for _ in range(before):
        exchanged(controller, b"earlier", MTOP)
    flow = exchanged(controller, b"now", MTOP)
    row, noted, counts = controller.decisions[0], flow.metadata["breakwater"], controller.counters.freeze()
    assert flow.response
    assert flow.response.status_code == row.status == 529
    assert flow.response.headers["X-Breakwater"] == row.reason == noted["reason"] == reason
    assert flow.response.headers["Retry-After"] == str(row.wait) == str(noted["told"])
    assert flow.comment == f"Breakwater: {row.comment}"
    assert row.comment in caplog.text
    assert (row.attempts, noted["attempts"]) == (sends, sends)
    assert (counts.avoided if before else counts.replaced)["zai", reason] == 1


def test_where_evidence_is_off_the_report_says_so() -> None:
    assert "evidence: true" in status_of.report_text(Controller(settings(), {}))
    assert "Too few" in status_of.report_text(Controller(settings("evidence: true"), {}))
