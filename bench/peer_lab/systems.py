"""The gateways that are compared: which package each comes from, and how it is started before the upstream."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Literal

from bench.installed import NODE, NpmPackage, Venv, node
from tests.e2e.lab.proxy import LAB, PROJECT

LITELLM = Venv("litellm-1", ("litellm[proxy]==1.103.1",))
PORTKEY = NpmPackage("@portkey-ai/gateway", "1.15.2", ("hono@4.9.7", "@hono/node-server@1.13.8", "@hono/node-ws@1.2.0"))
"""With a newer node-server of hono each of its streams is a 500."""
ROUTER = NpmPackage("@musistudio/claude-code-router", "2.0.0")
MODEL = "glm-4.6"
COMPLETIONS = "/v1/chat/completions"


@dataclass(frozen=True)
class Place:
    """Where a gateway lives during a run."""

    cache: Path
    folder: Path
    port: int
    upstream: str
    """Its base URL, without a path."""


@dataclass(frozen=True)
class Start:
    command: list[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class System:
    title: str
    packages: tuple[NpmPackage | Venv, ...]
    start: Callable[[Place], Start]
    wire: Literal["openai", "anthropic"] = "openai"
    """What its clients speak."""
    headers: Callable[[Place], dict[str, str]] = lambda _place: {}
    """What a client has to send besides its key."""

    @property
    def path(self) -> str:
        return COMPLETIONS if self.wire == "openai" else "/v1/messages"


def _config(place: Place) -> dict[str, str]:
    host = place.upstream.removeprefix("http://")
    return {"config.yaml": json.dumps({"upstreams": {"bench": {"hosts": [host], "family": "zai"}}})}


def _mitmdump(place: Place, *more: str) -> list[str]:
    program = str(Path(sys.executable).parent / "mitmdump")
    return [program, "--listen-host", "127.0.0.1", "--listen-port", str(place.port), *_common(place), *more]


def _common(place: Place) -> list[str]:
    options = [f"confdir={place.folder}/conf", "connection_strategy=lazy", "flow_detail=0"]
    return ["--mode", f"reverse:{place.upstream}", *(word for option in options for word in ("--set", option))]


def _bare(place: Place) -> Start:
    return Start(_mitmdump(place, "-s", str(LAB / "streaming.py")))


def _addon(place: Place) -> Start:
    config = f"breakwater_config={place.folder}/config.yaml"
    return Start(_mitmdump(place, "-s", str(PROJECT / "addon.py"), "--set", config), files=_config(place))


def _command(place: Place) -> Start:
    command = [sys.executable, "-m", "breakwater", "start", "--port", str(place.port), *_common(place)]
    command += ["--set", f"breakwater_config={place.folder}/config.yaml"]
    return Start(command, {"PYTHONPATH": str(PROJECT)}, _config(place))


def _litellm(place: Place) -> Start:
    provider = {"model": f"openai/{MODEL}", "api_base": f"{place.upstream}/v1", "api_key": "sk-bench"}
    config = {"model_list": [{"model_name": MODEL, "litellm_params": provider}]}
    command = [str(LITELLM.program(place.cache, "litellm")), "--config", str(place.folder / "litellm.yaml")]
    command += ["--host", "127.0.0.1", "--port", str(place.port)]
    return Start(command, {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}, {"litellm.yaml": json.dumps(config)})


def _portkey(place: Place) -> Start:
    script = PORTKEY.modules(place.cache) / PORTKEY.name / "build" / "start-server.js"
    return Start([str(node(place.cache)), str(script), f"--port={place.port}", "--headless"])


def _portkey_headers(place: Place) -> dict[str, str]:
    return {"x-portkey-provider": "openai", "x-portkey-custom-host": f"{place.upstream}/v1"}


def _router(place: Place) -> Start:
    provider = {
        "name": "bench",
        "api_base_url": f"{place.upstream}{COMPLETIONS}",
        "api_key": "sk-bench",
        "models": [MODEL],
    }
    config = {
        "PORT": place.port,
        "HOST": "127.0.0.1",
        "LOG": False,
        "Providers": [provider],
        "Router": {"default": f"bench,{MODEL}"},
    }
    script = ROUTER.modules(place.cache) / ROUTER.name / "dist" / "cli.js"
    files = {".claude-code-router/config.json": json.dumps(config)}
    return Start([str(node(place.cache)), str(script), "start"], files=files)


SYSTEMS: dict[str, System] = {
    "bare": System(f"mitmproxy {metadata.version('mitmproxy')}, bare", (), _bare),
    "addon": System("Breakwater as addon", (), _addon),
    "command": System("Breakwater as command", (), _command),
    "litellm": System("LiteLLM proxy 1.103.1", (LITELLM,), _litellm),
    "portkey": System("Portkey gateway 1.15.2", (NODE, PORTKEY), _portkey, headers=_portkey_headers),
    "router": System("claude-code-router 2.0.0", (NODE, ROUTER), _router, wire="anthropic"),
}
"""By the short name of `--only`; the first is what the others are compared with."""
