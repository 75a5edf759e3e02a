"""What each room may import."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
RULES = sorted((ROOT / "policies").rglob("*.py"))
PROGRAM = [ROOT / "addon.py", *sorted((ROOT / "operations").rglob("*.py")), *RULES]
OUTSIDE = {"addon", "asyncio", "held_stream", "io", "logging", "mitmproxy", "operations", "os", "pathlib", "random"}
OUTSIDE |= {"secrets", "shutil", "socket", "subprocess", "sys", "tempfile", "threading", "time", "urllib.request"}
CLOCKS_AND_FILES = {"input", "monotonic", "now", "open", "perf_counter", "print", "today", "utcnow"}


def imports(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names)


def calls(file: Path) -> Iterator[str]:
    """Names called bare, and the last word of dotted ones on a module or class."""
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.func.id
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr != "open":
            yield node.func.attr


@pytest.mark.parametrize("file", RULES, ids=lambda file: str(file.relative_to(ROOT)))
def test_a_rule_knows_neither_mitmproxy_nor_files_nor_a_clock(file: Path) -> None:
    assert {name for name in imports(file) if name in OUTSIDE or name.partition(".")[0] in OUTSIDE} == set()
    assert CLOCKS_AND_FILES.intersection(calls(file)) == set()


@pytest.mark.parametrize("file", PROGRAM, ids=lambda file: str(file.relative_to(ROOT)))
def test_only_the_held_stream_knows_the_inside_of_mitmproxy(file: Path) -> None:
    assert [name for name in imports(file) if f"{name}.".startswith("mitmproxy.proxy.")] == []
