"""What a browser sees through the proxy: the page and its buttons, mitmweb, and its own TLS left alone."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

import pytest

from tests.e2e.conftest import NO_QUEUE, Proxies, hosts, upstream_rows
from tests.e2e.lab import chromium
from tests.e2e.lab.chromium import Chromium
from tests.e2e.lab.client import ask
from tests.e2e.lab.proxy import PROJECT, Proxy
from tests.e2e.lab.script import Place
from tests.e2e.lab.wires import MESSAGES, asked, whole

pytestmark = pytest.mark.skipif(chromium.FOUND is None, reason="needs a Chromium, which this machine has not")

Places = Callable[..., Place]
PAGE = "http://breakwater.internal/?lang=en"
BUSY = {
    "ret": ["FAIL_SYS_USER_VALIDATE", "RGV587_ERROR::SM::busy"],
    "data": {"url": "https://x/_____tmd_____/punish?x5secdata=TOKEN"},
}
CONFIG = {"upstreams": upstream_rows(), **NO_QUEUE, "breaker": {"open_seconds": 59}}


@pytest.fixture(scope="module")
def shown(proxies: Proxies) -> Proxy:
    """A proxy of these tests alone: the page shows all of its upstreams."""
    few = {host: row for host, row in upstream_rows().items() if host in ("z240.test", "z241.test", *hosts("qwen-web")[-1:])}
    return proxies.fresh(json.dumps({**CONFIG, "upstreams": few})).start()


@pytest.fixture
def browser(shown: Proxy, tmp_path: Path) -> Iterator[Chromium]:
    with Chromium(tmp_path / "profile", shown.port) as tab:
        yield tab


@pytest.fixture(scope="module", autouse=True)
def ended(shown: Proxy) -> Iterator[None]:
    yield
    shown.stop()


def opened(proxy: Proxy, place: Place) -> None:
    """Three challenges of three requests: the breaker opens."""
    place.always(whole(BUSY))
    for number in range(3):
        assert ask(proxy, place.url(MESSAGES), asked(f"question {number}")).status == 529


def row(name: str) -> str:
    return f'[...document.querySelectorAll("[data-part=upstreams] tbody")].find(r => r.textContent.includes("{name}"))'


def test_an_open_breaker_is_seen_counting_down_and_a_button_closes_it(
    shown: Proxy, browser: Chromium, upstream: object
) -> None:
    here = upstream.place("z240.test")  # type: ignore[attr-defined]
    opened(shown, here)
    browser.open(PAGE)
    assert "paused" in browser.evaluate(f"{row(here.host)}.textContent")
    assert browser.text("[data-part=verdict]").startswith("1 upstream is paused.")
    left = f"Number({row(here.host)}.querySelector('.left').textContent.match(/\\d+/)[0])"
    before = browser.evaluate(left)
    assert 0 < before <= 59
    browser.wait(f"{left} < {before}")
    assert "challenge_busy" in browser.text("[data-part=decisions]")
    assert "TOKEN" not in browser.evaluate("document.documentElement.outerHTML")

    browser.click("tr.open button[value=close]")
    browser.wait(f"{row(here.host)}.textContent.includes('passing')")
    assert here.host in browser.text("#said")
    browser.wait("document.querySelector('[data-part=verdict]').textContent.startsWith('Every upstream')")
    here.then(whole({"ok": True}))
    assert browser.complaints == []
    assert {re.match(r"\w+://([^/]+)/", response["url"])[1] for response in browser.seen} == {"breakwater.internal"}  # type: ignore[index]


def test_the_page_is_in_chinese_and_works_without_scripts(shown: Proxy, browser: Chromium, upstream: object) -> None:
    here = upstream.place("z241.test")  # type: ignore[attr-defined]
    browser.scripts(on=False)
    browser.open("http://breakwater.internal/?lang=zh")
    browser.click("tr.closed:has(button) button[value=open]")
    browser.wait("location.pathname === '/act' && document.readyState === 'complete'")
    assert "暂停" in browser.text("[data-part=upstreams]")
    assert browser.text("#said") != ""
    assert browser.evaluate("document.querySelector('noscript meta[http-equiv=refresh]') !== null")
    assert here.hits == []
    assert browser.complaints == []


def test_the_page_asks_for_a_few_bytes_and_for_itself_only_where_something_changed(
    shown: Proxy, browser: Chromium, upstream: object
) -> None:
    here = upstream.place("z241.test")  # type: ignore[attr-defined]
    browser.open(f"http://127.0.0.1:{shown.port}/?lang=en")
    asked_small = "performance.getEntriesByType('resource').filter(e => e.name.includes('parts=revision')).length"
    asked_page = "performance.getEntriesByType('resource').filter(e => e.name.includes('?lang=')).length"
    browser.wait(f"{asked_small} >= 3")
    assert browser.evaluate(asked_page) < browser.evaluate(asked_small)
    before = browser.evaluate("document.getElementById('page').dataset.revision")
    here.then(whole(BUSY))
    ask(shown, here.url(MESSAGES), asked("changed"))
    browser.wait(f"document.getElementById('page').dataset.revision !== '{before}'")
    browser.wait("document.querySelector('[data-part=decisions]').textContent.includes('z241.test')")
    assert browser.complaints == []


def test_a_browser_on_a_web_chat_keeps_its_own_tls_and_a_program_does_not(
    shown: Proxy, browser: Chromium, upstream: object
) -> None:
    here = upstream.place(hosts("qwen-web")[-1])  # type: ignore[attr-defined]
    here.always(whole({"hello": "person"}))
    browser.open(here.url("/", "https"))
    assert "person" in browser.evaluate("document.body.innerText")
    issuer = next(found["securityDetails"]["issuer"] for found in browser.seen if here.host in found["url"])
    assert issuer == "Throw-away test CA"
    assert "is tunnelled undecrypted" in shown.log
    # The client of the lab trusts the proxy's authority alone: an answer proves that it was decrypted.
    assert ask(shown, here.url("/", "https"), method="GET").status == 200


def test_mitmweb_shows_why(tmp_path: Path) -> None:
    with Web(tmp_path) as web, Chromium(tmp_path / "profile", web.port) as tab:
        assert [web.ask(number) for number in range(2)] == [200, 529]
        tab.open(web.url)
        tab.wait("document.querySelectorAll('.flow-table tbody tr').length >= 3")
        flows = tab.evaluate("fetch('/flows').then(answer => answer.json())")
        place = next(number for number, flow in enumerate(flows) if "challenge" in flow["comment"])
        assert flows[place]["marked"]
        tab.click(f".flow-table tbody tr:nth-child({place + 2})")
        tab.wait("[...document.querySelectorAll('nav a')].find(a => a.textContent === 'Response')?.click() ?? true")
        tab.wait("document.body.innerText.includes('recognised by')")
        text = tab.evaluate("document.body.innerText")
        for shown in ("challenge_busy", "breaker after", "told to wait", "the upstream's answer that was replaced"):
            assert shown in text
        assert "x5secdata=DEMO" not in text


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Web:
    """A mitmweb of our own with the addon and its demo upstream."""

    def __init__(self, folder: Path) -> None:
        command = [
            str(Path(sys.executable).parent / "mitmweb"),
            "-s",
            str(PROJECT / "addon.py"),
            "--no-web-open-browser",
        ]
        options = {
            "connection_strategy": "lazy",
            "confdir": folder / "conf",
            "breakwater_demo": "true",
            "web_port": free_port(),
        }
        for name, value in options.items():
            command += ["--set", f"{name}={value}"]
        command += ["--listen-host", "127.0.0.1", "--listen-port", "0"]
        self._process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=folder,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1", "HOME": str(folder)},
        )
        self.port, self.url = 0, ""

    def __enter__(self) -> Self:
        assert self._process.stdout
        for line in itertools.islice(self._process.stdout, 50):
            if found := re.search(r"proxy listening at \S*?127\.0\.0\.1:(\d+)", line):
                self.port = int(found[1])
            if found := re.search(r"http://127\.0\.0\.1:\d+/\S*", line):
                self.url = found[0]
            if self.port and self.url:
                return self
        raise AssertionError("mitmweb does not say where it listens")

    def __exit__(self, *_exc: object) -> None:
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(20)

    def ask(self, number: int) -> int:
        url = "http://demo.breakwater.internal/v1/messages"
        return ask(self, url, asked(f"question {number}")).status  # type: ignore[arg-type]
