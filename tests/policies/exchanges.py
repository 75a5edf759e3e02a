"""Exchanges for the rule tests: real rules, real bytes, a clock that is an argument."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from policies.calls import Call
from policies.decisions import Admission, Commit, Decision, Forward
from policies.exchange import Exchange
from policies.judge import Judge
from policies.kinds import Head
from policies.request import reading
from policies.request.surfaces import BUILT_IN
from policies.rules import Rules
from policies.settings import Settings
from policies.settings_file import parse
from policies.state import State

MTOP = json.dumps(
    {
        "ret": ["FAIL_SYS_USER_VALIDATE", "RGV587_ERROR::SM::哎哟喂,被挤爆啦,请稍后重试"],
        "data": {"url": "https://chat.qwen.ai/_____tmd_____/punish?x5secdata=SECRETTOKEN&action=captcha"},
    },
    ensure_ascii=False,
).encode()
CODE_3007 = b'{"code":3007,"msg":"captcha verify failed"}'
OK = json.dumps(
    {"id": "c", "object": "chat.completion", "choices": [{"index": 0, "message": {"content": "hi"}}], "usage": {}}
).encode()
SURFACES = {
    "zai": ("api.z.ai", "/api/anthropic/v1/messages"),
    "zai-openai": ("api.z.ai", "/api/paas/v4/chat/completions"),
    "zcode": ("zcode.z.ai", "/api/v1/zcode-plan/anthropic/v1/messages"),
    "qwen-chat": ("chat.qwen.ai", "/api/v2/chat/completions"),
    "dashscope": ("dashscope.aliyuncs.com", "/compatible-mode/v1/chat/completions"),
    "bigmodel": ("open.bigmodel.cn", "/api/paas/v4/chat/completions"),
}
_ids = itertools.count(1)


@cache
def settings(text: str = "") -> Settings:
    """The settings of a text; where it says nothing of it, nobody waits in line."""
    if text.startswith("{"):
        text = text.removesuffix("}") + ", queue: {seconds: 0}, concurrency: off}"
    elif "queue:" not in text:
        text += "\nqueue: {seconds: 0}\nconcurrency: off"
    return parse(text, "config.yaml", {}, BUILT_IN)


def added(decision: Decision | None) -> tuple[tuple[str, str | None], ...] | None:
    """The headers that an answer which passes gets on top; None for one that does not pass."""
    return decision.headers if isinstance(decision, Commit) else None


@dataclass
class Controller:
    """A guard with a clock."""

    text: str = ""
    now: float = 1000.0
    rules: Rules = field(init=False)

    def __post_init__(self) -> None:
        self.rules = Rules(State.fresh(settings(self.text), b"k" * 32))

    @property
    def state(self) -> State:
        return self.rules.state

    @property
    def wall(self) -> float:
        return 1.8e9 + self.now

    def call(self, where: str, body: dict[str, Any] | bytes, account: str = "a", path: str = "", **headers: str) -> Call:
        host, usual = SURFACES[where]
        upstream = self.state.surfaces.at(host, 443)
        assert upstream
        surface = self.state.surfaces.recognise(upstream, "POST", path or usual, lambda name: headers.get(name, ""))
        assert surface
        raw = body if isinstance(body, bytes) else json.dumps(body, ensure_ascii=False).encode()
        return reading.read(
            surface,
            "POST",
            path or usual,
            lambda name: headers.get(name.lower().replace("-", "_"), ""),
            "",
            raw,
            size=len(raw),
            account=account,
            hashed=self.state.hashed,
        )

    def ask(self, where: str = "zai", text: str = "hi", *, account: str = "a", **extra: Any) -> tuple[Exchange, Admission]:
        headers = extra.pop("headers", {})
        path = extra.pop("path", "")
        body = {"model": "glm-5.3", "max_tokens": 32000, "messages": [{"role": "user", "content": text}], **extra}
        call = self.call(where, body, account, path, **headers)
        ex = Exchange(self.state, f"flow-{next(_ids)}", call, self.now, SURFACES[where][0])
        return ex, self.rules.admit(ex, self.now, self.wall)

    def sent(self, where: str = "zai", text: str = "hi", **more: Any) -> Exchange:
        ex, admission = self.ask(where, text, **more)
        assert isinstance(admission, Forward), admission
        return ex

    def reply(self, ex: Exchange, body: bytes, status: int = 200, *, cut: bool = False, **headers: str) -> Decision:
        """The whole answer at once; the decision that was made over it."""
        fields = {"content-type": "application/json"} | {k.replace("_", "-"): v for k, v in headers.items()}
        judge = Judge(ex, Head(status, tuple(fields.items())), self.now)
        decision = judge.feed(body, self.now, self.wall) if body else None
        return decision or judge.finish(cut=cut, now=self.now, wall=self.wall)

    def begin(self, ex: Exchange, status: int = 200, content_type: str = "text/event-stream") -> Judge:
        """The headers of an answer have come."""
        return Judge(ex, Head(status, (("content-type", content_type),)), self.now)

    def settle(self, ex: Exchange) -> None:
        self.rules.settle(ex, self.now, self.wall)

    def turn(self, where: str = "zai", text: str = "hi", body: bytes = OK, status: int = 200, **more: Any) -> Decision:
        ex = self.sent(where, text, **more)
        decision = self.reply(ex, body, status)
        self.settle(ex)
        return decision
