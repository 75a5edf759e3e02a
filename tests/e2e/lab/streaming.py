"""A mitmproxy script: streams server-sent events, which a bare mitmproxy keeps back until they have ended."""

from mitmproxy.http import HTTPFlow


def responseheaders(flow: HTTPFlow) -> None:
    assert flow.response
    flow.response.stream = flow.response.headers.get("content-type", "").startswith("text/event-stream")
