"""One body or one frame, judged as if it had come from an upstream."""

from __future__ import annotations

from typing import Any

from policies.answer.frames import parse
from policies.kinds import Family, Finding, Head
from policies.refusal.recogniser import Recogniser
from tests.policies.refusal.envelope_forms import dump
from tests.policies.refusal.replies import surface

MTOP = {
    "ret": ["FAIL_SYS_USER_VALIDATE", "RGV587_ERROR::SM::哎哟喂,被挤爆啦,请稍后重试"],
    "data": {"url": "https://chat.qwen.ai/_____tmd_____/punish?x5secdata=xg"},
}
RECOGNISER = Recogniser()


def document(
    body: object, status: int = 200, family: Family = Family.ZAI, headers: tuple[tuple[str, str], ...] = (), **more: Any
) -> Finding:
    data = body if isinstance(body, bytes) else dump(body)
    return RECOGNISER.document(more.pop("where", surface(family)), Head(status, headers), data, whole=more.pop("whole", True))


def frame(raw: str, status: int = 200, family: Family = Family.ZAI) -> Finding | None:
    return RECOGNISER.frame(surface(family), Head(status), parse(raw.encode()))
