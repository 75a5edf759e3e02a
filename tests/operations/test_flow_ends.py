"""The end of a flow: killed by hand and settled while its layer is still at work with it, or answered."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from mitmproxy import http
from mitmproxy.test import tflow

import hold
from operations import controller
from operations.commands import settle_killed
from operations.held import HeldResponse
from tests.policies.exchanges import MTOP, added, settings

PING = b'event: ping\ndata: {"type":"ping"}\n\n'
BEGUN = b'event: content_block_delta\ndata: {"type":"content_block_delta","delta":{"type":"text_delta","text":"a"}}\n\n'


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> controller.Controller:
    monkeypatch.setattr(hold, "wake", lambda _: None)
    return controller.Controller(settings("evidence: true"))


stream: Any = SimpleNamespace(hold=None, gate=None)
"""What a layer's stream is to a hook."""


def begun(here: controller.Controller) -> tuple[http.HTTPFlow, HeldResponse]:
    """A flow whose upstream's headers have come."""
    flow = tflow.tflow()
    setattr(flow, hold.STREAM, lambda: stream)
    flow.request = http.Request.make("POST", "https://api.z.ai/api/anthropic/v1/messages", b'{"model":"glm-5.2"}')
    here.request(flow)
    stream.gate.turn()
    flow.response = http.Response.make(200, b"", {"content-type": "text/event-stream"})
    flow.response.data.content = None
    del flow.response.headers["content-length"]
    here.responseheaders(flow)
    held: Any = flow.response.stream
    assert isinstance(held, HeldResponse)
    return flow, held


def kill(here: controller.Controller, flow: http.HTTPFlow) -> None:
    flow.kill()  # type: ignore[no-untyped-call]
    settle_killed(here)
    assert flow not in here.live
    assert flow.response


def test_its_hold_judges_on_until_the_layer_hears_of_it(here: controller.Controller) -> None:
    flow, held = begun(here)
    assert held.feed(PING) is None
    kill(here, flow)
    assert flow.response
    assert flow.response.stream is held
    assert held.feed(PING) is None
    assert added(held.feed(BEGUN)) == ()
    assert here.counters.freeze().faults == {}


def test_its_stream_is_watched_on_until_the_layer_hears_of_it(here: controller.Controller) -> None:
    flow, held = begun(here)
    assert added(held.feed(BEGUN)) == ()
    assert held(BEGUN) == [BEGUN]
    assert held(b'data: {"zzz":') == []
    kill(here, flow)
    assert b"".join(held(b" 1}\n\n")) == b'data: {"zzz": 1}\n\n'
    assert MTOP not in b"".join(held(b"data: " + MTOP + b"\n\n"))
    assert held.ended
    assert here.counters.freeze().faults == {}


def test_evidence_has_the_time_of_the_request(here: controller.Controller, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(monotonic=lambda: 100.0, time=lambda: 5000.0)
    monkeypatch.setattr("operations.clock.time", clock)
    flow, held = begun(here)
    assert added(held.feed(BEGUN)) == ()
    clock.monotonic, clock.time = lambda: 130.0, lambda: 5030.0
    here.response(flow)
    here.evidence_log.wait()
    assert [record.wall for record in here.state.evidence.records()] == [5000.0]


def test_what_held_an_answer_is_let_go_at_its_end(here: controller.Controller) -> None:
    flow, held = begun(here)
    assert added(held.feed(BEGUN)) == ()
    held(BEGUN)
    here.response(flow)
    assert flow.response
    assert flow.response.stream is True
    assert flow.response.raw_content == BEGUN
    assert held.judge.ex.reader is None
