import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.answer.answer_text import READ_AT_MOST, WRITE_AT_MOST, assemble
from policies.kinds import Wire
from tests.policies.refusal.replies import CORPUS, WIRES
from tests.rows import over


def stream(*values: object, end: str = "\n\n") -> bytes:
    return "".join(f"data: {json.dumps(value, ensure_ascii=False)}{end}" for value in values).encode()


def events(*values: dict[str, Any]) -> bytes:
    return "".join(f"event: {value['type']}\ndata: {json.dumps(value)}\n\n" for value in values).encode()


def chunk(**delta: object) -> dict[str, Any]:
    return {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta}]}


def test_an_anthropic_stream_becomes_thinking_text_and_tool() -> None:
    body = events(
        {"type": "message_start", "message": {"content": []}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "Hm, "}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "yes."}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "SECRET"}},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
        {"type": "ping"},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "It is "}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "so."}},
        {"type": "content_block_start", "index": 2, "content_block": {"type": "tool_use", "name": "look", "input": {}}},
        {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": '{"at":'}},
        {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": "1}"}},
        {"type": "message_stop"},
    )
    assert assemble(Wire.ANTHROPIC, body) == '[thinking]\nHm, yes.\n\n[text]\nIt is so.\n\n[tool look]\n{"at":1}'


def test_two_calls_of_one_tool_stay_apart() -> None:
    body = events(
        {"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "name": "look"}},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "tool_use", "name": "look"}},
        {"type": "content_block_delta", "index": 1, "delta": {"partial_json": "{2}"}},
        {"type": "content_block_delta", "index": 0, "delta": {"partial_json": "{1}"}},
    )
    assert assemble("anthropic", body) == "[tool look #2]\n{2}\n\n[tool look]\n{1}"


def test_an_openai_stream_becomes_thinking_text_and_tools() -> None:
    body = (
        stream(
            chunk(role="assistant", content=""),
            chunk(reasoning_content="Hm."),
            chunk(content="你"),
            chunk(content="好"),
            chunk(tool_calls=[{"index": 0, "function": {"name": "look", "arguments": ""}}]),
            chunk(tool_calls=[{"index": 0, "function": {"arguments": '{"a":1}'}}]),
            {"choices": [], "usage": {}},
        )
        + b"data: [DONE]\n\n"
    )
    assert assemble(Wire.OPENAI, body) == '[thinking]\nHm.\n\n[text]\n你好\n\n[tool look]\n{"a":1}'


def test_a_responses_stream_becomes_its_parts() -> None:
    body = events(
        {"type": "response.created", "response": {"output": []}},
        {"type": "response.reasoning_summary_text.delta", "item_id": "r", "delta": "Hm."},
        {"type": "response.output_text.delta", "item_id": "m", "delta": "So "},
        {"type": "response.output_text.delta", "item_id": "m", "delta": "be it."},
        {"type": "response.output_item.added", "item": {"id": "f", "type": "function_call", "name": "look"}},
        {"type": "response.function_call_arguments.delta", "item_id": "f", "delta": "{}"},
        {"type": "response.output_text.done", "item_id": "m", "text": "So be it."},
    )
    assert assemble(Wire.RESPONSES, body) == "[thinking]\nHm.\n\n[text]\nSo be it.\n\n[tool look]\n{}"


def test_a_qwen_web_stream_becomes_its_phases() -> None:
    thought = {"summary_title": {"content": ["T"]}, "summary_thought": {"content": ["first"]}}
    grown = {"summary_thought": {"content": ["first", "second"]}}
    body = stream(
        {"response.created": {"chat_id": "C", "response_id": "R"}},
        chunk(role="assistant", content="", phase="thinking_summary", extra=thought),
        chunk(role="assistant", content="", phase="thinking_summary", extra=grown),
        chunk(role="assistant", content="Ans", phase="answer", status="typing"),
        {"response.info": {"action": "keep_alive"}},
        chunk(role="assistant", content="wer", phase="answer", status="typing"),
        chunk(role="assistant", content="", phase="answer", status="finished"),
    )
    assert assemble(Wire.QWEN_WEB, body) == "[thinking]\nfirst\nsecond\n\n[text]\nAnswer"


def test_a_zai_web_stream_becomes_its_phases() -> None:
    body = stream(
        {"type": "chat:completion", "data": {"delta_content": "Hm.", "phase": "thinking"}},
        {"type": "chat:completion", "data": {"delta_content": "Yes", "phase": "answer"}},
        {"type": "chat:completion", "data": {"delta_content": ".", "phase": "answer", "done": True}},
    )
    assert assemble(Wire.ZAI_WEB, body) == "[thinking]\nHm.\n\n[text]\nYes."


@pytest.mark.parametrize("texts", [("Hel", "lo"), ("Hel", "Hello")])
def test_a_native_stream_is_read_with_and_without_incremental_output(texts: tuple[str, str]) -> None:
    frames = [{"output": {"choices": [{"message": {"role": "assistant", "content": text}}]}} for text in texts]
    assert assemble(Wire.DASHSCOPE_NATIVE, stream(*frames)) == "[text]\nHello"


ANSWERS = [
    (
        Wire.ANTHROPIC,
        {
            "type": "message",
            "content": [{"type": "text", "text": "Hi"}, {"type": "tool_use", "name": "t", "input": {"a": 1}}],
        },
        '[text]\nHi\n\n[tool t]\n{"a": 1}',
    ),
    (
        Wire.OPENAI,
        {"choices": [{"message": {"content": "Hi", "reasoning_content": "Hm"}}]},
        "[thinking]\nHm\n\n[text]\nHi",
    ),
    (
        Wire.RESPONSES,
        {"object": "response", "output": [{"type": "message", "content": [{"type": "output_text", "text": "Hi"}]}]},
        "[text]\nHi",
    ),
    (Wire.DASHSCOPE_NATIVE, {"output": {"text": "Hi"}}, "[text]\nHi"),
    (Wire.OTHER, {"choices": [{"message": {"content": "Hi"}}]}, "[text]\nHi"),
]


@over(("wire", "value", "text"), ANSWERS)
def test_an_answer_in_one_piece_is_read_too(wire: str, value: dict[str, Any], text: str) -> None:
    assert assemble(wire, json.dumps(value).encode()) == text


@pytest.mark.parametrize("end", ["\n\n", "\r\n\r\n", "\r\r"])
def test_every_line_ending_of_event_streams_is_known(end: str) -> None:
    assert assemble("openai", stream(chunk(content="a"), chunk(content="b"), end=end)) == "[text]\nab"


def test_separators_that_json_may_hold_do_not_end_a_line() -> None:
    assert assemble("openai", stream(chunk(content="a\u2028b\u0085c"))) == "[text]\na\u2028b\u0085c"


def test_frames_of_another_shape_say_nothing_and_stop_nothing() -> None:
    body = stream(
        chunk(content="a"), {"choices": 5}, {"choices": [None]}, [1], 7, {"error": {"code": "1302"}}, chunk(content="b")
    )
    assert assemble("openai", body + b"data: {broken\n\ndata: nul") == "[text]\nab"


def test_a_cut_stream_shows_what_came() -> None:
    whole = stream(chunk(content="one "), chunk(content="two"))
    assert assemble("openai", whole[:-20]) == "[text]\none "


def test_thinking_between_texts_stays_between_them() -> None:
    body = stream(chunk(content="a"), chunk(reasoning_content="b"), chunk(content="c"))
    assert assemble("openai", body) == "[text]\na\n\n[thinking]\nb\n\n[text]\nc"


def test_what_is_no_answer_is_empty() -> None:
    assert assemble("openai", b"") == ""
    assert assemble("openai", b"<html>") == ""
    assert assemble("anthropic", b'{"type":"error","error":{"message":"no"}}') == ""


def test_a_long_answer_is_cut_with_a_word_about_it() -> None:
    body = stream(*(chunk(content="y" * 10_000) for _ in range(60)))
    text = assemble("openai", body)
    assert text.endswith("[… cut here]")
    assert text.count("y") == WRITE_AT_MOST
    assert assemble("openai", b"data: " + b"x" * (READ_AT_MOST + 1)) == ""


@given(st.sampled_from([*map(str, Wire), "", "unheard-of"]), st.binary(max_size=200))
def test_no_bytes_make_it_raise(wire: str, body: bytes) -> None:
    for data in (body, b"data: " + body + b"\n\n"):
        text = assemble(wire, data)
        assert isinstance(text, str)
        assert len(text) <= 3 * len(data)


LEAVES = st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5))
NAMES = st.sampled_from(
    [
        "choices",
        "delta",
        "content",
        "type",
        "data",
        "output",
        "message",
        "index",
        "tool_calls",
        "function",
        "name",
        "extra",
        "phase",
        "item",
        "content_block",
        "summary_thought",
    ]
)
SHAPES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4), max_leaves=8
)
TYPES = st.sampled_from(
    [
        "content_block_start",
        "content_block_delta",
        "message",
        "response.output_item.added",
        "response.output_text.delta",
        "",
    ]
)


@given(st.sampled_from(list(Wire)), st.dictionaries(NAMES, SHAPES, max_size=4), TYPES)
def test_no_shape_makes_it_raise(wire: str, value: dict[str, Any], kind: str) -> None:
    data = stream({**value, "type": kind})
    text = assemble(wire, data)
    assert isinstance(text, str)
    assert len(text) <= 3 * len(data)


def test_the_answers_of_the_corpus_are_texts_and_its_challenges_are_not() -> None:
    texts: dict[bool, list[str]] = {True: [], False: []}
    for line in CORPUS.read_text(encoding="utf-8").splitlines():
        reply = json.loads(line)
        response = reply["response"]
        body = "".join(response.get("sse") or [response.get("body") or ""])
        texts[reply["expect"].startswith("pass")].append(assemble(WIRES[reply["wire"]], body.encode()))
    assert sum(map(bool, texts[True])) > 20
    assert sum(map(bool, texts[False])) <= 1  # a refusal in the middle of an answer
