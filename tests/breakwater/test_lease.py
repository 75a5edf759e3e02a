"""The lease: it ends with its last holder, and nobody takes it between that and the end of its Breakwater."""

from __future__ import annotations

import fcntl
import threading
from pathlib import Path

import pytest

from breakwater import run
from breakwater.cli import CommandError

SECONDS = 10
LOOK = 0.03


@pytest.fixture(autouse=True)
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "LEASE_LOOK_SECONDS", LOOK)


def test_the_end_comes_when_the_last_of_several_holders_is_gone(tmp_path: Path) -> None:
    path, ended = tmp_path / "lease", threading.Event()
    with run.locked(path, shared=True):
        with run.locked(path, shared=True):
            run.end_when_unused(str(path), ended.set)
            assert not ended.wait(3 * LOOK)
        assert not ended.wait(3 * LOOK)
    assert ended.wait(SECONDS)


def test_a_new_holder_waits_until_the_old_breakwater_is_gone(tmp_path: Path) -> None:
    path, ended, held = tmp_path / "lease", threading.Event(), threading.Event()
    run.end_when_unused(str(path), ended.set)
    assert ended.wait(SECONDS)

    def hold() -> None:
        with run.locked(path, shared=True):
            held.set()

    thread = threading.Thread(target=hold)
    thread.start()
    assert not held.wait(3 * LOOK)
    fcntl.flock(run._kept[-1], fcntl.LOCK_UN)  # as the kernel does when a process ends
    assert held.wait(SECONDS)
    thread.join()


def test_a_folder_that_cannot_be_written_is_a_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CommandError, match="cannot be written"), run.locked(tmp_path / "file" / "lease"):
        pass


def test_without_locks_of_the_kernel_it_says_what_else_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "fcntl", None)
    with pytest.raises(CommandError, match="POSIX"), run.locked(tmp_path / "lease"):
        pass
