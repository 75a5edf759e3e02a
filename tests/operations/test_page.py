from __future__ import annotations

import json
import re

import pytest
from prometheus_client.parser import text_string_to_metric_families

from operations import page
from operations.log import Log
from operations.metrics import Counters
from operations.page import HOST
from operations.page_text import CODES, WORDS
from operations.status import DecisionRow, RefusalRow, Status, UpstreamRow, WindowRow
from policies.comments import TOLD, WHY
from policies.kinds import Kind, Reason
from tests.operations.page_source import Ask, SourceStub, said, status
from tests.rows import over

NASTY = "<script>alert('x')</script>\"&"


def test_the_page_shows_breakers_decisions_windows_refusals_and_report(ask: Ask) -> None:
    response = ask()
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    for shown in (
        "1,234",
        "api.z.ai",
        "41.2",
        "42 s left",
        "breaker_open",
        "/v1/messages",
        "529",
        "202,745",
        "ab12cd",
    ):
        assert shown in response.text, shown
    assert "1 upstream is paused." in response.text
    assert response.text.count('<i class="on">') == 3


def test_a_quiet_start_says_so(ask: Ask, source: SourceStub) -> None:
    source.shown = Status(0.0, "1", "observe")
    text = ask().text
    assert "Every upstream is open to traffic." in text
    assert "observing only" in text
    assert "Nothing had to be decided yet." in text


def test_faults_of_our_own_are_shown_only_where_there_are_some(ask: Ask, source: SourceStub) -> None:
    assert "Faults of our own" not in ask().text
    counters = Counters()
    counters.fault("judge")
    log = Log()
    log.fault("judge", "f", KeyError())
    source.shown = status(faults=log.faults, counters=counters)
    assert "Faults of our own" in ask().text
    assert "KeyError in judge (flow f)" in ask().text
    assert "judge 处出错：KeyError（flow f）" in ask("/?lang=zh").text


def test_everything_is_escaped(ask: Ask, source: SourceStub) -> None:
    source.shown = status(NASTY, faults={NASTY: said(NASTY)})
    text = ask().text
    assert "alert(" in text
    assert "<script>alert" not in text
    assert NASTY not in text


@over(
    ("query", "accepts", "word"),
    [
        ("", "zh-CN,zh;q=0.9,en;q=0.8", "最近的决定"),
        ("", "en-GB", "Recent decisions"),
        ("", "fr", "Recent decisions"),
        ("", None, "Recent decisions"),
        ("?lang=zh", "en", "最近的决定"),
        ("?lang=en", "zh", "Recent decisions"),
        ("?lang=xx", "zh", "最近的决定"),
    ],
)
def test_the_language_is_the_one_asked_for(ask: Ask, query: str, accepts: str | None, word: str) -> None:
    assert word in ask(f"/{query}", headers={"Accept-Language": accepts} if accepts else {}).text


def test_both_languages_have_every_word_with_the_same_blanks() -> None:
    for key, text in WORDS.items():
        assert sorted(re.findall(r"\{\w+\}", text.english)) == sorted(re.findall(r"\{\w+\}", text.chinese)), key


def test_nothing_comes_from_elsewhere_and_no_script_but_our_own_runs(ask: Ask) -> None:
    response = ask()
    policy = dict(part.strip().split(" ", 1) for part in response.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["frame-ancestors"] == "'none'"
    assert policy["form-action"] == "'self'"
    nonce = policy["script-src"].removeprefix("'nonce-").removesuffix("'")
    assert re.fullmatch(r"[\w-]{20,}", nonce)
    assert re.findall(r"<(?:script|style)[ >][^>]*>?", response.text) == [
        f'<style nonce="{nonce}">',
        f'<script nonce="{nonce}">',
    ]
    assert nonce not in ask().text
    assert not re.findall(r"(?:src|href)=\"(?!/|data:)", response.text)
    assert " style=" not in response.text
    assert not re.findall(r"\son\w+=", response.text)


@over("path", ["/", "/status.json", "/metrics", "/healthz", "/nothing"])
def test_every_answer_is_sealed(ask: Ask, path: str) -> None:
    headers = ask(path).headers
    assert headers["cache-control"] == "no-store"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert "access-control-allow-origin" not in headers


def test_the_status_is_there_as_json(ask: Ask) -> None:
    told = json.loads(ask("/status.json").content)
    assert told["upstreams"][0]["state"] == "open"
    assert told["counts"]["sends"] == {"zai": 1234}


def test_the_metrics_are_there_for_prometheus(ask: Ask) -> None:
    response = ask("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=")
    assert any(family.name == "breakwater_upstream_sends" for family in text_string_to_metric_families(response.text))


def test_the_health_is_one_word(ask: Ask) -> None:
    assert ask("/healthz").content == b"ok\n"


@over(
    "path",
    [
        "/nothing",
        "/static/x",
        "//evil",
        "//[",
        "/%",
        "/act/",
        "/%2e%2e/",
        "/status.json/",
        "*",
        "/\x00",
        "/ü",
        "/" + "a" * 9000,
    ],
)
def test_everything_else_is_not_found(ask: Ask, path: str) -> None:
    response = ask(path)
    assert response.status_code == 404
    assert response.content == b"Not Found\n"


@over(
    ("method", "path"),
    [
        ("GET", "/act"),
        ("POST", "/"),
        ("PUT", "/act"),
        ("OPTIONS", "/"),
        ("OPTIONS", "/act"),
        ("DELETE", "/metrics"),
        ("BREW", "/"),
    ],
)
def test_no_other_method_is_known(ask: Ask, method: str, path: str) -> None:
    assert ask(path, method).status_code == 404


def test_a_head_request_has_no_body(ask: Ask) -> None:
    response = ask(method="HEAD")
    assert response.status_code == 200
    assert response.content == b""


@pytest.mark.parametrize("host", [f"{HOST}:80", HOST.upper(), HOST])
def test_our_own_host_is_answered_in_every_spelling(ask: Ask, host: str) -> None:
    assert ask(host=host).status_code == 200


@over(
    "host",
    [
        "evil.example",
        f"{HOST}.evil.example",
        f"evil.{HOST}",
        f"{HOST}:8080",
        "127.0.0.1",
        f"x@{HOST}",
        f"{HOST}/",
        "[",
        "a b",
    ],
)
@over("path", ["/", "/status.json", "/metrics"])
def test_any_other_host_is_not_found(ask: Ask, source: SourceStub, host: str, path: str) -> None:
    assert ask(path, host=host).status_code == 404


def test_decisions_alike_in_a_row_are_one_row_with_their_number(ask: Ask, source: SourceStub) -> None:
    def decided(wall: float, reason: str) -> DecisionRow:
        return DecisionRow(wall, "f", "zai", "anthropic", "/v1/messages", "", reason, said(f"told {wall}"), wall, 0, 529)

    source.shown = status(
        decisions=(
            *(decided(30 - n, "breaker_open") for n in range(20)),
            decided(9, "overload"),
            decided(8, "breaker_open"),
        )
    )
    text = ask().text
    assert text.count("<code>breaker_open</code>") == 2
    assert "× 20" in text
    assert "× 1<" not in text
    assert "Told 30" in text
    assert "Told 29" not in text


def test_remembered_refusals_of_one_account_are_one_row_with_their_number_and_the_longest_wait(
    ask: Ask, source: SourceStub
) -> None:
    source.shown = status(
        refusals=[RefusalRow("wait", "zai", account, left) for left in (9.0, 33.0, 21.0) for account in ("aa", "bb")]
    )
    text = ask("/?lang=en").text
    assert text.count("× 3") == text.count("33 s left") == 2
    assert "21 s left" not in text


def test_the_page_stays_small_with_many_rows(ask: Ask, source: SourceStub) -> None:
    rows = tuple(RefusalRow("wait", "zai", f"{number:06x}", 30.0) for number in range(10_000) for _ in range(2))
    source.shown = status(refusals=rows)
    response = ask()
    assert len(response.content) < 100_000
    assert f"and {10_000 - page.ROWS_AT_MOST} more" in response.text


def test_a_fault_in_the_source_is_told_once_and_without_its_words(
    ask: Ask, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: SourceStub) -> Status:
        raise KeyError("secret")

    monkeypatch.setattr(SourceStub, "status", fail)
    with caplog.at_level("WARNING"):
        for _ in range(3):
            response = ask()
            assert response.status_code == 500
            assert response.content == b"Internal Server Error\n"
    assert caplog.messages == ["Breakwater: the status page cannot be shown (KeyError in fail); traffic is not concerned"]


def test_odd_numbers_do_not_break_the_page(ask: Ask, source: SourceStub) -> None:
    source.shown = status(
        upstreams=(
            UpstreamRow("a", strikes_to_open=99, strikes=7),
            UpstreamRow("b", state="open"),
            UpstreamRow("c", state="open", seconds_left=1e9),
        ),
        windows=(WindowRow("zai", "m", 1000, expires_wall=1e30),),
    )
    assert ask().status_code == 200


def test_kinds_and_reasons_are_chinese_on_the_chinese_page_with_their_code_beside(ask: Ask, source: SourceStub) -> None:
    said = TOLD.say(True, why=WHY[Reason.BREAKER_OPEN], wait=42)
    decided = DecisionRow(990.0, "f", "zai", "anthropic", "/v1/messages", "overload", "breaker_open", said, 41.2, 0, 529)
    source.shown = status(decisions=(decided,))
    chinese, english = ask("/?lang=zh").text, ask("/?lang=en").text
    for words in (
        "熔断中 <code>breaker_open</code>",
        "<td>过载</td>",
        "<td>等待<div",
        "本地拒绝：熔断器已打开；告知等待 42 秒。",
    ):
        assert words in chinese, words
    assert "熔断" not in english.replace("中文", "")
    assert "<td>overload</td>" in english
    assert "Refused here: the breaker is open; told to wait 42 s." in english


def test_every_reason_has_its_chinese() -> None:
    assert {reason.value for reason in Reason} | {kind.value for kind in Kind} <= set(CODES)
