import json
from typing import Any

import pytest

from policies.kinds import ANSWER
from tests.policies.refusal.few_forms import ANTHROPIC, JSON, held, reader, tapped
from tests.rows import over


def anthropic(kind: str, where: str, **usage: Any) -> Any:
    value = {"type": kind, where: {"usage": usage}} if where else {"type": kind, "usage": usage}
    return f"event: {kind}\ndata: {json.dumps(value)}\n\n".encode()


def test_anthropic_counts_its_cache_apart() -> None:
    own = reader(surface=ANTHROPIC)
    tapped(own, anthropic("message_start", "message", input_tokens=5, cache_read_input_tokens=100), 9)
    assert own.usage_input == 105


def test_a_later_delta_that_states_more_is_taken() -> None:
    own = reader(surface=ANTHROPIC)
    start = anthropic("message_start", "message", input_tokens=0, output_tokens=1)
    delta = anthropic("message_delta", "", input_tokens=7, cache_creation_input_tokens=3, output_tokens=9)
    tapped(own, start + delta)
    assert own.usage_input == 10


@over(
    "frame",
    [
        {"choices": [], "usage": {"prompt_tokens": 42, "prompt_tokens_details": {"cached_tokens": 40}}},
        {"type": "response.completed", "response": {"usage": {"input_tokens": 42}}},
        {"choices": [{"delta": {}}], "usage": {"input_tokens": 42, "output_tokens": 1}},
        {"output": {}, "usage": {"input_tokens": 42}},
        {"type": "chat:completion", "data": {"usage": {"prompt_tokens": 42}}},
    ],
)
def test_the_other_wires_state_it_whole(frame: Any) -> None:
    own = reader()
    tapped(own, f"data: {json.dumps(frame)}\n\n".encode(), 8)
    assert own.usage_input == 42


@over(
    "frame",
    [
        {"choices": [{"delta": {"content": '{"usage":{"prompt_tokens":42}}'}}]},
        {"choices": [{"usage": {"prompt_tokens": 42}}]},
        {"usage": None},
        {"usage": {"prompt_tokens": "42"}},
        {"usage": [42]},
        {"message": "usage"},
    ],
)
def test_it_is_never_read_from_anywhere_else(frame: Any) -> None:
    own = reader()
    tapped(own, f"data: {json.dumps(frame)}\n\n".encode())
    assert own.usage_input is None


@pytest.mark.parametrize("size", [1, 1000])
def test_a_whole_stream_that_never_ended_a_frame_states_it_too(size: int) -> None:
    own = reader(surface=ANTHROPIC)
    start = anthropic("message_start", "message", input_tokens=13)
    assert held(own, start + b'data: {"choices":[{"delta":{"content":"a"}}]}\n', size) is None
    assert own.finish(cut=False) is ANSWER
    assert own.usage_input == 13


def test_a_document_states_it_too() -> None:
    own = reader(JSON)
    held(own, b'{"content":[],"usage":{"input_tokens":4,"cache_read_input_tokens":3}}', 9)
    assert own.finish(cut=False) is ANSWER
    assert own.usage_input == 7
