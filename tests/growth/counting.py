"""Loads the product a second time, with its source rewritten so that its work is counted.

Counted are every call, every turn of a loop, and the bytes, characters and items that are handed to C and to the standard
library, or made there: by calls, slices, additions, formatted texts and ``in``. So a scan, a copy or a decode counts with
its length, whatever language does it. A find counts as far as it came, a pattern as far as it matched, and where it does
not match as far as it may have looked: to the end, or as long as its longest match for one that is tied to a place.

Not seen: how often C looks at a byte that it was handed once. For patterns the test beside this one measures that; of
json, msgspec, zlib, zstd, brotli, yaml and hashes it is taken for granted that they are linear.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.abc
import importlib.machinery
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from types import BuiltinFunctionType, ModuleType
from typing import Any

ROOT = Path(__file__).parents[2]
ROOMS = ("policies", "operations")
LEFT_ALONE = frozenset({"super", "isinstance", "len", "cast", "hasattr", "getattr", "id", "memoryview", "iter", "next"})
"""Names of what costs nothing, or reads its caller's frame."""
_SIZED = (str, bytes, bytearray, memoryview, list, tuple, set, frozenset, dict)
_TEXTS = (str, bytes, bytearray)
_HOLDERS = (list, set, dict)
_TAKING = frozenset({"extend", "update"})
"""Methods of a holder that cost what they are given; the others cost nothing."""
_SEARCHES = (re.search, re.match, re.fullmatch, re.sub)
_FINDS = frozenset({"find", "index", "startswith", "endswith", "removeprefix", "removesuffix", "strip", "lstrip", "rstrip"})


class Meter:
    """What the rewritten source calls. ``total`` is the cost so far."""

    def __init__(self) -> None:
        self.total = 0
        self.patterns: dict[tuple[re.Pattern[Any], str], int] = {}
        """Every pattern that was used, by which of its methods, and the longest text that it was given."""
        self._widths: dict[re.Pattern[Any], int] = {}

    def call(self, function: Any, /, *args: Any, **named: Any) -> Any:
        self.total += 1
        if type(function) is not BuiltinFunctionType:
            own = _is_own(getattr(function, "__module__", None))
            return function(*args, **named) if own else self._outside(function, None, args, named)
        owner: Any = function.__self__
        kind, name = type(owner), function.__name__
        if not ((kind in _TEXTS and name in _FINDS) or (kind in _HOLDERS and name not in _TAKING)):
            return self._outside(function, owner, args, named)
        try:  # the commonest
            result = function(*args, **named)
        except BaseException:
            self.total += _given(args) + len(owner)
            raise
        if kind in _TEXTS:
            self.total += _of_find(owner, name, args, result)
        return result

    def _outside(self, function: Any, owner: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        given = _given(args)
        if owner is None:
            owner = getattr(function, "__self__", None)
        try:
            result = function(*args, **named)
        except BaseException:
            self.total += given + _size(owner)
            raise
        self.total += self._cost(function, owner, args, given, result)
        return result

    def _cost(self, function: Any, owner: Any, args: tuple[Any, ...], given: int, result: Any) -> int:
        name = getattr(function, "__name__", "")
        if isinstance(owner, re.Pattern):
            return self._of_pattern(owner, name, args, result)
        if isinstance(owner, _TEXTS) and name in _FINDS:
            return _of_find(owner, name, args, result)
        if isinstance(owner, _HOLDERS):
            return given if name in _TAKING else 0
        if function in _SEARCHES and isinstance(args[0], str):
            return self._of_pattern(re.compile(args[0], *args[2:]), name, args[1:2], result)
        if name == "raw_decode" and isinstance(result, tuple):
            return int(result[1]) - (args[1] if len(args) > 1 else 0)
        left = _size(getattr(owner, "unused_data", b"")) if owner is not None else 0
        return given + _made(args, result) + left + (len(owner) if isinstance(owner, _TEXTS) else 0)

    def _of_pattern(self, pattern: re.Pattern[Any], name: str, args: tuple[Any, ...], result: Any) -> int:
        text: Any = args[0] if args and type(args[0]) in _TEXTS else next(filter(_is_text, args), "")
        length = _size(text) or (len(text) if text else 0)
        if length >= self.patterns.get((pattern, name), 0):
            self.patterns[pattern, name] = length
        start = args[1] if len(args) > 1 and isinstance(args[1], int) and name in ("match", "search", "finditer") else 0
        if isinstance(result, re.Match):
            return int(result.end() - start)
        if name == "match":
            return min(length - start, self._width(pattern))
        return length - start + (_size(result) if isinstance(result, _SIZED) else 0)

    def _width(self, pattern: re.Pattern[Any]) -> int:
        if pattern not in self._widths:
            parser: Any = import_module("re._parser")
            self._widths[pattern] = int(parser.parse(pattern.pattern, pattern.flags & ~re.DEBUG).getwidth()[1])
        return self._widths[pattern]

    def each(self, items: Iterable[Any]) -> Iterator[Any]:
        for item in items:
            self.total += 1
            yield item

    def made(self, value: Any) -> Any:
        self.total += _size(value)
        return value

    def looked(self, value: Any) -> Any:
        self.total += 1 if isinstance(value, (set, frozenset, dict)) else _size(value)
        return value

    def added(self, value: Any, target: Any) -> Any:
        self.total += _size(value) + (len(target) if isinstance(target, (str, bytes)) else 0)
        return value

    def tick(self) -> None:
        self.total += 1


@cache
def _is_own(module: str | None) -> bool:
    return str(module).partition(".")[0] in ROOMS


def _of_find(owner: Any, name: str, args: tuple[Any, ...], result: Any) -> int:
    if name in ("find", "index"):
        start = args[1] if len(args) > 1 else 0
        return len(owner) - start if result < 0 else max(0, result - start)
    if isinstance(result, bool):
        return _size(args[0])
    return 0 if result is owner else _size(result)


def _is_text(value: Any) -> bool:
    return isinstance(value, (*_TEXTS, memoryview)) or hasattr(value, "__buffer__")


class _Kinds(dict[type, bool]):
    """Whether values of a type are sized; asked of each type once."""

    def __missing__(self, kind: type) -> bool:
        self[kind] = issubclass(kind, _SIZED)
        return self[kind]


_IS_SIZED = _Kinds()


def _given(args: tuple[Any, ...]) -> int:
    given = 0
    for arg in args:
        if _IS_SIZED[type(arg)]:
            given += len(arg)
    return given


def _made(args: tuple[Any, ...], result: Any) -> int:
    for arg in args:
        if result is arg:
            return 0
    return _size(result)


def _size(value: Any) -> int:
    return len(value) if _IS_SIZED[type(value)] else 0


class _Rewriting(ast.NodeTransformer):
    """Puts a meter into the bodies of functions."""

    def __init__(self) -> None:
        self._inside = 0

    def _function(self, node: Any) -> Any:
        self._inside += 1
        body = node.body
        node.body = [self.visit(part) for part in body] if isinstance(body, list) else self.visit(body)
        self._inside -= 1
        return node

    visit_FunctionDef = visit_AsyncFunctionDef = visit_Lambda = _function  # noqa: N815 - ast's own names

    def visit_Call(self, node: ast.Call) -> Any:
        if not self._inside or (isinstance(node.func, ast.Name) and node.func.id in LEFT_ALONE):
            return self.generic_visit(node)
        self.generic_visit(node)
        return ast.Call(_meter("call"), [node.func, *node.args], node.keywords)

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        self.generic_visit(node)
        if self._inside and isinstance(node.slice, ast.Slice) and isinstance(node.ctx, ast.Load):
            return ast.Call(_meter("made"), [node], [])
        return node

    def visit_BinOp(self, node: ast.BinOp) -> Any:
        self.generic_visit(node)
        if self._inside and isinstance(node.op, ast.Add | ast.Mult | ast.Mod):
            return ast.Call(_meter("made"), [node], [])
        return node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> Any:
        return ast.Call(_meter("made"), [node], []) if self._inside else node

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        self.generic_visit(node)
        if self._inside and isinstance(node.op, ast.Add):
            held: Any = ast.parse(ast.unparse(node.target), mode="eval").body
            node.value = ast.Call(_meter("added"), [node.value, held], [])
        return node

    def visit_Compare(self, node: ast.Compare) -> Any:
        self.generic_visit(node)
        if self._inside:
            pairs = zip(node.ops, node.comparators, strict=True)
            node.comparators = [
                ast.Call(_meter("looked"), [right], []) if isinstance(operator, ast.In | ast.NotIn) else right
                for operator, right in pairs
            ]
        return node

    def _loop(self, node: Any) -> Any:
        self.generic_visit(node)
        if self._inside:
            node.iter = ast.Call(_meter("each"), [node.iter], [])
        return node

    visit_For = visit_comprehension = _loop  # noqa: N815 - ast's own names

    def visit_While(self, node: ast.While) -> Any:
        self.generic_visit(node)
        if self._inside:
            node.body.insert(0, ast.Expr(ast.Call(_meter("tick"), [], [])))
        return node


def _meter(name: str) -> ast.expr:
    return ast.Attribute(ast.Name("METER", ast.Load()), name, ast.Load())


def _taken_out() -> dict[str, ModuleType]:
    return {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] in ROOMS}


class Metered(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """The product, rewritten; with ``changes``, texts of its files that are replaced first (to see a mend taken away)."""

    def __init__(self, changes: Mapping[str, tuple[tuple[str, str], ...]] | None = None) -> None:
        self.meter = Meter()
        self._changes = changes or {}
        self.modules: dict[str, ModuleType] = {}

    def load(self, names: Iterable[str]) -> None:
        """Import these modules and what they import."""
        sys.meta_path.insert(0, self)
        try:
            with self.standing():
                for name in names:
                    import_module(name)
        finally:
            sys.meta_path.remove(self)

    @contextlib.contextmanager
    def standing(self) -> Iterator[None]:
        """The product's modules are these; what stood there before stands again afterwards."""
        before = _taken_out()
        sys.modules.update(self.modules)
        try:
            yield
        finally:
            self.modules = _taken_out()
            sys.modules.update(before)

    def __getitem__(self, name: str) -> Any:
        return self.modules[name]

    def find_spec(self, name: str, *_: object) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] not in ROOMS:
            return None
        file = ROOT.joinpath(*name.split("."))
        package = file.is_dir()
        file = file / "__init__.py" if package else file.with_suffix(".py")
        spec = importlib.machinery.ModuleSpec(name, self, origin=str(file), is_package=package)
        spec.has_location = True
        if package:
            spec.submodule_search_locations = [str(file.parent)]
        return spec

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__
        file = Path(str(module.__spec__.origin))
        text = file.read_text(encoding="utf-8")
        for old, new in self._changes.get(str(file.relative_to(ROOT)), ()):
            assert old in text, f"{file}: the mend that is to be taken away is not there: {old}"
            text = text.replace(old, new)
        tree = ast.fix_missing_locations(_Rewriting().visit(ast.parse(text)))
        module.__dict__["METER"] = self.meter
        exec(compile(tree, str(file), "exec"), module.__dict__)
