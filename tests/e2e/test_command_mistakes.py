"""What goes wrong at the command line is one line, says what to do, and has the exit status that a shell expects."""

from __future__ import annotations

import http.server
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.lab.installed import Home


def assert_one_line(said: str, *words: str) -> None:
    assert said.count("\n") == 1, said
    assert "Traceback" not in said
    for word in words:
        assert word in said


@contextmanager
def something_else(answer: bytes | None) -> Iterator[int]:
    """A server that is not ours on a port: it answers everything so, or nothing ever."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.wfile.write(answer or b"")

        def log_message(self, *_: object) -> None:
            pass

    if answer is None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            yield silent.getsockname()[1]
        return
    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


OTHERS = {
    "a web server": b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
    "other json": b'HTTP/1.1 200 OK\r\ncontent-length: 17\r\n\r\n{"version":"1.0"}',
    "no http": b"220 mail.example.com ESMTP\r\n",
    "nothing": b"",
}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["frobnicate"], ["frobnicate", "no such command"]),
        (["start", "--frobnicate"], ["--frobnicate"]),
        (["--frobnicate"], ["--frobnicate"]),
        (["start", "--port", "seventy"], ["seventy"]),
        (["start", "--port", "70000"], ["70000"]),
        (["run"], ["no command"]),
        (["run", "--"], ["no command"]),
        (["run", "--port"], ["--port"]),
        (["run", "--port", "0", "--", "true"], ["--port"]),
        (["env", "--frobnicate"], ["--frobnicate"]),
        (["env", "--port", "0"], ["--port", "1 to 65535"]),
        (["status", "--line", "--json"], ["--json"]),
        (["status", "of"], ["of"]),
        (["doctor", "please"], ["please"]),
    ],
)
def test_a_command_line_that_cannot_be_understood_is_status_2(home: Home, words: list[str], told: list[str]) -> None:
    said = home.say(*words)
    assert said.returncode == 2
    assert said.stdout == ""
    assert_one_line(said.stderr, "breakwater: ", *told)


@pytest.mark.parametrize("program", ["no-such-program", "./no-such-program", "/no/such/program"])
def test_a_program_that_is_not_there_is_status_127_and_starts_nothing(home: Home, program: str) -> None:
    said = home.run(program, "-p", "hi")
    assert said.returncode == 127
    assert_one_line(said.stderr, program, "not found")
    assert not home.confdir.exists()


@pytest.mark.parametrize("content", ["", "\0\0"])
def test_a_program_that_cannot_be_executed_is_status_126(home: Home, content: str) -> None:
    program = home.folder / "program"
    program.write_text(content)
    program.chmod(0o755 if content else 0o644)
    said = home.run(str(program))
    assert said.returncode == 126
    assert_one_line(said.stderr, "cannot be executed")


def test_two_starts_on_one_port(home: Home) -> None:
    first = home.start()
    said = home.say("start", "--port", str(home.port))
    assert said.returncode == 1
    assert_one_line(said.stderr, f"127.0.0.1:{home.port} is taken by a Breakwater", "--port")
    assert first.poll() is None


@pytest.mark.parametrize("way", ["start", "run", "full"])
@pytest.mark.parametrize("other", OTHERS)
def test_a_port_that_something_else_has(home: Home, other: str, way: str) -> None:
    with something_else(OTHERS[other]) as port:
        words = ["run", "--port", str(port), "--", "true"] if way == "run" else ["start", "--port", str(port)]
        said = home.say(*words, *(["--full"] if way == "full" else []))
    assert said.returncode == 1
    assert_one_line(said.stderr, f"127.0.0.1:{port} is taken by something that is not Breakwater", "--port")


def test_status_of_a_port_where_nothing_or_something_else_is(home: Home) -> None:
    said = home.say("status", "--port", str(home.port))
    assert said.returncode == 1
    assert_one_line(said.stderr, "no Breakwater", "breakwater start")
    line = home.say("status", "--port", str(home.port), "--line")
    assert (line.stdout, line.stderr, line.returncode) == ("Breakwater is off\n", "", 0)
    with something_else(OTHERS["a web server"]) as port:
        said = home.say("status", "--port", str(port), "--json")
        assert said.returncode == 1
        assert_one_line(said.stderr, "not Breakwater")


@pytest.mark.parametrize("full", [[], ["--full"]], ids=["lean", "full"])
@pytest.mark.parametrize(
    ("text", "told"), [("breaker: {strikes: -1}", "breaker.strikes"), ("breaker: [", "line 1"), ("frob: 1", "frob")]
)
def test_a_broken_config_names_its_file_and_key(home: Home, text: str, told: str, full: list[str]) -> None:
    home.config.write_text(text)
    said = home.say("start", "--port", str(home.port), "--set", f"breakwater_config={home.config}", *full)
    assert said.returncode == 1
    assert_one_line(said.stderr, told)
    assert said.stderr.startswith(str(home.config))
    assert str(home.config) not in said.stdout


def test_a_broken_config_is_told_by_run_and_by_doctor_too(home: Home) -> None:
    home.config.write_text("breaker: {strikes: -1}")
    options = ["--port", str(home.port), "--set", f"breakwater_config={home.config}"]
    said = home.say("run", *options, "--", "true")
    assert said.returncode == 1
    assert_one_line(said.stderr, str(home.config), "breaker.strikes")
    told = home.say("doctor", *options, "--offline")
    assert told.returncode == 1
    assert f"!! {home.config}: breaker.strikes" in told.stdout


@pytest.mark.parametrize("words", [["start"], ["run", "--", "true"], ["env"]])
@pytest.mark.parametrize("wrong", ["a file", "inside a file", "a broken CA"])
def test_a_folder_where_no_ca_can_be(home: Home, wrong: str, words: list[str]) -> None:
    folder = home.folder / "conf"
    if wrong == "a broken CA":
        folder.mkdir()
        for name in ("mitmproxy-ca.pem", "mitmproxy-ca-cert.pem"):
            (folder / name).write_text("not a certificate")
    else:
        folder.write_text("")
        folder = folder if wrong == "a file" else folder / "deeper"
    place = words.index("--") if "--" in words else len(words)
    said = home.say(*words[:place], "--port", str(home.port), "--set", f"confdir={folder}", *words[place:])
    assert said.returncode == 1
    assert_one_line(said.stderr, str(folder))


def test_a_breakwater_with_another_ca_is_not_taken(home: Home, tmp_path: Path) -> None:
    home.start("--set", f"confdir={tmp_path / 'another'}")
    said = home.run("true")
    assert said.returncode == 1
    assert_one_line(said.stderr, "another CA", "confdir")


def test_an_option_of_mitmproxy_that_is_wrong(home: Home) -> None:
    (home.folder / "no.flow").write_text("no flow")
    for words in (
        ["-nr", "none.flow"],
        ["-nr", "no.flow"],
        ["--mode", "sideways"],
        ["--set", "listen_port=no"],
        ["-s", "no-such-script.py"],
    ):
        said = home.say("start", *words)
        assert said.returncode in (1, 2)
        assert_one_line(said.stderr, words[1].rpartition("=")[2])
