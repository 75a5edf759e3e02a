"""The wheel in an environment of its own, and the command as a person calls it: from an empty folder, with its own home."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.e2e.lab.proxy import LAB, LISTENING, PROJECT, START_SECONDS, Ports
from tests.e2e.lab.script import PATIENCE_SECONDS

OF_PROXIES = re.compile(r"_proxy$|CERT|CA_BUNDLE|CA_CERT|SSL|^BREAKWATER|^PYTHON", re.IGNORECASE)
"""Variables of this machine that would reach into a test."""


def free_port() -> int:
    """A port where nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def build_wheel(folder: Path) -> Path:
    _pip("wheel", "--no-deps", "--no-build-isolation", "-w", str(folder), str(PROJECT))
    (wheel,) = folder.glob("*.whl")
    return wheel


def install(what: Path, folder: Path, *options: str) -> Path:
    """The command, in an empty environment that has no more of ours than this; its dependencies are borrowed."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    site = folder / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    python = str(folder / "bin" / "python")
    _pip("--python", python, "install", "--no-deps", "--no-build-isolation", "--ignore-installed", *options, str(what))
    return folder / "bin" / "breakwater"


def _pip(*words: str) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


class Home:
    """A person's empty folder and home, and what they type there. `upstream` answers for every host name."""

    def __init__(self, folder: Path, command: Path, upstream: Ports, config: Mapping[str, Any]) -> None:
        self.folder, self.command, self.port = folder, command, free_port()
        self.confdir = folder / ".mitmproxy"
        self.config = folder / "breakwater.yaml"
        folder.mkdir(parents=True, exist_ok=True)
        self.config.write_text(json.dumps(config))
        ports = {80: upstream.clear_port, 443: upstream.tls_port, 8443: upstream.h2_port, 9: free_port()}
        self.environment = {name: value for name, value in os.environ.items() if not OF_PROXIES.search(name)}
        self.environment |= {f"LAB_PORT_{port}": str(actual) for port, actual in ports.items()}
        self.environment |= {"HOME": str(folder), "PWD": str(folder), "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        self.processes: list[subprocess.Popen[bytes]] = []

    @property
    def ca_path(self) -> Path:
        """What a client has to trust to be intercepted."""
        return self.confdir / "mitmproxy-ca-cert.pem"

    @property
    def lab(self) -> list[str]:
        """Options of start that lead every host name to the scripted upstream."""
        return ["-s", str(LAB / "route.py"), "--set", f"breakwater_config={self.config}", "--set", "ssl_insecure=true"]

    def say(self, *words: str, **more: Any) -> subprocess.CompletedProcess[str]:
        """Call the command to its end."""
        environment = {**self.environment, **more.pop("environment", {})}
        return subprocess.run(
            [str(self.command), *words],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=START_SECONDS,
            check=False,
            **more,
        )

    def run(self, *command: str, options: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
        return self.say("run", "--port", str(self.port), *self.lab, *options, "--", *command)

    def begin(self, *words: str, **more: Any) -> subprocess.Popen[bytes]:
        """Call the command, and leave it running."""
        process = subprocess.Popen([str(self.command), *words], cwd=self.folder, env=self.environment, **more)
        self.processes.append(process)
        return process

    def start(self, *words: str, log: str = "start.log") -> subprocess.Popen[bytes]:
        """`breakwater start` until it listens; its lines are in the file `log`."""
        path = self.folder / log
        with path.open("wb") as file:
            process = self.begin("start", "--port", str(self.port), *words, stdout=file, stderr=subprocess.STDOUT)
        wait_for(lambda: process.poll() is not None or LISTENING.search(path.read_text()), path)
        assert process.poll() is None, path.read_text()
        return process

    def listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def close(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            if process.poll() is None:
                process.kill()
                process.wait(10)


def wait_for(true: Any, why: object = "") -> None:
    """Block until that is so."""
    until = time.monotonic() + max(PATIENCE_SECONDS, START_SECONDS)
    while not true():
        assert time.monotonic() < until, f"waited in vain: {why}"
        time.sleep(0.02)
