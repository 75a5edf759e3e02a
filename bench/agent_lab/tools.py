"""Which tool of an agent the scripted upstream calls to have a turn of two requests: one that reads a file."""

from __future__ import annotations

import json
from typing import Any

from bench.agent_lab.wires import ToolCall

NOTE = "note.txt"
"""A file in each agent's working folder."""
READERS = ("Read", "read_file", "read")
SHELLS = ("exec_command", "shell_command", "shell", "Bash", "run_shell_command", "bash")
RESULTS = (b'"tool_result"', b'"role":"tool"', b'"role": "tool"', b'"function_call_output"')
"""How the request that carries a tool's result is known, wire by wire."""


def has_result(body: bytes) -> bool:
    return any(mark in body for mark in RESULTS)


def choose(body: dict[str, Any], folder: str) -> ToolCall | None:
    """A call that reads `NOTE` in `folder`; None where the request offers no tool for it (a title, a plain SDK)."""
    schemas = {name: schema for tool in body.get("tools") or [] for name, schema in _named(tool)}
    for name in (*READERS, *SHELLS):
        if name in schemas:
            return ToolCall(name, _arguments(schemas[name], folder))
    return None


def _named(tool: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    told = tool.get("function") or tool
    schema = told.get("input_schema") or told.get("parameters") or {}
    return [(str(told.get("name")), schema if isinstance(schema, dict) else {})]


def _arguments(schema: dict[str, Any], folder: str) -> dict[str, Any]:
    properties = schema.get("properties") or {}
    command: object = f"cat {NOTE}"
    if (properties.get("command") or {}).get("type") == "array":
        command = ["cat", NOTE]
    path = f"{folder}/{NOTE}"
    known = {"file_path": path, "filePath": path, "absolute_path": path, "path": path, "command": command}
    known |= {"cmd": f"cat {NOTE}", "description": "Reads the note", "is_background": False}
    return {name: known[name] for name in properties if name in known}


def parsed(body: bytes) -> dict[str, Any]:
    """The request as a mapping; empty where it is none."""
    try:
        value = json.loads(body)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
