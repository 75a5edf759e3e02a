"""What is left of a decision on the flow, and of an exchange in the evidence file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from mitmproxy.test import tflow

from operations import controller
from operations.flow_adapter import describe
from policies.exchange import Exchange
from tests.policies.exchanges import CODE_3007, MTOP, OK, Controller, settings


def described(ex: Exchange) -> dict[str, object]:
    flow = tflow.tflow()
    describe(flow, ex)
    facts = flow.metadata["breakwater"]
    assert isinstance(facts, dict)
    return facts


def test_reason_finding_attempts_and_waits_are_there_whatever_was_decided() -> None:
    rules = Controller("breaker: {strikes: 1}")
    answered = rules.sent()
    rules.reply(answered, OK)
    challenged = rules.sent(text="b")
    rules.reply(challenged, MTOP)
    refused, _ = rules.ask(text="c")
    facts = [described(ex) for ex in (answered, challenged, refused)]
    assert [fact["reason"] for fact in facts] == ["answer", "challenge_busy", "breaker_open"]
    assert [fact["finding"] for fact in facts] == ["answer", "challenge", None]
    assert [fact["attempts"] for fact in facts] == [1, 1, 0]
    assert [fact["waits"] for fact in facts] == [[], [], []]
    assert json.loads(json.dumps(facts)) == facts


def test_a_replay_that_is_not_sent_again_says_why() -> None:
    rules = Controller()
    rules.turn("zcode", "one")
    rules.now += 0.4
    token = rules.sent("zcode", "two", headers={"x_aliyun_captcha_verify_param": "TOKEN"})
    rules.reply(token, CODE_3007, 400)
    rules.now += 5
    at_leisure = rules.sent("zcode", "three")
    rules.reply(at_leisure, CODE_3007, 400)
    assert described(token)["not_sent_again"] == "one_time_token"
    assert described(at_leisure)["not_sent_again"] == ""


def test_an_evidence_path_may_begin_with_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    rules, here = Controller(), controller.Controller(settings("evidence_path: ~/evidence.jsonl"))
    ex = rules.sent()
    rules.reply(ex, OK)
    here.evidence_log.add(ex, 0.0)
    here.evidence_log.wait()
    [line] = (tmp_path / "evidence.jsonl").read_text().splitlines()
    assert json.loads(line)["finding"] == "answer"
