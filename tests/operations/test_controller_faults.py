"""What the controller leaves alone, and what it gives back where a rule fails in a running stream."""

from __future__ import annotations

from typing import Any

import pytest
from mitmproxy import http
from mitmproxy.test import tflow

from operations.controller import Controller
from operations.held import Unheld
from tests.e2e.lab.wires import COMPLETIONS, asked, openai
from tests.policies.exchanges import settings

FRAMES = openai("a", "b")


@pytest.fixture
def controller() -> Controller:
    return Controller(settings())


def answered(controller: Controller) -> http.HTTPFlow:
    flow: Any = tflow.tflow(req=http.Request.make("POST", f"https://api.z.ai{COMPLETIONS}", asked()))
    controller.request(flow)
    flow.response = http.Response.make(200, b"", {"content-type": "text/event-stream"})
    assert isinstance(flow, http.HTTPFlow)
    return flow


def test_a_stream_that_another_addon_has_taken_stays_its_own(controller: Controller) -> None:
    flow = answered(controller)
    assert flow.response
    theirs = flow.response.stream = lambda data: data
    controller.responseheaders(flow)
    assert flow.response.stream is theirs


@pytest.mark.parametrize("broken", [1, 2, 3, 4])
def test_a_rule_that_fails_in_a_stream_costs_no_byte_of_it(
    controller: Controller, monkeypatch: pytest.MonkeyPatch, broken: int
) -> None:
    flow = answered(controller)
    controller.responseheaders(flow)
    stream = flow.response.stream if flow.response else None
    assert isinstance(stream, Unheld)
    chunks, passed = [FRAMES[0], b"da", b"ta", b": {}\n\n" + FRAMES[1], b"end", b""], b""

    def fail(*_arguments: object) -> None:
        raise RuntimeError

    for number, chunk in enumerate(chunks):
        if number == broken:
            monkeypatch.setattr(stream.judge, "streams", fail)
        passed += b"".join(stream(chunk))
    assert passed == b"".join(chunks)
