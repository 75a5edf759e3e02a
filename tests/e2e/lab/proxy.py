"""A real mitmdump with the addon (or bare), its own confdir, and its log at hand."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from tests.e2e.lab.script import PATIENCE_SECONDS

PROJECT = Path(__file__).resolve().parents[3]
LAB = Path(__file__).resolve().parent
LISTENING = re.compile(r"listening at \S*?127\.0\.0\.1:(\d+)")
AS_COMMAND = os.environ.get("BREAKWATER_LAB") == "start"
"""Whether the tests run with `breakwater start` instead of `mitmdump -s addon.py`; what they show must be so with both."""
OPEN_AT_THE_END = re.compile(r"Exception in callback StreamReaderProtocol\.connection_made.*?CancelledError", re.DOTALL)
"""What asyncio of Python 3.11 itself logs for a connection that is open when the process ends."""
START_SECONDS = 45
"""Generous: a loaded machine takes seconds to import mitmproxy."""


class Ports(Protocol):
    """What a proxy has to know of an upstream."""

    clear_port: int
    tls_port: int
    h2_port: int


class Front(Protocol):
    """A proxy that a client talks to."""

    port: int

    @property
    def ca_path(self) -> Path:
        """What a client has to trust to be intercepted."""


class Proxy:
    """`config` is the addon's config file (a mapping, or its text); `addon=False` starts bare mitmproxy."""

    def __init__(
        self,
        folder: Path,
        upstream: Ports,
        *,
        config: Mapping[str, Any] | str | None = None,
        addon: bool = True,
        options: Sequence[str] = (),
        scripts: Sequence[Path] = (),
        mode: str = "regular",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.folder, self.mode, self.port = folder, mode, 0
        self.confdir = folder / "conf"
        self.config_path = folder / "config.yaml"
        self._upstream, self._addon, self._options, self._scripts = upstream, addon, options, scripts
        self._environment = environment or {}
        self._lines: list[str] = []
        self._news = threading.Condition()
        self._ended = False
        self.write_config(config)

    def write_config(self, config: Mapping[str, Any] | str | None) -> None:
        text = config if isinstance(config, str) else json.dumps(config or {}, ensure_ascii=False)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.config_path.write_text(text, encoding="utf-8")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def ca_path(self) -> Path:
        """What a client has to trust to be intercepted."""
        return self.confdir / "mitmproxy-ca-cert.pem"

    def start(self) -> Proxy:
        self.launch()
        self.wait_log("lab: running", seconds=START_SECONDS)
        found = LISTENING.search(self.log)
        assert found, f"the proxy does not say where it listens:\n{self.log}"
        self.port = int(found[1])
        return self

    def launch(self) -> None:
        """Start the process only, for a start that is expected to fail."""
        ports = {
            80: self._upstream.clear_port,
            443: self._upstream.tls_port,
            8443: self._upstream.h2_port,
            9: _closed(),
        }
        environment = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
        environment |= {f"LAB_PORT_{port}": str(actual) for port, actual in ports.items()}
        environment |= {"PYTHONUNBUFFERED": "1", "HOME": str(self.folder), **self._environment}
        if AS_COMMAND:
            environment["PYTHONPATH"] = str(PROJECT)
        self.process = subprocess.Popen(
            self._command(), cwd=self.folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _command(self) -> list[str]:
        options = [f"confdir={self.confdir}", "connection_strategy=lazy", "ssl_insecure=true", "flow_detail=0"]
        scripts = [LAB / "route.py", *self._scripts]
        if self._addon:
            options.append(f"breakwater_config={self.config_path}")
            scripts.insert(0, PROJECT / "addon.py")
        command = [str(Path(sys.executable).parent / "mitmdump"), "--listen-host", "127.0.0.1", "--listen-port", "0"]
        command += ["--mode", self.mode]
        if self._addon and AS_COMMAND:
            command[:1] = [sys.executable, "-m", "breakwater", "start", "--set", "termlog_verbosity=debug"]
            scripts = scripts[1:]
        for script in scripts:
            command += ["-s", str(script)]
        named = {option.partition("=")[0] for option in self._options}
        options = [option for option in options if option.partition("=")[0] not in named]
        for option in (*options, *self._options):
            command += ["--set", option]
        return command

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            with self._news:
                self._lines.append(line.decode("utf-8", "replace").rstrip())
                self._news.notify_all()
        with self._news:
            self._ended = True
            self._news.notify_all()

    @property
    def log(self) -> str:
        with self._news:
            return "\n".join(self._lines)

    @property
    def log_lines(self) -> int:
        """How many lines there are so far: a mark for `log_since`."""
        with self._news:
            return len(self._lines)

    def log_since(self, mark: int) -> str:
        with self._news:
            return "\n".join(self._lines[mark:])

    def wait_log(self, text: str, *, since: int = 0, times: int = 1, seconds: float = PATIENCE_SECONDS) -> None:
        def said() -> bool:
            return sum(text in line for line in self._lines[since:]) >= times

        with self._news:
            self._news.wait_for(lambda: self._ended or said(), seconds)
            found = said()
        assert found, f"the log never said {text!r} {times} times:\n{self.log}"

    def wait_exit(self) -> int:
        """Block until the process has ended by itself; its exit status."""
        code = self.process.wait(START_SECONDS)
        self._reader.join(PATIENCE_SECONDS)
        return code

    def stop(self) -> None:
        """End our own process, and fail where its log holds a traceback."""
        died = self.process.poll()
        self.end()
        assert died is None, f"the proxy ended by itself with status {died}:\n{self.log}"
        self.assert_quiet()

    def end(self) -> None:
        """End our own process, whatever state it is in."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(10)
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)
        self._reader.join(PATIENCE_SECONDS)

    def assert_quiet(self, since: int = 0) -> None:
        """No traceback, and none of the errors that mitmproxy logs for a hook or layer that raised."""
        text = OPEN_AT_THE_END.sub("", self.log_since(since))
        for sign in ("Traceback (most recent call last)", "Addon error", "mitmproxy has crashed"):
            assert sign not in text, f"the proxy logged a fault:\n{text}"


def _closed() -> int:
    """A port where nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
