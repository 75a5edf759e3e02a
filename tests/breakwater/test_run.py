"""What ends a command from outside, and how `run` finds or starts its Breakwater."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from breakwater import asking, authorities, cli, run
from breakwater.asking import Found, Kind

ROOT = Path(__file__).parents[2]
IGNORES = "import signal, os, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN); from breakwater.run import _run; "
IGNORES += "sys.exit(_run(['sh', '-c', 'kill -HUP $$; exit 5'], os.environ, 'sh'))"


def test_a_reader_that_has_gone_is_status_141_without_a_word() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    words = [sys.executable, "-m", "breakwater", "--help"]
    said = subprocess.run(words, cwd=ROOT, env=buffered, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (said.returncode, said.stderr) == (141, b"")


@pytest.mark.parametrize("words", [["--help"], ["run", "--help"]])
def test_a_terminal_that_cannot_show_a_sign_is_shown_the_rest(words: list[str]) -> None:
    narrow = {**os.environ, "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "breakwater", *words]
    said = subprocess.run(command, cwd=ROOT, env=narrow, capture_output=True, text=True, check=False)
    assert (said.returncode, said.stderr) == (0, "")
    assert "usage: breakwater" in said.stdout


def test_ctrl_c_is_status_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("breakwater.env.main", interrupted)
    assert cli.main(["env"]) == 130


def test_a_signal_that_the_shell_ignores_is_ignored_by_the_program_too() -> None:
    assert subprocess.run([sys.executable, "-c", IGNORES], cwd=ROOT, check=False).returncode == 5


@pytest.mark.parametrize("then", [Found(Kind.NOTHING), Found(Kind.BREAKWATER, {"version": "1", "upstreams": []})])
def test_a_breakwater_that_is_just_ending_is_waited_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, then: Found) -> None:
    looks = iter([Found(Kind.OTHER, broke_off=True), Found(Kind.OTHER, broke_off=True), then])
    started: list[int] = []
    monkeypatch.setattr(asking, "who", lambda _port: next(looks))
    monkeypatch.setattr(asking, "is_trusted", lambda _port, _authority: True)
    monkeypatch.setattr(authorities, "ensure", lambda folder: folder)
    monkeypatch.setattr(run, "_start", lambda port, _folder, _words: started.append(port))
    run._take_or_start(8080, tmp_path, [])
    assert started == ([8080] if then.kind is Kind.NOTHING else [])


def test_why_a_start_ended_is_not_what_a_request_met_meanwhile(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("listening\nbreakwater: the port is taken\n[12:00] Addon error: no loop\n")
    assert run._last_line(tmp_path / "log") == "the port is taken"


def test_a_ca_whose_key_has_a_passphrase_is_left_to_mitmproxy_to_open(tmp_path: Path) -> None:
    authorities.ensure(tmp_path)
    both = tmp_path / "mitmproxy-ca.pem"
    key = serialization.load_pem_private_key(both.read_bytes(), None)
    how = serialization.BestAvailableEncryption(b"secret")
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    both.write_bytes(key.private_bytes(*form, how) + authorities.own(tmp_path).read_bytes())
    assert authorities.ensure(tmp_path) == authorities.own(tmp_path)
