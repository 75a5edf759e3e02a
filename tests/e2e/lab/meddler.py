"""A mitmproxy script that meddles as other addons may, as the header `x-lab-meddle` of a request says, at one hook of it."""

from __future__ import annotations

from mitmproxy import ctx
from mitmproxy.http import HTTPFlow, Response


class Meddler:
    def __init__(self) -> None:
        self.wishes: dict[str, str] = {}

    def requestheaders(self, flow: HTTPFlow) -> None:
        self.wishes[flow.id] = flow.request.headers.pop("x-lab-meddle", "")
        self.act(flow, "requestheaders")

    def request(self, flow: HTTPFlow) -> None:
        self.act(flow, "request")

    def responseheaders(self, flow: HTTPFlow) -> None:
        self.act(flow, "responseheaders")

    def response(self, flow: HTTPFlow) -> None:
        self.act(flow, "response")
        if self.wishes.get(flow.id) == "replay":
            again = flow.copy()  # type: ignore[no-untyped-call]
            again.request.headers["x-lab-replayed"] = "1"
            ctx.master.commands.call("replay.client", [again])

    def act(self, flow: HTTPFlow, hook: str) -> None:
        wish, _, when = self.wishes.get(flow.id, "").partition("@")
        if when != hook:
            return
        if wish == "answer":
            flow.response = Response.make(418, b"meddled")
        elif wish == "kill":
            flow.kill()  # type: ignore[no-untyped-call]
        elif wish == "stream":
            assert flow.response
            flow.response.stream = lambda data: data.upper()


addons = [Meddler()]
