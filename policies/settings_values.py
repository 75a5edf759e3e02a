"""A value of the config file: held against its type in settings.py by msgspec; a mistake is told in words of our own."""

from __future__ import annotations

import difflib
import functools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, get_args, get_origin, get_type_hints

import msgspec
from msgspec import inspect

from policies.settings import Upstream

ROWS_AT_MOST = 1000
"""In one list."""
NO_NUMBER = 10**30


class WrongError(Exception):
    """A value is not what its key asks for."""

    def __init__(self, where: str, problem: str) -> None:
        super().__init__(f"{where}: {problem}" if where else problem)


_is_section: Callable[[Any], bool] = is_dataclass


@functools.cache
def hints_of(kind: Any) -> dict[str, Any]:
    """The types of a section's keys."""
    return get_type_hints(kind, include_extras=True)


def read(value: Any, kind: Any, where: str) -> Any:
    """The value at a key (``breaker.strikes``) as its type in settings.py has it."""
    if value is None and type(None) in get_args(kind):
        return None
    kind = _not_none(kind)
    if _is_section(kind):
        return _section(value, kind, where)
    if get_origin(kind) is Mapping:
        of = get_args(kind)[1]
        return {key: read(inner, of, joined(where, key)) for key, inner in mapping(value, where).items()}
    if get_origin(kind) in {tuple, frozenset}:
        of = get_args(kind)[0]
        return get_origin(kind)([read(row, of, at) for row, at in _rows(value, where, single=not _is_section(of))])
    return _single(value, kind, where)


def _not_none(kind: Any) -> Any:
    """The type of an optional value where it is given."""
    return get_args(kind)[0] if type(None) in get_args(kind) else kind


def _section(value: Any, kind: Any, where: str) -> Any:
    given, hints = known(mapping(value, where), kind, where), hints_of(kind)
    for field in fields(kind):
        if field.name in given or field.default is not MISSING or field.default_factory is not MISSING:
            continue
        if field.name != "name" and type(None) not in get_args(hints[field.name]):
            raise WrongError(joined(where, field.name), "is missing")
        given[field.name] = where if field.name == "name" else None  # a row without a name is called by its place
    return kind(**values(given, kind, where))


def values(given: Mapping[str, Any], kind: Any, where: str) -> dict[str, Any]:
    return {key: read(value, hints_of(kind)[key], joined(where, key)) for key, value in given.items()}


def _single(value: Any, kind: Any, where: str) -> Any:
    info, meta = _described(kind)
    value = meta["spelled"](value) if "spelled" in meta else value
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        is_word = not isinstance(info, inspect.BoolType | inspect.IntType | inspect.FloatType)
        trap = " (YAML reads a bare on, off, yes or no so)" if is_word and isinstance(value, bool) else ""
        if "secret" in meta and isinstance(value, str):
            raise WrongError(where, f"must be {_asked(value, kind)}") from None
        raise WrongError(where, f"must be {_asked(value, kind)}, got {shown(value)}{trap}") from None


def mapping(value: Any, where: str) -> Mapping[str, Any]:
    """A mapping with text keys; nothing at all is an empty one, since a section may be all comments."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise must_be(where, "a mapping of keys and values", value)
    for key in value:
        if not isinstance(key, str) or not key:
            raise WrongError(joined(where, key), "a key must be text (put it in quotes)")
    return value


def known(found: Mapping[str, Any], kind: Any, where: str) -> dict[str, Any]:
    """A copy of a mapping whose keys are those of a section."""
    names = [field.name for field in fields(kind) if kind is not Upstream or field.name != "name"]
    for key in found:
        if key in names:
            continue
        parts = {name: _not_none(hint) for name, hint in hints_of(kind).items()}
        near = [f"{name}.{key}" for name, part in parts.items() if _is_section(part) and key in hints_of(part)]
        near = near or difflib.get_close_matches(key, names, n=1)
        hint = f"did you mean {' or '.join(near)}?" if near else f"known here: {', '.join(names)}"
        raise WrongError(joined(where, key), f"unknown key; {hint}")
    return dict(found)


def _rows(value: Any, where: str, *, single: bool) -> Iterator[tuple[Any, str]]:
    """Items of a list, each with its place; ``single``: the only item may stand there alone, and one there must be."""
    if single and not isinstance(value, list):
        yield value, where
        return
    if value is not None and not isinstance(value, list):
        raise must_be(where, "a list", value)
    if not value and single:
        raise WrongError(where, "must have one item or more")
    if value and len(value) > ROWS_AT_MOST:
        raise WrongError(where, f"must have at most {ROWS_AT_MOST} items, has {len(value)}")
    yield from ((item, f"{where}[{index}]") for index, item in enumerate(value or ()))


# -- the words for a mistake ----------------------------------------------------------------------------------


def _described(kind: Any) -> tuple[Any, Mapping[str, Any]]:
    """The type as msgspec sees it, and what ``Meta`` says of it beside its limits."""
    info = inspect.type_info(kind)
    if not isinstance(info, inspect.Metadata):
        return info, {}
    return info.type, {**(info.extra_json_schema or {}), **(info.extra or {})}


def _asked(value: Any, kind: Any) -> str:
    """What a value must be; where it is a number of the right kind, the bound that it has crossed."""
    info, meta = _described(kind)
    if "description" in meta:
        return str(meta["description"])
    if isinstance(info, inspect.BoolType):
        return "true or false"
    if not isinstance(info, inspect.IntType | inspect.FloatType):
        *names, last = get_args(kind) or list(kind)  # a Literal or an Enum
        return f"{', '.join(names)} or {last}"
    whole, unit = isinstance(info, inspect.IntType), meta["unit"]
    of_unit, unit_after = (f" of {unit}", f" {unit}") if unit else ("", "")
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
        return f"a {'whole ' if whole else ''}number{of_unit}"
    if isinstance(value, float) and not math.isfinite(value):
        return f"a finite number{of_unit}"
    low: Any = info.ge
    return f"{low}{unit_after} or more" if value < low else f"at most {info.le}{unit_after}"


def must_be(where: str, what: str, got: object) -> WrongError:
    return WrongError(where, f"must be {what}, got {shown(got)}")


def shown(value: object) -> str:
    """A value on one line, at most 60 characters, as YAML people write it."""
    if value is None or isinstance(value, bool):
        return "nothing" if value is None else str(value).lower()
    if isinstance(value, Mapping | list):
        return "a mapping" if isinstance(value, Mapping) else "a list"
    if isinstance(value, int) and abs(value) > NO_NUMBER:
        return "a number out of all bounds"
    text = ascii(value) if isinstance(value, str) and not value.isprintable() else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def joined(where: str, key: object) -> str:
    text = key if isinstance(key, str) and key.isprintable() and len(key) <= 60 else shown(key)
    return f"{where}.{text}" if where else text
