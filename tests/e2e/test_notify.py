"""The command of `notify`: run with a real script, with the facts in its environment, and never in the way."""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import Proxies
from tests.e2e.lab.client import ask
from tests.e2e.lab.operated import press, until
from tests.e2e.lab.proxy import Proxy
from tests.e2e.lab.script import Place
from tests.e2e.lab.wires import MESSAGES, ZCODE, asked, whole

Places = Callable[..., Place]
CAPTCHA = {"code": 3007, "msg": "captcha verify failed; $(touch owned) `touch owned`"}
BLOCKED = {"code": 3012, "msg": "unusual activity; touch owned"}
WRITES = """#!/bin/sh
here=$(dirname "$0")
{ echo "args=$*"; env | grep ^BREAKWATER_; } > "$here/making.$$" && mv "$here/making.$$" "$here/told.$$"
"""
HANGS = """#!/bin/sh
sleep 300 & echo $$ $! > "$(dirname "$0")/pids"
wait
"""


def script(folder: Path, text: str) -> Path:
    path = folder / "told me so.sh"
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def told(folder: Path) -> list[dict[str, str]]:
    """What each run of the script was told."""
    return [dict(line.split("=", 1) for line in run.read_text().splitlines()) for run in folder.glob("told.*")]


@pytest.fixture
def notified(proxies: Proxies, tmp_path: Path) -> Iterator[Proxy]:
    command = f"'{script(tmp_path, WRITES)}' '; touch owned' $HOME"
    proxy = proxies.fresh({"notify": command, "breaker": {"strikes": 2}, "replay": {"captcha": False}}).start()
    yield proxy
    proxy.stop()


def send(proxy: Proxy, here: Place, text: str, who: str = "me", path: str = ZCODE) -> int:
    return ask(proxy, here.url(path), asked(text), [("authorization", f"Bearer {who}")]).status


def test_the_command_hears_of_captcha_breaker_and_account_once_a_minute_a_kind(
    notified: Proxy, tmp_path: Path, place: Places
) -> None:
    here = place("zcode").always(whole(CAPTCHA, 405))
    for number in range(2):
        assert send(notified, here, f"question {number}", f"w{number}") >= 500
    until(lambda: len(told(tmp_path)) == 2, "captcha and opening")
    press(notified, "close", upstream=here.host)
    until(lambda: len(told(tmp_path)) == 3, "the closing")
    other = place("zcode").always(whole(BLOCKED, 405))
    assert send(notified, other, "blocked") >= 500
    until(lambda: len(told(tmp_path)) == 4, "the blocked account")
    runs = {run["BREAKWATER_EVENT"]: run for run in told(tmp_path)}
    assert set(runs) == {"captcha", "breaker_opened", "breaker_closed", "account_blocked"}
    captcha = runs["captcha"]
    assert captcha["args"] == "; touch owned $HOME"
    assert captcha["BREAKWATER_UPSTREAM"] == captcha["BREAKWATER_SITE"] == here.host
    assert captcha["BREAKWATER_MESSAGE"].startswith(f"{here.host} asks for a captcha")
    assert re.fullmatch(r"\d+", captcha["BREAKWATER_SECONDS"])
    assert runs["breaker_opened"]["BREAKWATER_SECONDS"] == "59" or runs["breaker_opened"]["BREAKWATER_SECONDS"] == "60"
    assert runs["account_blocked"]["BREAKWATER_SITE"] == other.host
    assert "verify failed" not in str(runs)
    third = place("zcode").always(whole(CAPTCHA, 405))
    for number in range(2):
        send(notified, third, f"again {number}", f"v{number}")
    press(notified, "close", upstream=third.host)
    assert len(told(tmp_path)) == 4
    assert not list(notified.folder.rglob("owned"))
    assert not (tmp_path / "owned").exists()


def test_what_cannot_be_run_is_said_once_and_nothing_else_happens(proxies: Proxies, place: Places) -> None:
    proxy = proxies.fresh({"notify": "/nowhere/at-all --token SECRET", "breaker": {"strikes": 1}}).start()
    try:
        here = place("zcode").always(whole(CAPTCHA, 405))
        send(proxy, here, "one")
        proxy.wait_log("the command of notify failed (No such file or directory)")
        press(proxy, "close", upstream=here.host)
        assert ask(proxy, place().then(whole({"content": [], "type": "message"})).url(MESSAGES), asked()).status == 200
        assert proxy.log.count("of notify failed") == 1
        assert "SECRET" not in proxy.log
    finally:
        proxy.stop()


def test_one_that_hangs_stalls_nothing_and_is_not_left_behind(proxies: Proxies, tmp_path: Path, place: Places) -> None:
    proxy = proxies.fresh({"notify": f"'{script(tmp_path, HANGS)}'"}).start()
    try:
        send(proxy, place("zcode").always(whole(CAPTCHA, 405)), "one")
        until(lambda: (tmp_path / "pids").exists() and (tmp_path / "pids").read_text().endswith("\n"), "the script")
        started = time.monotonic()
        assert send(proxy, place().always(whole({"x": 1})), "two", path="/v1/models") == 200
        assert time.monotonic() - started < 5
    finally:
        proxy.stop()
    for pid in (tmp_path / "pids").read_text().split():
        until(lambda pid=pid: not alive(int(pid)), f"the end of {pid}")  # type: ignore[misc]


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
