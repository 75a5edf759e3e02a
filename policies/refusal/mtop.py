"""Aliyun's risk-control frame, mtop style: ``{"ret":["FAIL_SYS_USER_VALIDATE","RGV587_ERROR::SM::…"],"data":{"url":…}}``.

Asked on every configured upstream. Only ``ret``, the code fields and the punish link of an envelope are looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from policies.answer import shapes
from policies.answer.shapes import text_of
from policies.kinds import Challenge

PUNISH = ("_____tmd_____/punish", "/punish?", "bixi.alicdn.com/punish/")
"""Aliyun WAF slider (x5sec), and the page that denies instead; Rfym21/Qwen2API detectWafChallenge, AppsGanin/ai-free-vscode#11."""
VERDICTS = ("fail_sys_user_validate", "rgv587", "被挤爆")
"""In ``ret`` or a code field, lower case; Rfym21/Qwen2API detectWafChallenge."""
BUSY = ("rgv587", "被挤爆")
"""Verdicts that a person sees as "crowded", the others as a slider."""
FLAG = "rgv587_flag"
"""``{"rgv587_flag":"sm","url":"…/punish?…"}``, a short form of the RGV587 verdict."""


@dataclass(frozen=True, slots=True)
class Verdict:
    challenge: Challenge
    code: str
    words: str


def verdict(body: Mapping[str, object]) -> Verdict | None:
    """The challenge in an object with lower-case keys, or None. Answers and their parts are never looked into."""
    if body.get("choices") or body.get("output") or shapes.is_part(body):
        return None
    for place in _places(body):
        if found := _in(place):
            return found
    return None


def _places(body: Mapping[str, object]) -> list[Mapping[str, object]]:
    places: list[Mapping[str, object]] = [body]
    for key in ("data", "error", "detail"):
        value = body.get(key)
        if isinstance(value, dict):
            places.append(shapes.lowered(value))
    return places


def _in(place: Mapping[str, object]) -> Verdict | None:
    words = shapes.joined(place.get("ret"))
    if words and not shapes.is_failure(place.get("ret")):
        return None
    code = next((text_of(place.get(key)) for key in ("code", "type") if text_of(place.get(key))), "")
    judged = f"{words} {code if ' ' not in code else ''}".lower()
    url = place.get("url")
    punished = isinstance(url, str) and any(mark in url for mark in PUNISH)
    if not (FLAG in place or punished or any(mark in judged for mark in VERDICTS)):
        return None
    busy = FLAG in place or any(mark in judged for mark in BUSY)
    return Verdict(Challenge.BUSY if busy else Challenge.CAPTCHA, words.partition("::")[0] or code or "punish", words)
