"""Pictures of docs/, made anew: ``python -m tests.e2e.screenshots``. Needs a Chromium.

What is seen is a real proxy between a client and scripted upstreams; only the hour before is made up, by a script in it.
mitmweb shows the demo upstream.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import time
from pathlib import Path

from tests.e2e.lab import chromium
from tests.e2e.lab.certificates import Authority
from tests.e2e.lab.chromium import Chromium
from tests.e2e.lab.client import ask
from tests.e2e.lab.proxy import PROJECT, Proxy
from tests.e2e.lab.script import Place
from tests.e2e.lab.upstream import Upstream
from tests.e2e.lab.wires import MESSAGES, asked, whole
from tests.e2e.test_seen_in_chromium import Web

DOCS = PROJECT / "docs"
WIDE = 1520
"""Pixels of mitmweb, which shows two columns."""
PAGE = "http://breakwater.internal/?lang=en"
BUSY = {
    "ret": ["FAIL_SYS_USER_VALIDATE", "RGV587_ERROR::SM::busy"],
    "data": {"url": "https://x/_____tmd_____/punish?x5secdata=X"},
}
ANSWER = {"type": "message", "content": [{"type": "text", "text": "Hello."}], "usage": {"input_tokens": 9, "output_tokens": 3}}
OVERLOADED = {"error": {"code": "1305", "message": "The service may be temporarily overloaded, please try again later"}}
FAMILIES = {"api.z.ai": "zai", "open.bigmodel.cn": "zai", "chat.qwen.ai": "qwen-web"}
"""Of the built-in upstreams that are seen in use."""
HOUR = """
import math

from mitmproxy import ctx

from operations.clock import clock

def running():
    controller, wall = ctx.master.addons.get("breakwater").controller, clock().wall
    for minute in range(58):
        bad = 30 <= minute < 41
        for _ in range(round(6 + 5 * math.sin(minute / 5))):
            controller.counters.sent("zai")
        for _ in range(round(3 + 2 * math.cos(minute / 4))):
            controller.counters.sent("bigmodel")
        for _ in range(1 if bad else round(4 + 3 * math.sin(minute / 7))):
            controller.counters.sent("qwen-chat")
        for _ in range(2 if minute in (33, 38) else 0):
            controller.counters.avoided("qwen-chat", "breaker_open")
        paused, waiting = ({"qwen-chat"}, {"qwen-chat": 1 + minute % 3}) if bad else ((), {})
        controller.timeline.look(controller.counters.freeze(), paused, waiting, wall - 60 * (58 - minute))
"""
"""Minutes of the timeline cannot be waited for."""


def main() -> int:
    if chromium.FOUND is None:
        sys.exit("needs a Chromium")
    with tempfile.TemporaryDirectory() as folder:
        page(Path(folder))
        mitmweb(Path(folder))
    return 0


def page(folder: Path) -> None:
    (folder / "authority").mkdir()
    upstream = Upstream(Authority(folder / "authority"))
    upstream.start()
    hour = folder / "hour.py"
    hour.write_text(HOUR)
    proxy = Proxy(
        folder / "proxy", upstream, config=json.dumps({"queue": {"clients": {"waits/": 120}}}), scripts=[hour]
    ).start()
    try:
        lived(proxy, upstream)
        with Chromium(folder / "profile", proxy.port) as tab:
            for theme in ("light", "dark"):
                tab.theme(theme)
                tab.open(PAGE)
                tab.screenshot(DOCS / f"status-page-{theme}.png")
    finally:
        proxy.end()
        upstream.stop()


def lived(proxy: Proxy, upstream: Upstream) -> None:
    """Answers everywhere, then challenges at one upstream until its breaker opens, an overload at another, and one who waits."""
    good, loaded, bad = (upstream.place(host) for host in FAMILIES)
    for number in range(8):
        say(proxy, good, number, ANSWER)
        if number % 3 == 0:
            say(proxy, loaded, number, ANSWER)
        time.sleep(0.1)
    say(proxy, loaded, 99, OVERLOADED, status=429)
    for number in range(3):
        say(proxy, bad, number, BUSY, path="/api/v2/chat/completions")
    for number in (4, 5):
        threading.Thread(target=wait_in_line, args=(proxy, bad, number), daemon=True).start()
    time.sleep(3)


def say(proxy: Proxy, place: Place, number: int, body: object, *, status: int = 200, path: str = MESSAGES) -> None:
    place.always(whole(body, status=status))
    ask(proxy, place.url(path, "https"), asked(f"question {number}", system=f"session {number}"))


def wait_in_line(proxy: Proxy, place: Place, number: int) -> None:
    agent = ("user-agent", "waits/1")
    ask(proxy, place.url("/api/v2/chat/completions", "https"), asked(f"question {number}", system=f"session {number}"), [agent])


def mitmweb(folder: Path) -> None:
    (folder / "web").mkdir()
    with Web(folder / "web") as web, Chromium(folder / "web-profile", web.port) as tab:
        for number in range(4):
            web.ask(number)
        tab.open(web.url)
        tab.wait("document.querySelectorAll('.flow-table tbody tr').length >= 5")
        tab.click(".flow-table tbody tr:nth-child(3)")
        tab.wait("[...document.querySelectorAll('nav a')].find(a => a.textContent === 'Response')?.click() ?? true")
        tab.wait("document.body.innerText.includes('recognised by')")
        tab.wide(WIDE)
        tab.wait(f"innerWidth === {WIDE}")
        tab.screenshot(DOCS / "mitmweb.png", whole=False)


if __name__ == "__main__":
    sys.exit(main())
