"""The wheel: it works without the clone, keeps its rooms to itself, and its making leaves nothing behind."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from operations import VERSION
from tests.e2e.lab.installed import Home, build_wheel, install
from tests.e2e.lab.proxy import PROJECT

CARRIED = ("addon.py", "held_stream.py", "hold.py", "self_test.py", "config.yaml")


def test_the_wheel_holds_one_package_and_in_it_the_addon_and_its_rooms(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.partition("/")[0] for name in names} == {"breakwater", f"mitm_breakwater-{VERSION}.dist-info"}
    assert {f"breakwater/_app/{name}" for name in CARRIED} <= set(names)
    for room in ("policies", "operations"):
        files = [path for path in (PROJECT / room).rglob("*") if path.is_file() and "__pycache__" not in path.parts]
        assert {f"breakwater/_app/{path.relative_to(PROJECT)}" for path in files} <= set(names)
    assert not [name for name in names if "__pycache__" in name or "tests" in name]


def test_an_install_leaves_nothing_in_the_clone(tmp_path: Path) -> None:
    def listed() -> set[Path]:
        return {path for path in PROJECT.rglob("*") if not {".git", "__pycache__", ".venv"} & set(path.parts)}

    before = listed()
    build_wheel(tmp_path)
    assert {path for path in listed() - before if path.name.endswith((".egg-info", "build", "dist", ".whl"))} == set()


def test_the_rooms_are_no_packages_of_the_environment(home: Home) -> None:
    python = home.command.parent / "python"
    for room in ("policies", "operations", "addon", "held_stream"):
        tried = subprocess.run(
            [python, "-c", f"import {room}"],
            cwd=home.folder,
            env=home.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert f"No module named '{room}'" in tried.stderr


def test_it_says_its_version(home: Home) -> None:
    said = home.say("--version")
    python = ".".join(map(str, sys.version_info[:3]))
    assert said.stdout.startswith(f"breakwater {VERSION} (mitmproxy ")
    assert said.stdout.endswith(f", Python {python})\n")
    assert said.returncode == 0


@pytest.mark.parametrize("words", [("--help",), *((name, "--help") for name in ("start", "run", "env", "status", "doctor"))])
def test_each_command_says_how_it_is_used(home: Home, words: tuple[str, ...]) -> None:
    said = home.say(*words)
    assert said.returncode == 0
    assert said.stdout.startswith("usage: breakwater")
    assert said.stderr == ""


def test_an_editable_install_uses_the_clone(home: Home, tmp_path: Path) -> None:
    command = install(PROJECT, tmp_path / "editable", "--editable")
    said = subprocess.run(
        [command.parent / "python", "-c", "from breakwater.cli import app; print(app())"],
        cwd=home.folder,
        env=home.environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.strip() == str(PROJECT)
