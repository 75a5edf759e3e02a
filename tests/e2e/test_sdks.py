"""What the official SDKs make of it, with the proxy where their users put it: in HTTP_PROXY."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import anthropic
import openai
import pytest

from tests.e2e.lab import wires
from tests.e2e.lab.proxy import Proxy
from tests.e2e.lab.script import Place, Reply
from tests.e2e.lab.wires import CAPTCHA_3007, MTOP, event, page, streamed, whole

Places = Callable[..., Place]
WORDS = ("One ", "two ", "three.")
TEXT = "".join(WORDS)
CHALLENGE = event(MTOP)


@dataclass(frozen=True)
class Sdk:
    """One SDK as the tests use it: how it streams and how it asks for a whole answer."""

    stream: Callable[[str, int], str]
    """Base URL and retries to the text of the answer."""
    create: Callable[[str, int], str]
    base: str
    """Path of the base URL."""
    status: int
    overload: type[Exception]
    broken: type[Exception]
    frames: Callable[..., list[bytes]]
    message: Callable[[str], dict[str, Any]]


def _anthropic(url: str, retries: int) -> anthropic.Anthropic:
    return anthropic.Anthropic(api_key="sk-test", base_url=url, max_retries=retries, timeout=20)


def _anthropic_stream(url: str, retries: int) -> str:
    text = ""
    with _anthropic(url, retries) as client:
        asked = {"model": "glm-5.2", "max_tokens": 1000, "messages": [{"role": "user", "content": "hi"}]}
        for got in client.messages.create(stream=True, **asked):  # type: ignore[call-overload]
            if got.type == "content_block_delta":
                text += got.delta.text
    return text


def _anthropic_create(url: str, retries: int) -> str:
    with _anthropic(url, retries) as client:
        message = client.messages.create(model="glm-5.2", max_tokens=1000, messages=[{"role": "user", "content": "hi"}])
    return str(getattr(message.content[0], "text", ""))


def _openai(url: str, retries: int) -> openai.OpenAI:
    return openai.OpenAI(api_key="sk-test", base_url=url, max_retries=retries, timeout=20)


def _openai_stream(url: str, retries: int) -> str:
    with _openai(url, retries) as client:
        chunks = client.chat.completions.create(model="glm-5.2", messages=[{"role": "user", "content": "hi"}], stream=True)
        return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


def _openai_create(url: str, retries: int) -> str:
    with _openai(url, retries) as client:
        completion = client.chat.completions.create(model="glm-5.2", messages=[{"role": "user", "content": "hi"}])
    return completion.choices[0].message.content or ""


SDKS = {
    "anthropic": Sdk(
        _anthropic_stream,
        _anthropic_create,
        "/api/anthropic",
        529,
        anthropic.APIStatusError,
        anthropic.APIError,
        wires.anthropic,
        wires.anthropic_message,
    ),
    "openai": Sdk(
        _openai_stream,
        _openai_create,
        "/api/coding/paas/v4",
        503,
        openai.InternalServerError,
        openai.APIError,
        wires.openai,
        wires.openai_message,
    ),
}


@pytest.fixture(params=SDKS)
def sdk(request: pytest.FixtureRequest) -> Sdk:
    return SDKS[request.param]


@pytest.fixture
def through(monkeypatch: pytest.MonkeyPatch) -> Callable[[Proxy], None]:
    """Point the SDKs of this process at a proxy, as its user would."""

    def use(proxy: Proxy) -> None:
        for name in ("ALL_PROXY", "NO_PROXY", "all_proxy", "no_proxy", "http_proxy", "https_proxy"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        monkeypatch.setenv("SSL_CERT_FILE", str(proxy.ca_path))

    return use


def gap(here: Place) -> float:
    """Seconds between the first two requests that reached the upstream."""
    first, second = here.hits[:2]
    return second.at - first.at


@pytest.mark.parametrize(
    ("form", "scheme", "port"),
    [
        (streamed([CHALLENGE]), "http", None),
        (whole(MTOP), "http", None),
        (page(), "https", None),
        (streamed([CHALLENGE]), "https", 8443),
    ],
    ids=["frame", "json", "page-tls", "frame-tls-h2"],
)
def test_a_challenged_stream_waits_and_then_streams_the_answer(
    quick: Proxy,
    place: Places,
    through: Callable[[Proxy], None],
    sdk: Sdk,
    form: Reply,
    scheme: str,
    port: int | None,
) -> None:
    through(quick)
    here = place().then(form, streamed(sdk.frames(*WORDS)))
    assert sdk.stream(here.url(sdk.base, scheme, port), 2) == TEXT
    assert len(here.hits) == 2
    assert gap(here) >= 1  # the Retry-After of these settings; without one the SDKs come again after half a second


def test_a_challenged_whole_answer_waits_too(quick: Proxy, place: Places, through: Callable[[Proxy], None], sdk: Sdk) -> None:
    through(quick)
    here = place().then(whole(MTOP), whole(sdk.message(TEXT)))
    assert sdk.create(here.url(sdk.base), 2) == TEXT
    assert len(here.hits) == 2
    assert gap(here) >= 1


@pytest.mark.parametrize("form", [streamed([CHALLENGE]), whole(MTOP), page()], ids=["frame", "json", "page"])
def test_without_retries_the_sdk_raises_its_overload_error(
    guarded: Proxy, place: Places, through: Callable[[Proxy], None], sdk: Sdk, form: Reply
) -> None:
    through(guarded)
    here = place().then(form)
    with pytest.raises(sdk.overload) as raised:
        sdk.stream(here.url(sdk.base), 0)
    error: Any = raised.value
    assert error.status_code == sdk.status
    assert error.response.headers["retry-after"] == "30"
    assert f"{here.host} " in str(error)
    assert len(here.hits) == 1


def test_without_the_addon_the_same_sdk_sees_an_empty_answer(
    bare: Proxy, place: Places, through: Callable[[Proxy], None], sdk: Sdk
) -> None:
    through(bare)
    here = place().then(page())
    assert sdk.stream(here.url(sdk.base), 2) == ""
    assert len(here.hits) == 1


def test_a_challenge_in_the_middle_of_a_stream_is_an_error_and_no_short_answer(
    guarded: Proxy, place: Places, through: Callable[[Proxy], None], sdk: Sdk
) -> None:
    through(guarded)
    here = place().then(streamed([*sdk.frames("one")[:3], CHALLENGE]))
    with pytest.raises(sdk.broken):
        sdk.stream(here.url(sdk.base), 2)
    assert len(here.hits) == 1


def test_retries_stop_reaching_the_upstream_once_the_breaker_is_open(
    quick: Proxy, place: Places, through: Callable[[Proxy], None], sdk: Sdk
) -> None:
    through(quick)
    here = place().always(whole(MTOP))
    with pytest.raises(sdk.overload):
        sdk.stream(here.url(sdk.base), 2)
    with pytest.raises(sdk.overload) as raised:
        sdk.stream(here.url(sdk.base), 0)
    error: Any = raised.value
    assert error.status_code == sdk.status
    assert error.response.headers["x-breakwater"] in ("breaker_open", "remembered_wait")
    assert len(here.hits) <= 3


def test_a_captcha_code_in_an_error_status_becomes_a_wait_that_the_sdk_keeps(
    quick: Proxy, place: Places, through: Callable[[Proxy], None]
) -> None:
    through(quick)
    here = place("zcode").then(whole(CAPTCHA_3007, 400), streamed(wires.anthropic(*WORDS)))
    assert _anthropic_stream(here.url("/api/v1/zcode-plan/anthropic"), 2) == TEXT
    assert len(here.hits) == 2
    assert gap(here) >= 1


def test_many_sdk_clients_at_once_all_get_their_answers(
    quick: Proxy, place: Places, through: Callable[[Proxy], None], sdk: Sdk
) -> None:
    from concurrent.futures import ThreadPoolExecutor

    through(quick)
    places = [place().then(streamed([CHALLENGE]), streamed(sdk.frames(*WORDS))) for _ in range(6)]
    with ThreadPoolExecutor(len(places)) as pool:
        texts = list(pool.map(lambda here: sdk.stream(here.url(sdk.base), 2), places))
    assert texts == [TEXT] * len(places)
    assert [len(here.hits) for here in places] == [2] * len(places)
