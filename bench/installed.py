"""Pinned programs of others, each in a folder of its own below one cache, so that a run measures what it names."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
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
        folder, packages = self.folder(cache), (f"{self.name}@{self.version}", *self.pinned)
        if _is_there(folder, packages):
            return
        folder.mkdir(parents=True)
        command = ["npm", "install", "--prefix", str(folder), "--no-audit", "--no-fund", "--loglevel=error"]
        _run([*command, *packages])
        _mark(folder, packages)


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
        if _is_there(folder, self.packages):
            return
        _run([sys.executable, "-m", "venv", str(folder)])
        _run([str(self.program(cache)), "-m", "pip", "install", "--quiet", *self.packages])
        _mark(folder, self.packages)


NODE = NpmPackage("node", "22.23.3")
"""Some of the programs need a newer Node than distributions carry."""


def node(cache: Path) -> Path:
    return NODE.modules(cache) / ".bin" / "node"


MARK = "installed.txt"
"""Written last, so that a folder without it, or with other packages named in it, is made anew."""


def _is_there(folder: Path, packages: Sequence[str]) -> bool:
    """Whether just these are installed there; clears the folder where they are not."""
    mark = folder / MARK
    if mark.exists() and mark.read_text(encoding="utf-8") == "\n".join(packages):
        return True
    shutil.rmtree(folder, ignore_errors=True)
    print(f"installing {', '.join(packages)}", file=sys.stderr, flush=True)
    return False


def _mark(folder: Path, packages: Sequence[str]) -> None:
    (folder / MARK).write_text("\n".join(packages), encoding="utf-8")


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-2000:]}")
