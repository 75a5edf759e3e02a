"""The commands of the page on scaling, run as they stand there but for the ports."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.lab.fleet import wait_for
from tests.e2e.lab.proxy import PROJECT
from tests.e2e.lab.shared_server import free_port, needs_server

pytestmark = needs_server
PORTS = ("16379", "18080", "18081", "18082")


def block(heading: str) -> str:
    """The commands below a heading, with the pieces of a file among them."""
    page = (PROJECT / "docs" / "scaling.md").read_text(encoding="utf-8")
    part = page.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return "\n".join(line[4:] for line in part.splitlines() if line.startswith("    "))


class Shell:
    """Runs commands in a folder of their own, and ends what they leave running."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ports = {port: str(free_port()) for port in PORTS}
        self._started: list[subprocess.Popen[bytes]] = []
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self._environment = {**os.environ, "HOME": str(folder), "PATH": path}

    def here(self, text: str) -> str:
        text = text.replace("-s addon.py", f"-s {PROJECT / 'addon.py'}")
        return re.sub("|".join(PORTS), lambda port: self._ports[port[0]], text)

    def run(self, line: str) -> str:
        """What a command prints; nothing of one that goes on."""
        quiet: dict[str, Any] = {"cwd": self.folder, "env": self._environment, "stderr": subprocess.DEVNULL}
        if line.endswith(" &"):
            command = ["bash", "-c", f"exec {self.here(line[:-2])}"]
            self._started.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True, **quiet))
            return ""
        command = ["bash", "-c", self.here(line)]
        return str(subprocess.run(command, stdout=subprocess.PIPE, check=False, timeout=30, text=True, **quiet).stdout)

    def end(self) -> None:
        for process in self._started:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    running = Shell(tmp_path)
    yield running
    running.end()


def test_two_breakwaters_share_one_state(shell: Shell) -> None:
    *lines, look = block("Plain commands").splitlines()
    assert len(lines) == 4
    for line in lines:
        shell.run(line)
    wait_for(
        lambda: re.search(r'breakwater_shared_connected\{server="redis://127.*\} 1', shell.run(look)) is not None, "not shared"
    )
    other = look.replace("18081", "18082")
    wait_for(
        lambda: re.search(r"breakwater_shared_connected\{.*\} 1", shell.run(other)) is not None, "the other shares nothing"
    )


@pytest.mark.skipif(shutil.which("haproxy") is None, reason="no haproxy here: apt-get install haproxy")
def test_haproxy_hands_out_connections_to_both(shell: Shell) -> None:
    for line in block("Plain commands").splitlines()[:-1]:
        shell.run(line)
    text = block("Past one core on one machine")
    config, _, commands = text.partition("haproxy -db")
    (shell.folder / "haproxy.cfg").write_text(shell.here(config), encoding="utf-8")
    front, look = f"haproxy -db{commands}".splitlines()[:2]
    shell.run(front)
    wait_for(lambda: "ok" in shell.run(look).lower(), "nobody answers behind HAProxy")
