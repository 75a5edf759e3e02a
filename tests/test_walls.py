"""The walls between the rooms; each is also shown a tree in which it is broken."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from types import ModuleType

import pytest

from tests.rows import over
from tests.tree import (
    ROOT,
    Tree,
    calls,
    circles,
    functions,
    imports,
    named,
    nodes,
    parsed,
    product,
    text_for_enum,
    type_only,
)

PRODUCT = product()
INSIDE = ("held_stream", "self_test")
"""Know mitmproxy's inside: the hold, and the test of it at start-up, which takes its names from there."""

# -- what the rules may touch ---------------------------------------------------------------------------------------

OUTSIDE = {"addon", "asyncio", "breakwater", "held_stream", "hold", "io", "logging", "mitmproxy", "operations", "os"}
OUTSIDE |= {"pathlib", "random", "secrets", "self_test", "shutil", "socket", "ssl", "subprocess", "sys", "tempfile"}
OUTSIDE |= {"threading", "time", "urllib.request"}
CLOCKS_AND_FILES = {"input", "monotonic", "now", "open", "perf_counter", "print", "today", "utcnow", "read_text", "write_text"}
OWN_METHODS = {"self.open", "super().open"}
"""Of a breaker."""
CLOCKS = {"monotonic", "monotonic_ns", "now", "perf_counter", "process_time", "time_ns", "today", "utcnow"}


def touches_the_world(tree: Tree) -> set[str]:
    found = set()
    for name, module in tree.items():
        if name.partition(".")[0] != "policies":
            continue
        for of, one in named(module):
            if {of, f"{of}.{one}", of.partition(".")[0]} & OUTSIDE:
                found.add(f"{name} imports {of}")
        found |= {
            f"{name} calls {text}" for word, text in calls(module) if word in CLOCKS_AND_FILES and text not in OWN_METHODS
        }
    return found


def reads_a_clock(tree: Tree) -> set[str]:
    """Rooms in which only ``operations.clock`` may; a time that is written as text is an argument there."""
    found = set()
    for name, module in tree.items():
        if name.partition(".")[0] not in {"addon", "operations", "policies"} or name == "operations.clock":
            continue
        found |= {
            f"{name} calls {text}" for word, text in calls(module) if word in CLOCKS or text in {"time.time", "loop.time"}
        }
        found |= {f"{name} takes {of}.{one}" for of, one in named(module) if of == "time" and one in CLOCKS | {"time"}}
    return found


# -- mitmproxy's inside ---------------------------------------------------------------------------------------------


def inside(value: object) -> bool:
    home = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    return f"{home}.".startswith("mitmproxy.proxy.")


def knows_the_inside(tree: Tree, spaces: dict[str, ModuleType]) -> set[str]:
    """Names of mitmproxy.proxy in a module, whichever way they came; and what it takes from one that holds some."""
    found = set()
    for name, module in tree.items():
        if name in INSIDE:
            continue
        found |= {f"{name} imports {of}" for of, one in named(module) if f"{of}.{one}.".startswith("mitmproxy.proxy.")}
        space = vars(spaces[name])
        found |= {f"{name} holds {one}" for one, value in space.items() if inside(value)}
        for node in nodes(module):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                owner = space.get(node.value.id)
                if isinstance(owner, ModuleType) and inside(getattr(owner, node.attr, None)):
                    found.add(f"{name} reads {ast.unparse(node)}")
    return found


# -- floors ---------------------------------------------------------------------------------------------------------

FLOORS: tuple[tuple[str, ...], ...] = (
    ("kinds",),
    # What a Call holds of its body are slices, which know nothing but the enums: they are values, whatever their folder.
    ("comments", "settings", "decisions", "calls", "request.body"),
    ("request", "answer"),
    ("refusal",),
    ("reply", "research"),
)
"""From the ground up; every other module of policies/ is a rule, the top floor. A module may be imported from its own floor up."""


def floor(name: str) -> int:
    within = name.removeprefix("policies.")
    for names in (within, within.partition(".")[0]):
        for number, floors in enumerate(FLOORS):
            if names in floors:
                return number
    return len(FLOORS)


def goes_up(tree: Tree) -> set[str]:
    rules = [name for name in tree if name.startswith("policies.")]
    return {f"{name} imports {other}" for name in rules for other in imports(tree, name) if floor(other) > floor(name)}


OWNERS = {(f"operations.{part}", "operations.controller") for part in ("held", "log", "reload", "shared_state", "status")}
OWNERS |= {("operations.metrics", "operations.status")}
"""Allowed for type hints alone: a part names the controller that owns it, the metrics name the status that they write
down. Nothing of it runs, and without it mypy would see less."""


def runs(tree: Tree) -> dict[str, ast.Module]:
    """The tree without the owners that parts name for type hints."""
    found = {}
    for name, module in tree.items():
        body = [node for node in module.body if not isinstance(node, ast.If) or not owned(name, tree)]
        found[name] = ast.Module(body, [])
    return found


def owned(name: str, tree: Tree) -> bool:
    guarded = {of for of, _ in named(type_only(tree[name]))} & set(tree)
    return bool(guarded) and all((name, of) in OWNERS for of in guarded)


# -- size and shape -------------------------------------------------------------------------------------------------

LINES, FUNCTION_LINES = 300, 40
LONGER = {"policies.breaker": 350}
"""The breaker with its table."""


def too_long(name: str, text: str) -> set[str]:
    found = {f"{name}: {text.count(chr(10))} lines"} if text.count("\n") > LONGER.get(name, LINES) else set()
    for node in functions(parsed(text)):
        if (node.end_lineno or 0) - node.lineno >= FUNCTION_LINES:
            found.add(f"{name}.{node.name}: {(node.end_lineno or 0) - node.lineno + 1} lines")
    return found


def only_passes_on(tree: Tree) -> set[str]:
    """Modules without anything of their own, and functions that only hand their arguments to another."""
    found = {
        name
        for name, module in tree.items()
        if len(module.body) > 1 and all(isinstance(node, ast.Import | ast.ImportFrom | ast.Expr) for node in module.body)
    }
    for name, module in tree.items():
        for node in module.body:
            if isinstance(node, ast.FunctionDef) and hands_on(node):
                found.add(f"{name}.{node.name}")
    return found


def hands_on(node: ast.FunctionDef) -> bool:
    body = [part for part in node.body if not (isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant))]
    if len(body) != 1 or not isinstance(body[0], ast.Return) or not isinstance(body[0].value, ast.Call):
        return False
    call, own = body[0].value, [one.arg for one in node.args.args]
    given = [ast.unparse(one) for one in call.args]
    return bool(own) and not node.decorator_list and isinstance(call.func, ast.Name) and given == own and not call.keywords


# -- words ----------------------------------------------------------------------------------------------------------

LEANING = ("the same", "likewise", "of such")
"""Words of a docstring that leans on another."""
NO_NOUNS = frozenset({"this", "it", "these", "those", "that", "see", "todo", "returns", "return"})


def docstrings(module: ast.Module) -> Iterator[tuple[str, str]]:
    """Docstrings of a module, its public names and their attributes."""
    for node in nodes(module):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text and not getattr(node, "name", "").startswith("_"):
                yield getattr(node, "name", ""), text
            for part in node.body:
                if isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant) and isinstance(part.value.value, str):
                    yield getattr(node, "name", ""), part.value.value


def leans(tree: Tree) -> set[str]:
    found = set()
    for name, module in tree.items():
        for of, text in docstrings(module):
            said = " ".join(text.lower().split())
            if any(words in said for words in LEANING) or said.partition(" ")[0].strip(".,:") in NO_NOUNS:
                found.add(f"{name}.{of}: {text[:60]}")
    return found


# -- the product stands within its walls ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def spaces() -> dict[str, ModuleType]:
    return {name: importlib.import_module(name) for name in PRODUCT}


def test_the_rules_know_neither_mitmproxy_nor_files_nor_a_clock() -> None:
    assert touches_the_world(PRODUCT) == set()


def test_the_clock_is_read_in_one_place() -> None:
    assert reads_a_clock(PRODUCT) == set()


def test_only_the_hold_and_its_self_test_know_the_inside_of_mitmproxy(spaces: dict[str, ModuleType]) -> None:
    assert knows_the_inside(PRODUCT, spaces) == set()
    assert inside(vars(spaces["held_stream"])["commands"])
    taken = {of for of, one in named(PRODUCT["self_test"]) if inside(getattr(spaces.get(of), one, None))}
    assert taken == {"held_stream"}


def test_imports_go_down() -> None:
    assert goes_up(PRODUCT) == set()


def test_no_import_goes_round() -> None:
    assert circles(runs(PRODUCT)) == set()


def test_every_owner_that_a_part_may_name_is_named_and_only_as_a_type() -> None:
    assert {(name, of) for name in PRODUCT for of, _ in named(type_only(PRODUCT[name])) if of in PRODUCT} == OWNERS


def test_no_enum_is_compared_as_a_text() -> None:
    assert set(text_for_enum(PRODUCT)) == set()


@over("name", PRODUCT)
def test_files_and_functions_are_short(name: str) -> None:
    file = ROOT / name.replace(".", "/")
    file = file / "__init__.py" if file.is_dir() else file.with_suffix(".py")
    assert too_long(name, file.read_text("utf8")) == set()


def test_no_module_or_function_only_passes_on() -> None:
    assert only_passes_on(PRODUCT) == set()


def test_every_docstring_stands_alone() -> None:
    assert leans(PRODUCT) == set()
