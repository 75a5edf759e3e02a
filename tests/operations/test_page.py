import json
import re

import pytest
from mitmproxy import http
from prometheus_client.parser import text_string_to_metric_families

from operations import page
from operations.page import HOST, answer, make_app
from operations.status import Counters, DecisionRow, RefusalRow, Status, UpstreamRow, WindowRow
from operations.words import WORDS

TOKEN = "token-of-this-run"
ORIGIN = f"http://{HOST}"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
NASTY = "<script>alert('x')</script>\"&"


class SourceStub:
    """What the guard is to the page."""

    token = TOKEN

    def __init__(self):
        self.done = []
        self.shown = status()

    def status(self):
        return self.shown

    def act(self, action, upstream, model):
        self.done.append((action, upstream, model))
        if upstream == "nobody":
            raise ValueError("no upstream of that name")
        return f"{action} done"


def status(word="zai", **changes):
    counters = Counters()
    for _ in range(1234):
        counters.sent("zai")
    counters.avoided("zai", "breaker_open")
    known = {
        "upstreams": (
            UpstreamRow(word, ("api.z.ai",), state="open", seconds_left=41.2, strikes=3, sent=1234, avoided=1),
            UpstreamRow("bigmodel", ("open.bigmodel.cn",)),
            UpstreamRow("zcode", ("zcode.z.ai",), state="probing", seconds_left=60),
            UpstreamRow("zai-chat", ("chat.z.ai",), state="half"),
        ),
        "decisions": (DecisionRow(990.0, "f", word, "anthropic", "/v1/messages", word, "breaker_open", word, 41.2, 0, 529),),
        "windows": (WindowRow("zai", word, 202745, source=word, expires_wall=2000.0),),
        "refusals": (RefusalRow("wait", "zai", "ab12cd", 21.0),),
        "report_text": f"A gap 1/2 {word}",
        "counts": counters.freeze(),
    }
    return Status(1000.0, "0.1.0", "enforce", **{**known, **changes})


@pytest.fixture
def source():
    return SourceStub()


@pytest.fixture
def ask(source):
    app = make_app(source)

    def send(path="/", method="GET", headers=None, body=b"", host=HOST):
        request = http.Request.make(method, f"http://{HOST}/", body, headers or {})
        request.headers["Host"] = host
        request.path = path
        return answer(app, request)

    return send


def press(ask, headers=None, path="/act", method="POST", **fields):
    body = "&".join(f"{key}={value}" for key, value in {"token": TOKEN, **fields}.items()).encode()
    return ask(path, method, {**FORM, "Origin": ORIGIN, **(headers or {})}, body)


def test_the_page_shows_breakers_decisions_windows_refusals_and_report(ask):
    response = ask()
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    for shown in ("1,234", "api.z.ai", "41.2", "42 s left", "breaker_open", "/v1/messages", "529", "202,745", "ab12cd", "A gap 1/2"):
        assert shown in response.text, shown
    assert "1 upstream is paused." in response.text
    assert response.text.count('<i class="on">') == 3


def test_a_quiet_start_says_so(ask, source):
    source.shown = Status(0.0, "1", "observe")
    text = ask().text
    assert "Every upstream is open to traffic." in text
    assert "observing only" in text
    assert "Nothing had to be decided yet." in text


def test_faults_of_our_own_are_shown_only_where_there_are_some(ask, source):
    assert "Faults of our own" not in ask().text
    counters = Counters()
    counters.fault("judge")
    source.shown = status(faults={"judge": "KeyError in flow f"}, counts=counters.freeze())
    assert "Faults of our own" in ask().text
    assert "KeyError in flow f" in ask().text


def test_everything_is_escaped(ask, source):
    source.shown = status(NASTY, faults={NASTY: NASTY})
    text = ask().text
    assert "alert(" in text
    assert "<script>alert" not in text
    assert NASTY not in text


@pytest.mark.parametrize(
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
def test_the_language_is_the_one_asked_for(ask, query, accepts, word):
    assert word in ask(f"/{query}", headers={"Accept-Language": accepts} if accepts else {}).text


def test_both_languages_have_every_word_with_the_same_blanks():
    assert WORDS["en"].keys() == WORDS["zh"].keys()
    for key, english in WORDS["en"].items():
        assert sorted(re.findall(r"\{\w+\}", english)) == sorted(re.findall(r"\{\w+\}", WORDS["zh"][key])), key


def test_nothing_comes_from_elsewhere_and_no_script_but_our_own_runs(ask):
    response = ask()
    policy = dict(part.strip().split(" ", 1) for part in response.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["frame-ancestors"] == "'none'"
    assert policy["form-action"] == "'self'"
    nonce = re.fullmatch(r"'nonce-([\w-]{20,})'", policy["script-src"])[1]
    assert re.findall(r"<(?:script|style)[ >][^>]*>?", response.text) == [f'<style nonce="{nonce}">', f'<script nonce="{nonce}">']
    assert nonce not in ask().text
    assert not re.findall(r"(?:src|href)=\"(?!/|data:)", response.text)
    assert " style=" not in response.text
    assert not re.findall(r"\son\w+=", response.text)


@pytest.mark.parametrize("path", ["/", "/status.json", "/metrics", "/healthz", "/nothing"])
def test_every_answer_is_sealed(ask, path):
    headers = ask(path).headers
    assert headers["cache-control"] == "no-store"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert "access-control-allow-origin" not in headers


def test_the_status_is_there_as_json(ask):
    told = json.loads(ask("/status.json").content)
    assert told["upstreams"][0]["state"] == "open"
    assert told["counts"]["sends"] == {"zai": 1234}


def test_the_metrics_are_there_for_prometheus(ask):
    response = ask("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=")
    assert any(family.name == "breakwater_upstream_sends" for family in text_string_to_metric_families(response.text))


def test_the_health_is_one_word(ask):
    assert ask("/healthz").content == b"ok\n"


@pytest.mark.parametrize(
    "path",
    ["/nothing", "/static/x", "//evil", "//[", "/%", "/act/", "/%2e%2e/", "/status.json/", "*", "/\x00", "/ü", "/" + "a" * 9000],
)
def test_everything_else_is_not_found(ask, path):
    response = ask(path)
    assert response.status_code == 404
    assert response.content == b"Not Found\n"


@pytest.mark.parametrize(("method", "path"), [("GET", "/act"), ("POST", "/"), ("PUT", "/act"), ("OPTIONS", "/"), ("OPTIONS", "/act"), ("DELETE", "/metrics"), ("BREW", "/")])
def test_no_other_method_is_known(ask, method, path):
    assert ask(path, method).status_code == 404


def test_a_head_request_has_no_body(ask):
    response = ask(method="HEAD")
    assert response.status_code == 200
    assert response.content == b""


@pytest.mark.parametrize("host", [f"{HOST}:80", HOST.upper(), HOST])
def test_our_own_host_is_answered_in_every_spelling(ask, host):
    assert ask(host=host).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", f"{HOST}.evil.example", f"evil.{HOST}", f"{HOST}:8080", "127.0.0.1", f"x@{HOST}", f"{HOST}/", "[", "a b"])
@pytest.mark.parametrize("path", ["/", "/status.json", "/metrics"])
def test_any_other_host_is_not_found(ask, source, host, path):
    assert ask(path, host=host).status_code == 404


@pytest.mark.parametrize("action", ["open", "close", "reset", "forget"])
def test_a_button_does_what_it_says(ask, source, action):
    response = press(ask, action=action, upstream="zai", model="glm-5")
    assert response.status_code == 200
    assert source.done == [(action, "zai", "glm-5")]
    assert f"{action} done" in response.text


def test_a_script_gets_the_sentence_alone(ask, source):
    response = press(ask, {"Accept": "application/json"}, action="reset")
    assert json.loads(response.content) == {"said": "reset done"}
    assert source.done == [("reset", None, None)]


def test_an_action_that_cannot_be_done_says_why(ask):
    assert json.loads(press(ask, {"Accept": "application/json"}, action="open", upstream="nobody").content) == {
        "said": "no upstream of that name",
    }


@pytest.mark.parametrize("headers", [{"Origin": f"https://{HOST}"}, {"Sec-Fetch-Site": "same-origin"}])
def test_our_own_page_may_press(ask, source, headers):
    assert press(ask, headers, action="open", upstream="zai").status_code == 200
    assert source.done


@pytest.mark.parametrize(
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
def test_another_page_may_not_press_even_with_the_token(ask, source, headers):
    assert press(ask, headers, action="open", upstream="zai").status_code == 403
    assert source.done == []


def test_a_request_that_does_not_say_where_it_comes_from_may_not_press(ask, source):
    body = f"token={TOKEN}&action=open".encode()
    assert ask("/act", "POST", FORM, body).status_code == 403
    assert source.done == []


@pytest.mark.parametrize("token", ["", "wrong", TOKEN + "x", "%C3%BC", TOKEN.upper()])
def test_without_the_token_nothing_is_done(ask, source, token):
    assert press(ask, token=token, action="open", upstream="zai").status_code == 403
    assert source.done == []


def test_the_token_counts_in_the_form_alone(ask, source):
    body = b"action=open"
    assert ask(f"/act?token={TOKEN}", "POST", {**FORM, "Origin": ORIGIN, "Cookie": f"token={TOKEN}"}, body).status_code == 403
    assert source.done == []


@pytest.mark.parametrize("action", ["", "explode", "OPEN"])
def test_an_unknown_action_is_refused(ask, source, action):
    assert press(ask, action=action).status_code == 400
    assert source.done == []


def test_a_form_that_is_too_large_is_refused(ask, source):
    assert press(ask, action="open", pad="x" * 10_000).status_code == 413
    assert source.done == []


def test_the_token_stands_in_the_forms_and_nowhere_else(ask):
    text = ask().text
    assert TOKEN in text
    assert set(re.findall(rf".{{15}}{TOKEN}", text)) == {f'"token" value="{TOKEN}'}
    for path in ("/status.json", "/metrics", "/healthz", "/nothing"):
        assert TOKEN not in ask(path).text


def test_the_page_stays_small_with_many_rows(ask, source):
    rows = tuple(RefusalRow("wait", "zai", f"{number:06x}", 30.0) for number in range(10_000))
    source.shown = status(refusals=rows)
    response = ask()
    assert len(response.content) < 100_000
    assert f"and {10_000 - page.ROWS_AT_MOST} more" in response.text


def test_a_fault_in_the_source_is_an_error_without_its_words(ask, source):
    source.status = lambda: 1 / 0
    response = ask()
    assert response.status_code == 500
    assert response.content == b"Internal Server Error\n"


def test_odd_numbers_do_not_break_the_page(ask, source):
    source.shown = status(
        upstreams=(UpstreamRow("a", strikes_to_open=99, strikes=7), UpstreamRow("b", state="open"), UpstreamRow("c", state="open", seconds_left=1e9)),
        windows=(WindowRow("zai", "m", 1000, expires_wall=1e30),),
    )
    assert ask().status_code == 200
