"""What the guard is to the page, and a way to ask the page."""

from __future__ import annotations

from typing import Any, Protocol

from mitmproxy import http

from operations.metrics import Counters
from operations.page import HOST
from operations.status import DecisionRow, RefusalRow, Status, UpstreamRow, WindowRow
from policies.comments import Comment, Text, say
from policies.research.proportions import Share, Table
from policies.research.report import SUSPECTS, Comparison, Report, Verdict

TOKEN = "token-of-this-run"
ORIGIN = f"http://{HOST}"
GAP, FRESH = SUSPECTS[0], SUSPECTS[3]
REPORT = Report(
    exchanges=400,
    counted=Share(136, 400),
    resent=Share(1, 9),
    comparisons=(
        Comparison(FRESH, Table(Share(3, 9), Share()), None, 391, Verdict.TOO_FEW),
        Comparison(GAP, Table(Share(126, 144), Share(10, 256)), 1e-9, 0, Verdict.CAUSE),
    ),
)
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


class SourceStub:
    token = TOKEN

    def __init__(self) -> None:
        self.start_again()

    def start_again(self) -> None:
        self.done: list[tuple[str, str | None, str | None]] = []
        self.shown = status()

    def status(self) -> Status:
        return self.shown

    def act(self, action: str, upstream: str | None, model: str | None) -> Comment:
        self.done.append((action, upstream, model))
        if upstream == "nobody":
            raise ValueError(say(Text("no upstream of that name", "没有这个上游")))
        return say(Text("{action} done", "{action} 已完成"), action=action)


def said(words: str) -> Comment:
    """A comment that is these words in both languages."""
    return say(Text("{words}", "{words}"), words=words)


def status(word: str = "zai", **changes: Any) -> Status:
    counters = Counters()
    for _ in range(1234):
        counters.sent("zai")
    counters.avoided("zai", "breaker_open")
    known: dict[str, Any] = {
        "upstreams": (
            UpstreamRow(word, ("api.z.ai",), state="open", seconds_left=41.2, strikes=3, sent=1234, avoided=1),
            UpstreamRow("bigmodel", ("open.bigmodel.cn",)),
            UpstreamRow("zcode", ("zcode.z.ai",), state="probing", seconds_left=60),
            UpstreamRow("zai-chat", ("chat.z.ai",), state="half_open"),
        ),
        "decisions": (
            DecisionRow(990.0, "f", word, "anthropic", "/v1/messages", word, "breaker_open", said(word), 41.2, 0, 529),
        ),
        "windows": (WindowRow("zai", word, 202745, source=word, expires_wall=2000.0),),
        "refusals": (RefusalRow("wait", "zai", "ab12cd", 21.0),),
        "report": REPORT,
        "counters": counters,
    }
    return Status(1000.0, "0.1.0", "enforce", **{**known, **changes})


class Ask(Protocol):
    def __call__(
        self,
        path: str = ...,
        method: str = ...,
        headers: dict[str, str] | None = ...,
        body: bytes = ...,
        host: str = ...,
    ) -> Answered: ...


class Answered(Protocol):
    """A response whose body is there."""

    status_code: int
    headers: http.Headers
    content: bytes
    text: str


def press(ask: Ask, headers: dict[str, str] | None = None, **fields: str) -> Answered:
    body = "&".join(f"{key}={value}" for key, value in {"token": TOKEN, **fields}.items()).encode()
    return ask("/act", "POST", {**FORM, "Origin": ORIGIN, **(headers or {})}, body)
