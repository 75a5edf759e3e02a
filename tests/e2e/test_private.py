"""What was asked, answered, or proves who asks never gets into anything that is written or shown.

A canary stands in every field of the requests and answers, every kind of decision is provoked, and then everything is
searched. A flow that a person saves holds what flows hold; its comment and metadata are searched like all else.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from mitmproxy.io import FlowReader

from policies.kinds import Reason
from tests.e2e.conftest import Proxies, upstream_rows
from tests.e2e.lab.client import Connection, ask
from tests.e2e.lab.operated import get, press, state, state_path, status, until
from tests.e2e.lab.proxy import LAB, Proxy
from tests.e2e.lab.script import Gate, Place, Reply
from tests.e2e.lab.wires import (
    COMPLETIONS,
    HTML,
    JSON,
    MESSAGES,
    QWEN_WEB,
    SSE,
    ZCODE,
    anthropic,
    anthropic_message,
    compact,
    event,
    streamed,
    whole,
)

Places = Callable[..., Place]

ASKED = {
    name: f"cnry-{name}-7q"
    for name in (
        "authorization", "apikey", "cookie", "query", "header", "agent", "prompt", "system", "toolname", "toolargs",
        "toolresult", "session", "tokenheader", "tokenbody", "chat",
    )
}  # fmt: skip
ANSWERED = {
    name: f"cnry-{name}-8q"
    for name in ("answer", "thinking", "toolcall", "setcookie", "x5secdata", "url", "wafmeta", "pagescript", "image")
}
ECHOED = {"key": "sk-cnryechoed9q", "bearer": "Bearer cnry-echoed-9q"}
"""Credentials that an upstream's error says back."""
CANARIES = {**ASKED, **ANSWERED, **ECHOED}

HEADERS = [
    ("authorization", f"Bearer {ASKED['authorization']}"),
    ("x-api-key", ASKED["apikey"]),
    ("cookie", f"token={ASKED['cookie']}; other={ASKED['cookie']}"),
    ("user-agent", ASKED["agent"]),
    ("x-other", ASKED["header"]),
    JSON,
]
TOKEN = [("x-aliyun-captcha-verify-param", ASKED["tokenheader"])]
QUERY = f"key={ASKED['query']}"

CHALLENGE = {
    "ret": ["FAIL_SYS_USER_VALIDATE", "RGV587_ERROR::SM::哎哟喂,被挤爆啦,请稍后重试"],
    "data": {
        "url": f"https://chat.qwen.ai:443//_____tmd_____/punish?x5secdata={ANSWERED['x5secdata']}&{ANSWERED['url']}",
        "x5sec": ANSWERED["x5secdata"],
    },
}
PAGE = (
    f'<!doctypehtml><html><head><meta name="aliyun_waf_aa" content="{ANSWERED["wafmeta"]}"><title>Verification</title>'
    f'</head><body><div id="captcha-element"></div><script>var x5secdata="{ANSWERED["pagescript"]}";</script></body></html>'
).encode()
SET_COOKIE = ("set-cookie", f"acw_tc={ANSWERED['setcookie']}; Path=/")


def body(text: str, *, token: bool = True, side: bool = False, **more: object) -> bytes:
    """A request with a canary in all that it can hold."""
    call = {"type": "tool_use", "id": "t1", "name": ASKED["toolname"], "input": {"path": ASKED["toolargs"]}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": ASKED["toolresult"]}
    asked: dict[str, object] = {
        "model": "glm-5.2",
        "max_tokens": 20 if side else 32000,
        "stream": True,
        "system": [{"type": "text", "text": ASKED["system"]}],
        "metadata": {"user_id": ASKED["session"]},
        "messages": [
            {"role": "user", "content": f"{ASKED['prompt']} {text}"},
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": [result]},
        ],
    }
    if not side:
        asked["tools"] = [{"name": ASKED["toolname"], "description": ASKED["prompt"], "input_schema": {"type": "object"}}]
    if token:
        asked["captcha_verify_param"] = ASKED["tokenbody"]
    return compact({**asked, **more})


def told(code: int | str, words: str = "no", code_status: int = 200) -> Reply:
    """An error of z.ai's, with a credential in its words."""
    said = f"{words} {ECHOED['key']} {ECHOED['bearer']}"
    return whole({"error": {"code": str(code), "message": said}, "request_id": "r"}, code_status)


def answer() -> list[bytes]:
    frames = anthropic(ANSWERED["answer"])
    thinking = {"type": "thinking_delta", "thinking": ANSWERED["thinking"]}
    tool = {"type": "input_json_delta", "partial_json": compact({"a": ANSWERED["toolcall"]}).decode()}
    more = [event({"type": "content_block_delta", "index": 0, "delta": delta}) for delta in (thinking, tool)]
    return [*frames[:3], *more, *frames[3:]]


class Client:
    """Asks through the proxy; every request carries all the canaries."""

    def __init__(self, proxy: Proxy) -> None:
        self.proxy = proxy
        self._number = 0

    def ask(self, place: Place, reply: Reply | None, path: str = MESSAGES, data: bytes | None = None, **more: Any) -> int:
        """Send something new (or `data`) and get this reply, or none where nothing should be sent; the status."""
        self._number += 1
        if reply is not None:
            place.then(reply)
        data = data if data is not None else body(f"number {self._number}", **more)
        headers = HEADERS + (TOKEN if more.get("token", True) else [])
        return ask(self.proxy, self.url(place, path), data, headers).status

    def url(self, place: Place, path: str) -> str:
        return place.url(f"{path}{'&' if '?' in path else '?'}{QUERY}")


IN_LINE = {
    reason.value for reason in (Reason.NO_SLOT, Reason.CLOSING, Reason.QUEUE_FULL, Reason.SLOW_START, Reason.STATED_WAIT)
}
"""Reasons of requests that wait, which nobody does here."""


@pytest.fixture(scope="module")
def watched(proxies: Proxies, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    folder = tmp_path_factory.mktemp("written")
    rows = upstream_rows()
    rows["c50.test"]["breaker"] = {"strikes": 1, "open_seconds": 1}
    config = {
        "upstreams": rows,
        "windows": {"tiny": 1000},
        "replay": {"gap_seconds": 60, "base_seconds": 0},
        "evidence_path": str(folder / "evidence.jsonl"),
    }
    proxy = proxies.fresh(
        config,
        scripts=(LAB / "notebook.py", LAB / "faulty.py"),
        options=("termlog_verbosity=debug", f"save_stream_file={folder / 'saved.flow'}"),
    ).start()
    yield proxy
    proxy.end()


def provoke(client: Client, place: Places) -> None:
    """Every kind of decision but those of a probe, in turn."""
    zai, dashscope, zcode, web = place(), place("dashscope"), place("zcode"), place("qwen-web")
    assert client.ask(zai, streamed(answer())) == 200
    assert client.ask(zai, whole(anthropic_message(ANSWERED["answer"]))) == 200
    _challenges(client, place)
    _refusals(client, zai)
    # Remembered: the wait of a request, an account that is blocked, an overflow, a body that is too large.
    same = body("the same")
    assert client.ask(zai, told(1305, "overloaded", 429), data=same) == 529
    assert client.ask(zai, None, data=same) == 529
    blocked = {"code": 3012, "msg": f"request has been blocked due to unusual activity {ECHOED['key']}"}
    assert client.ask(zcode, whole(blocked, 405), ZCODE) == 529
    assert client.ask(zcode, None, ZCODE) == 529
    overflow = f"Range of input length should be [1, 30720] {ECHOED['key']}"
    title = body("title", side=True)
    assert client.ask(dashscope, whole({"error": {"message": overflow}}, 400), data=title) == 400
    assert client.ask(dashscope, None, data=title) == 413
    large = body("x" * 140_000)
    assert client.ask(web, whole(CHALLENGE), QWEN_WEB, data=large) == 413
    assert client.ask(web, None, QWEN_WEB, data=large) == 413
    assert client.ask(zai, None, data=body("a word " * 3000, side=True, model="tiny")) == 413
    # A replay is sent again in place; only one without a one-time token is.
    zai.then(told(1305, "overloaded", 429))
    assert client.ask(zai, streamed(answer()), token=False) == 200


def _challenges(client: Client, place: Places) -> None:
    opened, cut, late = place(), place(), place()
    for form in (whole(CHALLENGE), Reply(headers=[HTML, SET_COOKIE], chunks=[PAGE]), streamed([event(CHALLENGE)])):
        assert client.ask(opened, form) == 529
    assert client.ask(opened, None) == 529
    assert client.ask(cut, Reply(headers=[SSE], chunks=[], framing="chunked", end="cut")) == 502
    assert client.ask(late, streamed([*answer()[:4], event(CHALLENGE)])) == 200
    assert client.ask(late, Reply(headers=[SSE], chunks=[*answer()[:4], event(CHALLENGE), b"data: {}\n\n"])) == 200
    web = place("qwen-web")
    assert client.ask(web, whole(CHALLENGE), "/api/v2/chats/new") == 503


def _refusals(client: Client, zai: Place) -> None:
    for code in (1302, 1308, 1001, 1301, 1261, 1210, 1234):
        assert client.ask(zai, told(code)) >= 400
        assert client.ask(zai, told(code, code_status=500 if code == 1234 else 429)) >= 400
    assert client.ask(zai, told(9999, "something new", 418)) == 418
    assert client.ask(zai, told("", f"Incorrect API key provided: {ECHOED['key']}", 401), COMPLETIONS) == 401


def _probe(client: Client, here: Place) -> None:
    assert client.ask(here, whole({"code": 3007, "msg": "captcha verify failed"}, 400), ZCODE) == 529
    until(lambda: _row(client.proxy, here)["state"] == "half_open", "the window's end")
    gate = Gate()
    here.then(streamed([event({"type": "ping"}), gate, *answer()]))
    with Connection(client.proxy, client.url(here, ZCODE)) as connection:
        connection.send(body("the probe"), HEADERS)
        gate.wait_reached()
        assert client.ask(here, None, ZCODE) == 529
        gate.open()
        assert connection.answer().status == 200


def _row(proxy: Proxy, here: Place) -> Any:
    return next(row for row in status(proxy)["upstreams"] if row["name"] == here.host)


def written(proxy: Proxy, folder: Path) -> Mapping[str, str]:
    """Everything that was written or can be asked for, by where it stands."""
    secret = [*HEADERS, *TOKEN]
    notes = ask(proxy, "http://notebook.internal/", method="GET").json()
    pages = {path: get(proxy, path, secret).body.decode() for path in ("/", "/?lang=zh", "/status.json", "/metrics")}
    pages["404"] = get(proxy, f"/{ASKED['prompt']}?{QUERY}", secret).body.decode()
    pressed = press(proxy, "reset", upstream=ASKED["prompt"]).body.decode().replace(ASKED["prompt"], "")
    until(lambda: state(proxy).get("windows") and state(proxy).get("refusals"), "the state file")
    with (folder / "saved.flow").open("rb") as file:
        saved = [{"comment": flow.comment, "metadata": flow.metadata} for flow in FlowReader(file).stream()]
    assert len(saved) >= len(notes["flows"])
    return {
        "log": proxy.log,
        "flows": json.dumps(notes["flows"], ensure_ascii=False),
        **{f"command {name}": json.dumps(said, ensure_ascii=False) for name, said in notes["commands"].items()},
        **pages,
        "button": pressed,
        "state": state_path(proxy).read_text(),
        "evidence": (folder / "evidence.jsonl").read_text(),
        "saved flows": json.dumps(saved, default=str, ensure_ascii=False),
    }


def test_no_canary_gets_into_anything_that_is_written_or_shown(watched: Proxy, place: Places, upstream: Any) -> None:
    config = json.loads(watched.config_path.read_text())
    client = Client(watched)
    provoke(client, place)
    _probe(client, upstream.place("c50.test"))
    shown = status(watched)
    assert shown["counts"]["resends"]
    assert shown["counts"]["in_stream_refusals"]
    decided = {row["reason"] for row in shown["decisions"]}
    assert decided >= {reason.value for reason in Reason} - {Reason.NOTHING.value} - IN_LINE
    places = written(watched, Path(config["evidence_path"]).parent)
    for where, text in places.items():
        assert len(text) > 1, f"nothing to search in {where}"
    found = {
        (where, name): text[max(0, text.index(canary) - 200) : text.index(canary) + 50]
        for where, text in places.items()
        for name, canary in CANARIES.items()
        if canary in text
    }
    assert not found, "\n".join(f"{key}: …{text}…" for key, text in found.items())


def test_the_words_of_an_exception_are_not_logged_since_they_may_quote_a_body(watched: Proxy, place: Places) -> None:
    here, mark, failing = place().then(streamed(answer())), watched.log_lines, "policies.judge:Judge.decide"
    sent = ask(watched, here.url(MESSAGES), body("a fault"), [*HEADERS, ("x-lab-fault", failing)])
    assert sent.status == 200
    watched.wait_log("LabError in judge", since=mark)
    watched.wait_log(", at", since=mark)
    assert failing not in watched.log_since(mark)
