"""A refusal that no row knows, as a person would send it to the project."""

from __future__ import annotations

import json
from typing import Any

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
    line = exported("https://api.z.ai/api/paas/v4/chat/completions?key=SECRET", 418, CODE % b"odd")
    assert line["request"] == {"method": "POST", "host": "api.z.ai", "path": "/api/paas/v4/chat/completions"}
    assert line["response"] == {
        "status": 418,
        "headers": {"content-type": "application/json"},
        "body": '{"error":{"code":"9999","message":"odd"}}',
    }


def test_a_host_of_the_users_own_is_named_by_its_upstream() -> None:
    config = "upstreams: {mine: {hosts: [llm.private.example], family: zai}}"
    for host in ("llm.private.example", "private-workspace.maas.aliyuncs.com"):
        line = exported(f"https://{host}/v1/messages", 418, CODE % b"odd", text=config)
        assert line["kind"] == "caller_error"
        assert "private" not in json.dumps(line)


def test_names_of_people_accounts_and_machines_are_cut_out() -> None:
    words = b"13800138000 some.one@example.com 10.20.30.40 6f9619ff-8b86-d011-b42d-00c04fc964ff eyJhbGciOiJIUzI1NiJ9abcdef"
    text = json.dumps(exported("https://api.z.ai/v1/messages", 418, CODE % words))
    assert not [word for word in words.decode().split() if word in text]


def test_an_id_in_the_path_is_cut_out() -> None:
    line = exported("https://chat.qwen.ai/api/v2/chats/6f9619ff-8b86-d011-b42d-00c04fc964ff", 418, CODE % b"odd")
    assert line["request"]["path"] == "/api/v2/chats/X"


def test_what_a_model_wrote_is_not_exported() -> None:
    assert "error" in exported("https://api.z.ai/api/paas/v4/chat/completions", 200, OK)


def test_where_no_window_was_learnt_the_list_says_so() -> None:
    assert Commands(Owner()).windows() == "No window has been learnt."
