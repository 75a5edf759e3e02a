"""Which event loop, and what to do where uvloop is missing."""

from __future__ import annotations

import importlib.util
import shlex
import sys
import tomllib

import pytest
from packaging.requirements import Requirement

from breakwater import start
from tests.tree import ROOT


@pytest.fixture
def missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)


def command(fault: str) -> str:
    return fault.removeprefix("not installed (").removesuffix(")")


@pytest.mark.usefixtures("missing")
def test_the_command_for_a_missing_uvloop_is_one_that_a_shell_and_this_python_take() -> None:
    """As a shell splits it: where ``<`` or ``>`` were not in quotes it would be a word of its own."""
    *pip, wanted = shlex.shlex(command(start.uvloop_fault()), posix=True, punctuation_chars=True)
    assert pip == [sys.executable, "-m", "pip", "install"]
    requirement, versions = Requirement(wanted), ("0.20.0", "0.21.0", "0.22.1")
    assert requirement.name == "uvloop"
    assert max(requirement.specifier.filter(versions)) == ("0.22.1" if sys.version_info >= (3, 14) else "0.21.0")


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
