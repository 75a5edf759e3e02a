from __future__ import annotations

import json
from typing import Any

import pytest

from policies.answer.frames import parse
from policies.kinds import Challenge, Family, Finding, Head, Kind
from policies.refusal import signatures
from policies.refusal.recogniser import Recogniser
from policies.settings import SignatureRow
from tests.policies.refusal.replies import surface
from tests.rows import over


def row(**given: Any) -> SignatureRow:
    return SignatureRow(**{"name": "mine", "family": None, "finding": "overload"} | given)


def found(rule: SignatureRow, status: int, body: object, family: Family = Family.ZAI) -> Finding:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Recogniser((rule,)).document(surface(family), Head(status), data, whole=True)


def test_a_made_up_code_is_one_row() -> None:
    rule = row(field="error.code", equals="7777", wait=9)
    finding = found(rule, 400, {"error": {"code": 7777, "message": "x"}})
    assert (finding.kind, finding.row, finding.code, finding.wait, finding.transient) == (
        Kind.OVERLOAD,
        "signature:mine",
        "7777",
        9,
        True,
    )
    assert found(rule, 400, {"error": {"code": 7778, "message": "x"}}).kind is Kind.CALLER_ERROR


def test_it_is_asked_before_the_built_in_tables() -> None:
    assert (
        found(row(field="error.code", equals="1113", finding="rate_limit"), 429, {"error": {"code": "1113"}}).kind
        is Kind.RATE_LIMIT
    )
    assert (
        found(row(field="code", equals="3007", finding="caller_error"), 400, {"code": 3007}, Family.ZCODE).kind
        is Kind.CALLER_ERROR
    )


@pytest.mark.parametrize("name", ["busy", "captcha", "blocked"])
def test_it_names_any_challenge(name: str) -> None:
    finding = found(row(field="code", begins="RISK_", finding=f"challenge:{name}"), 200, {"code": "RISK_7", "msg": "x"})
    assert (finding.kind, finding.challenge, finding.transient) == (Kind.CHALLENGE, Challenge(name), False)


@over("kind", [kind for kind in Kind if kind is not Kind.CHALLENGE])
def test_it_names_any_kind(kind: Kind) -> None:
    assert found(row(field="code", equals="X1", finding=kind.value), 400, {"code": "X1", "msg": "x"}).kind is kind


def test_family_and_status_narrow_it() -> None:
    rule = row(family=Family.QWEN_WEB, status=frozenset({418}), field="code", equals="X1")
    assert found(rule, 418, {"code": "X1"}, Family.QWEN_WEB).kind is Kind.OVERLOAD
    assert found(rule, 400, {"code": "X1"}, Family.QWEN_WEB).kind is Kind.CALLER_ERROR
    assert found(rule, 418, {"code": "X1"}, Family.ZAI).kind is Kind.CALLER_ERROR


def test_anchored_text_is_read_in_messages_and_in_bodies_that_are_no_json() -> None:
    rule = row(begins="The gate is closed")
    assert found(rule, 400, {"error": {"message": "The gate is closed until noon"}}).kind is Kind.OVERLOAD
    assert found(rule, 200, b"The gate is closed until noon").kind is Kind.OVERLOAD
    assert found(row(begins="<html><title>Closed"), 200, b"<html><title>Closed</title></html>").kind is Kind.OVERLOAD
    assert found(rule, 400, {"error": {"message": "It said: The gate is closed"}}).kind is Kind.CALLER_ERROR


def test_the_status_of_a_hidden_one_is_a_real_one() -> None:
    rule = row(field="state", equals="spent", finding="quota")
    assert found(rule, 200, {"state": "spent"}).status == 429
    assert found(rule, 402, {"state": "spent"}).status is None


def test_the_upstreams_own_wait_comes_first() -> None:
    rule = row(field="error.code", equals="7777", wait=9)
    assert found(rule, 400, {"error": {"code": "7777", "retry_after": 3}}).wait == 3


def test_a_field_that_a_model_writes_never_matches() -> None:
    for path in ("choices.0.message.content", "content.0.text", "output", "delta.partial_json", "data.delta_content"):
        body = {
            "choices": [{"message": {"content": "x"}}],
            "content": [{"text": "x"}],
            "output": "x",
            "data": {"delta_content": "x"},
        }
        assert found(row(field=path, equals="x"), 200, body).kind is Kind.ANSWER
    assert found(row(begins="x"), 200, {"choices": [{"message": {"content": "x"}}]}).kind is Kind.ANSWER


@over("beside", [{}, None, "", [], [{}]])
@over("answer", [{"choices": [{"message": {"content": "a"}}]}, {"output": {"text": "a"}}])
def test_an_empty_error_beside_an_answer_is_none_with_a_row_and_without(answer: dict[str, object], beside: object) -> None:
    where, body = surface(Family.ZAI), json.dumps({**answer, "errors": beside}).encode()
    for recogniser in (Recogniser(), Recogniser((row(field="code", equals="x"),))):
        assert recogniser.document(where, Head(200), body, whole=True).kind is Kind.ANSWER


def test_it_is_read_in_frames_and_makes_their_bytes_suspicious() -> None:
    rule = row(field="event_info.state", equals="busy")
    recogniser, where = Recogniser((rule,)), surface(Family.ZAI)
    raw = b'data: {"event_info":{"state":"busy"}}\n\n'
    assert recogniser.suspicion(where)(raw)
    assert not Recogniser().suspicion(where)(raw)
    finding = recogniser.frame(where, Head(200), parse(raw))
    assert finding is not None
    assert finding.kind is Kind.OVERLOAD


def test_a_row_without_a_text_needs_an_error_status() -> None:
    rule = row(status=frozenset({200, 520}))
    assert found(rule, 520, b"x").kind is Kind.OVERLOAD
    assert found(rule, 200, {"choices": [{"message": {"content": "hi"}}]}).kind is Kind.ANSWER
    assert found(row(), 400, {"error": {"code": "1"}}).kind is Kind.CALLER_ERROR


@over("path", ["", ".", "a..b", "a.0", "a.99999999999", "a.b.c.d"])
def test_odd_paths_find_nothing(path: str) -> None:
    assert signatures.at({"a": [{}]}, path) == []
