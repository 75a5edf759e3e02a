"""Pinned programs of others, each in a folder of its own below one cache, so that a run measures what it names."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

INSTALL_SECONDS = 900
"""The longest that one package may take; the largest is 400 MB."""


def default_cache() -> Path:
    """A folder of the user's, where a second run finds what the first one installed."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "breakwater-bench"


@dataclass(frozen=True)
class NpmPackage:
    """One npm package; `pinned` holds further packages that must not float, as name@version."""

    name: str
    version: str
    pinned: tuple[str, ...] = ()

    def folder(self, cache: Path) -> Path:
        short = self.name.rpartition("/")[2]
        return cache / "npm" / f"{short}-{self.version}"

    def modules(self, cache: Path) -> Path:
        return self.folder(cache) / "node_modules"

    def install(self, cache: Path) -> None:
        folder = self.folder(cache)
        if (self.modules(cache) / self.name / "package.json").exists():
            return
        _say(f"installing {self.name} {self.version}")
        folder.mkdir(parents=True, exist_ok=True)
        command = ["npm", "install", "--prefix", str(folder), "--no-audit", "--no-fund", "--loglevel=error"]
        _run([*command, f"{self.name}@{self.version}", *self.pinned])


@dataclass(frozen=True)
class Venv:
    """A virtual environment of its own for packages that would not go together with mitmproxy's."""

    name: str
    packages: tuple[str, ...]

    def folder(self, cache: Path) -> Path:
        return cache / "venv" / self.name

    def program(self, cache: Path, name: str = "python") -> Path:
        return self.folder(cache) / "bin" / name

    def install(self, cache: Path) -> None:
        folder = self.folder(cache)
        mark, wanted = folder / "installed.txt", "\n".join(self.packages)
        if mark.exists() and mark.read_text(encoding="utf-8") == wanted:
            return
        _say(f"installing {', '.join(self.packages)}")
        shutil.rmtree(folder, ignore_errors=True)
        _run([sys.executable, "-m", "venv", str(folder)])
        _run([str(self.program(cache)), "-m", "pip", "install", "--quiet", *self.packages])
        mark.write_text(wanted, encoding="utf-8")


NODE = NpmPackage("node", "22.23.3")
"""Some of the programs need a newer Node than distributions carry."""


def node(cache: Path) -> Path:
    return NODE.modules(cache) / ".bin" / "node"


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-2000:]}")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
