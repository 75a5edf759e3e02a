"""Real agents started by `breakwater run`; only where `BREAKWATER_AGENTS` names a folder that npm installed them into.

Their further traffic (telemetry, updates) goes through the proxy to the scripted upstream too; run it where there is
nothing but loopback all the same: `unshare --net sh -c 'ip link set lo up && exec python -m pytest …'`.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.lab.installed import Home
from tests.e2e.lab.script import Place
from tests.e2e.lab.wires import anthropic, event, openai, streamed

AGENTS = os.environ.get("BREAKWATER_AGENTS", "")
pytestmark = [
    pytest.mark.skipif(not AGENTS, reason="BREAKWATER_AGENTS names no folder with Claude Code, Qwen Code, Codex, opencode"),
    pytest.mark.timeout(180),
]

Places = Callable[..., Place]
WORD, PROMPT, MODEL = "pomegranate", "Say the word.", "glm-5.2"


def responses(text: str) -> list[bytes]:
    """The frames of a streamed answer on the responses wire."""
    part = {"type": "output_text", "text": text, "annotations": []}
    item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part]}
    usage = {"input_tokens": 9, "output_tokens": 2, "total_tokens": 11}
    done = {"id": "resp_1", "status": "completed", "output": [item], "usage": usage}
    return [
        event({"type": "response.created", "response": {"id": "resp_1", "status": "in_progress"}}),
        event({"type": "response.output_item.added", "output_index": 0, "item": {**item, "content": []}}),
        event({"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": text}),
        event({"type": "response.output_item.done", "output_index": 0, "item": item}),
        event({"type": "response.completed", "response": done}),
    ]


def program(name: str) -> str:
    """The newest that lies there, itself or in a folder of its own."""
    found = sorted(Path(AGENTS).glob(f"**/node_modules/.bin/{name}"))
    if not found:
        pytest.skip(f"no {name} in {AGENTS}")
    return str(found[-1])


def run(home: Home, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    node = sorted(Path(AGENTS).glob("**/node_modules/node/bin"))
    path = os.pathsep.join([*(str(each) for each in node), home.environment["PATH"]])
    home.environment |= {"PATH": path, **environment}
    words = ["run", "--port", str(home.port), *home.lab, "--", *command]
    return subprocess.run(
        [str(home.command), *words],
        cwd=home.folder,
        env=home.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )


def assert_answered(done: subprocess.CompletedProcess[str], here: Place) -> None:
    assert WORD in done.stdout, (done.stdout, done.stderr)
    assert done.returncode == 0, done.stderr
    assert here.hits
    assert all(hit.tls for hit in here.hits)


def test_claude_code(home: Home, place: Places) -> None:
    here = place().always(streamed(anthropic(WORD)))
    base = here.url("/api/anthropic", "https")
    command = program("claude"), "-p", PROMPT, "--model", MODEL
    assert_answered(run(home, *command, ANTHROPIC_BASE_URL=base, ANTHROPIC_AUTH_TOKEN="sk-test"), here)


@pytest.mark.parametrize("wire", ["openai", "anthropic"])
def test_qwen_code(home: Home, place: Places, wire: str) -> None:
    frames, path = (openai, "/api/coding/paas/v4") if wire == "openai" else (anthropic, "/api/anthropic")
    here = place().always(streamed(frames(WORD)))
    base, key = f"{wire.upper()}_BASE_URL", f"{wire.upper()}_API_KEY"
    command = program("qwen"), "-p", PROMPT, "--auth-type", wire, "--model", MODEL
    assert_answered(run(home, *command, **{base: here.url(path, "https"), key: "sk-test", "ANTHROPIC_MODEL": MODEL}), here)


def test_codex(home: Home, place: Places) -> None:
    here = place().always(streamed(responses(WORD)))
    (home.folder / ".codex").mkdir()
    (home.folder / ".codex/config.toml").write_text(
        f'model = "{MODEL}"\nmodel_provider = "lab"\n[model_providers.lab]\nname = "lab"\nenv_key = "LAB_KEY"\n'
        f'wire_api = "responses"\nbase_url = "{here.url("/api/coding/paas/v4", "https")}"\n'
    )
    command = program("codex"), "exec", "--skip-git-repo-check", PROMPT
    assert_answered(run(home, *command, LAB_KEY="sk-test"), here)


def test_opencode(home: Home, place: Places) -> None:
    here = place().always(streamed(openai(WORD)))
    options = {"baseURL": here.url("/api/coding/paas/v4", "https"), "apiKey": "sk-test"}
    provider = {"npm": "@ai-sdk/openai-compatible", "name": "lab", "options": options, "models": {MODEL: {"name": MODEL}}}
    config = {"provider": {"lab": provider}, "model": f"lab/{MODEL}", "autoupdate": False}
    (home.folder / "opencode.json").write_text(json.dumps(config))
    assert_answered(run(home, program("opencode"), "run", PROMPT, OPENCODE_DISABLE_AUTOUPDATE="1"), here)
