"""What an operator does to a running proxy: asks for the state, presses buttons, changes files, and restarts it."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from tests.e2e.lab.client import Answer, Pairs, ask
from tests.e2e.lab.proxy import PROJECT, Front, Ports, Proxy
from tests.e2e.lab.script import PATIENCE_SECONDS

PAGE = "http://breakwater.internal"
ROOMS = ("held_stream.py", "hold.py", "requirements.py", "self_test.py", "operations", "policies")
RELOADED = "Loading script"
UNGUARDED = "traffic is unguarded"


def get(proxy: Front, path: str, headers: Pairs = ()) -> Answer:
    """One of the pages at breakwater.internal."""
    return ask(proxy, PAGE + path, headers=headers, method="GET")


def status(proxy: Front) -> Any:
    return get(proxy, "/status.json").json()


def breaker(proxy: Proxy, upstream: str) -> Any:
    """The breaker's row of the status."""
    return next(row for row in status(proxy)["upstreams"] if row["name"] == upstream)


def token(proxy: Proxy) -> str:
    found = re.search(r'name="token" value="([^"]+)"', get(proxy, "/").body.decode())
    assert found, "the page has no token"
    return found[1]


def press(proxy: Proxy, action: str, **form: str) -> Answer:
    """A button of the page, as a browser sends it."""
    data = urlencode({"action": action, "token": token(proxy), **form}).encode()
    headers = [("content-type", "application/x-www-form-urlencoded"), ("origin", PAGE), ("accept", "application/json")]
    return ask(proxy, f"{PAGE}/act", data, headers)


def until(true: Callable[[], object], what: str, seconds: float = PATIENCE_SECONDS) -> None:
    """Wait for what can only be looked at, such as a file; bounded."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.02)


def state_path(proxy: Proxy) -> Path:
    return proxy.confdir / "breakwater-state.json"


def state(proxy: Proxy) -> Any:
    """What the state file holds; empty where there is none yet."""
    path = state_path(proxy)
    return json.loads(path.read_text()) if path.exists() else {}


def look(proxy: Proxy, upstream: str) -> None:
    """Block until the proxy has looked at its config file once more.

    A look reads the config and then writes the state where something changed: a press changes something.
    """
    before = state(proxy).get("saved_at")
    press(proxy, "reset", upstream=upstream)
    until(lambda: state(proxy).get("saved_at") != before, "the state being written")


def errors(proxy: Proxy, since: int = 0) -> list[str]:
    """Lines of the log that name the config file's faults or our own alarms."""
    known = (f"{proxy.config_path}:", UNGUARDED)
    return [line for line in proxy.log_since(since).splitlines() if any(sign in line for sign in known)]


class Reloadable(Proxy):
    """A proxy that runs a copy of addon.py, beside links to the rooms, so that a test may change or remove it."""

    def __init__(self, folder: Path, upstream: Ports, **more: Any) -> None:
        copied = folder / "copy"
        copied.mkdir(parents=True)
        self.addon_path = copied / "addon.py"
        shutil.copy(PROJECT / "addon.py", self.addon_path)
        for room in ROOMS:
            (copied / room).symlink_to(PROJECT / room)
        options = (f"breakwater_config={folder / 'config.yaml'}", *more.pop("options", ()))
        super().__init__(folder, upstream, addon=False, scripts=(self.addon_path,), options=options, **more)

    def touch(self) -> None:
        """Make mitmproxy load the addon again, and wait until it has."""
        self.rewrite(self.addon_path.read_text())
        self.wait_log(RELOADED, since=self._mark)
        until(self.answers, "the addon answering again")

    def rewrite(self, text: str) -> None:
        """Put another addon.py in place, as a whole and with a later time, which is what mitmproxy looks for."""
        self._mark = self.log_lines
        written = self.addon_path.with_suffix(".new")
        written.write_text(text)
        later = time.time() + 2
        os.utime(written, (later, later))
        written.replace(self.addon_path)

    def remove(self) -> None:
        self._mark = self.log_lines
        self.addon_path.unlink()

    def wait_alarm(self) -> None:
        """Block until the log says that no addon is there any more."""
        self.wait_log(UNGUARDED, since=self._mark)

    def answers(self) -> bool:
        return get(self, "/healthz").status == 200
