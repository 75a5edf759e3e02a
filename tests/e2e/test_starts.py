"""Starts that go wrong in one line, what is switched on while it runs, and bytes that a terminal would obey."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from requirements import PACKAGES
from tests.e2e.conftest import QUICK, Proxies, upstream_rows
from tests.e2e.lab.client import ask
from tests.e2e.lab.operated import get
from tests.e2e.lab.proxy import LAB
from tests.e2e.lab.script import Place
from tests.e2e.lab.upstream import Upstream
from tests.e2e.lab.web import Web
from tests.e2e.lab.wires import JSON, MTOP, account, asked, compact, whole

Places = Callable[..., Place]
DEMO = "http://demo.breakwater.internal/v1/messages"
ESCAPED = "/\x1b[2J\x1b]0;gone\x07/v1/messages"


@pytest.mark.parametrize("module", PACKAGES)
def test_a_package_that_is_missing_is_one_line_that_says_what_to_install(proxies: Proxies, module: str) -> None:
    more = {"PYTHONPATH": str(LAB / "bare_python"), "LAB_MISSING": module}
    proxy = proxies.fresh(environment=more, options=["breakwater_config="])
    proxy.launch()
    try:
        assert proxy.wait_exit() == 1
    finally:
        proxy.end()
    said = [line for line in proxy.log.splitlines() if "lab: running" not in line and "listening" not in line]
    assert "Traceback" not in proxy.log
    [line] = [line for line in said if "Breakwater" in line]
    assert f"{PACKAGES[module]} is not installed" in line
    assert f"-m pip install {' '.join(PACKAGES.values())}" in line


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory, upstream: Upstream) -> Iterator[Web]:
    config = {"upstreams": upstream_rows(), **QUICK}
    proxy = Web(tmp_path_factory.mktemp("starts") / "proxy", upstream, config=config).start()
    yield proxy
    proxy.stop()


def test_the_demo_can_be_switched_on_and_off_while_it_runs(web: Web) -> None:
    def demo() -> tuple[int, str | None]:
        answer = ask(web, DEMO, compact({"model": "demo", "messages": []}), [JSON])
        return answer.status, answer.header("x-breakwater")

    assert demo()[0] != 200
    web.set(breakwater_demo=True)
    assert demo() == (200, None)
    assert demo() == (529, "challenge_busy")
    web.set(breakwater_demo=False)
    assert demo()[0] not in (200, 529)


def test_bytes_that_a_terminal_would_obey_are_escaped_wherever_a_path_is_shown(web: Web, place: Places) -> None:
    here, mark = place().always(whole(MTOP)), web.log_lines
    assert ask(web, here.url(ESCAPED), asked(), account(here.host)).status == 529
    flow = web.flow(host=here.host)
    said = [web.log_since(mark), flow["comment"], *web.shown(flow)]
    said += [get(web, path).body.decode() for path in ("/", "/status.json", "/metrics")]
    assert r"\x1b[2J" in said[0]
    for text in said:
        assert "\x1b" not in text
        assert "\x07" not in text
