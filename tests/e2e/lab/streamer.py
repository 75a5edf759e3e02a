"""A mitmproxy script: sets `flow.response.stream` at the headers of an answer, as the header `x-lab-stream` of a request says."""

from __future__ import annotations

from mitmproxy.http import HTTPFlow

wishes: dict[str, str] = {}


def requestheaders(flow: HTTPFlow) -> None:
    wishes[flow.id] = flow.request.headers.pop("x-lab-stream", "")


def responseheaders(flow: HTTPFlow) -> None:
    assert flow.response
    wish = wishes.pop(flow.id, "")
    if wish == "callable":
        flow.response.stream = lambda data: data.upper()
    elif wish:
        flow.response.stream = wish == "true"
