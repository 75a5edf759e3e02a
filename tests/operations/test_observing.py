"""``mode: observe``: nothing is changed, and what would have been decided is noted all the same."""

from __future__ import annotations

import json
from typing import Any

from mitmproxy import http
from mitmproxy.test import tflow

from operations.controller import Controller
from operations.held import Watched
from tests.e2e.lab.wires import COMPLETIONS, asked, openai
from tests.policies.exchanges import settings
from tests.rows import over

REFUSAL = b'data: {"error":{"code":"1305","message":"The service may be temporarily overloaded"}}\n\n'
STREAM = b"".join(openai("a", "b")[:2]) + REFUSAL


@over("size", [1, 7, 50, len(STREAM)])
def test_a_refusal_after_the_first_answer_frame_is_seen_in_any_chunking(size: int) -> None:
    controller = Controller(settings("mode: observe"))
    flow: Any = tflow.tflow(req=http.Request.make("POST", f"https://api.z.ai{COMPLETIONS}", asked()))
    controller.request(flow)
    flow.response = http.Response.make(200, b"", {"content-type": "text/event-stream"})
    controller.responseheaders(flow)
    stream = flow.response.stream
    assert isinstance(stream, Watched)
    chunks = [STREAM[at : at + size] for at in range(0, len(STREAM), size)]
    assert [stream(chunk) for chunk in [*chunks, b""]] == [*([chunk] for chunk in chunks), []]
    assert json.loads(json.dumps(controller.counters.freeze().as_json()))["in_stream_refusals"] == {"zai": {"overload": 1}}
