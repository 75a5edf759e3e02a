"""The agents: which package each comes from, and how one turn of it is started in its headless mode."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bench.installed import NpmPackage, Venv, node

KEY = "sk-bench"
"""All agents share one account."""
MODEL = "glm-5.2"
OPUS = "claude-opus-5-5"
"""A name that makes Claude Code give up at the third 529."""
PROMPT = "Say the word that you were given, and nothing else."

CLAUDE_OLD = NpmPackage("@anthropic-ai/claude-code", "2.1.112")
CLAUDE_NEW = NpmPackage("@anthropic-ai/claude-code", "2.1.332")
QWEN = NpmPackage("@qwen-code/qwen-code", "0.24.4")
OPENCODE = NpmPackage("opencode-ai", "1.18.33")
CODEX = NpmPackage("@openai/codex", "0.171.0")
SDKS = Venv("sdks-1", ("anthropic==2.14.0", "openai==3.57.0"))
SDK_TURN = Path(__file__).with_name("sdk_turn.py")


@dataclass(frozen=True)
class Bases:
    """The base URLs of the scripted upstream."""

    anthropic: str
    openai: str


@dataclass(frozen=True)
class Start:
    """How a turn is started: the command, what it has in its environment, and files of its folder by name."""

    command: list[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Agent:
    title: str
    package: NpmPackage | Venv
    start: Callable[[Path, Bases], Start]
    """From the cache and the base URLs."""


def _claude(package: NpmPackage, model: str) -> Callable[[Path, Bases], Start]:
    def start(cache: Path, bases: Bases) -> Start:
        program = package.modules(cache) / package.name
        script = program / "cli.js"
        command = [str(node(cache)), str(script)] if script.exists() else [str(package.modules(cache) / ".bin" / "claude")]
        environment = {"ANTHROPIC_BASE_URL": bases.anthropic, "ANTHROPIC_AUTH_TOKEN": KEY}
        environment |= {"ANTHROPIC_SMALL_FAST_MODEL": model, "ANTHROPIC_DEFAULT_HAIKU_MODEL": model}
        return Start([*command, "-p", PROMPT, "--model", model], environment)

    return start


def _qwen(wire: str) -> Callable[[Path, Bases], Start]:
    def start(cache: Path, bases: Bases) -> Start:
        program = QWEN.modules(cache) / ".bin" / "qwen"
        command = [str(node(cache)), str(program.resolve()), "-p", PROMPT, "--auth-type", wire, "--model", MODEL]
        if wire == "openai":
            return Start([*command, "--openai-api-key", KEY, "--openai-base-url", bases.openai])
        environment = {"ANTHROPIC_BASE_URL": bases.anthropic, "ANTHROPIC_API_KEY": KEY, "ANTHROPIC_MODEL": MODEL}
        return Start(command, environment)

    return start


def _opencode(wire: str) -> Callable[[Path, Bases], Start]:
    def start(cache: Path, bases: Bases) -> Start:
        package, base = "@ai-sdk/openai-compatible", bases.openai
        if wire == "anthropic":
            package, base = "@ai-sdk/anthropic", f"{bases.anthropic}/v1"
        allowed = {"read": "allow", "external_directory": "allow"}
        provider = {
            "npm": package,
            "name": "bench",
            "options": {"baseURL": base, "apiKey": KEY},
            "models": {MODEL: {"name": MODEL}},
        }
        config = {
            "provider": {"bench": provider},
            "model": f"bench/{MODEL}",
            "autoupdate": False,
            "permission": allowed,
        }
        command = [str(OPENCODE.modules(cache) / ".bin" / "opencode"), "run", PROMPT]
        return Start(command, {"OPENCODE_DISABLE_AUTOUPDATE": "1"}, {"opencode.json": json.dumps(config)})

    return start


def _codex(cache: Path, bases: Bases) -> Start:
    config = f"""model = "{MODEL}"
model_provider = "bench"
[model_providers.bench]
name = "bench"
base_url = "{bases.openai}"
env_key = "BENCH_KEY"
wire_api = "responses"
"""
    command = [str(CODEX.modules(cache) / ".bin" / "codex"), "exec", "--skip-git-repo-check"]
    command += ["--dangerously-bypass-approvals-and-sandbox", PROMPT]
    return Start(command, {"BENCH_KEY": KEY}, {".codex/config.toml": config})


def _sdk(wire: str) -> Callable[[Path, Bases], Start]:
    def start(cache: Path, bases: Bases) -> Start:
        base = bases.anthropic if wire == "anthropic" else bases.openai
        return Start([str(SDKS.program(cache)), str(SDK_TURN), wire, base, MODEL, PROMPT, "tool"])

    return start


AGENTS: dict[str, Agent] = {
    "claude-old": Agent("Claude Code 2.1.112", CLAUDE_OLD, _claude(CLAUDE_OLD, MODEL)),
    "claude": Agent("Claude Code 2.1.332", CLAUDE_NEW, _claude(CLAUDE_NEW, MODEL)),
    "claude-opus": Agent("Claude Code 2.1.332, an Opus model", CLAUDE_NEW, _claude(CLAUDE_NEW, OPUS)),
    "qwen-openai": Agent("Qwen Code 0.24.4, openai", QWEN, _qwen("openai")),
    "qwen-anthropic": Agent("Qwen Code 0.24.4, anthropic", QWEN, _qwen("anthropic")),
    "opencode-openai": Agent("opencode 1.18.33, openai", OPENCODE, _opencode("openai")),
    "opencode-anthropic": Agent("opencode 1.18.33, anthropic", OPENCODE, _opencode("anthropic")),
    "codex": Agent("Codex 0.171.0", CODEX, _codex),
    "sdk-anthropic": Agent("anthropic Python SDK 2.14.0", SDKS, _sdk("anthropic")),
    "sdk-openai": Agent("openai Python SDK 3.57.0", SDKS, _sdk("openai")),
}
"""Every agent by the short name that scenarios use."""


def environment(cache: Path, home: Path, proxy_url: str, ca_path: Path) -> dict[str, str]:
    """What every agent has: a home of its own, the proxy, and the proxy's CA under each name that clients look for.

    Not IS_SANDBOX, though root would have more freedom with it: it takes away Claude Code's end at the third 529.
    """
    kept = {name: os.environ[name] for name in ("LANG", "LC_ALL", "TMPDIR") if name in os.environ}
    proxies = dict.fromkeys(("HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy"), proxy_url)
    trusted = ("NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CODEX_CA_CERTIFICATE")
    path = f"{node(cache).resolve().parent}{os.pathsep}{os.environ.get('PATH', '/usr/bin:/bin')}"
    return {
        **kept,
        **proxies,
        **{name: str(ca_path) for name in trusted},
        "HOME": str(home),
        "PATH": path,
        "TERM": "dumb",
    }
