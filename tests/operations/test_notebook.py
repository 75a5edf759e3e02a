"""When evidence is taken, and that nothing of it gets lost."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from operations import desk, notebook
from policies.exchange import Exchange
from tests.policies.exchanges import OK, Desk, settings


@pytest.fixture
def here(tmp_path: Path) -> desk.Desk:
    return desk.Desk(settings(f"evidence_path: {tmp_path}/evidence.jsonl"), {})


def ended(**ask: Any) -> Exchange:
    rules = Desk()
    ex = rules.sent(**ask)
    rules.reply(ex, OK)
    return ex


def lines(tmp_path: Path) -> list[dict[str, Any]]:
    file = tmp_path / "evidence.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def test_a_batch_is_taken_when_it_is_full_and_in_its_order(here: desk.Desk, tmp_path: Path) -> None:
    ex = ended()
    for number in range(notebook.BATCH - 1):
        here.notebook.add(ex, number)
    assert lines(tmp_path) == []
    here.notebook.add(ex, notebook.BATCH - 1)
    assert [line["wall"] for line in lines(tmp_path)] == list(range(notebook.BATCH))
    here.notebook.wait()
    assert len(lines(tmp_path)) == notebook.BATCH


def test_large_bodies_are_taken_elsewhere_and_what_follows_comes_after_them(
    here: desk.Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    note, go_on, threads = here.guard.note, threading.Event(), []

    def wait_with_first(ex: Exchange, wall: float) -> Any:
        threads.append(threading.current_thread())
        assert wall != 1.0 or go_on.wait(10)
        return note(ex, wall)

    monkeypatch.setattr(here.guard, "note", wait_with_first)
    here.notebook.add(ended(text="x" * notebook.LARGE_BYTES), 1.0)
    here.notebook.flush()
    here.notebook.add(ended(), 2.0)
    here.notebook.flush()
    assert lines(tmp_path) == []
    go_on.set()
    here.notebook.wait()
    assert [line["wall"] for line in lines(tmp_path)] == [1.0, 2.0]
    assert threading.current_thread() not in threads
    here.notebook.add(ended(), 3.0)
    here.notebook.flush()
    assert threads[-1] is threading.current_thread()


def test_bodies_do_not_wait_without_end(here: desk.Desk, tmp_path: Path) -> None:
    here.notebook.add(ended(text="x" * notebook.BATCH_BYTES), 1.0)
    assert here.notebook._newest
    here.notebook._newest.result()
    assert [line["wall"] for line in lines(tmp_path)] == [1.0]


def test_one_that_fails_is_counted_and_costs_no_other(
    here: desk.Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = here.guard.note

    def fail_at_second(ex: Exchange, wall: float) -> Any:
        if wall == 2.0:
            raise ArithmeticError
        return note(ex, wall)

    monkeypatch.setattr(here.guard, "note", fail_at_second)
    for wall in (1.0, 2.0, 3.0):
        here.notebook.add(ended(), wall)
    here.notebook.wait()
    assert [line["wall"] for line in lines(tmp_path)] == [1.0, 3.0]
    assert here.counters.freeze().faults == {"evidence": 1}


def test_a_path_that_cannot_be_written_is_a_fault_and_the_report_has_its_records(tmp_path: Path) -> None:
    here = desk.Desk(settings(f"evidence_path: {tmp_path}/none/evidence.jsonl"), {})
    here.notebook.add(ended(), 1.0)
    here.notebook.wait()
    assert here.counters.freeze().faults == {"evidence": 1}
    assert len(here.memory.evidence.records()) == 1
