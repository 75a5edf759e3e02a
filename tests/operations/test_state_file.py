import json
import os
import stat
import threading
from pathlib import Path

import pytest

from operations import state_file
from operations.state_file import CLOCK_SLACK_SECONDS, COMPLAINTS_AT_MOST, clock_went_back, load, save
from policies.saved import VERSION, OpenBreaker, Saved

STATE = Saved(key="ab", saved_at=1000.0, breakers=[OpenBreaker("zai", "", 5.0)])

not_as_root = pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    assert save(path, STATE) is None
    assert load(path) == (STATE, [])


def test_a_first_start_has_an_empty_state_and_no_warning(tmp_path: Path) -> None:
    assert load(tmp_path / "state.json") == (Saved(), [])


def test_the_file_is_its_owners_alone_whatever_the_umask(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    before = os.umask(0)
    try:
        save(path, STATE)
    finally:
        os.umask(before)
    assert mode_of(path) == 0o600


def test_a_file_that_others_could_read_is_closed_to_them_by_the_next_save(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    path.write_text("{}")
    path.chmod(0o644)
    save(path, STATE)
    assert mode_of(path) == 0o600


def test_the_file_is_closed_to_others_before_anything_is_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modes = []

    def look(descriptor: int) -> None:
        status = os.fstat(descriptor).st_mode
        if stat.S_ISREG(status):
            modes.append(stat.S_IMODE(status))

    monkeypatch.setattr(os, "fsync", look)
    save(tmp_path / "state.json", STATE)
    assert modes == [0o600]


@pytest.mark.parametrize("where", ["fsync", "replace"])
def test_a_save_that_fails_keeps_the_old_file_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    path = tmp_path / "state.json"
    save(path, STATE)

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, where, fail)
    warning = save(path, Saved(key="cd"))
    monkeypatch.undo()
    assert warning == f"{path}: cannot be written (No space left on device); a restart will forget"
    assert load(path)[0].key == "ab"
    assert [each.name for each in tmp_path.iterdir()] == ["state.json"]


BROKEN = [
    b"",
    b"{",
    b"[1]",
    b"null",
    b'{"version": 1',
    b"\xff\xfe\x00",
    b"[" * 100_000,
    b'{"a": 1}',
    b'{"version": "1"}',
    b'{"version": true}',
    b'{"version": 0}',
]


@pytest.mark.parametrize("data", BROKEN)
def test_a_file_that_is_no_state_is_moved_aside_with_one_line(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "state.json"
    path.write_bytes(data)
    state, warnings = load(path)
    assert state == Saved()
    assert len(warnings) == 1
    assert warnings[0].startswith(f"{path}: ")
    assert "moved aside to state.json.broken-1" in warnings[0]
    assert "\n" not in warnings[0]
    assert (tmp_path / "state.json.broken-1").read_bytes() == data
    assert load(path) == (Saved(), [])


def test_broken_files_do_not_overwrite_each_other(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    for text in ("one", "two"):
        path.write_text(text)
        load(path)
    assert (tmp_path / "state.json.broken-1").read_text() == "one"
    assert (tmp_path / "state.json.broken-2").read_text() == "two"


def test_a_later_versions_file_is_moved_aside_whole(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    text = json.dumps({"version": VERSION + 1, "new": "thing"})
    path.write_text(text)
    state, warnings = load(path)
    assert state == Saved()
    assert len(warnings) == 1
    assert "later version (2)" in warnings[0]
    assert (tmp_path / "state.json.newer").read_text() == text
    assert not path.exists()


def test_a_directory_in_the_files_place_is_a_warning_and_no_crash(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    path.mkdir()
    state, warnings = load(path)
    assert state == Saved()
    assert len(warnings) == 1
    assert save(path, STATE) is not None


def test_a_pipe_in_the_files_place_does_not_stop_the_start(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    os.mkfifo(path)
    done = threading.Thread(target=load, args=(path,), daemon=True)
    done.start()
    done.join(5)
    assert not done.is_alive()


def test_a_folder_that_is_missing_is_a_warning(tmp_path: Path) -> None:
    warning = save(tmp_path / "no" / "state.json", STATE)
    assert warning is not None
    assert "No such file or directory" in warning
    assert load(tmp_path / "no" / "state.json") == (Saved(), [])


def test_a_path_that_no_system_takes_is_a_warning() -> None:
    assert save("nul\0byte", STATE) is not None
    assert load("nul\0byte")[0] == Saved()


@not_as_root
def test_a_folder_that_cannot_be_written_is_a_warning(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        assert save(tmp_path / "state.json", STATE) is not None
    finally:
        tmp_path.chmod(0o700)


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    real = tmp_path / "real" / "kept.json"
    real.parent.mkdir()
    link = tmp_path / "state.json"
    link.symlink_to(real)
    assert save(link, STATE) is None
    assert link.is_symlink()
    assert json.loads(real.read_text())["key"] == "ab"
    assert load(link)[0].key == "ab"


def test_a_link_that_leads_in_a_circle_does_not_raise(tmp_path: Path) -> None:
    link = tmp_path / "state.json"
    link.symlink_to(link)
    state, warnings = load(link)
    assert state == Saved()
    assert len(warnings) == 1
    assert save(link, STATE) is not None or load(link)[0].key == "ab"


def test_a_temporary_file_never_follows_a_planted_link(tmp_path: Path) -> None:
    """Its name is random and it is created exclusively; whoever plants links for guessed names gains nothing."""
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / ".state.json.tmp").symlink_to(victim)
    (tmp_path / "state.json.tmp").symlink_to(victim)
    save(tmp_path / "state.json", STATE)
    assert victim.read_text() == "mine"


def test_a_file_too_large_to_be_a_state_is_moved_aside_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_file, "LARGEST_BYTES", 100)
    path = tmp_path / "state.json"
    path.write_text(json.dumps({"version": 1, "pad": "x" * 200}))
    state, warnings = load(path)
    assert state == Saved()
    assert len(warnings) == 1
    assert "too large" in warnings[0]


def test_the_clock_is_believed_within_a_minute() -> None:
    assert not clock_went_back(Saved(saved_at=1000.0), 1000.0)
    assert not clock_went_back(Saved(saved_at=1000.0), 9_000_000.0)
    assert not clock_went_back(Saved(saved_at=1000.0 + CLOCK_SLACK_SECONDS), 1000.0)
    assert clock_went_back(Saved(saved_at=1000.0 + CLOCK_SLACK_SECONDS + 1), 1000.0)


@pytest.mark.parametrize("saved_at", [None, "1000", True, 10**400, [], {}])
def test_a_time_that_is_none_is_not_believed(tmp_path: Path, saved_at: object) -> None:
    path = tmp_path / "state.json"
    path.write_text(json.dumps({"version": 1, "saved_at": saved_at}))
    saved, warnings = load(path)
    assert clock_went_back(saved, 1000.0)
    assert len(warnings) == 1
    assert clock_went_back(Saved(), 1000.0)


def test_a_file_of_odd_rows_names_some_of_them_and_counts_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    path.write_text(json.dumps({"version": 1, "saved_at": 1.0, "breakers": [7] * 1000}))
    _, warnings = load(path)
    assert len(warnings) == COMPLAINTS_AT_MOST + 1
    assert "breakers[0]: " in warnings[0]
    assert f"{1000 - COMPLAINTS_AT_MOST} further" in warnings[-1]
