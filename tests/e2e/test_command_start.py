"""`breakwater start`: what mitmdump can do it can do, without the lines and the work that nobody asked for."""

from __future__ import annotations

import copy
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.lab.client import ask
from tests.e2e.lab.installed import Home, free_port, wait_for
from tests.e2e.lab.script import Place
from tests.e2e.lab.upstream import Upstream
from tests.e2e.lab.wires import MESSAGES, MTOP, anthropic_message, asked, whole

Places = Callable[..., Place]
NOTED = """
import pathlib
def response(flow): pathlib.Path("noted").write_text(flow.request.host)
"""


def log(home: Home, name: str = "start.log") -> str:
    return (home.folder / name).read_text()


def turn(home: Home, here: Place) -> int:
    """One request through the proxy of this home; the status."""
    return ask(home, here.url(MESSAGES), asked()).status


def test_it_guards_and_says_nothing_of_single_flows(home: Home, place: Places) -> None:
    home.start(*home.lab)
    here = place().then(whole(anthropic_message()), whole(MTOP))
    assert [turn(home, here) for _ in range(2)] == [200, 529]
    said = log(home)
    assert "listening at 127.0.0.1:" in said
    assert "challenge_busy" in said or "challenge" in said
    for noise in ("client connect", "server connect", "POST http", "Loading script"):
        assert noise not in said


def test_it_ends_without_a_word_of_the_connections_that_are_open(home: Home) -> None:
    proxy = home.start(*home.lab)
    with socket.create_connection(("127.0.0.1", home.port)):
        ask(home, "http://breakwater.internal/healthz")  # by now that connection was taken
        before = log(home)
        proxy.send_signal(signal.SIGINT)
        assert proxy.wait(20) == 0
    assert log(home) == before


@pytest.mark.parametrize("options", [["--full"], ["-v"], ["--set", "flow_detail=1"]], ids=["full", "verbose", "detail"])
def test_the_lines_come_back_where_they_are_asked_for(home: Home, place: Places, options: list[str]) -> None:
    home.start(*home.lab, *options)
    here = place().then(whole(anthropic_message()))
    assert turn(home, here) == 200
    wait_for(lambda: f"POST {here.url(MESSAGES)}" in log(home), lambda: log(home))
    assert "client connect" in log(home)


@pytest.mark.parametrize("full", [[], ["--full"]], ids=["lean", "full"])
def test_scripts_of_a_person_run_beside_it(home: Home, place: Places, full: list[str]) -> None:
    (home.folder / "mine.py").write_text(NOTED)
    home.start(*home.lab, "-s", "mine.py", *full)
    here = place().then(whole(anthropic_message()))
    assert turn(home, here) == 200
    wait_for((home.folder / "noted").exists)
    assert (home.folder / "noted").read_text() == here.host


def test_a_script_that_is_changed_is_taken_up(home: Home, place: Places) -> None:
    script = home.folder / "mine.py"
    script.write_text("")
    home.start(*home.lab, "-s", "mine.py")
    here = place().always(whole(anthropic_message()))
    assert turn(home, here) == 200
    script.write_text(NOTED)

    def noted() -> bool:
        return turn(home, here) == 200 and (home.folder / "noted").exists()

    wait_for(noted)


def test_flows_are_saved_and_read_back(home: Home, place: Places) -> None:
    proxy = home.start(*home.lab, "-w", "saved.flow", "--set", "mode=regular")
    here = place().then(whole(anthropic_message()))
    assert turn(home, here) == 200
    proxy.send_signal(signal.SIGINT)
    assert proxy.wait(20) == 0
    assert (home.folder / "saved.flow").stat().st_size > 500
    read = home.say("start", "-nr", "saved.flow", "--set", f"breakwater_config={home.config}")
    assert "1 flows read" in read.stdout
    assert read.returncode == 0


@pytest.mark.parametrize("options", [["--modify-headers", "/~q/x-mine/yes"], ["-H", "/~q/x-mine/yes"]])
def test_what_mitmproxy_can_change_still_changes(home: Home, place: Places, options: list[str]) -> None:
    home.start(*home.lab, *options)
    here = place().then(whole(anthropic_message()))
    assert turn(home, here) == 200
    assert (b"x-mine", b"yes") in [(name.lower(), value) for name, value in here.hits[0].headers]


def test_it_asks_who_comes_where_a_password_is_set(home: Home, place: Places) -> None:
    home.start(*home.lab, "--proxyauth", "me:secret")
    assert turn(home, place()) == 407


def test_it_goes_through_a_proxy_of_the_house_with_its_password(home: Home, tmp_path: Path, place: Places) -> None:
    behind = Home(tmp_path / "behind", home.command, _of(home), {})
    try:
        behind.start(*behind.lab, "--proxyauth", "me:secret")
        way = ["--mode", f"upstream:http://127.0.0.1:{behind.port}", "--upstream-auth", "me:secret"]
        home.start(*home.lab[2:], *way)
        here = place().then(whole(MTOP))
        assert turn(home, here) == 529
        assert len(here.hits) == 1
    finally:
        behind.close()


def replace_port(home: Home, port: int) -> Home:
    seen = copy.copy(home)
    seen.port = port
    return seen


def _of(home: Home) -> Upstream:
    class Ports:
        clear_port, tls_port, h2_port = (int(home.environment[f"LAB_PORT_{port}"]) for port in (80, 443, 8443))

    return Ports()  # type: ignore[return-value]


def test_a_reverse_port_serves_one_upstream(home: Home, upstream: Upstream, place: Places) -> None:
    here = place().then(whole(MTOP))
    home.start(*home.lab, "--mode", f"reverse:http://{here.host}")
    answer = ask(home, f"http://127.0.0.1:{home.port}{MESSAGES}", asked())
    assert answer.status == 529
    assert upstream.faults == []


def test_the_demo_answers(home: Home) -> None:
    home.start("--demo")
    answer = ask(home, "http://demo.breakwater.internal/v1/messages", asked(), headers=[("x-api-key", "demo")])
    assert answer.status == 200


@pytest.mark.parametrize("words", [[], ["start"]])
def test_plain_and_with_its_name_it_is_the_same_command(home: Home, words: list[str]) -> None:
    process = home.begin(*words, "--port", str(home.port))
    wait_for(lambda: "ok" in home.say("status", "--port", str(home.port), "--line").stdout)  # it listens a moment before
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0


def test_several_modes_listen_each_on_its_port(home: Home, place: Places) -> None:
    other = free_port()
    here = place().then(whole(MTOP))
    home.start(*home.lab, "--mode", "regular", "--mode", f"reverse:http://{here.host}@{other}")
    assert ask(replace_port(home, other), f"http://127.0.0.1:{other}{MESSAGES}", asked()).status == 529
    assert "Breakwater 0." in home.say("status", "--port", str(home.port)).stdout


def test_without_the_fast_loop_it_runs_all_the_same(home: Home, place: Places) -> None:
    broken = home.folder / "broken"
    broken.mkdir()
    (broken / "uvloop.py").write_text("__version__ = '9'\ndef new_event_loop(): raise TypeError('eager_start')\n")
    home.environment["PYTHONPATH"] = str(broken)
    home.start(*home.lab)
    here = place().then(whole(anthropic_message()))
    assert turn(home, here) == 200
    assert "uvloop 9 does not work with this Python (TypeError)" in home.say("doctor", "--offline").stdout
