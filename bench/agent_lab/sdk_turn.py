"""One turn of a Python SDK with its defaults: `python sdk_turn.py WIRE BASE_URL MODEL PROMPT [tool]`.

It runs in an environment of its own, where nothing of ours can be imported.
"""

from __future__ import annotations

import sys
from typing import Any

KEY = "sk-bench"
TOOL = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}


def anthropic_turn(base_url: str, model: str, prompt: str, *, with_tool: bool) -> str:
    from anthropic import Anthropic  # noqa: PLC0415 - only the SDK that is asked for

    client: Any = Anthropic(base_url=base_url, auth_token=KEY, api_key=None)
    messages: list[dict[str, Any]] = [{"role": "user", "content": prompt}]
    tool = {"name": "read", "description": "Reads a file.", "input_schema": TOOL}
    for _ in range(2):
        with client.messages.stream(model=model, max_tokens=32000, messages=messages, tools=[tool]) as stream:
            said = stream.get_final_message()
        calls = [block for block in said.content if block.type == "tool_use"]
        if not (with_tool and calls):
            break
        result = {"type": "tool_result", "tool_use_id": calls[0].id, "content": "a note"}
        used = {"type": "tool_use", "id": calls[0].id, "name": calls[0].name, "input": calls[0].input}
        messages += [{"role": "assistant", "content": [used]}, {"role": "user", "content": [result]}]
    return "".join(block.text for block in said.content if block.type == "text")


def openai_turn(base_url: str, model: str, prompt: str, *, with_tool: bool) -> str:
    from openai import OpenAI  # noqa: PLC0415 - only the SDK that is asked for

    client: Any = OpenAI(base_url=base_url, api_key=KEY)
    messages: list[dict[str, Any]] = [{"role": "user", "content": prompt}]
    tool = {"type": "function", "function": {"name": "read", "description": "Reads a file.", "parameters": TOOL}}
    for _ in range(2):
        text, call = "", None
        for chunk in client.chat.completions.create(model=model, messages=messages, tools=[tool], stream=True):
            for choice in chunk.choices:
                text += choice.delta.content or ""
                call = (choice.delta.tool_calls or [call])[0]
        if not (with_tool and call):
            break
        told = {"name": call.function.name, "arguments": call.function.arguments}
        used = {"id": call.id, "type": "function", "function": told}
        messages.append({"role": "assistant", "content": None, "tool_calls": [used]})
        messages.append({"role": "tool", "tool_call_id": call.id, "content": "a note"})
    return text


def main(wire: str, base_url: str, model: str, prompt: str, *more: str) -> None:
    turn = {"anthropic": anthropic_turn, "openai": openai_turn}[wire]
    print(turn(base_url, model, prompt, with_tool="tool" in more))


if __name__ == "__main__":
    main(*sys.argv[1:])
