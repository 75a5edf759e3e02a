"""What would have happened: flows of an unguarded run, read by ``mitmdump -nr FILE -s addon.py``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from mitmproxy import http
from mitmproxy.io import FlowReader

from tests.e2e.conftest import Proxies, upstream_rows
from tests.e2e.lab.client import ask
from tests.e2e.lab.operated import Reloadable, breaker, press, state_path, status
from tests.e2e.lab.proxy import PROJECT
from tests.e2e.lab.script import Place
from tests.e2e.lab.upstream import Upstream
from tests.e2e.lab.wires import (
    MESSAGES,
    MTOP,
    account,
    anthropic,
    anthropic_message,
    asked,
    event,
    openai,
    page,
    streamed,
    whole,
)

Places = Callable[..., Place]
CONFIG = {"upstreams": upstream_rows()}
SECONDS = 60
HOSTS = ("z240.test", "z241.test", "z242.test")


@dataclass
class Recorded:
    """An unguarded run: its file, and how often the upstream was asked in it."""

    path: Path
    places: list[Place]

    @property
    def hits(self) -> int:
        return sum(len(place.hits) for place in self.places)


@pytest.fixture(scope="module")
def recorded(proxies: Proxies, upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    path = tmp_path_factory.mktemp("recorded") / "saved.flow"
    proxy = proxies.fresh(addon=False, options=(f"save_stream_file={path}",)).start()
    challenged, answered, late = places = [upstream.place(host) for host in HOSTS]
    challenged.then(whole(MTOP), streamed([event(MTOP)]), page(), whole(MTOP), whole(MTOP))
    answered.then(
        streamed(anthropic("RGV587 被挤爆")), whole(anthropic_message("3007 captcha verify failed")), streamed(openai())
    )
    late.then(streamed([*anthropic()[:3], event(MTOP)]))
    for here, times in ((challenged, 5), (answered, 3), (late, 1)):
        for number in range(times):
            assert ask(proxy, here.url(MESSAGES), asked(f"{number}"), account(here.host)).status == 200
    proxy.stop()
    return Recorded(path, places)


def read_back(recorded: Recorded, folder: Path, *options: str) -> tuple[str, Path]:
    """What ``-nr`` prints, and the confdir that it ran with."""
    config, confdir = folder / "config.yaml", folder / "conf"
    config.write_text(json.dumps(CONFIG))
    command = [str(Path(sys.executable).with_name("mitmdump")), "-nr", str(recorded.path), "-s", str(PROJECT / "addon.py")]
    for option in (f"breakwater_config={config}", f"confdir={confdir}", "flow_detail=0", *options):
        command += ["--set", option]
    environment = {**os.environ, "HOME": str(folder), "PYTHONIOENCODING": "utf-8"}
    run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert run.returncode == 0, run.stderr
    assert "Traceback" not in run.stdout + run.stderr
    return run.stdout, confdir


def test_it_marks_and_summarises_and_sends_nothing_and_writes_no_state(recorded: Recorded, tmp_path: Path) -> None:
    before, marked = recorded.hits, tmp_path / "marked.flow"
    said, confdir = read_back(recorded, tmp_path, f"save_stream_file={marked}")
    assert "Breakwater: 9 flows read, 9 of them to guarded hosts; 6 would have gone otherwise" in said
    assert "2 z240.test: answered 529: challenge_busy" in said
    assert "1 z240.test: answered 529: challenge_captcha" in said
    assert "2 z240.test: refused here: breaker_open" in said
    assert "1 z242.test: ended in its stream: challenge_busy" in said
    assert recorded.hits == before
    assert not list(confdir.glob("breakwater*"))
    flows, originals = read(marked), read(recorded.path)
    assert [flow.marked for flow in flows] == [":warning:"] * 3 + [":no_entry:"] * 2 + [""] * 3 + [":warning:"]
    assert flows[0].comment.startswith("Breakwater challenge_busy: would have been replaced.")
    assert flows[3].comment.startswith("Breakwater breaker_open: would have waited, or been refused here.")
    assert [flow.metadata["breakwater"]["reason"] for flow in flows[:4:3]] == ["challenge_busy", "breaker_open"]
    for flow, original in zip(flows, originals, strict=True):
        assert flow.response
        assert original.response
        assert (flow.response.status_code, flow.response.content) == (200, original.response.content)
        assert "x-breakwater" not in flow.response.headers


def test_the_report_is_printed_instead_where_it_is_asked_for(recorded: Recorded, tmp_path: Path) -> None:
    said, confdir = read_back(recorded, tmp_path, "breakwater_report=true")
    assert "flows read" not in said
    assert "refused" in said
    assert len(said.splitlines()) > 5
    assert not list(confdir.glob("breakwater*"))


def test_flows_that_a_running_proxy_reads_leave_its_own_state_alone(
    recorded: Recorded, tmp_path: Path, upstream: Upstream, place: Places
) -> None:
    options = (f"rfile={recorded.path}", "keepserving=true")
    proxy, here = Reloadable(tmp_path / "proxy", upstream, config=CONFIG, options=options), place()
    proxy.start()
    try:
        assert breaker(proxy, HOSTS[0])["state"] == "closed"
        assert status(proxy)["decisions"] == []
        press(proxy, "open", upstream=here.host)
        proxy.touch()
        assert breaker(proxy, here.host)["state"] == "open"
    finally:
        proxy.stop()
    assert "9 flows read" in proxy.log
    assert [row["upstream"] for row in json.loads(state_path(proxy).read_text())["breakers"]] == [here.host]


def read(path: Path) -> list[http.HTTPFlow]:
    with path.open("rb") as file:
        return [flow for flow in FlowReader(file).stream() if isinstance(flow, http.HTTPFlow)]
