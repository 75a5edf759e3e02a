"""A real headless Chromium, driven over its DevTools protocol; nothing but the standard library."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import time
from pathlib import Path
from typing import Any, Literal, Self

FOUND = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PATIENCE_SECONDS = 20.0
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--ignore-certificate-errors",
    "--window-size=1180,1500",
    "--remote-debugging-port=0",
)


def _routes(proxy_port: int) -> str:
    """Tests' own names go through the proxy, loopback directly; what the browser asks for by itself goes nowhere."""
    rule = (
        'function FindProxyForURL(url, host) { if (host == "127.0.0.1") return "DIRECT"; '
        f'return /\\.(test|internal)$/.test(host) ? "PROXY 127.0.0.1:{proxy_port}" : "PROXY 127.0.0.1:9"; }}'
    )
    return f"data:application/x-ns-proxy-autoconfig;base64,{base64.b64encode(rule.encode()).decode()}"


class Chromium:
    """One browser with one tab, which goes through the proxy at `proxy_port` to `.test` and `.internal` names."""

    def __init__(self, folder: Path, proxy_port: int) -> None:
        assert FOUND
        self.complaints: list[str] = []
        """What the console and the log of the tab said: errors and violated policies."""
        self.seen: list[dict[str, Any]] = []
        """The responses that the tab received."""
        self._number = 0
        self._process = subprocess.Popen(
            [
                FOUND,
                *FLAGS,
                f"--user-data-dir={folder}",
                f"--proxy-pac-url={_routes(proxy_port)}",
                "about:blank",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            self._socket = self._connect(folder / "DevToolsActivePort")
            self._attach()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End our own browser, with the processes that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(PATIENCE_SECONDS)

    def open(self, url: str) -> None:
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'")

    def evaluate(self, expression: str) -> Any:
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait(self, expression: str) -> Any:
        """The value of this expression as soon as it is true."""
        end = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < end:
            with contextlib.suppress(AssertionError):  # a page that is being replaced cannot answer
                if value := self.evaluate(expression):
                    return value
            time.sleep(0.05)
        raise AssertionError(f"never true: {expression}\n{self.evaluate('document.body.innerText')}")

    def text(self, selector: str) -> str:
        return str(self.evaluate(f"document.querySelector({json.dumps(selector)})?.textContent ?? ''"))

    def click(self, selector: str) -> None:
        """A press of the mouse in the middle of the first match, as a person does it; works without scripts."""
        self.call("DOM.enable")
        root = self.call("DOM.getDocument")["root"]["nodeId"]
        node = self.call("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        assert node, f"nothing matches {selector}"
        self.call("DOM.scrollIntoViewIfNeeded", nodeId=node)
        corners = self.call("DOM.getBoxModel", nodeId=node)["model"]["content"]
        x, y = (corners[0] + corners[4]) / 2, (corners[1] + corners[5]) / 2
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def theme(self, name: Literal["light", "dark"]) -> None:
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def wide(self, pixels: int) -> None:
        """Make the window so wide, as a telephone or a tablet is."""
        self.call("Emulation.setDeviceMetricsOverride", width=pixels, height=1500, deviceScaleFactor=1, mobile=False)

    def scripts(self, *, on: bool) -> None:
        self.call("Emulation.setScriptExecutionDisabled", value=not on)

    def screenshot(self, path: Path, *, whole: bool = True) -> None:
        size = (
            self.call("Page.getLayoutMetrics")["cssContentSize"]
            if whole
            else {"width": self.evaluate("innerWidth"), "height": 800}
        )
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(shot["data"]))

    def call(self, method: str, **parameters: object) -> Any:
        self._number += 1
        self._write(json.dumps({"id": self._number, "method": method, "params": parameters}).encode())
        while (message := self._read()).get("id") != self._number:
            self._note(message)
        assert "error" not in message, message
        return message["result"]

    def _note(self, message: dict[str, Any]) -> None:
        parameters = message.get("params", {})
        match message.get("method"):
            case "Log.entryAdded" if parameters["entry"]["level"] in ("error", "warning"):
                self.complaints.append(f"{parameters['entry']['text']} {parameters['entry'].get('url', '')}")
            case "Runtime.exceptionThrown":
                self.complaints.append(str(parameters["exceptionDetails"]))
            case "Network.responseReceived":
                self.seen.append(parameters["response"])

    def _attach(self) -> None:
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def _connect(self, port_file: Path) -> socket.socket:
        """The tab's WebSocket. Chromium writes its port into a file once it listens."""
        end = time.monotonic() + PATIENCE_SECONDS
        while not (port_file.exists() and port_file.read_text().count("\n")):
            assert self._process.poll() is None, "Chromium ended by itself"
            assert time.monotonic() < end, "Chromium did not start"
            time.sleep(0.05)
        port = int(port_file.read_text().split("\n")[0])
        asked = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_SECONDS)
        asked.request("GET", "/json")
        tabs = json.loads(asked.getresponse().read())
        asked.close()
        address = next(tab["webSocketDebuggerUrl"] for tab in tabs if tab["type"] == "page")
        connection = socket.create_connection(("127.0.0.1", port), PATIENCE_SECONDS)
        connection.sendall(
            f"GET /{address.split('/', 3)[3]} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\n"
            "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n".encode(),
        )
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += connection.recv(1)
        return connection

    def _write(self, data: bytes) -> None:
        """One text frame, masked with zeros."""
        size = bytes([0x80 | len(data)]) if len(data) < 126 else b"\xfe" + struct.pack(">H", len(data))
        assert len(data) < 65536
        self._socket.sendall(b"\x81" + size + b"\0\0\0\0" + data)

    def _read(self) -> dict[str, Any]:
        data, last = b"", False
        while not last:
            first, size = self._exactly(2)
            last, size = bool(first & 0x80), size & 0x7F
            if size > 125:
                size = int.from_bytes(self._exactly(2 if size == 126 else 8), "big")
            data += self._exactly(size)
        message = json.loads(data)
        assert isinstance(message, dict)
        return message

    def _exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            data += self._socket.recv(count - len(data)) or self._gone()
        return bytes(data)

    def _gone(self) -> bytes:
        raise ConnectionResetError("Chromium has closed the connection")
