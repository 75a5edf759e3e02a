"""Puts the answer of a stream together as text, for a reader's eyes. No rule reads what comes out of here."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from policies.answer import documents
from policies.answer.frames import BOM, frames
from policies.kinds import Wire

READ_AT_MOST = 1024 * 1024
"""Bytes of a body that are looked at."""
WRITE_AT_MOST = 256 * 1024
"""Characters of the text."""


def assemble(wire: Wire | str, body: bytes) -> str:
    """The parts in the order in which they began, each under a heading in brackets; empty where there is no answer.

    Takes an event stream or one JSON object, whole or cut anywhere. Never raises.
    """
    read, parts = _READERS.get(wire, _any_wire), _Parts()
    for value in _objects(body[:READ_AT_MOST]):
        with contextlib.suppress(AttributeError, KeyError, IndexError, TypeError, ValueError):
            read(value, parts)  # a frame of another shape says nothing
        if parts.left <= 0:
            break
    written = ((heading, "".join(pieces)) for heading, pieces in parts.begun)
    text = "\n\n".join(f"[{heading}]\n{part}" for heading, part in written if part.strip())
    return f"{text}\n[… cut here]" if text and (parts.left <= 0 or len(body) > READ_AT_MOST) else text


class _Parts:
    """The parts so far (`text`, `thinking`, `tool NAME`), and what frames said that later ones go on from."""

    def __init__(self) -> None:
        self.begun: list[tuple[str, list[str]]] = []
        self.left = WRITE_AT_MOST
        self._tools: dict[str, str] = {}
        """The heading of a tool call by its index or id."""
        self._calls: Counter[str] = Counter()
        """How often each tool was called, by its heading."""
        self._grown: dict[str, str | None] = {}
        """A part as far as it was repeated from its beginning; None where its frames hold what is new alone."""

    def add(self, heading: str, text: object) -> None:
        """A piece of a part; empty ones begin none."""
        if text and isinstance(text, str) and self.left > 0:
            self._pieces(heading).append(text[: self.left])
            self.left -= len(text)

    def _pieces(self, heading: str) -> list[str]:
        """Pieces of the part that goes on under a heading: the last one, or a tool call begun earlier, or a new one."""
        for known, pieces in reversed(self.begun[-50:] if heading.startswith("tool") else self.begun[-1:]):
            if known == heading:
                return pieces
        self.begun.append((heading, []))
        return self.begun[-1][1]

    def grow(self, heading: str, text: object) -> None:
        """A part that each frame may repeat from its beginning (DashScope without `incremental_output`).

        Once a frame does not repeat what came before it, none of that part does.
        """
        so_far = self._grown.get(heading, "")
        if not text or not isinstance(text, str):
            return
        repeats = so_far is not None and text.startswith(so_far)
        self._grown[heading] = text if repeats else None
        self.add(heading, text[len(so_far or "") :] if repeats else text)

    def call(self, name: object, index: str = "") -> str:
        """A heading of its own for each call, since one tool may be called twice; later frames name it by its index."""
        heading = f"tool {name}"[:80]
        self._calls[heading] += 1
        calls = self._calls[heading]
        self._tools[index] = heading if calls == 1 else f"{heading} #{calls}"
        return self._tools[index]

    def tool(self, index: str, otherwise: str = "tool") -> str:
        return self._tools.get(index, otherwise)


def _objects(body: bytes) -> Iterator[dict[str, Any]]:
    """The whole body where it is one JSON object, else the data of each frame; what is no object is left out."""
    whole = _object(body)
    values = [whole] if whole is not None else (_object(frame.data) for frame in frames(body))
    return (value for value in values if value is not None)


def _object(data: bytes) -> dict[str, Any] | None:
    value = documents.parse(data) if data.removeprefix(BOM).lstrip().startswith(b"{") else None
    return value if isinstance(value, dict) else None


def _anthropic(value: dict[str, Any], parts: _Parts) -> None:
    index = str(value.get("index", ""))
    match value.get("type"):
        case "content_block_start":
            _anthropic_block(value["content_block"], parts, index)
        case "content_block_delta":
            delta = value["delta"]
            parts.add(parts.tool(index, "text"), delta.get("text"))
            parts.add("thinking", delta.get("thinking"))
            parts.add(parts.tool(index), delta.get("partial_json"))
        case "message":
            for number, block in enumerate(value["content"]):
                _anthropic_block(block, parts, str(number))


def _anthropic_block(block: dict[str, Any], parts: _Parts, index: str) -> None:
    if "name" in block:
        heading = parts.call(block["name"], index)
        if block.get("input"):
            parts.add(heading, json.dumps(block["input"], ensure_ascii=False))
    parts.add("text", block.get("text"))
    parts.add("thinking", block.get("thinking"))


def _openai(value: dict[str, Any], parts: _Parts) -> None:
    for choice in value["choices"]:
        delta = choice.get("delta") or choice.get("message") or {}
        parts.add("thinking", delta.get("reasoning_content") or delta.get("reasoning"))
        parts.add("text", _content(delta.get("content")))
        for number, call in enumerate(delta.get("tool_calls") or ()):
            index, function = str(call.get("index", number)), call.get("function") or {}
            if function.get("name") and not parts.tool(index, ""):
                parts.call(function["name"], index)
            parts.add(parts.tool(index), function.get("arguments"))


def _responses(value: dict[str, Any], parts: _Parts) -> None:
    match value.get("type", ""):
        case "response.output_text.delta" | "response.refusal.delta":
            parts.add("text", value["delta"])
        case "response.reasoning_text.delta" | "response.reasoning_summary_text.delta":
            parts.add("thinking", value["delta"])
        case "response.output_item.added" if value["item"].get("name"):
            parts.call(value["item"]["name"], str(value["item"].get("id")))
        case "response.function_call_arguments.delta" | "response.custom_tool_call_input.delta":
            parts.add(parts.tool(str(value.get("item_id"))), value["delta"])
        case "" if value.get("object") == "response":
            for item in value["output"]:
                if item.get("name"):
                    parts.add(parts.call(item["name"]), item.get("arguments") or item.get("input"))
                parts.add("thinking" if item.get("type") == "reasoning" else "text", _content(item.get("content")))


def _qwen_web(value: dict[str, Any], parts: _Parts) -> None:
    for choice in value["choices"]:
        delta = choice.get("delta") or choice.get("message") or {}
        phase = str(delta.get("phase") or "answer")
        heading = {"answer": "text", "think": "thinking", "thinking_summary": "thinking"}.get(phase, phase[:40])
        parts.add(heading, _content(delta.get("content")))
        if phase == "thinking_summary":
            thought = (delta.get("extra") or {}).get("summary_thought") or {}
            parts.grow(heading, "\n".join(map(str, thought.get("content") or ())))
        if function := delta.get("function_call"):
            _function(function, parts)


def _zai_web(value: dict[str, Any], parts: _Parts) -> None:
    data = value["data"]
    heading = "thinking" if data.get("phase") == "thinking" else "text"
    parts.add(heading, data.get("delta_content") or data.get("edit_content") or data.get("content"))


def _native(value: dict[str, Any], parts: _Parts) -> None:
    output = value["output"]
    parts.grow("text", output.get("text"))
    for choice in output.get("choices") or ():
        message = choice["message"]
        parts.grow("thinking", message.get("reasoning_content"))
        parts.grow("text", _content(message.get("content")))
        for call in message.get("tool_calls") or ():
            _function(call["function"], parts)


def _function(function: dict[str, Any], parts: _Parts) -> None:
    parts.add(f"tool {function.get('name') or ''}".strip(), function.get("arguments"))


def _any_wire(value: dict[str, Any], parts: _Parts) -> None:
    responses = str(value.get("type", "")).startswith("response.")
    (_openai if "choices" in value else _responses if responses else _anthropic)(value, parts)


def _content(content: object) -> str:
    """The text of a content field: a string, or a list of parts."""
    if isinstance(content, list):
        return "".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


_READERS: dict[str, Callable[[dict[str, Any], _Parts], None]] = {
    Wire.ANTHROPIC: _anthropic,
    Wire.OPENAI: _openai,
    Wire.RESPONSES: _responses,
    Wire.QWEN_WEB: _qwen_web,
    Wire.ZAI_WEB: _zai_web,
    Wire.DASHSCOPE_NATIVE: _native,
}
