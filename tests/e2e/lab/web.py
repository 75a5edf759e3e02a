"""A real mitmweb with the addon, and its HTTP interface."""

from __future__ import annotations

import contextlib
import json
import re
import socket
from http.cookiejar import CookieJar
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote, urlsplit
from urllib.request import HTTPCookieProcessor, ProxyHandler, Request, build_opener

from mitmproxy.flow import Flow
from mitmproxy.io import FlowReader

from tests.e2e.lab.operated import until
from tests.e2e.lab.proxy import START_SECONDS, Ports, Proxy

PROXY_AT = re.compile(r"proxy listening at \S*?127\.0\.0\.1:(\d+)")
WEB_AT = re.compile(r"http://127\.0\.0\.1:\d+/\S*")


class Web(Proxy):
    """What a person sees and clicks in mitmweb, as its page asks for it."""

    def __init__(self, folder: Path, upstream: Ports, **more: Any) -> None:
        super().__init__(folder, upstream, options=("web_open_browser=false", f"web_port={_free()}"), **more)
        self._jar = CookieJar()
        self._open = build_opener(ProxyHandler({}), HTTPCookieProcessor(self._jar)).open
        self.web_url = ""

    def _command(self) -> list[str]:
        command = super()._command()
        at = command.index("flow_detail=0")
        return [str(Path(command[0]).with_name("mitmweb")), *command[1 : at - 1], *command[at + 1 :]]

    def start(self) -> Web:
        self.launch()
        self.wait_log("lab: running", seconds=START_SECONDS)
        until(lambda: PROXY_AT.search(self.log) and WEB_AT.search(self.log), "mitmweb's addresses")
        found = PROXY_AT.search(self.log)
        assert found
        self.port, self.web_url = int(found[1]), WEB_AT.findall(self.log)[0]
        self._ask("/" + (f"?{urlsplit(self.web_url).query}" if "?" in self.web_url else ""))
        with contextlib.suppress(HTTPError):  # the page's WebSocket, which brings the token that a POST has to carry
            self._ask("/updates")
        return self

    def flows(self) -> Any:
        return json.loads(self._ask("/flows"))

    def flow(self, **known: object) -> Any:
        """The only flow with these values; `host` and `path` are the request's."""

        def fits(flow: Any) -> bool:
            values = {"host": flow["request"]["pretty_host"], "path": flow["request"]["path"]} | flow
            return all(values.get(name) == value for name, value in known.items())

        until(lambda: any(map(fits, self.flows())), f"a flow with {known}")
        (found,) = filter(fits, self.flows())
        return found

    def shown(self, flow: Any, view: str = "Breakwater") -> tuple[str, str]:
        """Text of a content view of the response, and the name of the view."""
        got = json.loads(self._ask(f"/flows/{flow['id']}/response/content/{quote(view)}.json"))
        if "text" in got:  # mitmproxy 12
            return got["text"], got["view_name"]
        return "\n".join("".join(text for _, text in line) for line in got["lines"]), got["description"].strip()

    def filtered(self, expression: str) -> list[Flow]:
        """The flows that a filter of mitmweb finds."""
        return list(FlowReader(BytesIO(self._ask(f"/flows/dump?filter={quote(expression)}"))).stream())

    def command(self, name: str, *arguments: str) -> Any:
        """What a command answers with, as mitmweb's prompt runs it."""
        return json.loads(self._ask(f"/commands/{name}", {"arguments": list(arguments)}))

    def kill(self, flow: Any) -> None:
        self._ask(f"/flows/{flow['id']}/kill", {})

    def resume(self, flow: Any) -> None:
        self._ask(f"/flows/{flow['id']}/resume", {})

    def replay(self, flow: Any) -> Any:
        """Press the replay button of a flow and wait for what comes of it; the flow as it is then."""
        self._ask(f"/flows/{flow['id']}/replay", {})

        def replayed() -> Any:
            now = self.by_id(flow["id"])
            return now["is_replay"] == "request" and (now.get("response") or {}).get("timestamp_end")

        until(replayed, "the replay's answer")
        return self.by_id(flow["id"])

    def duplicate(self, flow: Any) -> Any:
        """Copy a flow; the copy."""
        return self.by_id(self._ask(f"/flows/{flow['id']}/duplicate", {}).decode())

    def by_id(self, number: str) -> Any:
        return next(flow for flow in self.flows() if flow["id"] == number)

    def content(self, flow: Any) -> bytes:
        """The body of a flow's response, as its page lets a person save it."""
        return self._ask(f"/flows/{flow['id']}/response/content.data")

    def set(self, **options: object) -> None:
        """Change options while it runs, as the page's options do."""
        self._ask("/options", options, "PUT")

    def intercept(self, expression: str) -> None:
        self.set(intercept=expression, intercept_active=bool(expression))

    def _ask(self, path: str, data: object = None, method: str | None = None) -> bytes:
        headers = {"content-type": "application/json"}
        for cookie in self._jar:
            if cookie.name.endswith("_xsrf"):
                headers["X-XSRFToken"] = cookie.value or ""
        base = "http://" + urlsplit(self.web_url).netloc
        body = None if data is None else json.dumps(data).encode()
        with self._open(Request(base + path, body, headers, method=method), timeout=20) as answer:
            return bytes(answer.read())


def _free() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
