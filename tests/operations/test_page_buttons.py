from __future__ import annotations

import json
import re

import pytest

from operations.page import HOST
from tests.operations.page_source import FORM, ORIGIN, TOKEN, Ask, SourceStub, press
from tests.rows import over


@pytest.mark.parametrize("action", ["open", "close", "reset", "forget"])
def test_a_button_does_what_it_says(ask: Ask, source: SourceStub, action: str) -> None:
    response = press(ask, action=action, upstream="zai", model="glm-5")
    assert response.status_code == 200
    assert source.done == [(action, "zai", "glm-5")]
    assert f"{action.capitalize()} done" in response.text


def test_a_script_gets_the_sentence_alone(ask: Ask, source: SourceStub) -> None:
    response = press(ask, {"Accept": "application/json"}, action="reset")
    assert json.loads(response.content) == {"said": "Reset done"}
    assert source.done == [("reset", None, None)]


def test_an_action_that_cannot_be_done_says_why(ask: Ask) -> None:
    assert json.loads(press(ask, {"Accept": "application/json"}, action="open", upstream="nobody").content) == {
        "said": "No upstream of that name",
    }


def test_what_a_button_did_is_said_in_the_language_of_the_page(ask: Ask) -> None:
    for accept in ("application/json", "text/html"):
        headers = {"Accept": accept, "Accept-Language": "zh"}
        told = press(ask, headers, action="reset").content.decode("unicode_escape" if "json" in accept else "utf8")
        assert "reset 已完成" in told
    assert "没有这个上游" in press(ask, {"Accept-Language": "zh"}, action="open", upstream="nobody").text


@pytest.mark.parametrize("headers", [{"Origin": f"https://{HOST}"}, {"Sec-Fetch-Site": "same-origin"}])
def test_our_own_page_may_press(ask: Ask, source: SourceStub, headers: dict[str, str]) -> None:
    assert press(ask, headers, action="open", upstream="zai").status_code == 200
    assert source.done


@over(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": ""},
        {"Origin": f"http://{HOST}.evil.example"},
        {"Origin": f"http://{HOST}:8080"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "none"},
        {"Sec-Fetch-Site": "same-origin", "Origin": "http://evil.example"},
    ],
)
def test_another_page_may_not_press_even_with_the_token(ask: Ask, source: SourceStub, headers: dict[str, str]) -> None:
    assert press(ask, headers, action="open", upstream="zai").status_code == 403
    assert source.done == []


def test_a_request_that_does_not_say_where_it_comes_from_may_not_press(ask: Ask, source: SourceStub) -> None:
    body = f"token={TOKEN}&action=open".encode()
    assert ask("/act", "POST", FORM, body).status_code == 403
    assert source.done == []


@over("token", ["", "wrong", TOKEN + "x", "%C3%BC", TOKEN.upper()])
def test_without_the_token_nothing_is_done(ask: Ask, source: SourceStub, token: str) -> None:
    assert press(ask, token=token, action="open", upstream="zai").status_code == 403
    assert source.done == []


def test_the_token_counts_in_the_form_alone(ask: Ask, source: SourceStub) -> None:
    body = b"action=open"
    assert ask(f"/act?token={TOKEN}", "POST", {**FORM, "Origin": ORIGIN, "Cookie": f"token={TOKEN}"}, body).status_code == 403
    assert source.done == []


@pytest.mark.parametrize("action", ["", "explode", "OPEN"])
def test_an_unknown_action_is_refused(ask: Ask, source: SourceStub, action: str) -> None:
    assert press(ask, action=action).status_code == 400
    assert source.done == []


def test_a_form_that_is_too_large_is_refused(ask: Ask, source: SourceStub) -> None:
    assert press(ask, action="open", pad="x" * 10_000).status_code == 413
    assert source.done == []


def test_the_token_stands_in_the_forms_and_nowhere_else(ask: Ask) -> None:
    text = ask().text
    assert TOKEN in text
    assert set(re.findall(rf".{{15}}{TOKEN}", text)) == {f'"token" value="{TOKEN}'}
    for path in ("/status.json", "/metrics", "/healthz", "/nothing"):
        assert TOKEN not in ask(path).text
