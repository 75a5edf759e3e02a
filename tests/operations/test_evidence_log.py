"""When evidence is taken, and that nothing of it gets lost."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from operations import controller, log
from policies.exchange import Exchange
from tests.policies.exchanges import OK, Controller, settings


@pytest.fixture
def here(tmp_path: Path) -> controller.Controller:
    return controller.Controller(settings(f"evidence_path: {tmp_path}/evidence.jsonl"))


def ended(**ask: Any) -> Exchange:
    rules = Controller()
    ex = rules.sent(**ask)
    rules.reply(ex, OK)
    return ex


def lines(tmp_path: Path) -> list[dict[str, Any]]:
    file = tmp_path / "evidence.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def test_a_batch_is_taken_when_it_is_full_and_in_its_order(here: controller.Controller, tmp_path: Path) -> None:
    ex = ended()
    for number in range(log.BATCH - 1):
        here.evidence_log.add(ex, number)
    assert lines(tmp_path) == []
    here.evidence_log.add(ex, log.BATCH - 1)
    assert [line["wall"] for line in lines(tmp_path)] == list(range(log.BATCH))
    here.evidence_log.wait()
    assert len(lines(tmp_path)) == log.BATCH


def test_large_bodies_are_taken_elsewhere_and_what_follows_comes_after_them(
    here: controller.Controller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    note, go_on, threads = here.rules.note, threading.Event(), []

    def wait_with_first(ex: Exchange, wall: float) -> Any:
        threads.append(threading.current_thread())
        assert wall != 1.0 or go_on.wait(10)
        return note(ex, wall)

    monkeypatch.setattr(here.rules, "note", wait_with_first)
    here.evidence_log.add(ended(text="x" * log.LARGE_BYTES), 1.0)
    here.evidence_log.flush()
    here.evidence_log.add(ended(), 2.0)
    here.evidence_log.flush()
    assert lines(tmp_path) == []
    go_on.set()
    here.evidence_log.wait()
    assert [line["wall"] for line in lines(tmp_path)] == [1.0, 2.0]
    assert threading.current_thread() not in threads
    here.evidence_log.add(ended(), 3.0)
    here.evidence_log.flush()
    assert threads[-1] is threading.current_thread()


def test_bodies_do_not_wait_without_end(here: controller.Controller, tmp_path: Path) -> None:
    here.evidence_log.add(ended(text="x" * log.BATCH_BYTES), 1.0)
    assert here.evidence_log._newest
    here.evidence_log._newest.result()
    assert [line["wall"] for line in lines(tmp_path)] == [1.0]


def test_one_that_fails_is_counted_and_costs_no_other(
    here: controller.Controller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = here.rules.note

    def fail_at_second(ex: Exchange, wall: float) -> Any:
        if wall == 2.0:
            raise ArithmeticError
        return note(ex, wall)

    monkeypatch.setattr(here.rules, "note", fail_at_second)
    for wall in (1.0, 2.0, 3.0):
        here.evidence_log.add(ended(), wall)
    here.evidence_log.wait()
    assert [line["wall"] for line in lines(tmp_path)] == [1.0, 3.0]
    assert here.counters.freeze().faults == {"evidence": 1}


def test_a_path_that_cannot_be_written_is_a_fault_and_the_report_has_its_records(tmp_path: Path) -> None:
    here = controller.Controller(settings(f"evidence_path: {tmp_path}/none/evidence.jsonl"))
    here.evidence_log.add(ended(), 1.0)
    here.evidence_log.wait()
    assert here.counters.freeze().faults == {"evidence": 1}
    assert len(here.state.evidence.records()) == 1
