"""The product's source as the walls look at it: modules by dotted name, and what each imports, calls and compares."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
ROOMS = ("policies", "operations", "breakwater")
TOP = ("addon", "held_stream", "hold", "requirements", "self_test")
Tree = Mapping[str, ast.Module]


def product() -> dict[str, ast.Module]:
    files = [*(ROOT / f"{name}.py" for name in TOP), *(file for room in ROOMS for file in (ROOT / room).rglob("*.py"))]
    return {dotted(file): parsed(file.read_text("utf8")) for file in sorted(files)}


def dotted(file: Path) -> str:
    return ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


@cache
def parsed(text: str) -> ast.Module:
    return ast.parse(text)


@cache
def nodes(module: ast.AST) -> tuple[ast.AST, ...]:
    """All of a module, which many walls look at."""
    return tuple(ast.walk(module))


def named(module: ast.AST) -> Iterator[tuple[str, str]]:
    """What a module imports: a module's name, and the name taken from it or nothing."""
    for node in nodes(module):
        if isinstance(node, ast.Import):
            yield from ((name.name, "") for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.module, name.name) for name in node.names)


def imports(tree: Tree, name: str) -> set[str]:
    """Modules of the tree that one of them imports, for type hints too."""
    found = {f"{of}.{one}" if f"{of}.{one}" in tree else of for of, one in named(tree[name])}
    return {one for one in found if one in tree and one != name}


def type_only(module: ast.Module) -> ast.Module:
    """The part of a module that runs for type hints alone."""
    guarded = [node for node in module.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    return ast.Module([node for guard in guarded for node in guard.body], [])


def circles(tree: Tree) -> set[str]:
    """Modules that import themselves by way of others."""
    reached = {name: imports(tree, name) for name in tree}
    for middle, beyond in reached.items():
        for others in reached.values():
            others.update(beyond if middle in others else ())
    return {name for name, others in reached.items() if name in others}


def calls(module: ast.AST) -> Iterator[tuple[str, str]]:
    """What is called: its last word, and all of it as it is written."""
    for node in nodes(module):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            word = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
            yield word, ast.unparse(node.func)


def enums(tree: Tree) -> dict[str, set[str]]:
    """Values of each enum, by its name."""
    classes = [node for module in tree.values() for node in nodes(module) if isinstance(node, ast.ClassDef)]
    return {
        node.name: {
            str(part.value.value) for part in node.body if isinstance(part, ast.Assign) and isinstance(part.value, ast.Constant)
        }
        for node in classes
        if any(ast.unparse(base).endswith("Enum") for base in node.bases)
    }


def hints_of(tree: Tree) -> dict[str, set[str]]:
    """The types that stand beside each attribute, argument and property anywhere in the tree."""
    found: dict[str, set[str]] = {}
    for module in tree.values():
        for node in nodes(module):
            hints: list[tuple[str, ast.expr | None]] = []
            if isinstance(node, ast.AnnAssign):
                hints = [(ast.unparse(node.target).rpartition(".")[2], node.annotation)]
            elif isinstance(node, ast.FunctionDef):
                hints = [
                    (node.name, node.returns),
                    *((one.arg, one.annotation) for one in node.args.args + node.args.kwonlyargs),
                ]
            for name, hint in hints:
                found.setdefault(name, set()).add(ast.unparse(hint).removesuffix(" | None") if hint else "")
    return found


def text_for_enum(tree: Tree) -> Iterator[str]:
    """Comparisons of a value that is always an enum with a text that is one of its values."""
    values, hints = enums(tree), hints_of(tree)
    for name, module in tree.items():
        for node in nodes(module):
            if not isinstance(node, ast.Compare):
                continue
            sides = [node.left, *node.comparators]
            texts = {
                one.value
                for side in sides
                for one in ast.walk(side)
                if isinstance(one, ast.Constant) and isinstance(one.value, str)
            }
            for side in sides if texts else ():
                word = ast.unparse(side).rpartition(".")[2].removesuffix("()")
                kinds = hints.get(word, set())
                if kinds and all(kind in values for kind in kinds) and any(texts & values[kind] for kind in kinds):
                    yield f"{name}: {ast.unparse(node)}"


def functions(module: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    yield from (node for node in nodes(module) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
