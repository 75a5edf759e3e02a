"""Puts the answer of a stream together as text, for a reader's eyes. No rule reads what comes out of here."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from policies.answer import documents
from policies.answer.frames import BOM, frames
from policies.kinds import Wire

READ_AT_MOST = 1024 * 1024
"""Bytes of a body that are looked at."""
WRITE_AT_MOST = 256 * 1024
"""Characters of the text."""

Piece = tuple[str, str]
"""Which part it belongs to (`text`, `thinking`, `tool NAME`) and a piece of it. Pieces of one part are joined; empty ones begin none."""


@dataclass(slots=True)
class Seen:
    """What earlier frames said that later ones go on from."""

    tools: dict[str, str] = field(default_factory=dict)
    """The heading of a tool call by its index or id."""
    calls: Counter[str] = field(default_factory=Counter)
    """How often each tool was called, by its heading."""
    grown: dict[str, str | None] = field(default_factory=dict)
    """A part as far as it was repeated from its beginning; None where its frames hold what is new alone."""


def assemble(wire: Wire | str, body: bytes) -> str:
    """The parts in the order in which they began, each under a heading in brackets; empty where there is no answer.

    Takes an event stream or one JSON object, whole or cut anywhere. Never raises.
    """
    parts: list[tuple[str, list[str]]] = []
    left = WRITE_AT_MOST
    for heading, text in _pieces(str(wire), body[:READ_AT_MOST]):
        _part(parts, heading).append(text[:left])
        left -= len(text)
        if left <= 0:
            break
    written = ((heading, "".join(pieces)) for heading, pieces in parts)
    text = "\n\n".join(f"[{heading}]\n{part}" for heading, part in written if part.strip())
    return f"{text}\n[… cut here]" if text and (left <= 0 or len(body) > READ_AT_MOST) else text


def _part(parts: list[tuple[str, list[str]]], heading: str) -> list[str]:
    """The pieces of the part that goes on under this heading: the last one, or a tool call begun earlier, or a new one."""
    if parts and parts[-1][0] == heading:
        return parts[-1][1]
    if heading.startswith("tool"):
        for known, pieces in reversed(parts[-50:]):
            if known == heading:
                return pieces
    parts.append((heading, []))
    return parts[-1][1]


def _pieces(wire: str, body: bytes) -> Iterator[Piece]:
    reader = _READERS.get(wire, _any_wire)
    seen = Seen()
    for value in _objects(body):
        try:
            yield from ((heading, text) for heading, text in reader(value, seen) if text and isinstance(text, str))
        except (AttributeError, KeyError, IndexError, TypeError, ValueError):
            continue  # a frame of another shape says nothing


def _objects(body: bytes) -> Iterator[dict[str, Any]]:
    """The whole body where it is one JSON object, else the data of each frame; what is no object is left out."""
    if (whole := _object(body)) is not None:
        yield whole
        return
    for frame in frames(body):
        if (value := _object(frame.data)) is not None:
            yield value


def _object(data: bytes) -> dict[str, Any] | None:
    value = documents.parse(data) if data.removeprefix(BOM).lstrip().startswith(b"{") else None
    return value if isinstance(value, dict) else None


def _anthropic(value: dict[str, Any], seen: Seen) -> Iterator[Piece]:
    index = str(value.get("index", ""))
    match value.get("type"):
        case "content_block_start":
            yield from _anthropic_block(value["content_block"], seen, index)
        case "content_block_delta":
            delta = value["delta"]
            yield seen.tools.get(index, "text"), delta.get("text", "")
            yield "thinking", delta.get("thinking", "")
            yield seen.tools.get(index, "tool"), delta.get("partial_json", "")
        case "message":
            for number, block in enumerate(value["content"]):
                yield from _anthropic_block(block, seen, str(number))
        case _:
            return


def _anthropic_block(block: dict[str, Any], seen: Seen, index: str) -> Iterator[Piece]:
    if "name" in block:
        seen.tools[index] = _tool(block["name"], seen)
        if block.get("input"):
            yield seen.tools[index], json.dumps(block["input"], ensure_ascii=False)
    yield "text", block.get("text", "")
    yield "thinking", block.get("thinking", "")


def _openai(value: dict[str, Any], seen: Seen) -> Iterator[Piece]:
    for choice in value["choices"]:
        delta = choice.get("delta") or choice.get("message") or {}
        yield "thinking", delta.get("reasoning_content") or delta.get("reasoning") or ""
        yield "text", _content(delta.get("content"))
        for number, call in enumerate(delta.get("tool_calls") or ()):
            index, function = str(call.get("index", number)), call.get("function") or {}
            if function.get("name") and index not in seen.tools:
                seen.tools[index] = _tool(function["name"], seen)
            yield seen.tools.get(index, "tool"), function.get("arguments") or ""


def _responses(value: dict[str, Any], seen: Seen) -> Iterator[Piece]:
    kind = value.get("type", "")
    match kind:
        case "response.output_text.delta" | "response.refusal.delta":
            yield "text", value["delta"]
        case "response.reasoning_text.delta" | "response.reasoning_summary_text.delta":
            yield "thinking", value["delta"]
        case "response.output_item.added" if value["item"].get("name"):
            seen.tools[str(value["item"].get("id"))] = _tool(value["item"]["name"], seen)
        case "response.function_call_arguments.delta" | "response.custom_tool_call_input.delta":
            yield seen.tools.get(str(value.get("item_id")), "tool"), value["delta"]
        case "" if value.get("object") == "response":
            for item in value["output"]:
                if item.get("name"):
                    yield _tool(item["name"], seen), item.get("arguments") or item.get("input") or ""
                yield "thinking" if item.get("type") == "reasoning" else "text", _content(item.get("content"))


def _qwen_web(value: dict[str, Any], seen: Seen) -> Iterator[Piece]:
    for choice in value["choices"]:
        delta = choice.get("delta") or choice.get("message") or {}
        phase = str(delta.get("phase") or "answer")
        heading = {"answer": "text", "think": "thinking", "thinking_summary": "thinking"}.get(phase, phase[:40])
        yield heading, _content(delta.get("content"))
        if phase == "thinking_summary":
            thought = (delta.get("extra") or {}).get("summary_thought") or {}
            yield from _grown(heading, "\n".join(map(str, thought.get("content") or ())), seen)
        if function := delta.get("function_call"):
            yield f"tool {function.get('name') or ''}".strip(), function.get("arguments") or ""


def _zai_web(value: dict[str, Any], _seen: Seen) -> Iterator[Piece]:
    data = value["data"]
    heading = "thinking" if data.get("phase") == "thinking" else "text"
    yield heading, data.get("delta_content") or data.get("edit_content") or data.get("content") or ""


def _native(value: dict[str, Any], seen: Seen) -> Iterator[Piece]:
    output = value["output"]
    yield from _grown("text", output.get("text") or "", seen)
    for choice in output.get("choices") or ():
        message = choice["message"]
        yield from _grown("thinking", message.get("reasoning_content") or "", seen)
        yield from _grown("text", _content(message.get("content")), seen)
        for call in message.get("tool_calls") or ():
            function = call["function"]
            yield f"tool {function.get('name') or ''}".strip(), function.get("arguments") or ""


def _any_wire(value: dict[str, Any], seen: Seen) -> Iterator[Piece]:
    if "choices" in value:
        yield from _openai(value, seen)
    elif str(value.get("type", "")).startswith("response."):
        yield from _responses(value, seen)
    else:
        yield from _anthropic(value, seen)


def _grown(heading: str, text: str, seen: Seen) -> Iterator[Piece]:
    """What is new in a part that each frame may repeat from its beginning (DashScope without `incremental_output`).

    Once a frame does not repeat what came before it, none of that part does.
    """
    so_far = seen.grown.get(heading, "")
    if not text:
        return
    if so_far is None or not text.startswith(so_far):
        seen.grown[heading] = None
        yield heading, text
    else:
        seen.grown[heading] = text
        yield heading, text[len(so_far) :]


def _content(content: object) -> str:
    """The text of a content field: a string, or a list of parts."""
    if isinstance(content, list):
        return "".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def _tool(name: object, seen: Seen) -> str:
    """A heading of its own for each call, since one tool may be called twice."""
    heading = f"tool {name}"[:80]
    seen.calls[heading] += 1
    calls = seen.calls[heading]
    return heading if calls == 1 else f"{heading} #{calls}"


_READERS: dict[str, Callable[[dict[str, Any], Seen], Iterator[Piece]]] = {
    Wire.ANTHROPIC: _anthropic,
    Wire.OPENAI: _openai,
    Wire.RESPONSES: _responses,
    Wire.QWEN_WEB: _qwen_web,
    Wire.ZAI_WEB: _zai_web,
    Wire.DASHSCOPE_NATIVE: _native,
}
