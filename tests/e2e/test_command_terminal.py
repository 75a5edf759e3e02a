"""Interactive programs under `breakwater run` keep their terminal: its size, its keys, its job control."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator

import pytest

from tests.e2e.lab.installed import Home, wait_for
from tests.e2e.lab.terminal import CTRL_C, CTRL_D, CTRL_Z, Terminal

CLIENT = """
import os, signal, sys
caught = []
signal.signal(signal.SIGINT, lambda *_: (caught.append(1), print("interrupted", flush=True)))
signal.signal(signal.SIGWINCH, lambda *_: print("size", *os.get_terminal_size(), flush=True))
print("terminal", all(map(os.isatty, (0, 1, 2))), *os.get_terminal_size(), flush=True)
for line in sys.stdin:
    print("read", line.strip(), len(caught), flush=True)
    if line.strip() == "end":
        sys.exit(5)
"""

SENDERS = """
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
print("ready", flush=True)
while found := signal.sigtimedwait({signal.SIGINT}, 2):
    print("from the", "keyboard" if found.si_pid == 0 else "program", flush=True)
print("no more", flush=True)
"""

Open = Callable[..., Terminal]


@pytest.fixture
def terminal(home: Home) -> Iterator[Open]:
    opened: list[Terminal] = []

    def make(*words: str) -> Terminal:
        opened.append(Terminal(words, home.folder, home.environment))
        return opened[-1]

    yield make
    for each in opened:
        each.close()


@pytest.fixture
def client(home: Home, terminal: Open) -> Terminal:
    made = terminal(str(home.command), "run", "--port", str(home.port), "--", sys.executable, "-c", CLIENT)
    made.expect("terminal True")
    return made


def test_the_size_of_the_terminal_reaches_the_program(client: Terminal) -> None:
    client.resize(33, 77)
    client.expect("size 77 33")


@pytest.mark.skipif(not hasattr(signal, "sigtimedwait"), reason="macOS says nothing of who sent a signal")
def test_ctrl_c_comes_from_the_keyboard_alone(home: Home, terminal: Open) -> None:
    client = terminal(str(home.command), "run", "--port", str(home.port), "--", sys.executable, "-c", SENDERS)
    client.expect("ready")
    for _ in range(5):
        client.press(CTRL_C)
        client.expect("from the keyboard")
    client.expect("no more")
    assert "program" not in client.seen


def test_ctrl_c_goes_to_the_program_and_to_nobody_else(home: Home, client: Terminal) -> None:
    client.press(CTRL_C)
    client.expect("interrupted")
    client.press(b"go\n")
    client.expect("read go 1")
    assert home.listens()
    client.press(b"end\n")
    client.expect("read end 1")
    assert client.wait() == 5
    wait_for(lambda: not home.listens())


def test_a_program_that_ctrl_c_ends_has_status_130(home: Home, terminal: Open) -> None:
    client = terminal(str(home.command), "run", "--port", str(home.port), "--", "sh", "-c", "echo ready; sleep 60")
    client.expect("ready")
    client.press(CTRL_C)
    assert client.wait() == 130


def test_the_end_of_input_reaches_the_program(client: Terminal) -> None:
    client.press(CTRL_D)
    assert client.wait() == 0


def test_ctrl_z_stops_it_and_the_shell_takes_it_up_again(home: Home, terminal: Open) -> None:
    shell = terminal("bash", "--norc", "--noprofile", "-i")
    shell.expect("$ ")
    (home.folder / "client.py").write_text(CLIENT)
    shell.press(f"{home.command} run --port {home.port} -- {sys.executable} client.py\n".encode())
    shell.expect("terminal True")
    shell.press(CTRL_Z)
    shell.expect("Stopped")
    shell.expect("$ ")
    assert home.listens()
    shell.press(b"fg\n")
    shell.expect("client.py")
    shell.press(b"hello\n")
    shell.expect("read hello 0")
    shell.press(b"end\n")
    shell.expect("read end")
    shell.press(b"echo status=$?\n")
    shell.expect("status=5")


def test_a_shell_as_the_program_has_job_control_of_its_own(home: Home, terminal: Open) -> None:
    outer = terminal("bash", "--norc", "--noprofile", "-i")
    outer.expect("$ ")
    outer.press(f"{home.command} run --port {home.port} -- bash --norc --noprofile -i\n".encode())
    outer.expect("\n")
    outer.expect("$ ")
    outer.press(b"echo in=$HTTPS_PROXY; cat\n")
    outer.expect(f"in=http://127.0.0.1:{home.port}")
    outer.press(b"word\n")
    outer.expect("word\r\nword")  # as typed, and from the program: it reads
    outer.press(CTRL_Z)
    outer.expect("Stopped")
    outer.expect("$ ")
    outer.press(b"fg\n")
    outer.expect("fg\r\ncat")
    outer.press(b"again\n")
    outer.expect("again\r\nagain")
    outer.press(CTRL_D)
    outer.expect("$ ")
    outer.press(b"exit 9\n")
    outer.expect("exit\r\n")
    outer.press(b"echo status=$?\n")
    outer.expect("status=9")
