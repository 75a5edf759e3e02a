import re

import pytest

from policies.kinds import Challenge, Finding, Kind
from policies.reply import wording
from tests.rows import over

BUSY = Finding(Kind.CHALLENGE, code="FAIL_SYS_USER_VALIDATE", challenge=Challenge.BUSY)
CAPTCHA = Finding(Kind.CHALLENGE, code="3007", challenge=Challenge.CAPTCHA)
BLOCKED = Finding(Kind.CHALLENGE, code="3012", challenge=Challenge.BLOCKED)
OVERLOAD = Finding(Kind.OVERLOAD, code="1305", text="The service may be temporarily overloaded")
SITE = "chat.qwen.ai"

TRANSIENT = {
    "busy": wording.challenge(BUSY, site=SITE, attempts=3, wait=8400),
    "captcha": wording.challenge(CAPTCHA, site=SITE, token_spent=True),
    "blocked": wording.challenge(BLOCKED, site=SITE, wait=1800),
    "overload": wording.overload(OVERLOAD, site=SITE, wait=90),
    "breaker": wording.breaker_open(SITE, wait=120),
    "remembered": wording.remembered_wait(SITE, wait=61),
    "queued": wording.queued(SITE, wait=59),
    "stated": wording.stated_wait(SITE, wait=59),
    "no slot": wording.no_slot(SITE, wait=5),
    "closing": wording.closing(SITE, wait=1),
    "cut": wording.bad_gateway(SITE, attempts=2),
}
FINAL = {
    "body size": wording.body_size(size=200_000, limit=131_072, site=SITE, code="FAIL_SYS_USER_VALIDATE"),
    "side request": wording.side_request(estimate=9000, window=6000, model="glm-5.3"),
    "remembered overflow": wording.remembered_overflow(model="glm-5.3"),
}
MISREAD = re.compile(r"quota|exceeded|reset at|context|too long|too large|account|request_too_large", re.IGNORECASE)


@over("text", (TRANSIENT | FINAL).values(), ids=(TRANSIENT | FINAL).keys())
def test_every_text_speaks_chinese_and_english_and_names_no_url(text: str) -> None:
    assert re.search(r"[一-鿿]{4}", text)
    assert re.search(r"[a-z]{4} [a-z]", text)
    assert "://" not in text
    assert "_____tmd_____" not in text


@over("text", TRANSIENT.values(), ids=TRANSIENT.keys())
def test_a_passing_cause_says_nothing_that_clients_misread(text: str) -> None:
    assert not MISREAD.search(text)


@pytest.mark.parametrize("text", FINAL.values(), ids=FINAL.keys())
def test_no_final_text_makes_a_client_cut_its_conversation(text: str) -> None:
    assert "request_too_large" not in text
    assert "prompt is too long" not in text


WITHOUT_TAIL = re.compile(r"( \[[^\]]*\])+$")


@over("text", (TRANSIENT | FINAL).values(), ids=(TRANSIENT | FINAL).keys())
def test_each_language_is_short_and_says_first_the_fact_then_what_to_do(text: str) -> None:
    chinese, english = WITHOUT_TAIL.sub("", text).split(" / ", 1)
    english = re.sub(r" 一次性.* / ", " ", english)
    assert len(chinese) <= 70
    assert len(english) <= 210
    fact, what_to_do = english.split(". " if "conversation is not" not in english else ": ", 1)
    assert re.search(r"chat\.qwen\.ai|this proxy|side request", fact, re.IGNORECASE)
    assert re.search(r"\b(wait|try again|open|send a smaller|nothing to do)\b", what_to_do, re.IGNORECASE)
    assert "。" in chinese[:-1]


def test_waits_that_are_no_breakers_do_not_speak_of_challenges() -> None:
    for name in ("queued", "stated", "no slot", "remembered", "overload"):
        assert "challenge" not in TRANSIENT[name]


def test_a_challenge_keeps_the_upstreams_code_and_says_which_it_is() -> None:
    assert "FAIL_SYS_USER_VALIDATE" in TRANSIENT["busy"]
    assert "busy" in TRANSIENT["busy"]
    assert "繁忙" in TRANSIENT["busy"]
    assert "Open chat.qwen.ai in a browser" in TRANSIENT["captcha"]
    assert "3012" in TRANSIENT["blocked"]


def test_a_code_that_is_no_code_is_left_out() -> None:
    finding = Finding(Kind.CHALLENGE, code="https://x/punish?x5secdata=secret", challenge=Challenge.BUSY)
    assert "secret" not in wording.challenge(finding, site=SITE)


def test_a_wait_that_no_retry_after_can_say_is_in_the_text() -> None:
    assert "8400 s" in TRANSIENT["busy"]
    assert "8400 秒" in TRANSIENT["busy"]
    assert "wait of about" not in wording.challenge(BUSY, site=SITE, wait=59)


def test_attempts_are_told_from_the_second_on() -> None:
    assert "after 3 attempts" in TRANSIENT["busy"]
    assert "attempts" not in wording.challenge(BUSY, site=SITE)


def test_a_spent_token_must_be_renewed_by_the_client() -> None:
    assert "new one" in TRANSIENT["captcha"]


def test_a_hidden_error_keeps_the_upstreams_words() -> None:
    finding = Finding(Kind.OVERFLOW, code="1261", text="Prompt exceeds max length")
    assert wording.hidden(finding) == "[1261] Prompt exceeds max length"


def test_a_code_that_the_words_have_is_not_said_twice() -> None:
    finding = Finding(Kind.RATE_LIMIT, code="1302", text="[1302][Rate limit reached][1]")
    assert wording.hidden(finding) == "[1302][Rate limit reached][1]"


def test_a_reset_time_without_a_zone_is_utc_8() -> None:
    finding = Finding(Kind.QUOTA, code="1308", text="Usage limit reached", reset="2026-09-08 14:29:33")
    assert "2026-09-08 14:29:33 UTC+8" in wording.hidden(finding)


@pytest.mark.parametrize("reset", ["2026-09-08T14:29:33Z", "2026-09-08T14:29:33+02:00", "14:00 UTC"])
def test_a_reset_time_with_a_zone_is_left_as_it_is(reset: str) -> None:
    assert "UTC+8" not in wording.hidden(Finding(Kind.QUOTA, text="x", reset=reset))


def test_a_hidden_error_without_words_says_what_it_is() -> None:
    assert "success status" in wording.hidden(Finding(Kind.UPSTREAM_ERROR))


def test_a_side_request_names_estimate_window_and_model() -> None:
    assert {"9000", "6000", "glm-5.3"} <= set(re.findall(r"[\w.-]+", FINAL["side request"]))
