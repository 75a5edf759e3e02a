"""Changed settings, reloads and restarts, with real processes: nothing that protects is lost, and what is wrong is said once."""

from __future__ import annotations

import json
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import NO_QUEUE, Proxies, upstream_rows
from tests.e2e.lab.client import Connection, ask
from tests.e2e.lab.operated import Reloadable, breaker, errors, look, state, state_path, status, until
from tests.e2e.lab.proxy import Proxy
from tests.e2e.lab.script import Gate, Place
from tests.e2e.lab.upstream import Upstream
from tests.e2e.lab.wires import (
    MESSAGES,
    MTOP,
    OVERLOAD_1305,
    ZCODE,
    account,
    anthropic,
    anthropic_message,
    asked,
    compact,
    event,
    streamed,
    whole,
)

Places = Callable[..., Place]

CONFIG: dict[str, Any] = {"upstreams": upstream_rows(), **NO_QUEUE, "replay": {"gap_seconds": 60, "base_seconds": 0}}
OVERFLOW = {"error": {"message": "This model's maximum context length is 65536 tokens. However, you requested 86046 tokens."}}
BLOCKED = {"code": 3012, "msg": "Unusual activity"}


def challenged(proxy: Proxy, here: Place, times: int) -> list[int | None]:
    """So many different requests are challenged; the waits that the client is told."""
    here.then(*[whole(MTOP)] * times)
    number = len(here.hits)
    answers = [ask(proxy, here.url(MESSAGES), asked(f"{number} {n}"), account(here.host)) for n in range(times)]
    assert [answer.status for answer in answers] == [529] * times
    return [answer.retry_after for answer in answers]


def assert_open(proxy: Proxy, here: Place) -> None:
    """Refused here, with what is left of the window, and nothing reaches the upstream."""
    before = len(here.hits)
    answer = ask(proxy, here.url(MESSAGES), asked("after"), account("another"))
    assert (answer.status, answer.header("x-breakwater")) == (529, "breaker_open")
    assert 0 < (answer.retry_after or 0) <= 59
    assert len(here.hits) == before


# -- settings while it runs -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def configured(proxies: Proxies) -> Iterator[Proxy]:
    """A proxy whose config the tests change; each begins with the settings of `CONFIG`."""
    proxy = proxies.fresh(CONFIG).start()
    yield proxy
    proxy.stop()


def test_a_changed_config_is_taken_up_and_strikes_and_breakers_stay(configured: Proxy, place: Places) -> None:
    opened, struck, fresh, mark = place(), place(), place(), configured.log_lines
    challenged(configured, opened, 3)
    assert challenged(configured, struck, 2) == [30, 30]
    changed = time.monotonic()
    configured.write_config({**CONFIG, "retry_after": {"challenge": 11}})
    configured.wait_log("has changed", since=mark)
    assert time.monotonic() - changed < 4  # a look each second, and the time that a loaded machine takes
    assert challenged(configured, fresh, 1) == [11]
    assert_open(configured, opened)
    assert challenged(configured, struck, 1) == [59]
    assert_open(configured, struck)
    assert errors(configured, mark) == []


def test_a_broken_config_is_one_error_and_the_last_good_one_stays(configured: Proxy, place: Places) -> None:
    here, mark = place(), configured.log_lines
    configured.write_config({**CONFIG, "retry_after": {"challenge": 12}})
    configured.wait_log("has changed", since=mark)
    configured.write_config({**CONFIG, "retry_after": {"challenge": 13}, "breaker": {"strikes": -1}})
    configured.wait_log("breaker.strikes", since=mark)
    look(configured, here.host)
    (said,) = errors(configured, mark)
    assert f"{configured.config_path}: breaker.strikes: must be 1 or more, got -1" in said
    assert challenged(configured, here, 1) == [12]
    configured.write_config("breaker: [unclosed")
    look(configured, here.host)
    assert len(errors(configured, mark)) == 2
    assert challenged(configured, here, 1) == [12]
    configured.assert_quiet(mark)


def test_a_config_that_is_empty_or_gone_is_ignored_while_it_runs(configured: Proxy, place: Places) -> None:
    here, mark = place(), configured.log_lines
    configured.write_config({**CONFIG, "retry_after": {"challenge": 15}})
    configured.wait_log("has changed", since=mark)
    mark = configured.log_lines
    configured.write_config("")
    look(configured, here.host)
    assert challenged(configured, here, 1) == [15]
    configured.config_path.unlink()
    look(configured, here.host)
    assert challenged(configured, here, 1) == [15]
    assert "has changed" not in configured.log_since(mark)
    assert errors(configured, mark) == []


BAD_STARTS = {
    "breaker.strikes: must be 1 or more, got -1": "breaker: {strikes: -1}",
    "": "breaker: [unclosed",
    "cannot be read": None,
}


def test_a_bad_config_at_the_start_is_one_line_and_ends_it(proxies: Proxies) -> None:
    started = {said: proxies.fresh(text or "") for said, text in BAD_STARTS.items()}
    started["cannot be read"].config_path.unlink()
    for proxy in started.values():
        proxy.launch()
    for said, proxy in started.items():
        assert proxy.wait_exit() == 1
        (line,) = errors(proxy)
        assert f"{proxy.config_path}: {said}" in line
        proxy.assert_quiet()


# -- reloads of addon.py --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def reloadable(tmp_path_factory: pytest.TempPathFactory, upstream: Upstream) -> Iterator[Reloadable]:
    proxy = Reloadable(tmp_path_factory.mktemp("reloadable") / "proxy", upstream, config=CONFIG)
    proxy.start()
    yield proxy
    proxy.stop()


def test_a_reload_hands_over_breakers_windows_and_sessions(reloadable: Reloadable, place: Places) -> None:
    opened, overflowed, talked = place(), place("dashscope"), place()
    challenged(reloadable, opened, 3)
    overflowed.then(whole(OVERFLOW, 400))
    assert ask(reloadable, overflowed.url(MESSAGES), asked("long"), account("o")).status == 400
    talked.then(whole(anthropic_message()), whole(OVERLOAD_1305, 429), whole(anthropic_message()))
    assert ask(reloadable, talked.url(MESSAGES), asked("one"), account("t")).status == 200
    before = status(reloadable)
    reloadable.touch()
    after = status(reloadable)
    assert_open(reloadable, opened)
    assert [row["tokens"] for row in after["windows"]] == [65536]
    for kept in ("windows", "decisions", "refusals"):
        assert len(after[kept]) == len(before[kept])
    assert after["counts"]["sends"] == before["counts"]["sends"]
    # A replay, since its session is known: the passing refusal is cured in place.
    assert ask(reloadable, talked.url(MESSAGES), asked("two"), account("t")).status == 200
    assert len(talked.hits) == 3
    assert status(reloadable)["counts"]["resends"] == {talked.host: 1}


def test_a_stream_that_runs_over_a_reload_ends_whole(reloadable: Reloadable, place: Places) -> None:
    here, frames, gate = place(), anthropic("one", "two"), Gate()
    here.then(streamed([*frames[:3], gate, *frames[3:]]))
    with Connection(reloadable, here.url(MESSAGES)) as connection:
        connection.send(asked(), account(here.host))
        answer = connection.head()
        connection.piece(answer)
        reloadable.touch()
        gate.open()
        connection.rest(answer)
    assert (answer.status, answer.whole, answer.body) == (200, True, b"".join(frames))


def test_a_refusal_after_a_reload_is_told_in_the_streams_and_holds_of_before(reloadable: Reloadable, place: Places) -> None:
    running, held, gates = place(), place(), [Gate(), Gate()]
    frames = anthropic("one")
    running.then(streamed([*frames[:3], gates[0], event(MTOP), *frames[3:]]))
    held.then(streamed([gates[1], event(MTOP)]))
    with Connection(reloadable, running.url(MESSAGES)) as first, Connection(reloadable, held.url(MESSAGES)) as second:
        first.send(asked(), account(running.host))
        answer = first.head()
        first.piece(answer)
        second.send(asked(), account(held.host))
        gates[1].wait_reached()
        reloadable.touch()
        for gate in gates:
            gate.open()
        first.rest(answer)
        refused = second.answer()
    assert answer.whole
    assert b"retry_after" in answer.body
    assert b"x5secdata" not in answer.body
    assert (refused.status, refused.retry_after) == (529, 30)
    assert [breaker(reloadable, here.host)["strikes"] for here in (running, held)] == [1, 1]


def test_a_probe_that_runs_over_a_reload_still_closes_the_breaker(reloadable: Reloadable, place: Places) -> None:
    here, frames, gate = place(), anthropic("one"), Gate()
    reloadable.write_config({**CONFIG, "breaker": {"open_seconds": 1}})
    look(reloadable, here.host)
    challenged(reloadable, here, 3)
    until(lambda: breaker(reloadable, here.host)["state"] == "half_open", "the window's end")
    here.then(streamed([gate, *frames]))
    with Connection(reloadable, here.url(MESSAGES)) as connection:
        connection.send(asked("probe"), account(here.host))
        gate.wait_reached()
        reloadable.touch()
        assert breaker(reloadable, here.host)["state"] == "probing"
        assert ask(reloadable, here.url(MESSAGES), asked("other"), account("o")).header("x-breakwater") == "breaker_probing"
        gate.open()
        assert connection.answer().body == b"".join(frames)
    assert breaker(reloadable, here.host)["state"] == "closed"


def test_an_addon_that_breaks_or_vanishes_is_an_alarm_and_what_it_knew_waits_for_the_next(
    tmp_path: Path, upstream: Upstream, place: Places
) -> None:
    proxy, here = Reloadable(tmp_path / "proxy", upstream, config=CONFIG), place()
    try:
        proxy.start()
        challenged(proxy, here, 3)
        good = proxy.addon_path.read_text()
        proxy.rewrite("def broken(:\n")
        proxy.wait_alarm()
        here.then(whole(MTOP))
        assert ask(proxy, here.url(MESSAGES), asked("unguarded"), account("u")).body == compact(MTOP)
        proxy.rewrite(good)
        until(proxy.answers, "the repaired addon")
        assert_open(proxy, here)
        proxy.remove()
        proxy.wait_alarm()
        assert len(errors(proxy)) == 2
        assert proxy.process.poll() is None
    finally:
        proxy.end()


# -- restarts -------------------------------------------------------------------------------------------------


def test_a_restart_keeps_what_protects(proxies: Proxies, upstream: Upstream, place: Places) -> None:
    proxy = proxies.fresh(CONFIG).start()
    opened, blocked, overflowed = place(), place("zcode"), place("dashscope")
    challenged(proxy, opened, 3)
    blocked.then(whole(BLOCKED, 400))
    assert ask(proxy, blocked.url(ZCODE), asked(), account("b")).header("x-breakwater") == "challenge_blocked"
    overflowed.then(whole(OVERFLOW, 400))
    assert ask(proxy, overflowed.url(MESSAGES), asked("long"), account("o")).status == 400
    until(lambda: all(len(state(proxy).get(kind, ())) == 1 for kind in ("breakers", "windows")), "the state")
    key = state(proxy)["key"]
    assert stat.S_IMODE(state_path(proxy).stat().st_mode) == 0o600
    proxy.process.kill()  # as a crash does: nothing can be written any more
    proxy.end()

    proxy = Proxy(proxy.folder, upstream, config=CONFIG).start()
    try:
        assert_open(proxy, opened)
        again = ask(proxy, blocked.url(ZCODE), asked("other"), account("b"))
        assert (again.status, again.header("x-breakwater"), again.retry_after) == (529, "account_blocked", 59)
        assert len(blocked.hits) == 1
        assert [row["tokens"] for row in status(proxy)["windows"]] == [65536]
        assert state(proxy)["key"] == key
    finally:
        proxy.stop()


def test_a_state_file_that_cannot_be_read_is_moved_aside_with_one_warning(proxies: Proxies, place: Places) -> None:
    proxy, here = proxies.fresh(CONFIG), place()
    proxy.confdir.mkdir()
    state_path(proxy).write_text("{ not json")
    proxy.start()
    try:
        (said,) = [line for line in proxy.log.splitlines() if str(state_path(proxy)) in line]
        assert "moved aside to breakwater-state.json.broken-1" in said
        assert state_path(proxy).with_name("breakwater-state.json.broken-1").read_text() == "{ not json"
        challenged(proxy, here, 3)
        until(lambda: len(state(proxy).get("breakers", ())) == 1, "a state of its own")
        assert json.loads(state_path(proxy).read_text())["version"] == 1
    finally:
        proxy.stop()
