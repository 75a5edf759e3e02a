"""One state file and several proxies: what one has learnt protects them all, and a save never waits."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from operations import demo, state_file
from operations.clock import clock
from operations.controller import Controller
from operations.state_file import BUSY, NO_LOCKS, StateFile, load
from tests.policies.exchanges import settings
from tests.policies.test_refusal_memory import call
from tests.policies.test_windows import asked


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "state.json")


def started(path: str, text: str = "") -> Controller:
    return Controller(settings(text), StateFile(path), live=True)


def now() -> float:
    return clock().now


def block(controller: Controller, account: str, seconds: float = 600.0) -> None:
    controller.state.refusals.block(call(account=account, upstream="zcode"), None, now(), seconds)


def blocked(controller: Controller, account: str) -> bool:
    return controller.state.refusals.blocked(account, "zcode", now()) is not None


def open_breaker(controller: Controller, upstream: str = "zai") -> None:
    controller.state.breakers.of(upstream, "").open(now())


def is_open(controller: Controller, upstream: str = "zai") -> bool:
    return not controller.state.breakers.of(upstream, "").closed


def test_a_second_proxy_hashes_as_the_first_does_though_nothing_was_saved_yet(path: str) -> None:
    one, other = started(path), started(path)
    assert one.state.key == other.state.key
    assert one.state.hashed("a key") == other.state.hashed("a key")


def test_the_first_start_on_a_machine_makes_the_folder_and_complains_of_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        one, other = (started(str(tmp_path / "fresh" / "state.json")) for _ in range(2))
    assert one.state.key == other.state.key
    assert not caplog.records


def test_a_look_at_a_recording_writes_nothing(tmp_path: Path) -> None:
    Controller(settings(), StateFile(tmp_path / "state.json"))
    assert not (tmp_path / "state.json").exists()


def test_neither_proxys_blocks_are_lost_whoever_saves_last(path: str) -> None:
    one, other = started(path), started(path)
    block(one, "a")
    open_breaker(one)
    block(other, "b")
    other.state.windows.learn(asked("zai", "glm-4.6"), 98_304, "said", clock().wall)
    for each in (one, other):
        each.save(path)
    saved, complaints = load(path)
    assert complaints == []
    assert {row.account for row in saved.refusals} == {"a", "b"}
    assert [row.upstream for row in saved.breakers] == ["zai"]
    assert [row.tokens for row in saved.windows] == [98_304]
    third = started(path)
    assert blocked(third, "a")
    assert blocked(third, "b")
    assert is_open(third)


def test_a_running_one_takes_up_the_others_blocks_at_its_next_save(path: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    one, other = started(path), started(path)
    block(one, "a")
    open_breaker(one)
    one.save(path)
    assert not blocked(other, "a")
    other.save(path)
    assert blocked(other, "a")
    assert is_open(other)
    assert "taken up: zai, zcode" in caplog.text
    caplog.clear()
    other.save(path)
    one.save(path)
    assert "taken up" not in caplog.text


def test_what_a_person_closed_here_stays_closed_here(path: str) -> None:
    one, other = started(path), started(path)
    open_breaker(one)
    one.save(path)
    other.save(path)
    other.state.breakers.of("zai", "").close(now())
    for each in (other, one, other):
        each.save(path)
    assert not is_open(other)
    assert is_open(one)


def test_a_save_does_not_wait_for_another_proxys_and_is_made_up_for(path: str) -> None:
    controller = started(path)
    block(controller, "a")
    with state_file._locked(path, 1):
        controller.save(path)
        assert controller.unsaved
        assert load(path)[0].refusals == []
    controller.save(path)
    assert not controller.unsaved
    assert len(load(path)[0].refusals) == 1


def test_a_lock_that_another_holds_is_told(path: str) -> None:
    with state_file._locked(path, 1), state_file._locked(path, 1) as second:
        assert second == BUSY


def test_where_there_are_no_locks_it_saves_and_says_so_once(
    path: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(state_file, "fcntl", None)
    with state_file._locked(path, 1) as lock:
        assert lock == NO_LOCKS
    controller = started(path)
    block(controller, "a")
    controller.save(path)
    controller.save(path)
    assert len(load(path)[0].refusals) == 1
    assert caplog.text.count("no file locks here") == 1


def test_a_lock_never_follows_a_planted_link(tmp_path: Path, path: str) -> None:
    victim = tmp_path / "victim"
    (tmp_path / "state.json.lock").symlink_to(victim)
    started(path).save(path)
    assert not victim.exists()


def test_a_path_that_cannot_be_written_is_one_warning_until_it_can(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "none"
    folder.touch()
    path = str(folder / "state.json")
    controller = started(path)
    block(controller, "a")
    for _ in range(5):
        controller.save(path)
        assert controller.unsaved
    assert caplog.text.count("cannot be written") == 1
    folder.unlink()
    folder.mkdir()
    controller.save(path)
    assert not controller.unsaved
    for each in folder.iterdir():
        each.unlink()
    folder.rmdir()
    for _ in range(5):
        controller.save(path)
    assert caplog.text.count("cannot be written") == 2


def test_a_broken_file_is_moved_aside_by_a_save_and_nothing_held_is_lost(path: str, caplog: pytest.LogCaptureFixture) -> None:
    controller = started(path)
    block(controller, "a")
    Path(path).write_text("{ not json")
    controller.save(path)
    assert len(load(path)[0].refusals) == 1
    assert Path(path + ".broken-1").read_text() == "{ not json"
    assert caplog.text.count("moved aside") == 1


def test_a_file_made_anew_by_another_is_said_once(path: str, caplog: pytest.LogCaptureFixture) -> None:
    one = started(path)
    block(one, "a")
    one.save(path)
    Path(path).unlink()
    other = started(path)
    one.save(path)
    one.save(path)
    assert caplog.text.count("made anew by another proxy") == 1
    assert load(path)[0].key == other.state.key.hex()
    assert blocked(one, "a")


def test_the_demos_breaker_starts_anew(path: str) -> None:
    controller = started(path)
    open_breaker(controller, demo.UPSTREAM.name)
    open_breaker(controller)
    controller.save(path)
    assert [row.upstream for row in load(path)[0].breakers] == ["zai"]


def test_what_lies_in_the_file_names_no_one(path: str) -> None:
    controller = started(path)
    secret = "sk-canary-credential"
    block(controller, controller.state.hashed(secret))
    controller.save(path)
    text = Path(path).read_text()
    assert secret not in text
    assert set(json.loads(text)) == {"version", "saved_at", "key", "breakers", "refusals", "windows", "limits"}
    assert Path(path + ".lock").stat().st_mode & 0o777 == 0o600
