"""A recogniser that knows a few forms, and the ways of a body through a reader."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from policies.answer.frames import Frame
from policies.answer.reader import Reader
from policies.calls import Surface
from policies.kinds import ANSWER, Challenge, Family, Finding, Head, Kind, Role, Wire

WEB = Surface("qwen-chat", Family.QWEN_WEB, Wire.QWEN_WEB, Role.GENERATION)
ANTHROPIC = Surface("zai", Family.ZAI, Wire.ANTHROPIC, Role.GENERATION)
SSE = (("Content-Type", "text/event-stream; charset=utf-8"),)
JSON = (("Content-Type", "application/json"),)
CAPTCHA = Finding(Kind.CHALLENGE, row="captcha", challenge=Challenge.CAPTCHA)
LIMITED = Finding(Kind.RATE_LIMIT, row="limited")
QUOTA = Finding(Kind.QUOTA, row="quota")
SENSITIVE = Finding(Kind.FILTER, row="sensitive", ends_answer=True)
PAGE = b"<!doctype html><meta name=aliyun_waf_aa><title>Verification</title>"
RET = b'{"ret":["FAIL_SYS_USER_VALIDATE","x"],"data":{}}'
CREATED = b'data: {"response.created":{"chat_id":"C"}}\n\n'
HELLO = b'data: {"choices":[{"delta":{"content":"hello"}}]}\n\n'
DONE = b"data: [DONE]\n\n"


def judged(value: Any) -> Finding | None:
    if "ret" in value:
        return CAPTCHA
    if "error" in value:
        return QUOTA if value["error"].get("code") == "quota" else LIMITED
    if any(choice.get("finish_reason") == "sensitive" for choice in value.get("choices", [])):
        return SENSITIVE
    return None


class FewForms:
    """Knows a few forms, as the tables know many."""

    def head(self, _: Surface, head: Head) -> Finding | None:
        return CAPTCHA if head.get("bxpunish") else None

    def document(self, _: Surface, __: Head, body: bytes, *, whole: bool) -> Finding:
        if b"aliyun_waf_aa" in body[:4000] and body.startswith(b"<"):
            return CAPTCHA
        try:
            value = json.loads(body)
        except ValueError:
            return Finding(Kind.NOTHING, row="other whole" if whole else "other")
        return judged(value) or ANSWER

    def frame(self, _: Surface, __: Head, frame: Frame) -> Finding | None:
        if not frame.data:
            return None
        try:
            value = json.loads(frame.data)
        except ValueError:
            return ANSWER
        if not isinstance(value, dict):
            return ANSWER
        if "response.created" in value or value.get("type") == "message_start":
            return None
        return judged(value) or ANSWER

    def suspicion(self, _: Surface) -> Callable[[bytes], bool]:
        return lambda data: any(marker in data for marker in (b'"ret"', b'"error"', b"aliyun_waf", b"sensitive"))


def reader(headers: Any = SSE, surface: Surface = WEB, status: int = 200, **more: Any) -> Any:
    return Reader(surface, Head(status, headers), FewForms(), **more)


def held(own: Reader, body: bytes, size: int = 1 << 20) -> Any:
    for at in range(0, len(body), size):
        finding = own.feed(body[at : at + size])
        if finding is not None:
            return finding
    return None


def tapped(own: Reader, body: bytes, size: int = 1 << 20) -> Any:
    results = [own.tap(body[at : at + size]) for at in range(0, len(body), size)]
    results.append(own.tap_finish())
    assert all(chunk for result in results for chunk in result.passed), "an empty chunk would end the client's body"
    findings = [result.finding for result in results if result.finding is not None]
    return b"".join(chunk for result in results for chunk in result.passed), findings, results
