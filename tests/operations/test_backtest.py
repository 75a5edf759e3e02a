"""Flow files with a planted cause, as mitmproxy writes them, read again by the rules."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

import pytest
from mitmproxy import connection, http
from mitmproxy.io import FlowReader, FlowWriter

from operations.backtest import Backtest
from policies.research import report
from policies.research.report import Report
from tests.policies.exchanges import MTOP, settings
from tests.rows import over

REFUSALS = {
    "3007": (400, b'{"code":3007,"msg":"captcha verify failed"}'),
    "1302": (429, b'{"error":{"code":"1302","message":"Rate limit reached for requests"}}'),
    "busy": (200, MTOP),
}
ANSWER = json.dumps({"type": "message", "role": "assistant", "content": [{"type": "text", "text": "x"}]}).encode()
PATH = "/api/v1/zcode-plan/anthropic/v1/messages"
EXCHANGES = 60
"""Enough of them to tell a cause by."""
_ids = itertools.count(1)


@dataclass
class Recording:
    """A conversation that is recorded flow by flow, on a clock of its own."""

    now: float = 1.8e9
    flows: list[http.HTTPFlow] = field(default_factory=list)
    messages: list[dict[str, str]] = field(default_factory=list)
    wire: connection.Server = field(init=False)

    def __post_init__(self) -> None:
        self.wire = self.connected(self.now - 5)

    def connected(self, at: float) -> connection.Server:
        return connection.Server(address=("zcode.z.ai", 443), timestamp_start=at, timestamp_tcp_setup=at)

    def exchange(
        self,
        status: int,
        body: bytes,
        *,
        wait: float = 5.0,
        text: str = "",
        fresh: bool = False,
        token: str = "",
        **answer: str,
    ) -> http.HTTPFlow:
        """One flow, ``wait`` seconds after the one before it ended, that took one second."""
        self.now += wait
        if fresh:
            self.wire = self.connected(self.now + 0.01)
        self.messages.append({"role": "user", "content": text or f"m{next(_ids)}"})
        asked: dict[str, Any] = {"model": "glm-5.3", "max_tokens": 32000, "messages": self.messages, "tools": [{"name": "a"}]}
        headers = http.Headers(content_type="application/json", authorization="Bearer k")
        if token:
            headers["X-Aliyun-Captcha-Verify-Param"] = token
        client = connection.Client(peername=("127.0.0.1", 5), sockname=("127.0.0.1", 8080), timestamp_start=self.now - 1)
        flow = http.HTTPFlow(client, self.wire)
        flow.request = http.Request.make("POST", f"https://zcode.z.ai{PATH}", json.dumps(asked), headers)
        flow.request.timestamp_start, flow.request.timestamp_end = self.now, self.now
        fields = http.Headers(content_type="application/json")
        fields.update({name.replace("_", "-"): value for name, value in answer.items()})
        flow.response = http.Response.make(status, body, fields)
        flow.response.timestamp_start, flow.response.timestamp_end = self.now + 0.9, self.now + 1.0
        self.now += 1.0
        self.flows.append(flow)
        return flow


def reread(flows: Iterable[http.HTTPFlow]) -> Iterator[http.HTTPFlow]:
    """As a file gives them back: written, and read again."""
    file = BytesIO()
    writer: Any = FlowWriter(file)  # type: ignore[no-untyped-call]
    for flow in flows:
        writer.add(flow)
    file.seek(0)
    yield from (flow for flow in FlowReader(file).stream() if isinstance(flow, http.HTTPFlow))


def judged(flows: Iterable[http.HTTPFlow], text: str = "") -> tuple[Backtest, Report]:
    backtest = Backtest(settings(text))
    for flow in reread(flows):
        backtest.judge(flow)
    return backtest, report.report(backtest.evidence)


def planted(cause: str, exchanges: int, refusal: tuple[int, bytes], seed: int = 7) -> list[http.HTTPFlow]:
    """A recording in which a refusal depends on one thing alone; all others come and go by themselves."""
    dice, recording, tokens = random.Random(seed), Recording(), ["t0"]
    answered_at = recording.now
    for number in range(exchanges):
        fresh, old_token, wait = dice.random() < 0.3, dice.random() < 0.5, dice.choice((0.2, 0.6, 4.0, 20.0))
        if not old_token:
            tokens.append(f"t{number}")
        gap = recording.now + wait - answered_at
        likely = {"gap": gap < 1, "token": old_token, "connection": fresh, "nothing": dice.random() < 0.4}[cause]
        refused = number > 1 and dice.random() < (0.9 if likely else 0.05)
        status, body = refusal if refused else (200, ANSWER)
        token = dice.choice(tokens) if old_token else tokens[-1]
        recording.exchange(status, body, wait=wait, fresh=fresh, token=token)
        if not refused:
            answered_at = recording.now
    return recording.flows


@over(
    ("cause", "letters", "refusal"),
    [
        ("gap", "A", "3007"), ("connection", "D", "1302"), ("token", "E", "busy"),
        ("nothing", "", "3007"), ("nothing", "", "1302"), ("nothing", "", "busy"),
    ],
)  # fmt: skip
def test_a_planted_cause_is_named_and_no_other(cause: str, letters: str, refusal: str) -> None:
    _, found = judged(planted(cause, EXCHANGES, REFUSALS[refusal]))
    assert "".join(found.causes) == letters
    assert found.exchanges == EXCHANGES, "what these rules would have refused here was sent then, and counts"
    assert found.resent.all == 0, "nothing was sent again then"


def test_ten_exchanges_are_too_few() -> None:
    assert judged(planted("gap", 10, REFUSALS["3007"]))[1].sentences[0] == "Too few exchanges to say anything."


def test_every_flow_is_marked_with_what_would_have_happened_and_keeps_its_answer() -> None:
    recording = Recording()
    for _ in range(4):
        recording.exchange(*REFUSALS["busy"])
    flows = list(reread(recording.flows))
    backtest = Backtest(settings())
    for flow in flows:
        backtest.judge(flow)
    assert [flow.metadata["breakwater"]["reason"] for flow in flows] == ["challenge_busy"] * 3 + ["breaker_open"]
    assert all(flow.response and flow.response.raw_content == MTOP for flow in flows)
    assert "would have" in flows[0].comment
    assert [record.finding for record in judged(flows)[0].evidence] == ["challenge"] * 4, "read again, it is what it was"
    assert "4 flows read, 4 of them to guarded hosts; 4 would have gone otherwise" in backtest.summary()


def test_one_that_began_before_the_others_end_is_no_replay_of_it() -> None:
    recording = Recording()
    recording.exchange(200, ANSWER)
    slow = recording.exchange(429, REFUSALS["1302"][1], wait=-0.5)  # asked while the first one was still answered
    backtest, _ = judged(recording.flows)
    assert [record.gap_session for record in backtest.evidence] == [None, None]
    assert slow.response


def test_answers_of_our_own_in_a_file_are_counted_as_what_they_replaced_and_local_ones_not_at_all() -> None:
    recording = Recording()
    told = recording.exchange(529, b"{}", X_Breakwater="challenge_busy", Retry_After="30")
    told.metadata["breakwater"] = {"reason": "challenge_busy", "finding": "challenge", "row": "mtop", "attempts": 1}
    recording.exchange(529, b"{}", X_Breakwater="challenge_captcha", Retry_After="30")  # of a proxy that keeps no metadata
    recording.exchange(529, b"{}", X_Breakwater="breaker_open", Retry_After="30")
    recording.exchange(529, b"{}", X_Breakwater="remembered_wait", Retry_After="30")
    for waited in ("no_slot", "stated_wait", "slow_start", "queue_full", "closing"):
        recording.exchange(429, b'{"error":{"message":"Too many"}}', X_Breakwater=waited, Retry_After="30")
    backtest, _ = judged(recording.flows)
    assert [(record.finding, record.refused) for record in backtest.evidence] == [("challenge", True)] * 2


def test_a_replay_that_was_cured_by_a_second_send_counts_as_refused_at_first() -> None:
    recording = Recording()
    flow = recording.exchange(200, ANSWER)
    flow.metadata["breakwater"] = {"reason": "answer", "finding": "answer", "attempts": 2}
    [record] = judged(recording.flows)[0].evidence
    assert (record.attempt, record.refused, record.refused_at_last) == (2, True, False)


def test_an_answer_that_was_streamed_and_so_not_saved_is_one_all_the_same() -> None:
    recording = Recording()
    for _ in range(2):
        flow = recording.exchange(200, b"", wait=0.5)
        assert flow.response
        flow.response.content = None
        flow.metadata["breakwater"] = {"reason": "answer", "finding": "answer", "attempts": 1}
    limited = recording.exchange(*REFUSALS["1302"], wait=0.5)
    flows = list(reread(recording.flows))
    backtest, _ = judged(flows)
    assert [record.finding for record in backtest.evidence] == ["answer", "answer", "rate_limit"]
    assert [record.gap_session for record in backtest.evidence][1:] == pytest.approx([0.5, 0.5])
    assert "1 zcode: sent again" in backtest.summary()
    assert limited.response
