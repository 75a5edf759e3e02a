"""Which event loop, and what to do where uvloop is missing."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from breakwater import start
from tests.tree import ROOT


@pytest.fixture
def missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)


def command(fault: str) -> str:
    return fault.removeprefix("not installed (").removesuffix(")")


def wheel(folder: Path, version: str) -> None:
    """The smallest package of that name that pip takes."""
    info = f"uvloop-{version}.dist-info"
    with zipfile.ZipFile(folder / f"uvloop-{version}-py3-none-any.whl", "w") as file:
        file.writestr("uvloop.py", "")
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: uvloop\nVersion: {version}\n")
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{info}/RECORD", "")


@pytest.mark.usefixtures("missing")
def test_the_command_for_a_missing_uvloop_is_one_that_this_python_takes(tmp_path: Path) -> None:
    for version in ("0.20.0", "0.21.0", "0.22.1"):
        wheel(tmp_path, version)
    offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path), "PIP_DRY_RUN": "1", "PIP_IGNORE_INSTALLED": "1"}
    said = subprocess.run(
        ["sh", "-c", command(start.uvloop_fault())], env={**os.environ, **offline}, capture_output=True, text=True, check=False
    )
    assert said.returncode == 0, said.stderr
    wanted = "0.22.1" if sys.version_info >= (3, 14) else "0.21.0"
    assert f"Would install uvloop-{wanted}" in said.stdout


@pytest.mark.usefixtures("missing")
def test_where_there_is_no_pip_uv_is_named_with_this_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    monkeypatch.setattr(sys, "executable", "/a folder/python")
    assert command(start.uvloop_fault()).startswith("uv pip install --python '/a folder/python' 'uvloop>=")


@pytest.mark.usefixtures("missing")
def test_windows_is_told_that_it_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    assert command(start.uvloop_fault()) == "not for Windows"


def test_it_is_what_the_extra_asks_for() -> None:
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["fast"]
    rows = [Requirement(row) for row in extra]
    [wanted] = [row for row in rows if row.marker is None or row.marker.evaluate()]
    assert (wanted.name, wanted.specifier) == ("uvloop", Requirement(start.WANTED).specifier)
