"""`breakwater run`: clients behind it, several on one port, their terminal, their end and its status."""

from __future__ import annotations

import signal
import ssl
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.lab.installed import Home, wait_for
from tests.e2e.lab.script import Place
from tests.e2e.lab.wires import MTOP, anthropic_message, openai_message, whole

Places = Callable[..., Place]
ASK = "-sd", '{"model":"glm-5.2","max_tokens":1000,"messages":[{"role":"user","content":"hi"}]}'
PATH = "/api/anthropic/v1/messages"

ANTHROPIC = """
import anthropic, sys
client = anthropic.Anthropic(api_key="sk-test", base_url=sys.argv[1], max_retries=0, timeout=20)
message = {"role": "user", "content": "hi"}
print(client.messages.create(model="glm-5.2", max_tokens=1000, messages=[message]).content[0].text)
"""
OPENAI = """
import openai, sys
client = openai.OpenAI(api_key="sk-test", base_url=sys.argv[1], max_retries=0, timeout=20)
message = {"role": "user", "content": "hi"}
print(client.chat.completions.create(model="glm-5.2", messages=[message]).choices[0].message.content)
"""


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_curl_goes_through_it_and_trusts_it_from_the_first_use_on(home: Home, place: Places, scheme: str) -> None:
    here = place().then(whole(MTOP))
    assert not home.confdir.exists()
    done = home.run("curl", "-i", *ASK, here.url(PATH, scheme))
    assert done.stderr == ""
    assert " 529" in done.stdout
    assert "x-breakwater: challenge_busy" in done.stdout.lower()
    assert len(here.hits) == 1


@pytest.mark.parametrize(
    ("program", "base", "message"),
    [(ANTHROPIC, "/api/anthropic", anthropic_message), (OPENAI, "/api/coding/paas/v4", openai_message)],
    ids=["anthropic", "openai"],
)
def test_the_sdks_go_through_it_and_trust_it(
    home: Home, place: Places, program: str, base: str, message: Callable[[str], object]
) -> None:
    here = place().then(whole(message("Good day")))
    done = home.run(sys.executable, "-c", program, here.url(base, "https"))
    assert done.stdout == "Good day\n", done.stderr
    assert len(here.hits) == 1
    assert "breakwater" not in done.stderr


def test_the_bundle_holds_the_usual_authorities_and_its_own(home: Home) -> None:
    done = home.run(sys.executable, "-c", "import os; print(os.environ['SSL_CERT_FILE'])")
    bundle = Path(done.stdout.strip())
    own = (home.confdir / "mitmproxy-ca-cert.pem").read_text()
    assert own in bundle.read_text()
    assert len(ssl.create_default_context(cafile=str(bundle)).get_ca_certs()) > 50


@pytest.mark.parametrize(("script", "status"), [("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", 143), ("kill -KILL $$", 137)])
def test_the_status_of_the_program_is_that_of_the_command(home: Home, script: str, status: int) -> None:
    assert home.run("sh", "-c", script).returncode == status


def test_input_and_output_are_those_of_the_program(home: Home) -> None:
    words = ["run", "--port", str(home.port), "--", "sh", "-c", "cat; echo oh >&2"]
    done = home.say(*words, input="line one\nline two\n")
    assert (done.stdout, done.stderr, done.returncode) == ("line one\nline two\n", "oh\n", 0)


def test_it_ends_with_the_last_of_several_runs_and_only_then(home: Home, tmp_path: Path) -> None:
    def waiting(name: str) -> subprocess.Popen[bytes]:
        words = ["sh", "-c", f"echo > {tmp_path / name}; read line"]
        return home.begin("run", "--port", str(home.port), "--", *words, stdin=subprocess.PIPE)

    first, second = waiting("first"), waiting("second")
    wait_for(lambda: (tmp_path / "first").exists() and (tmp_path / "second").exists())
    logs = home.confdir / f"breakwater-{home.port}.log"
    assert logs.read_text().count("listening at") == 1
    first.communicate(b"\n")
    still = home.say("status", "--port", str(home.port))
    assert still.returncode == 0, still.stderr
    second.communicate(b"\n")
    wait_for(lambda: not home.listens())


def test_it_ends_where_its_run_is_killed(home: Home, tmp_path: Path) -> None:
    sign = tmp_path / "there"
    run = home.begin("run", "--port", str(home.port), "--", "sh", "-c", f"echo > {sign}; read line", stdin=subprocess.PIPE)
    wait_for(sign.exists)
    assert home.listens()
    run.kill()
    run.communicate()
    wait_for(lambda: not home.listens())


def test_one_after_the_other_each_finds_a_proxy(home: Home) -> None:
    for _ in range(3):
        done = home.run("curl", "-sf", "http://breakwater.internal/healthz")
        assert done.stdout == "ok\n", done.stderr


def test_a_breakwater_that_was_started_by_hand_is_taken_and_stays(home: Home) -> None:
    started = home.start()
    done = home.run("curl", "-sf", "https://breakwater.internal/healthz")
    assert done.stdout == "ok\n", done.stderr
    assert not (home.confdir / f"breakwater-{home.port}.log").exists()
    assert started.poll() is None
    assert home.listens()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGUSR1])
def test_a_signal_goes_on_to_the_program(home: Home, tmp_path: Path, number: signal.Signals) -> None:
    sign, script = tmp_path / "there", "import signal, sys, pathlib\n"
    script += f"signal.signal({int(number)}, lambda *_: sys.exit(40 + {int(number)}))\n"
    script += f"pathlib.Path({str(sign)!r}).touch()\nsignal.pause()"
    words = ["run", "--port", str(home.port), "--", sys.executable, "-c", script]
    run = home.begin(*words, start_new_session=True)
    wait_for(sign.exists)
    run.send_signal(number)
    assert run.wait(20) == 40 + number


def test_env_gives_a_shell_what_run_gives_a_program(home: Home, place: Places) -> None:
    here = place().then(whole(anthropic_message("Hello")))
    home.start(*home.lab)
    line = f"eval \"$({home.command} env --port {home.port})\"; curl {ASK[0]} '{ASK[1]}' {here.url(PATH, 'https')}"
    done = subprocess.run(
        ["bash", "-c", line], cwd=home.folder, env=home.environment, capture_output=True, text=True, check=False
    )
    assert '"Hello"' in done.stdout, done.stderr
    assert done.stderr == ""


def test_env_says_where_nothing_runs_yet(home: Home) -> None:
    said = home.say("env", "--port", str(home.port))
    assert said.returncode == 0
    assert f"export HTTPS_PROXY=http://127.0.0.1:{home.port}\n" in said.stdout
    assert said.stderr.count("\n") == 1
    assert "breakwater start" in said.stderr
