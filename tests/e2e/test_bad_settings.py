"""Settings that cannot be used: a start ends with one line that says which, a running proxy keeps its last good ones."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import Proxies
from tests.e2e.lab.operated import look
from tests.e2e.lab.proxy import Proxy
from tests.e2e.lab.script import Place

BAD_STARTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "shared: must begin with redis://, rediss://, unix:// or redis+sentinel:// and name a server": (
        "shared: http://:SECRET@h",
        (),
    ),
    "evidence_path: /nowhere/evidence.jsonl cannot be written (No such file or directory)": (
        "evidence_path: /nowhere/evidence.jsonl",
        (),
    ),
    "state_path: /dev/null/state.json cannot be written (Not a directory)": ("state_path: /dev/null/state.json", ()),
    "breakwater_confg: unknown option; did you mean breakwater_config?": ("", ("breakwater_confg=x",)),
}


@pytest.fixture(scope="module")
def ended(proxies: Proxies) -> Iterator[dict[str, Proxy]]:
    """A start for each mistake, two at a time, which is what a small machine bears."""
    started = {
        said: proxies.fresh(text, options=options, environment={"LC_ALL": "C"}) for said, (text, options) in BAD_STARTS.items()
    }
    waiting: list[Proxy] = []
    for proxy in started.values():
        proxy.launch()
        waiting.append(proxy)
        if len(waiting) == 2:
            waiting.pop(0).wait_exit()
    yield started
    for proxy in started.values():
        proxy.end()


@pytest.mark.parametrize("said", BAD_STARTS)
def test_a_start_ends_with_one_line_that_names_the_key_or_the_option(ended: dict[str, Proxy], said: str) -> None:
    proxy, (text, _) = ended[said], BAD_STARTS[said]
    assert proxy.wait_exit() == 1
    (line,) = [line for line in proxy.log.splitlines() if said in line]
    assert (f"{proxy.config_path}: {said}" in line) is bool(text)
    assert "SECRET" not in proxy.log
    proxy.assert_quiet()


def test_a_path_that_can_be_written_is_left_as_it_was(proxies: Proxies, tmp_path: Path) -> None:
    there, evidence = tmp_path / "there.jsonl", tmp_path / "evidence.jsonl"
    there.write_text("kept\n")
    for path in (there, evidence):
        proxy = proxies.fresh(f"evidence_path: {path}\nstate_path: {tmp_path}/state.json\n").start()
        proxy.stop()
    assert there.read_text() == "kept\n"
    assert {path.name for path in tmp_path.iterdir()} == {"there.jsonl", "state.json", "state.json.lock"}


def test_a_config_that_vanishes_is_said_once_and_taken_up_when_it_returns(
    proxies: Proxies, place: Callable[..., Place]
) -> None:
    proxy, here = proxies.fresh({}), place()
    proxy.start()
    try:
        text = proxy.config_path.read_text()
        proxy.config_path.unlink()
        proxy.wait_log(f"{proxy.config_path} is gone; the last good settings stay")
        for _ in range(3):
            look(proxy, here.host)
        assert proxy.log.count("is gone") == 1
        mark = proxy.log_lines
        proxy.config_path.write_text(f"# back\n{text}")
        proxy.wait_log("has changed and was taken up", since=mark)
        proxy.config_path.unlink()
        proxy.wait_log("is gone", since=mark)
    finally:
        proxy.stop()


def test_a_path_that_cannot_be_written_is_refused_while_it_runs(proxies: Proxies) -> None:
    proxy = proxies.fresh("mode: enforce").start()
    try:
        proxy.write_config("mode: observe\nstate_path: /nowhere/state.json\n")
        os.utime(proxy.config_path, (1, 1))
        proxy.wait_log("state_path: /nowhere/state.json cannot be written (No such file or directory)")
        assert "has changed" not in proxy.log
    finally:
        proxy.stop()


def test_a_run_that_only_reads_a_file_writes_nothing_and_minds_no_path(proxies: Proxies) -> None:
    proxy = proxies.fresh("state_path: /nowhere/state.json", options=("server=false",))
    proxy.launch()
    try:
        proxy.wait_log("lab: running")
        assert "cannot be written" not in proxy.log
    finally:
        proxy.end()
