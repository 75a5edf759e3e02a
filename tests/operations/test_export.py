"""A refusal that no row knows, as a person would send it to the project."""

from __future__ import annotations

import base64
import json
import re
import urllib.parse
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st
from mitmproxy import http
from mitmproxy.test import tflow

from operations.commands import Commands
from operations.controller import Controller
from tests.policies.exchanges import OK, settings


class Owner:
    def __init__(self, text: str = "") -> None:
        self.controller: Controller | None = Controller(settings(text))


def exported(url: str, status: int, body: bytes, kind: str = "application/json", text: str = "") -> dict[str, Any]:
    flow = tflow.tflow()
    flow.request = http.Request.make("POST", url, b'{"model":"m","messages":[]}', http.Headers(authorization="Bearer SECRET"))
    flow.response = http.Response.make(status, body, http.Headers(content_type=kind, set_cookie="session=SECRET"))
    line = json.loads(Commands(Owner(text)).export([flow]))
    assert isinstance(line, dict)
    assert "SECRET" not in json.dumps(line)
    return line


CODE = b'{"error":{"code":"9999","message":"%b"}}'


def test_it_has_the_form_of_a_corpus_line() -> None:
    line = exported("https://api.z.ai/api/paas/v4/chat/completions?key=SECRET", 418, CODE % b"Rate limit reached by someone")
    assert line["request"] == {"method": "POST", "host": "api.z.ai", "path": "/api/paas/v4/chat/completions"}
    assert line["code"] == "9999"
    assert line["response"] == {
        "status": 418,
        "headers": {"content-type": "application/json", "content-length": "", "set-cookie": ""},
        "body": {"error": {"code": "9999", "message": "string"}},
        "says": ["Rate limit reached by"],
    }


def test_what_is_needed_for_a_row_is_kept() -> None:
    body = {
        "error": {"type": "GoUsageLimitError", "code": "InternalError.Algo.InvalidParameter", "status": 429, "param": None},
        "ret": ["FAIL_SYS_USER_VALIDATE", "RGV587_ERROR::SM::X"], "success": False, "tokens": 86046,
    }  # fmt: skip
    line = exported("https://api.z.ai/v1/messages", 418, json.dumps(body).encode())
    assert line["response"]["body"] == {
        "error": {"type": "GoUsageLimitError", "code": "InternalError.Algo.InvalidParameter", "status": 429, "param": None},
        "ret": ["FAIL_SYS_USER_VALIDATE", "string"], "success": False, "tokens": "number",
    }  # fmt: skip
    assert "rgv587" in line["response"]["says"]


def test_a_chinese_phrase_of_our_tables_is_kept_and_what_stands_around_it_is_not() -> None:
    line = exported("https://api.z.ai/v1/messages", 418, CODE % "\u7528\u6237\u5f20\u4e09\u5df2\u8fbe\u4e0a\u9650".encode())
    assert line["response"]["says"] == ["\u5df2\u8fbe\u4e0a\u9650"]
    assert "\u5f20\u4e09" not in json.dumps(line, ensure_ascii=False)


def test_a_host_of_the_users_own_is_told_by_its_family_alone() -> None:
    config = "upstreams: {private-name: {hosts: [llm.private.example], family: zai}}"
    for host in ("llm.private.example", "private-workspace.maas.aliyuncs.com"):
        line = exported(f"https://{host}/v1/messages", 418, CODE % b"odd", text=config)
        assert line["kind"] == "caller_error"
        assert "private" not in json.dumps(line)


def test_an_id_in_the_path_is_left_out() -> None:
    line = exported("https://chat.qwen.ai/api/v2/chats/6f9619ff-8b86-d011-b42d-00c04fc964ff", 418, CODE % b"odd")
    assert line["request"]["path"] == "/api/v2/chats/X"


def test_what_a_model_wrote_is_not_exported() -> None:
    assert "error" in exported("https://api.z.ai/api/paas/v4/chat/completions", 200, OK)


def test_a_large_or_deep_body_is_bounded() -> None:
    for body in (b"[" * 500 + b"]" * 500, json.dumps({"error": {f"k{'a' * n}": 1 for n in range(2000)}}).encode()):
        assert len(json.dumps(exported("https://api.z.ai/v1/messages", 418, body))) < 4000


# -- canaries -------------------------------------------------------------------------------------------------

WORD = st.text("abcdefghijklmnopqrstuvwxyz", min_size=4, max_size=12).map("zq".__add__)
HEX = st.text("0123456789abcdef", min_size=8, max_size=8)
CANARIES = st.one_of(
    st.tuples(WORD, WORD).map(lambda pair: f"{pair[0].title()} {pair[1].title()}"),
    st.lists(WORD, min_size=3, max_size=12).map(" ".join),
    WORD.map(str.title),
    WORD.map(str.upper),
    st.text("\u4eba\u5f20\u4e09\u674e\u56db\u738b\u4e94\u8bf7\u5e2e\u6211\u5199", min_size=6, max_size=20).map(
        "\u738b\u4e94".__add__
    ),
    st.tuples(WORD, WORD).map(lambda pair: f"{pair[0]}@{pair[1]}.example"),
    st.integers(10**6, 10**16).map(str),
    st.integers(10**9, 10**11).map(lambda number: f"+86 {number}"),
    st.ip_addresses().map(str),
    st.ip_addresses(v=6).map(lambda address: f"[{address.exploded}]"),
    st.uuids().map(str),
    st.tuples(HEX, HEX).map(lambda pair: f"sk-{pair[0]}{pair[1]}"),
    st.tuples(HEX, WORD).map(lambda pair: f"{pair[0]}{pair[1]}.{pair[1]}"),
    st.tuples(WORD, WORD).map(lambda pair: "Basic " + base64.b64encode(f"{pair[0]}:{pair[1]}".encode()).decode()),
    st.tuples(WORD, HEX).map(lambda pair: f"eyJ{pair[1]}.{pair[0]}.{pair[1]}"),
    st.tuples(WORD, WORD).map(lambda pair: f"/home/{pair[0]}/{pair[1]}.py"),
)


def bodies(canary: str) -> list[bytes]:
    """Forms of refusals with the canary wherever a value can be."""
    values: list[object] = [
        {"error": {"code": canary, "type": canary, "message": f"Rate limit reached for {canary} on {canary}", "param": canary}},
        {"code": 1302, "msg": canary, "data": {"user": canary, "deep": [{"status": canary, canary: canary}]}},
        {
            "ret": [canary, f"FAIL_SYS_USER_VALIDATE::{canary}"],
            "data": {"url": f"https://x/{canary}/_____tmd_____/punish?x={canary}"},
        },
        {"code": f"[1302][{canary}]", "message": f"<400> InternalError.Algo.InvalidParameter: {canary}", canary: [canary]},
        [canary, {"error": canary}],
        canary,
    ]
    if canary.isdigit():
        values.append({"error": {"code": int(canary), "status": int(canary), "message": int(canary)}})
    texts = dict.fromkeys(json.dumps(value, ensure_ascii=escaped) for value in values for escaped in (True, False))
    written = [text.encode() for text in texts]
    stream = b"".join(b"event: error\ndata: " + each + b"\n\n" for each in written)
    page = f"<!doctype html><html><head><title>{canary} blocked</title></head><body a='{canary}'>{canary}</body></html>"
    return [*written, stream, page.encode(), canary.encode(), f"data: {canary}\n\n".encode(), b"<" + canary.encode()]


def traces(canary: str) -> set[str]:
    """The canary and its parts, but for those that are too short or common to tell anything."""
    parts = {part for part in re.split(r"[^\w]+|_", canary) if len(part) >= 5 and part not in ("Basic", "home")}
    return {canary, *parts} if len(canary) >= 5 else parts


@given(CANARIES)
@example("13800138000")
@example("fe80::1ff:fe23:4567:890a")
@example("Zqalice Zqsmith")
@example("Basic enFhbGljZTp6cXNlY3JldA==")
def test_nothing_that_tells_of_a_person_can_be_in_it(canary: str) -> None:
    quoted, commands = urllib.parse.quote(canary, safe="/@:+"), Commands(Owner())
    for body in bodies(canary):
        flow = tflow.tflow()
        said = {"type": "text/html", "prompt": canary, "model": canary, "messages": [{"role": "user", "content": canary}]}
        url = f"https://api.z.ai/v1/{quoted}/messages?key={quoted}"
        flow.request = http.Request.make("POST", url, json.dumps(said).encode(), http.Headers(authorization=canary.encode()))
        fields = [
            (name, canary.encode())
            for name in (
                b"server",
                b"retry-after",
                b"x-request-id",
                b"set-cookie",
                b"content-type",
                b"via",
                b"bxpunish",
                b"location",
            )
        ]
        flow.response = http.Response.make(418, body)
        flow.response.headers = http.Headers([*fields, (b"x-" + re.sub(rb"\W", b"-", canary.encode()) + b"9", b"1")])
        text = commands.export([flow])
        line = json.dumps(json.loads(text), ensure_ascii=False)
        assert not [trace for trace in traces(canary) if trace.lower() in line.lower()], line


def test_where_no_window_was_learnt_the_list_says_so() -> None:
    assert Commands(Owner()).windows() == ["No window has been learnt."]
