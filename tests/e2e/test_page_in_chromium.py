"""The status page in a real browser: whole at every width, in both themes and languages, at each of its addresses."""

from __future__ import annotations

import contextlib
import json
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.e2e.conftest import upstream_rows
from tests.e2e.lab import chromium
from tests.e2e.lab.chromium import Chromium
from tests.e2e.lab.client import ask
from tests.e2e.lab.installed import Home, free_port
from tests.e2e.lab.operated import status, until
from tests.e2e.lab.script import Place
from tests.e2e.lab.upstream import Upstream
from tests.e2e.lab.wires import MESSAGES, anthropic, asked, streamed, whole

pytestmark = pytest.mark.skipif(chromium.FOUND is None, reason="needs a Chromium, which this machine has not")

BUSY = {
    "ret": ["FAIL_SYS_USER_VALIDATE", "RGV587_ERROR::SM::busy"],
    "data": {"url": "https://x/_____tmd_____/punish?x5secdata=TOKEN"},
}
OVERLOADED = {"error": {"code": "1305", "message": "The service may be temporarily overloaded, please try again later"}}
OVERFLOW = {"error": {"message": "This model's maximum context length is 65536 tokens. However, you requested 86046 tokens."}}
PAUSED, GOOD, LIMITED = "z242.test", "z243.test", "d40.test"
ROWS = {host: row for host, row in upstream_rows().items() if host in (PAUSED, GOOD, LIMITED)}
CONFIG: dict[str, Any] = {
    "upstreams": ROWS,
    "breaker": {"open_seconds": 600},
    "retry_after": {"challenge": 1, "overload": 1},
    "queue": {"clients": {"waits/": 900}},
    "concurrency": "off",
}
WIDTHS = (390, 768, 1280)
PARTS = ("timeline", "upstreams", "tables", "decisions", "windows", "refusals", "report")


PAST = f"""
from mitmproxy import ctx

from policies.kinds import ANSWER, Finding, Kind
from policies.research.evidence import Facts

def running():
    evidence = ctx.master.addons.get("breakwater").controller.state.evidence
    for number in range(120):
        quick, refused = number % 2 == 0, number % 20 in (0, 2, 4, 6, 8, 10, 12, 14, 16, 5)
        facts = Facts(
            wall=0.0, upstream="{GOOD}", wire="anthropic", model="m", session="s", account="a", size=9, digest=str(number),
            gap_session=0.2 if quick else 9.0, new_connection=number % 3 == 0,
        )
        evidence.note(facts, Finding(Kind.OVERLOAD) if refused else ANSWER)
"""
"""Evidence of an earlier hour: most that came quickly were refused, few of the others."""


class Shown(NamedTuple):
    """A Breakwater that has lived, with evidence: one upstream is paused, and two requests wait for it."""

    home: Home
    page_port: int

    @property
    def addresses(self) -> tuple[str, str]:
        return f"http://127.0.0.1:{self.home.port}", f"http://127.0.0.1:{self.page_port}"

    def configure(self, **more: Any) -> None:
        self.home.config.write_text(json.dumps({**CONFIG, **more}))


def waits(home: Home, place: Place, number: int) -> None:
    with contextlib.suppress(Exception):  # its proxy ends before it does
        ask(home, place.url(MESSAGES), asked(f"waiting {number}"), [("user-agent", "waits/1")])


def lived(home: Home, upstream: Upstream) -> None:
    good, bad, limited = (upstream.place(host) for host in (GOOD, PAUSED, LIMITED))
    good.then(*[streamed(anthropic())] * 3, whole(OVERLOADED, 429))
    for number in range(4):
        ask(home, good.url(MESSAGES), asked(f"answered {number}", system=f"session {number}"))
    limited.then(whole(OVERFLOW, 400))
    ask(home, limited.url(MESSAGES), asked("too long"))
    bad.always(whole(BUSY))
    for number in range(3):
        assert ask(home, bad.url(MESSAGES), asked(f"question {number}")).status == 529
    for number in range(2):
        threading.Thread(target=waits, args=(home, bad, number), daemon=True).start()
    until(lambda: len(status(home)["waiting"]) == 2, "two who wait")


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory, command: Path, upstream: Upstream) -> Iterator[Shown]:
    page_port = free_port()
    home = Home(tmp_path_factory.mktemp("page") / "home", command, upstream, {**CONFIG, "evidence": True})
    past = home.folder / "past.py"
    past.write_text(PAST)
    home.start(*home.lab, "-s", str(past), "--page-port", str(page_port))
    try:
        lived(home, upstream)
        yield Shown(home, page_port)
    finally:
        home.close()


@pytest.fixture(scope="module")
def tab(shown: Shown, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    with Chromium(tmp_path_factory.mktemp("tab") / "profile", shown.home.port) as made:
        yield made


@pytest.fixture(autouse=True)
def quiet(tab: Chromium) -> Iterator[None]:
    """No error and no violated policy in any of them."""
    tab.complaints.clear()
    tab.wide(1280)
    yield
    assert tab.complaints == []


SIDEWAYS = """[document.documentElement, ...document.querySelectorAll("#page *")]
  .filter(e => e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).display !== "inline" && e.clientWidth && !e.closest("svg"))
  .map(e => `${e.tagName} ${e.className} ${e.scrollWidth} > ${e.clientWidth} ${e.textContent.trim().slice(0, 60)}`)"""
CUT = """[...document.querySelectorAll("th, td, button, .tiles div, .hour, .state")]
  .filter(e => e.offsetParent && (e.getBoundingClientRect().right > innerWidth + 1 || e.getBoundingClientRect().left < 0))
  .map(e => e.textContent.trim().slice(0, 60))"""
SMALL = """[...document.querySelectorAll(".hour svg")].map(e => e.getBoundingClientRect())
  .filter(box => box.width < 200 || box.height < 30).length"""
INK = """[...document.querySelectorAll(".hour rect")].map(e => [e.getBoundingClientRect(), getComputedStyle(e).fill])
  .filter(([box, fill]) => box.width > 0 && box.height > 0 && fill !== "none").length"""


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("language", ["en", "zh"])
def test_it_is_whole_at_every_width_at_both_addresses(shown: Shown, tab: Chromium, language: str, theme: str) -> None:
    tab.theme("dark" if theme == "dark" else "light")
    for address in shown.addresses:
        for width in WIDTHS:
            tab.wide(width)
            tab.open(f"{address}/?lang={language}")
            assert tab.evaluate("innerWidth") == width
            tab.wait("document.querySelector('.hour rect') !== null")  # the last minute is drawn within a second
            for part in PARTS:
                assert (
                    tab.evaluate(
                        f"document.querySelector('section[data-part={part}], [data-part={part}] section')?.offsetHeight ?? 0"
                    )
                    > 90
                ), part
            assert (tab.evaluate(INK) > 2, tab.evaluate(SMALL)) == (True, 0)
            assert tab.evaluate(SIDEWAYS) == []
            assert tab.evaluate(CUT) == []
            ground = re.findall(r"\d+", tab.evaluate("getComputedStyle(document.body).backgroundColor"))
            assert sum(map(int, ground[:3])) < 240 if theme == "dark" else sum(map(int, ground[:3])) > 540
            if kept := os.environ.get("BREAKWATER_SHOTS"):
                tab.screenshot(Path(kept) / f"{language}-{theme}-{width}.png")


WORDS_OF_ITS_OWN = """[...(function* () {
  const walk = document.createTreeWalker(document.getElementById("page"), NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) if (!walk.currentNode.parentElement.closest("code, .name, .hosts, nav, footer a")) yield walk.currentNode.data;
})(), ...[...document.querySelectorAll("#page [title], #page [aria-label]")].map(e => `${e.getAttribute("title") ?? ""} ${e.getAttribute("aria-label") ?? ""}`)].join(" ")"""


def test_on_the_chinese_page_nothing_is_english_but_names_and_codes(shown: Shown, tab: Chromium) -> None:
    tab.open(f"{shown.addresses[0]}/?lang=zh")
    tab.click("[data-part=upstreams] tr.closed button[value=reset]")
    tab.wait("document.getElementById('said').textContent !== ''")
    told = status(shown.home)
    names = {*(row["name"] for row in told["upstreams"]), *(row[key] for row in told["windows"] for key in ("model", "source"))}
    text = tab.evaluate(WORDS_OF_ITS_OWN)
    for name in sorted(names, key=len, reverse=True):
        text = text.replace(name, "")
    assert sorted(set(re.findall(r"[A-Za-z]+", re.sub(r"\[[\w:.-]+\]", "", text))) - {"Breakwater", "TLS", "p"}) == []
    assert "已改写为 529" in text
    assert "熔断器已关闭" in text


def test_who_waits_is_seen_with_for_how_long(shown: Shown, tab: Chromium) -> None:
    tab.open(f"{shown.addresses[0]}/?lang=en")
    rows = "[...document.querySelectorAll('[data-part=tables] tbody tr')]"
    assert tab.evaluate(f"{rows}.length") == 2
    assert tab.evaluate(
        f"{rows}.every(row => row.textContent.includes('{PAUSED}') && row.textContent.includes('breaker_open'))"
    )
    waited = f"Number({rows}[0].querySelector('[data-waited]').textContent.match(/\\d+/)[0])"
    before = tab.evaluate(waited)
    tab.wait(f"{waited} > {before} + 1")


def test_evidence_comes_and_goes_with_its_setting(shown: Shown, tab: Chromium) -> None:
    tab.open(f"{shown.addresses[0]}/?lang=en")
    assert tab.evaluate("document.querySelectorAll('table.report tbody').length") == 6
    first = tab.text("table.report tbody tr.named")
    assert tab.text("table.report tbody").strip() == first.strip()
    assert re.search(
        r"A · gap under 1 s\s+named.*the likely cause.*5\d/6\d.*\+\d\d% \+\d\d% to \+\d\d%\s+< 0\.001", " ".join(first.split())
    )
    try:
        shown.configure(evidence=False)
        tab.wait("document.querySelectorAll('table.report').length === 0")
        assert "Evidence" not in tab.text("#page")
    finally:
        shown.configure(evidence=True)
    tab.wait("document.querySelectorAll('table.report tbody').length === 6")


VERDICT = "getComputedStyle(document.querySelector('[data-part=verdict]'))"
GROUNDS = """["", "halt", "trial", "watch"].map(name => {
  const made = document.body.appendChild(document.createElement("div"));
  made.className = `verdict ${name}`;
  return getComputedStyle(made).backgroundColor;
})"""


def test_what_is_only_observed_has_other_colours_and_words(shown: Shown, tab: Chromium) -> None:
    tab.open(f"{shown.addresses[0]}/?lang=en")
    enforcing = tab.evaluate(f"[{VERDICT}.color, {VERDICT}.backgroundColor]"), tab.text("[data-part=verdict]")
    assert enforcing[1].startswith("1 upstream is paused.")
    try:
        shown.configure(evidence=True, mode="observe")
        tab.wait(
            "document.querySelector('[data-part=verdict]').textContent.startsWith('Only observing: 1 upstream would be paused.')"
        )
        observing = tab.evaluate(f"[{VERDICT}.color, {VERDICT}.backgroundColor]")
        assert not set(observing) & set(enforcing[0])
        assert len(set(tab.evaluate(GROUNDS))) == 4
        assert "would be paused" in tab.text("tr.open .state")
        assert "observing only" in tab.text("[data-part=mode]")
        assert ask(shown.home, f"http://{PAUSED}{MESSAGES}", asked("observed")).status == 200
        tab.wait(
            "document.querySelector('[data-part=decisions]').textContent.includes('Only observed: it would have been refused here')"
        )
    finally:
        shown.configure(evidence=True)
        tab.wait("document.querySelector('[data-part=mode]').textContent.includes('enforcing')")


@pytest.mark.parametrize("at", [0, 1], ids=["own address", "page port"])
def test_its_buttons_work_there_and_say_what_they_did(shown: Shown, tab: Chromium, at: int) -> None:
    tab.open(f"{shown.addresses[at]}/?lang=en")
    row = f"[...document.querySelectorAll('[data-part=upstreams] tbody')].find(r => r.textContent.includes('{GOOD}'))"
    for button, said, state in (
        ("open", "opened.", "paused"),
        ("close", "closed.", "passing"),
        ("reset", "forgotten.", "passing"),
    ):
        tab.evaluate(f"{row}.querySelector('button[value={button}]').id = 'pressed'")
        tab.click("#pressed")
        tab.wait(f"document.getElementById('said').textContent.endsWith('{said}')")
        assert tab.text("#said").startswith(f"Breaker of {GOOD} ")
        tab.wait(f"{row}.textContent.includes('{state}')")


def test_a_window_is_forgotten_by_its_button(shown: Shown, tab: Chromium) -> None:
    tab.open(f"{shown.addresses[0]}/?lang=en")
    assert "65,536" in tab.text("[data-part=windows]")
    tab.click("[data-part=windows] button[value=forget]")
    tab.wait("document.querySelector('[data-part=windows]').textContent.includes('No overflow text')")
    assert tab.text("#said").startswith("Forgot 1 learnt window(s)")
