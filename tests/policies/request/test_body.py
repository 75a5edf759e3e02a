"""When two requests ask the same, and when they do not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.kinds import Wire
from policies.request import body as bodies
from policies.request.body import NOTHING, RequestBody, read_body
from tests.policies.request.test_reading import RECORDED
from tests.rows import over

ASKED: dict[str, Any] = {
    "model": "glm-5.1",
    "max_tokens": 32000,
    "system": [
        {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.332.58f; cch=00000;"},
        {"type": "text", "text": "You are an agent.", "cache_control": {"type": "ephemeral"}},
    ],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "one"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "two"}]},
        {
            "role": "user",
            "content": [{"type": "text", "text": "three", "cache_control": {"type": "ephemeral", "ttl": "1h"}}],
        },
    ],
    "tools": [{"name": "Read", "input_schema": {"type": "object"}, "cache_control": {"type": "ephemeral"}}],
    "stream": True,
    "thinking": {"type": "adaptive"},
    "metadata": {"user_id": "u"},
}


def read(wire: Wire, body: bytes) -> tuple[RequestBody | None, bodies.MessageList]:
    fields = read_body(body)
    return fields, bodies.MessageList(wire, fields or NOTHING)


def digest_of(wire: Wire, body: bytes) -> str:
    return bodies.asked(wire, body, *read(wire, body))


def system_of(wire: Wire, body: bytes) -> str:
    fields, told = read(wire, body)
    return bodies.system_prompt(wire, fields or NOTHING, told)


def history_of(wire: Wire, body: bytes) -> bodies.MessageList:
    return read(wire, body)[1]


def digest(body: object, wire: Wire = Wire.ANTHROPIC, **changes: Any) -> str:
    document = {**body, **changes} if isinstance(body, dict) else body
    return digest_of(wire, document if isinstance(document, bytes) else json.dumps(document).encode())


def blocks(*texts: str, cached: int | None = None) -> list[dict[str, object]]:
    mark = {"cache_control": {"type": "ephemeral"}}
    return [{"type": "text", "text": text, **(mark if number == cached else {})} for number, text in enumerate(texts)]


@over(
    "changes",
    [
        {"max_tokens": 21333},
        {"stream": False},
        {"thinking": {"type": "enabled", "budget_tokens": 1000}, "temperature": 1, "betas": ["x"]},
        {"metadata": {"user_id": "another"}},
        {
            "system": [
                {"type": "text", "text": "x-anthropic-billing-header: cc_version=9; cch=fffff;"},
                *ASKED["system"][1:],
            ]
        },
        {"system": ASKED["system"][1:]},
        {"system": blocks("x-anthropic-billing-header: 1", "You are an agent.", cached=0)},
        {"tools": [{"name": "Read", "input_schema": {"type": "object"}}]},
        {"tools": [{"cache_control": {"type": "ephemeral"}, "name": "Read", "input_schema": {"type": "object"}}]},
        {"tools": [{"name": "Read", "cache_control": None, "input_schema": {"type": "object"}}]},
    ],
)
def test_a_client_that_sends_the_question_again_asks_the_same(changes: dict[str, Any]) -> None:
    assert digest(ASKED, **changes) == digest(ASKED)


def test_a_cache_mark_that_moves_changes_nothing() -> None:
    marked = [{**message, "content": blocks(message["content"][0]["text"], cached=0)} for message in ASKED["messages"]]
    bare = [{**message, "content": blocks(message["content"][0]["text"])} for message in ASKED["messages"]]
    assert digest(ASKED, messages=marked) == digest(ASKED, messages=bare) == digest(ASKED)


@over(
    "changes",
    [
        {"model": "glm-5.2"},
        {"messages": ASKED["messages"][:-1]},
        {"messages": [*ASKED["messages"], {"role": "user", "content": "four"}]},
        {"system": "You are an agent"},
        {"system": [ASKED["system"][0]]},
        {"tools": []},
        {"tools": ASKED["tools"] * 2},
    ],
)
def test_another_question_is_another_digest(changes: dict[str, Any]) -> None:
    assert digest(ASKED, **changes) != digest(ASKED)


def test_a_text_that_speaks_of_cache_marks_is_part_of_the_question() -> None:
    spoken = '"cache_control": {"type": "ephemeral"}'
    one, two = (digest(ASKED, messages=[{"role": "user", "content": text}]) for text in (spoken, f"{spoken}, {spoken}"))
    assert one != two


def test_a_text_that_speaks_of_the_billing_header_is_part_of_the_question() -> None:
    one, two = (digest(ASKED, messages=[{"role": "user", "content": f"x-anthropic-billing-header: {n}"}]) for n in (1, 2))
    assert one != two


def test_what_a_field_holds_never_slides_into_the_next() -> None:
    assert digest({"messages": [], "system": "ab"}) != digest({"messages": [], "system": "a", "model": "b"})


def test_the_other_wires_ask_with_other_fields() -> None:
    native = {"model": "m", "input": {"messages": [{"role": "user", "content": "a"}]}, "parameters": {"max_tokens": 5}}
    assert digest(native, Wire.DASHSCOPE_NATIVE) == digest(native, Wire.DASHSCOPE_NATIVE, parameters={})
    assert digest(native, Wire.DASHSCOPE_NATIVE) != digest(native, Wire.DASHSCOPE_NATIVE, input={"prompt": "b"})
    responses = {"model": "m", "instructions": "x", "input": [{"role": "user", "content": "a"}]}
    assert digest(responses, Wire.RESPONSES) == digest(responses, Wire.RESPONSES, max_output_tokens=5, store=False)
    assert digest(responses, Wire.RESPONSES) != digest(responses, Wire.RESPONSES, instructions="y")
    assert digest(responses, Wire.RESPONSES, previous_response_id="r") != digest(responses, Wire.RESPONSES)
    picture = {"model": "m", "prompt": "a cat", "size": "1024x1024"}
    assert digest(picture, Wire.IMAGES) != digest(picture, Wire.IMAGES, prompt="a dog")
    assert digest(picture, Wire.IMAGES) != digest(picture, Wire.IMAGES, size="512x512")


WEB_MESSAGE: dict[str, Any] = {
    "fid": "1",
    "parentId": "2",
    "childrenIds": ["3"],
    "timestamp": 1790000000,
    "role": "user",
    "content": "hello",
    "files": [{"type": "image", "url": "u"}],
    "feature_config": {"thinking_enabled": True},
}


@pytest.mark.parametrize("wire", [Wire.QWEN_WEB, Wire.ZAI_WEB])
def test_a_web_client_asks_the_same_under_new_ids(wire: Wire) -> None:
    body = {"model": "qwen3.7-max", "chat_id": "c", "timestamp": 1, "messages": [WEB_MESSAGE]}
    again = {**WEB_MESSAGE, "fid": "9", "parentId": "8", "childrenIds": [], "timestamp": 2, "feature_config": {}}
    assert digest(body, wire) == digest(body, wire, chat_id="d", timestamp=2, messages=[again])
    changes: list[dict[str, Any]] = [{"content": "bye"}, {"files": []}, {"role": "system"}]
    for changed in changes:
        assert digest(body, wire) != digest(body, wire, messages=[{**WEB_MESSAGE, **changed}])
    assert digest(body, Wire.OPENAI) != digest(body, Wire.OPENAI, messages=[again])


def test_what_is_no_object_or_asks_nothing_is_digested_by_its_bytes() -> None:
    assert len({digest(body) for body in (b"", b"[]", b"{", b"\xff", b'{"x":1}', b'{"x":2}')}) == 6


def test_the_system_prompt_is_told_apart_from_what_is_said() -> None:
    def prompt(body: Any, wire: Wire = Wire.OPENAI) -> str:
        return system_of(wire, json.dumps(body).encode())

    said = [{"role": "user", "content": "a"}]
    leading = {"role": "system", "content": "s"}
    assert prompt({"messages": [leading, *said]}) == prompt({"messages": [leading, *said, *said]}) != ""
    assert prompt({"messages": [leading, *said]}) != prompt({"messages": [{**leading, "content": "t"}, *said]})
    assert prompt({"messages": said}) == prompt({"messages": []}) == system_of(Wire.OPENAI, b"no") == ""
    billed = {"system": blocks("x-anthropic-billing-header: 1", "s")}
    assert prompt(billed, Wire.ANTHROPIC) == prompt({"system": blocks("x-anthropic-billing-header: 2", "s")}, Wire.ANTHROPIC)
    assert prompt({"instructions": "s"}, Wire.RESPONSES) not in {"", prompt({"instructions": "t"}, Wire.RESPONSES)}


def test_no_system_prompt_is_one_in_either_spelling() -> None:
    assert digest(ASKED, system=[]) == digest({key: value for key, value in ASKED.items() if key != "system"})
    assert digest(ASKED, system=[]) != digest(ASKED, system=[{"type": "text", "text": "s"}])


def test_a_history_that_only_grew_keeps_its_prefix() -> None:
    grown = [*ASKED["messages"], {"role": "assistant", "content": "four"}, {"role": "user", "content": "five"}]
    changed = [{"role": "user", "content": "summary"}, *grown[1:]]

    def body(messages: object) -> bytes:
        return json.dumps({"messages": messages}).encode()

    earlier = history_of(Wire.ANTHROPIC, body(ASKED["messages"])).prefix(0)
    assert history_of(Wire.ANTHROPIC, body(grown)).prefix() == earlier
    assert history_of(Wire.ANTHROPIC, body(changed)).prefix() != earlier
    assert history_of(Wire.ANTHROPIC, body(grown[:2])).prefix() == history_of(Wire.ANTHROPIC, b"{").prefix() == ""


def test_prefixes_of_one_history_are_the_same_in_any_order() -> None:
    body = json.dumps(ASKED).encode()
    told = history_of(Wire.ANTHROPIC, body)
    wanted = [history_of(Wire.ANTHROPIC, body).prefix(but) for but in range(6)]
    assert [told.prefix(but) for but in (2, 1, 0, 3, 0, 5, 2)] == [wanted[but] for but in (2, 1, 0, 3, 0, 5, 2)]
    assert wanted[3:] == ["", "", ""]
    assert len(set(wanted[:3])) == 3
    assert told.prefix(-1) == wanted[0]


def test_a_prefix_is_the_same_however_many_messages_came_after_it() -> None:
    said = [{"role": "user", "content": str(number)} for number in range(2 * bodies.ENDINGS)]

    def told(count: int) -> bodies.MessageList:
        return history_of(Wire.ANTHROPIC, json.dumps({"messages": said[:count]}).encode())

    for added in range(2 * bodies.ENDINGS):
        assert told(2 * bodies.ENDINGS).prefix(added) == told(2 * bodies.ENDINGS - added).prefix(0) != ""
    assert told(2 * bodies.ENDINGS).prefix(2 * bodies.ENDINGS) == ""


def test_roles_are_read_from_messages_items_and_native_input() -> None:
    items = [{"role": "user", "content": "a"}, {"type": "function_call_output", "output": "x"}]
    assert history_of(Wire.ANTHROPIC, json.dumps(ASKED).encode()).roles == ("user", "assistant", "user")
    assert history_of(Wire.RESPONSES, json.dumps({"input": items}).encode()).roles == ("user", "function_call_output")
    native = {"input": {"messages": [{"role": "user", "content": "a"}]}}
    assert history_of(Wire.DASHSCOPE_NATIVE, json.dumps(native).encode()).roles == ("user",)
    assert history_of(Wire.RESPONSES, b'{"input":"hi"}').roles == history_of(Wire.OPENAI, b"").roles == ()


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_markers_name_the_kinds_of_content(separators: tuple[str, str]) -> None:
    content = [
        {"type": "tool_use", "id": "1", "name": "n", "input": {}},
        {"type": "thinking", "thinking": "t"},
        {"type": "text", "text": 'he wrote {"type":"document"} and "tool_calls"'},
    ]
    body = json.dumps({"messages": [{"role": "assistant", "content": content}]}, separators=separators).encode()
    assert bodies.markers(body) == {"tool_use", "thinking"}
    called = {"messages": [{"role": "assistant", "tool_calls": [{"type": "function"}]}, {"role": "tool", "tool_call_id": "1"}]}
    assert bodies.markers(json.dumps(called, separators=separators).encode()) == {"tool_call", "tool_result"}
    assert bodies.markers(b"") == frozenset()


@over("row", RECORDED, ids=lambda row: row["client"])
def test_a_recorded_request_keeps_its_digest_in_other_spacing_of_flags(row: dict[str, Any]) -> None:
    body = row.get("body") or {}
    if "messages" in body:
        assert digest(body) == digest({**body, "max_tokens": 1, "stream": not body.get("stream")})


@given(st.binary(max_size=200), st.sampled_from(list(Wire)))
def test_any_bytes_are_digested(body: bytes, wire: Wire) -> None:
    assert len(digest_of(wire, body)) == bodies.DIGITS
    assert len(system_of(wire, body)) in {0, bodies.DIGITS}
    assert (history_of(wire, body).prefix(0) == "") == (history_of(wire, body).roles == ())
    assert bodies.markers(body) <= bodies.MARKERS


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["role", "content", "files", "cache_control", "messages", "type"]), inner)
    ),
    max_leaves=12,
)


@given(
    st.dictionaries(st.sampled_from(["model", "system", "messages", "input", "tools"]), VALUES),
    st.sampled_from(list(Wire)),
)
def test_any_document_is_digested_alike_twice(body: dict[str, object], wire: Wire) -> None:
    data = json.dumps(body).encode()
    assert digest_of(wire, data) == digest_of(wire, data)
    assert len(system_of(wire, data)) in {0, bodies.DIGITS}
    assert (history_of(wire, data).prefix(0) == "") == (history_of(wire, data).roles == ())


def test_a_system_message_with_digits_without_end_is_digested() -> None:
    body = b'{"messages":[{"role":"system","content":"x","n":' + b"1" * 5000 + b'},{"role":"user","content":"y"}]}'
    fields = read_body(body)
    assert fields
    assert bodies.system_prompt(Wire.OPENAI, fields, bodies.MessageList(Wire.OPENAI, fields))
