"""A gateway as a running process: started, asked until it answers, measured by its memory, ended."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from bench.installed import node
from bench.load import body as anthropic_body
from bench.peer_lab.systems import Place, System
from bench.peer_lab.upstream import PeerUpstream, asked

START_SECONDS = 120
CALL_SECONDS = 100
"""How long a client that retries nothing waits for one answer."""


class Heard(NamedTuple):
    """What a client heard. Status 0: nothing, within `CALL_SECONDS`."""

    status: int
    retry_after: str | None
    body: bytes


class Served:
    """One gateway before the upstream, in a process group of its own."""

    def __init__(self, system: System, cache: Path, upstream: PeerUpstream) -> None:
        self.system = system
        folder = Path(tempfile.mkdtemp(prefix="peers-"))
        self.place = Place(cache, folder, _free_port(), f"http://127.0.0.1:{upstream.port}")

    async def __aenter__(self) -> Self:
        start = self.system.start(self.place)
        for name, text in start.files.items():
            path = self.place.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        kept = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
        path_list = f"{node(self.place.cache).resolve().parent}{os.pathsep}{kept.get('PATH', '')}"
        kept |= {"HOME": str(self.place.folder), "PATH": path_list, **start.environment}
        self._log = (self.place.folder / "log.txt").open("wb")
        self._process = subprocess.Popen(  # noqa: ASYNC220 - a process that outlives this call
            start.command,
            cwd=self.place.folder,
            env=kept,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            await self._ready()
        except BaseException:
            self.end()
            raise
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.end()

    async def _ready(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self._process.poll() is None:
            heard = await asyncio.to_thread(self.ask, self.body(), 10)
            if heard.status == 200:
                return
            await asyncio.sleep(0.5)
        log = (self.place.folder / "log.txt").read_text(encoding="utf-8", errors="replace")
        raise RuntimeError(f"{self.system.title} did not come to answer:\n{log[-2000:]}")

    def end(self) -> None:
        """End the process and what it started, whatever state they are in."""
        for sign in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, sign)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(5)
        self._log.close()
        shutil.rmtree(self.place.folder, ignore_errors=True)

    def body(self, text: str = "hi", *, stream: bool = False, filler_bytes: int = 0) -> bytes:
        """A main request on the wire that clients of this gateway speak."""
        if self.system.wire == "anthropic":
            return anthropic_body(text, stream=stream, filler_bytes=filler_bytes)
        return asked(text, stream=stream, filler_bytes=filler_bytes)

    def title(self, filler_bytes: int) -> bytes:
        """A side request; so plain that both wires take it."""
        return asked("Name this.", filler_bytes=filler_bytes, title=True)

    def headers(self, account: str = "bench") -> dict[str, str]:
        told = {"authorization": f"Bearer sk-{account}", "content-type": "application/json"}
        if self.system.wire == "anthropic":
            told["anthropic-version"] = "2023-06-01"
        return {**told, **self.system.headers(self.place)}

    def raw(self, data: bytes) -> bytes:
        """The request as bytes for `bench.load`."""
        pairs = {"host": f"127.0.0.1:{self.place.port}", **self.headers(), "content-length": str(len(data))}
        head = "".join(f"{name}: {value}\r\n" for name, value in pairs.items())
        return f"POST {self.system.path} HTTP/1.1\r\n{head}\r\n".encode() + data

    def ask(self, data: bytes, seconds: float = CALL_SECONDS, account: str = "bench") -> Heard:
        """One request of a client that retries nothing."""
        connection = http.client.HTTPConnection("127.0.0.1", self.place.port, timeout=seconds)
        try:
            connection.request("POST", self.system.path, data, self.headers(account))
            response = connection.getresponse()
            return Heard(response.status, response.getheader("retry-after"), response.read())
        except (OSError, http.client.HTTPException):
            return Heard(0, None, b"")
        finally:
            connection.close()

    def memory_mib(self) -> float:
        """Resident memory of the process and of all that it started."""
        parents = {int(path.name): _parent(path) for path in Path("/proc").iterdir() if path.name.isdigit()}
        family = {self._process.pid}
        while more := {pid for pid, parent in parents.items() if parent in family and pid not in family}:
            family |= more
        return sum(_resident_kib(pid) for pid in family) / 1024


def _parent(path: Path) -> int:
    with contextlib.suppress(OSError):
        return int((path / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])
    return 0


def _resident_kib(pid: int) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1])
    return 0


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
