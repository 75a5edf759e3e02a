"""What the scripted upstream says on each wire: answers, tool calls, challenges and rate limits, as bytes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

from tests.e2e.lab import wires as lab
from tests.e2e.lab.script import Gate, Reply

Wire = Literal["anthropic", "openai", "responses"]
Form = Literal["page", "crowded", "frame", "1305", "3007"]

PATHS: dict[str, Wire] = {"/v1/messages": "anthropic", "/chat/completions": "openai", "/responses": "responses"}
ANSWER = "HARBOUR-7391"
"""What a turn has to end in; no prompt holds it."""
LIMITED = "Rate limit reached for requests"
USAGE = {"input_tokens": 900, "output_tokens": 20, "total_tokens": 920}


def wire_of(path: str) -> Wire | None:
    """The wire of a generation path, whatever stands before it; None for everything else."""
    plain = path.partition("?")[0].rstrip("/")
    return next((wire for end, wire in PATHS.items() if plain.endswith(end)), None)


@dataclass(frozen=True)
class ToolCall:
    """A call of one of the tools that the request offers."""

    name: str
    arguments: dict[str, Any]

    @property
    def text(self) -> str:
        return json.dumps(self.arguments)


def answered(wire: Wire, *, stream: bool, tool: ToolCall | None = None, before: Gate | None = None) -> Reply:
    """The answer, or a call of `tool`. `before` keeps everything back, the headers too."""
    if not stream:
        return lab.whole(_document(wire, tool), before=before)
    frames = {"anthropic": _anthropic, "openai": _openai, "responses": _responses}[wire](tool)
    return lab.streamed(frames, before=before)


def challenged(form: Form, wire: Wire, *, stream: bool) -> Reply:
    """A refusal in one of the forms that upstreams give it; one of a stream is a status of its own where none was asked."""
    if form == "page":
        return lab.page()
    if form == "crowded":
        return lab.whole(lab.MTOP)
    if form == "frame":
        return lab.streamed([lab.event(lab.MTOP)]) if stream else lab.whole(lab.MTOP)
    if form == "3007":
        return lab.whole(lab.CAPTCHA_3007, 400)
    overload = _overload(wire)
    return lab.streamed([lab.event(overload)]) if stream else lab.whole(overload, 529 if wire == "anthropic" else 429)


def limited(wire: Wire) -> Reply:
    """Too many at a time, as a coding plan of z.ai says it."""
    error = {"code": "1302", "message": LIMITED}
    if wire == "anthropic":
        error = {"type": "rate_limit_error", "code": "1302", "message": f"[1302][{LIMITED}][20261201]"}
        return lab.whole({"type": "error", "error": error, "request_id": "20261201"}, 429)
    return lab.whole({"error": error}, 429)


def _overload(wire: Wire) -> dict[str, Any]:
    error = lab.OVERLOAD_1305["error"]
    if wire == "anthropic":
        return {"type": "error", "error": {"type": "overloaded_error", **error}}
    return {"error": error}


def _document(wire: Wire, tool: ToolCall | None) -> dict[str, Any]:
    if wire == "anthropic":
        message = lab.anthropic_message(ANSWER)
        if tool:
            use = {"type": "tool_use", "id": "toolu_1", "name": tool.name, "input": tool.arguments}
            message |= {"content": [use], "stop_reason": "tool_use"}
        return message
    if wire == "openai":
        message = lab.openai_message(ANSWER)
        if tool:
            called = {"role": "assistant", "content": None, "tool_calls": [_openai_call(tool)]}
            message["choices"] = [{"index": 0, "message": called, "finish_reason": "tool_calls"}]
        return message
    return _response(_item(tool, done=True), "completed")


def _anthropic(tool: ToolCall | None) -> list[bytes]:
    if not tool:
        return lab.anthropic(ANSWER)
    frames = lab.anthropic("-")
    block = {"type": "tool_use", "id": "toolu_1", "name": tool.name, "input": {}}
    delta = {"type": "input_json_delta", "partial_json": tool.text}
    frames[1] = lab.event({"type": "content_block_start", "index": 0, "content_block": block})
    frames[2] = lab.event({"type": "content_block_delta", "index": 0, "delta": delta})
    end: dict[str, Any] = {"stop_reason": "tool_use", "stop_sequence": None}
    frames[4] = lab.event({"type": "message_delta", "delta": end, "usage": {"output_tokens": 20}})
    return frames


def _openai_call(tool: ToolCall) -> dict[str, Any]:
    return {"index": 0, "id": "call_1", "type": "function", "function": {"name": tool.name, "arguments": tool.text}}


def _openai(tool: ToolCall | None) -> list[bytes]:
    base = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "glm-5.2"}
    said = {"tool_calls": [_openai_call(tool)]} if tool else {"content": ANSWER}
    usage = {"prompt_tokens": 900, "completion_tokens": 20, "total_tokens": 920}
    steps: list[tuple[dict[str, Any], str | None]] = [
        ({"role": "assistant", "content": ""}, None),
        (said, None),
        ({}, "tool_calls" if tool else "stop"),
    ]
    frames = [
        lab.event({**base, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}) for delta, finish in steps
    ]
    return [*frames, lab.event({**base, "choices": [], "usage": usage}), b"data: [DONE]\n\n"]


def _item(tool: ToolCall | None, *, done: bool) -> dict[str, Any]:
    status = "completed" if done else "in_progress"
    if tool:
        call = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": tool.name, "status": status}
        return {**call, "arguments": tool.text if done else ""}
    content = [{"type": "output_text", "text": ANSWER, "annotations": []}] if done else []
    return {"type": "message", "id": "item_1", "role": "assistant", "status": status, "content": content}


def _response(item: dict[str, Any] | None, status: str) -> dict[str, Any]:
    usage = USAGE if item else None
    base = {"id": "resp_1", "object": "response", "created_at": 1, "model": "glm-5.2", "status": status}
    return {**base, "output": [item] if item else [], "usage": usage}


def _responses(tool: ToolCall | None) -> list[bytes]:
    place = {"output_index": 0, "item_id": "fc_1" if tool else "item_1"}
    if tool:
        middle: list[dict[str, Any]] = [
            {"type": "response.function_call_arguments.delta", **place, "delta": tool.text},
            {"type": "response.function_call_arguments.done", **place, "arguments": tool.text},
        ]
    else:
        part = {**place, "content_index": 0}
        empty = {"type": "output_text", "text": "", "annotations": []}
        middle = [
            {"type": "response.content_part.added", **part, "part": empty},
            {"type": "response.output_text.delta", **part, "delta": ANSWER},
            {"type": "response.output_text.done", **part, "text": ANSWER},
            {"type": "response.content_part.done", **part, "part": {**empty, "text": ANSWER}},
        ]
    done = _item(tool, done=True)
    values: list[dict[str, Any]] = [
        {"type": "response.created", "response": _response(None, "in_progress")},
        {"type": "response.in_progress", "response": _response(None, "in_progress")},
        {"type": "response.output_item.added", "output_index": 0, "item": _item(tool, done=False)},
        *middle,
        {"type": "response.output_item.done", "output_index": 0, "item": done},
        {"type": "response.completed", "response": _response(done, "completed")},
    ]
    return [lab.event({**value, "sequence_number": number}) for number, value in enumerate(values)]
