"""Each wall, shown a tree in which it is broken: it says where."""

from __future__ import annotations

import ast
from types import ModuleType

import pytest

from tests import test_walls as walls
from tests.rows import over
from tests.tree import circles, text_for_enum


def tree(**modules: str) -> dict[str, ast.Module]:
    return {name.replace("__", "."): ast.parse(text) for name, text in modules.items()}


@over(
    "text",
    [
        "import mitmproxy.http",
        "from mitmproxy import ctx",
        "import time",
        "from time import monotonic",
        "from operations.clock import clock",
        "import hold",
        "from datetime import datetime\ndatetime.now()",
        "open('x')",
        "from urllib import request\nrequest.urlopen('x')",
        "import os",
        "def f(path): return path.read_text()",
    ],
)
def test_a_rule_that_touches_the_world(text: str) -> None:
    assert walls.touches_the_world(tree(policies__rules=text)) != set()


@over(
    "text",
    [
        "import time\ntime.time()",
        "import time\ntime.monotonic()",
        "from time import time",
        "from time import monotonic as t",
        "from datetime import datetime\ndatetime.now()",
        "loop.time()",
    ],
)
def test_a_second_clock(text: str) -> None:
    assert walls.reads_a_clock(tree(operations__page=text)) != set()
    assert walls.reads_a_clock(tree(operations__clock=text)) == set()
    assert walls.reads_a_clock(tree(addon=text)) != set()


@over(
    "text",
    [
        "import mitmproxy.proxy",
        "from mitmproxy import proxy",
        "from mitmproxy.proxy import events",
        "from mitmproxy.proxy.layers.http import HttpStream",
        "from held_stream import commands",
        "from held_stream import HeldHttpLayer as Layer, proto",
        "import held_stream\nheld_stream.commands.SendData",
        "from mitmproxy.addons import next_layer\nnext_layer.layers",
    ],
)
def test_a_second_room_that_knows_the_inside(text: str) -> None:
    space = ModuleType("other")
    exec(text, vars(space))
    assert walls.knows_the_inside(tree(operations__held=text), {"operations.held": space}) != set()
    assert walls.knows_the_inside(tree(self_test=text), {"self_test": space}) == set()


@over(
    ("low", "high"),
    [
        ("kinds", "decisions"),
        ("calls", "request__reading"),
        ("request__body", "request__media"),
        ("answer__head", "refusal__challenges"),
        ("refusal__overflow", "reply__wording"),
        ("reply__wording", "rules"),
        ("research__report", "state"),
        ("request__surfaces", "windows"),
    ],
)
def test_an_import_that_goes_up(low: str, high: str) -> None:
    up = f"from policies.{high.replace('__', '.')} import x"
    assert walls.goes_up(tree(**{f"policies__{low}": up, f"policies__{high}": "x = 1"})) != set()
    down = f"from policies.{low.replace('__', '.')} import x"
    assert walls.goes_up(tree(**{f"policies__{high}": down, f"policies__{low}": "x = 1"})) == set()


def test_a_circle_for_type_hints_too() -> None:
    hints = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from operations.{0} import x"
    round_three = tree(
        operations__a="import operations.b", operations__b=hints.format("c"), operations__c="from operations import a"
    )
    assert circles(walls.runs(round_three)) == {"operations.a", "operations.b", "operations.c"}
    owner = tree(operations__controller="import operations.held", operations__held=hints.format("controller"))
    assert circles(walls.runs(owner)) == set()
    owner["operations.held"] = ast.parse("from operations.controller import x")
    assert circles(walls.runs(owner)) == {"operations.controller", "operations.held"}


@over("text", ["call.wire == 'openai'", "wire in {'a', 'openai'}", "'openai' != self.wire", "find().wire == 'openai'"])
def test_an_enum_compared_as_a_text(text: str) -> None:
    wire = "class Wire(StrEnum):\n    OPENAI = 'openai'\nclass Call:\n    wire: Wire | None"
    assert list(text_for_enum(tree(kinds=wire, rules=text))) != []
    assert list(text_for_enum(tree(kinds=wire, rules=text.replace("'openai'", "Wire.OPENAI")))) == []


def test_a_long_file_and_a_long_function() -> None:
    assert walls.too_long("policies.rules", "x = 1\n" * 300) == set()
    assert walls.too_long("policies.rules", "x = 1\n" * 301) != set()
    assert walls.too_long("policies.breaker", "x = 1\n" * 350) == set()
    assert walls.too_long("operations.page", "def f():\n" + "    x = 1\n" * 39) == set()
    assert walls.too_long("operations.page", "def f():\n" + "    x = 1\n" * 40) != set()


@pytest.mark.parametrize(
    "text", ['"""Names."""\nfrom policies.kinds import Kind', "def f(a, b):\n    '''Do it.'''\n    return g(a, b)"]
)
def test_what_only_passes_on(text: str) -> None:
    assert walls.only_passes_on(tree(policies__names=text)) != set()
    assert walls.only_passes_on(tree(policies__names='"""A folder."""')) == set()
    assert walls.only_passes_on(tree(policies__names="def f(a, b):\n    return g(b, a)")) == set()


@over(
    "text",
    [
        'class Wait:\n    """The same for waits."""',
        'class Wait:\n    """Seconds; likewise."""',
        'x = 1\n"""Rows of\nsuch."""',
        'def f():\n    """This is it."""',
    ],
)
def test_a_docstring_that_leans_on_another(text: str) -> None:
    assert walls.leans(tree(policies__waits=text)) != set()


def test_a_docstring_that_stands_alone() -> None:
    assert walls.leans(tree(policies__waits='class Wait:\n    """Wait of a client, in seconds."""')) == set()
