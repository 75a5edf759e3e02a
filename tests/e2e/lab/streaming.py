"""A mitmproxy script: streams every answer, as a bare mitmproxy has to for SSE."""

from mitmproxy.http import HTTPFlow


def responseheaders(flow: HTTPFlow) -> None:
    assert flow.response
    flow.response.stream = True
