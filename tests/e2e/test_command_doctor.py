"""`breakwater doctor` and `status` against what is really there."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from breakwater.master import SLEEPERS
from tests.e2e.lab.client import ask
from tests.e2e.lab.installed import Home
from tests.e2e.lab.proxy import PROJECT
from tests.e2e.lab.script import Place
from tests.e2e.lab.wires import MESSAGES, MTOP, asked, whole

Places = Callable[..., Place]


def doctor(home: Home, *words: str, **environment: str) -> tuple[int, str]:
    options = ["--port", str(home.port), "--set", f"breakwater_config={home.config}"]
    said = home.say("doctor", *options, *words, environment=environment)
    assert said.stderr == ""
    return said.returncode, said.stdout


def test_all_is_well_before_the_first_start(home: Home) -> None:
    status, said = doctor(home, "--offline")
    assert status == 0, said
    assert "-- CA: none in" in said
    assert f"ok port {home.port}: free" in said
    assert f"ok config: {home.config}: enforce" in said


def test_a_shell_that_has_the_lines_of_env_is_well(home: Home) -> None:
    home.start(*home.lab)
    lines = home.say("env", "--port", str(home.port)).stdout.splitlines()
    given = dict(line.removeprefix("export ").split("=", 1) for line in lines)
    status, said = doctor(home, "--offline", **given)
    assert status == 0, said
    assert f"ok curl: here; this shell sends it to 127.0.0.1:{home.port}, and it trusts the CA" in said
    assert f"ok port {home.port}: Breakwater" in said


def test_a_shell_that_forgot_the_ca_is_told(home: Home) -> None:
    home.start(*home.lab)
    status, said = doctor(home, "--offline", https_proxy=f"http://127.0.0.1:{home.port}")
    assert status == 1
    assert "!! curl: this shell sends it to" in said
    assert "CURL_CA_BUNDLE or SSL_CERT_FILE does not hold the CA" in said


def test_a_key_that_others_can_read_is_told(home: Home) -> None:
    assert home.say("env", "--port", str(home.port)).returncode == 0
    (home.confdir / "mitmproxy-ca.pem").chmod(0o644)
    status, said = doctor(home, "--offline")
    assert status == 1
    assert "can be read by others: chmod 600" in said


def test_a_breakwater_with_another_ca_is_told(home: Home) -> None:
    home.start("--set", f"confdir={home.folder / 'another'}")
    assert home.say("env", "--port", str(home.port)).returncode == 0
    status, said = doctor(home, "--offline")
    assert status == 1
    assert "has another CA than" in said


@pytest.mark.parametrize("running", [True, False])
def test_an_upstream_of_the_person_s_own_is_asked_for_a_sign_of_life(home: Home, place: Places, running: bool) -> None:
    port = int(home.environment["LAB_PORT_80"])
    alive, dead = f"127.0.0.1:{port}", f"127.0.0.1:{home.environment['LAB_PORT_9']}"
    rows = {"mine": {"hosts": [alive], "family": "zai"}, "gone": {"hosts": [dead], "family": "zai"}}
    home.config.write_text(json.dumps({"upstreams": rows}))
    place_of_it = place()  # the lab answers 404 or so for a host that it does not know: an answer all the same
    assert place_of_it.hits == []
    if running:
        home.start(*home.lab)
    status, said = doctor(home)
    way = "through Breakwater" if running else "directly"
    assert status == 1
    assert f"ok {alive}: answers, asked {way}" in said
    assert f"!! {dead}: no answer, asked {way}" in said


def test_status_shows_what_happened(home: Home, place: Places) -> None:
    home.start(*home.lab)
    here = place().then(whole(MTOP))
    assert ask(home, here.url(MESSAGES), asked()).status == 529
    said = home.say("status", "--port", str(home.port))
    assert f"  {here.host}  ok; 1 sent, 1 challenged, 0 refused here" in said.stdout
    assert "s ago: " in said.stdout
    told = json.loads(home.say("status", "--port", str(home.port), "--json").stdout)
    assert next(row["sent"] for row in told["upstreams"] if row["name"] == here.host) == 1
    assert home.say("status", "--port", str(home.port), "--line").stdout == "Breakwater: ok · 1 sent, 0 refused here\n"


def test_what_start_leaves_out_is_listed() -> None:
    listed = (PROJECT / "docs/command.md").read_text()
    for options in SLEEPERS.values():
        for option in options:
            assert option.replace("_", "-") in listed or option in listed, option
