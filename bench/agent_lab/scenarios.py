"""What is measured: each agent alone and in the middle of a tool turn, fleets, nine at once, and a plan of two."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatch

from bench.agent_lab.clients import AGENTS
from bench.agent_lab.provider import Behaviour
from bench.agent_lab.turns import Scenario
from bench.agent_lab.wires import Form

FORMS: tuple[Form, ...] = ("crowded", "page", "3007", "1305", "frame")
WORDS: dict[Form, str] = {
    "crowded": "crowded (`RGV587 …` as JSON in a 200)",
    "page": "captcha page in a 200",
    "frame": "`RGV587 …` in a `data:` frame",
    "1305": "1305 in the stream",
    "3007": "zcode 3007 as a 400",
}
CODERS = tuple(name for name in AGENTS if not name.startswith("sdk-"))
FLEETS: dict[str, tuple[str, ...]] = {
    "fleet-4": ("claude-opus", "opencode-openai", "codex", "qwen-openai"),
    "fleet-4-claude": ("claude-old", "claude", "claude-opus", "opencode-anthropic"),
    "fleet-5": ("claude-opus", "claude", "qwen-anthropic", "codex", "sdk-openai"),
    "fleet-6": ("claude-old", "claude-opus", "qwen-openai", "opencode-openai", "codex", "sdk-anthropic"),
}
NINE = (
    *("claude-old", "claude", "claude-opus", "qwen-openai", "qwen-anthropic"),
    *("opencode-openai", "codex", "sdk-anthropic", "sdk-openai"),
)
SEVEN = ("claude-old", "claude", "qwen-openai", "opencode-anthropic", "codex", "sdk-anthropic", "sdk-openai")
"""All with one model name and one account, since a plan counts so."""
SHORT_SECONDS = 70
LATER_SECONDS = 190
"""How long after the challenge has ended an agent may take: the longest wait told, twice, and an answer."""
TOLD = {"queue": {"seconds": 0}, "breaker": {"open_seconds": 0}, "retry_after": {"challenge": 1, "enforce": False}}
"""Every send is challenged and told so at once, until the agent gives up and prints why."""


def every(seconds: float | None = None) -> Iterator[Scenario]:
    """All scenarios, in the order of the tables; `seconds` replaces the length of each challenge."""
    for name in AGENTS:
        yield Scenario(f"calm/{name}", (name,), Behaviour(answer_seconds=0), 120)
    for form in FORMS:
        for name in AGENTS:
            yield _challenged(f"alone-{form}/{name}", (name,), seconds or SHORT_SECONDS, form)
    for name in AGENTS:
        yield _challenged(f"tool/{name}", (name,), seconds or SHORT_SECONDS, tool_turn=True)
    for fleet, agents in FLEETS.items():
        for form in ("crowded", "page"):
            yield _challenged(f"{fleet}/{form}", agents, seconds or SHORT_SECONDS, form)
    for length in (70, 300, 600):
        yield _challenged(f"nine/{length}", NINE, seconds or length)
    for name, chance in (("half", 0.5), ("tenth", 0.1)):
        behaviour = Behaviour(challenge_seconds=600, chance=chance)
        yield Scenario(f"chance/{name}", FLEETS["fleet-4"], behaviour, 300)
    for name in AGENTS:
        yield Scenario(f"shown/{name}", (name,), Behaviour("page", challenge_seconds=10_000), 1000, TOLD)
    yield Scenario("plan/seven-on-two", SEVEN, Behaviour(plan=2, answer_seconds=10), 400)


def chosen(patterns: list[str], seconds: float | None) -> list[Scenario]:
    """Those whose names match one of the patterns (all where there is none)."""
    return [each for each in every(seconds) if not patterns or any(fnmatch(each.name, one) for one in patterns)]


def _challenged(
    name: str, agents: tuple[str, ...], seconds: float, form: Form = "crowded", *, tool_turn: bool = False
) -> Scenario:
    behaviour = Behaviour(form, seconds, tool_turn=tool_turn)
    return Scenario(name, agents, behaviour, seconds + LATER_SECONDS)
