"""What ends a start: misspelt options, and paths at which nothing can be written."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from operations.startup import check_writable, misspelt
from policies.settings import Settings
from policies.settings_file import SettingsError

OURS = ("breakwater_config", "breakwater_demo", "breakwater_report")
KNOWN = (*OURS, "listen_host", "confdir")


def said(name: str) -> list[str]:
    return list(misspelt(SimpleNamespace(deferred={name: "x"}, keys=lambda: set(KNOWN))))


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("breakwater_confg", "breakwater_confg: unknown option; did you mean breakwater_config?"),
        ("breakwater_repart", "breakwater_repart: unknown option; did you mean breakwater_report?"),
        ("braekwater_demo", "braekwater_demo: unknown option; did you mean breakwater_demo?"),
        ("breakwater", f"breakwater: unknown option; known: {', '.join(OURS)}"),
        ("breakwater_x\x1b[2J", f"'breakwater_x\\x1b[2J': unknown option; known: {', '.join(OURS)}"),
    ],
)
def test_an_option_that_was_meant_for_us_is_said(name: str, line: str) -> None:
    assert said(name) == [line]


@pytest.mark.parametrize("name", ["listen_hots", "my_addon_config", "config", "demo", "water_report"])
def test_an_option_of_somebody_elses_is_not_ours_to_name(name: str) -> None:
    assert said(name) == []


@pytest.mark.parametrize("key", ["evidence_path", "state_path"])
@pytest.mark.parametrize("path", ["{}/missing/file", "{}/file/inner", "{}", "{}/" + "x" * 300, "~nobody-of-that-name/x"])
def test_a_path_that_cannot_be_written_is_one_line_that_names_its_key(tmp_path: Path, key: str, path: str) -> None:
    (tmp_path / "file").write_text("")
    settings = Settings(**{key: path.format(tmp_path)})  # type: ignore[arg-type]
    with pytest.raises(SettingsError) as caught:
        check_writable(settings, "/home/me/config.yaml")
    assert str(caught.value).startswith(f"/home/me/config.yaml: {key}: {path.format(tmp_path)} cannot be written (")
    assert str(caught.value).isprintable()


def test_a_pipe_that_nobody_reads_does_not_stop_the_start(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(SettingsError):
        check_writable(Settings(evidence_path=str(tmp_path / "pipe")), "c")
    check_writable(Settings(state_path=str(tmp_path / "pipe")), "c")  # would be replaced, not written to


def test_what_can_be_written_stays_as_it_is(tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.write_text("kept")
    for path in (there, tmp_path / "new"):
        check_writable(Settings(evidence_path=str(path), state_path=str(path)), "c")
    check_writable(Settings(), "c")
    assert [path.name for path in tmp_path.iterdir()] == ["there"]
    assert there.read_text() == "kept"
