"""README's commands as a newcomer types them: in a fresh copy, one after the other, with a home of its own.

A comment before a block says what becomes of it: ``stays: WORDS`` runs until the next such block and prints these words
when it is ready; ``says: A; B`` prints A and B; ``not run: REASON`` is left out.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.lab.installed import OF_PROXIES, free_port
from tests.e2e.lab.proxy import PROJECT

BLOCK = re.compile(r"<!-- (stays|says|not run): (.*?) -->\n```sh\n(.*?)```", re.DOTALL)
FROM_REGISTRY = os.environ.get("BREAKWATER_README") == "registry"
"""Whether pip fetches everything, as on a fresh machine; else it installs ours and the dependencies are borrowed."""
SECONDS = 300 if FROM_REGISTRY else 90
BORROW = f"""\
#!/bin/sh
test "$1 $2" = "-m venv" || exec {shlex.quote(sys.executable)} "$@"
{shlex.quote(sys.executable)} -m venv --without-pip "$3"
echo {shlex.quote(sysconfig.get_path("purelib"))} > "$(echo "$3"/lib/python3*/site-packages)/borrowed.pth"
here=$(cd "$3/bin" && pwd)
for tool in mitmdump mitmweb; do
  printf '#!%s\\nfrom mitmproxy.tools.main import %s\\n%s()\\n' "$here/python" $tool $tool > "$here/$tool"
done
printf '#!/bin/sh\\nexec %s -m pip --python %s "$@" --no-deps --no-build-isolation --ignore-installed\\n' \\
  {shlex.quote(sys.executable)} "$here/python" > "$here/pip"
chmod +x "$here"/mitm* "$here/pip"
"""
"""A ``python3`` whose environments borrow ours."""


@dataclass(frozen=True)
class Block:
    what: str
    words: str
    script: str


def blocks() -> list[Block]:
    return [Block(*found) for found in BLOCK.findall((PROJECT / "README.md").read_text(encoding="utf-8"))]


class Newcomer:
    """Who follows the README in a folder of their own, in two terminals; what is started ends with Ctrl-C."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder / "clone", free_port()
        (folder / "home").mkdir()
        (folder / "bin").mkdir()
        if not FROM_REGISTRY:
            (folder / "bin" / "python3").write_text(BORROW)
            (folder / "bin" / "python3").chmod(0o755)
        ignored = shutil.ignore_patterns(".*", "__pycache__", "tests", "bench", "*.png")
        shutil.copytree(PROJECT, self.folder, ignore=ignored)
        path = f"{self.folder / '.venv/bin'}:{folder / 'bin'}:{os.environ['PATH']}"
        self.environment = {name: value for name, value in os.environ.items() if not OF_PROXIES.search(name)}
        self.environment |= {"HOME": str(folder / "home"), "PATH": path, "PYTHONUNBUFFERED": "1"}
        self._running: subprocess.Popen[bytes] | None = None
        self._log = folder / "log"

    def typed(self, block: Block) -> list[str]:
        """The block on a port of this test."""
        script = re.sub(r"\b8080\b", str(self.port), block.script)
        script = re.sub(r"\bbreakwater (start|run|env|status|doctor)\b", rf"breakwater \1 --port {self.port}", script)
        script = re.sub(r"\bmitmdump -s\b", f"mitmdump -p {self.port} -s", script)
        return ["bash", "-e", "-o", "pipefail", "-c", script]

    def does(self, block: Block) -> str:
        """Run a block to its end; what it prints."""
        done = subprocess.run(
            self.typed(block),
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{block.script}\n{done.stdout}{done.stderr}"
        return done.stdout

    def starts(self, block: Block) -> None:
        """Run a block that stays, until it says its words; what ran before is ended first."""
        self.ends()
        with self._log.open("wb") as log:
            process = self._running = subprocess.Popen(
                self.typed(block), cwd=self.folder, env=self.environment, stdout=log, stderr=log, start_new_session=True
            )
        until = time.monotonic() + SECONDS
        while block.words not in self._log.read_text():
            assert process.poll() is None and time.monotonic() < until, f"{block.script}\n{self._log.read_text()}"  # noqa: PT018
            time.sleep(0.05)

    def ends(self) -> None:
        if self._running is None:
            return
        os.killpg(self._running.pid, signal.SIGINT)
        self._running.wait(30)
        assert "Traceback" not in self._log.read_text(), self._log.read_text()
        self._running = None


@pytest.fixture
def newcomer(tmp_path: Path) -> Iterator[Newcomer]:
    someone = Newcomer(tmp_path)
    yield someone
    someone.ends()


@pytest.mark.timeout(2 * SECONDS)
def test_a_newcomer_gets_what_the_readme_says(newcomer: Newcomer) -> None:
    for block in blocks():
        if block.what == "stays":
            newcomer.starts(block)
        elif block.what == "says":
            said = newcomer.does(block)
            for words in block.words.split("; "):
                assert words.replace("8080", str(newcomer.port)) in said, f"{block.script}\n{said}"


def test_every_block_of_commands_is_run_or_says_why_not() -> None:
    text = (PROJECT / "README.md").read_text(encoding="utf-8")
    assert len(blocks()) == text.count("```sh\n") > 8
    assert {block.words for block in blocks() if block.what == "not run"} == {
        "needs a client with an account",
        "opens a browser",
        "runs all tests",
    }
