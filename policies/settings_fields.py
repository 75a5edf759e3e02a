"""The kinds of values that a config may hold: each reads one YAML value or says what it must be."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

_NO_NUMBER = 10**30

Field = Callable[[Any, str], Any]
"""Reads the value that stands at a key (``breaker.strikes``); raises ``WrongError``."""


class WrongError(Exception):
    """A value is not what its key asks for."""

    def __init__(self, where: str, problem: str) -> None:
        super().__init__(f"{where}: {problem}" if where else problem)


def must_be(where: str, what: str, got: object) -> WrongError:
    return WrongError(where, f"must be {what}, got {shown(got)}")


def shown(value: object) -> str:
    """A value on one line, at most 60 characters, as YAML people write it."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, int) and abs(value) > _NO_NUMBER:
        return "a number out of all bounds"
    text = ascii(value) if isinstance(value, str) and not value.isprintable() else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def joined(where: str, key: object) -> str:
    text = key if isinstance(key, str) and key.isprintable() and len(key) <= 60 else shown(key)
    return f"{where}.{text}" if where else text


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


def rows(value: Any, where: str) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise must_be(where, "a list", value)
    return value


def known(keys: Iterable[str], allowed: Iterable[str], where: str) -> None:
    names = list(allowed)
    for key in keys:
        if key not in names:
            near = difflib.get_close_matches(key, names, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known here: {', '.join(names)}"
            raise WrongError(joined(where, key), f"unknown key; {hint}")


def number(low: float, high: float, unit: str = "", *, whole: bool = False) -> Field:
    """A number of ``unit`` from ``low`` to ``high``, both included; true and false are none."""
    noun = "a whole number" if whole else "a number"
    of_unit = f" of {unit}" if unit else ""
    unit_after = f" {unit}" if unit else ""

    def read(value: Any, where: str) -> int | float:
        if isinstance(value, bool) or not isinstance(value, int | float) or (whole and not isinstance(value, int)):
            raise must_be(where, f"{noun}{of_unit}", value)
        if isinstance(value, float) and not math.isfinite(value):
            raise must_be(where, f"a finite number{of_unit}", value)
        if value < low:
            raise must_be(where, f"{_plain(low)}{unit_after} or more", value)
        if value > high:
            raise must_be(where, f"at most {_plain(high)}{unit_after}", value)
        return value

    return read


def whole(low: int, high: int, unit: str = "") -> Field:
    return number(low, high, unit, whole=True)


def flag(value: Any, where: str) -> bool:
    if not isinstance(value, bool):
        raise must_be(where, "true or false", value)
    return value


def choice(*names: str) -> Field:
    def read(value: Any, where: str) -> str:
        if not isinstance(value, str) or value not in names:
            raise must_be(where, f"{', '.join(names[:-1])} or {names[-1]}", value)
        return names[names.index(value)]  # the member, where the names are those of an enum

    return read


def text(value: Any, where: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise must_be(where, "text", value)
    return value


def code_text(value: Any, where: str) -> str:
    """Text, or a whole number for it: upstreams' codes look like numbers (``equals: 1302``)."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else text(value, where)


def path(value: Any, where: str) -> str:
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise must_be(where, "a file's path or null", value)
    return value


def optional(field: Field) -> Field:
    def read(value: Any, where: str) -> Any:
        return None if value is None else field(value, where)

    return read


def each(field: Field) -> Field:
    """A list, each item of which is read by ``field`` at ``key[index]``."""

    def read(value: Any, where: str) -> tuple[Any, ...]:
        return tuple(field(item, f"{where}[{index}]") for index, item in enumerate(rows(value, where)))

    return read


def one_or_more(field: Field) -> Field:
    """A list that is not empty, or its only item."""

    def read(value: Any, where: str) -> tuple[Any, ...]:
        items = each(field)(value, where) if isinstance(value, list) else (field(value, where),)
        if not items:
            raise WrongError(where, "must have one item or more")
        return items

    return read


def section(fields: Mapping[str, Field], required: Iterable[str] = ()) -> Field:
    """A mapping with these keys; what it does not hold stays out of the result."""
    needed = tuple(required)

    def read(value: Any, where: str) -> dict[str, Any]:
        found = mapping(value, where)
        known(found, fields, where)
        for key in needed:
            if key not in found:
                raise WrongError(joined(where, key), "is missing")
        return {key: fields[key](item, joined(where, key)) for key, item in found.items()}

    return read


_NAME = r"[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?"
_HOST = re.compile(rf"(?:(?:\*\.)?{_NAME}(?:\.{_NAME})*|\[[0-9a-f:.]+\])(?::([0-9]{{1,5}}))?")


def host(value: Any, where: str) -> str:
    """``host``, ``host:port``, ``*.suffix`` or an IPv6 address in brackets; lower-cased."""
    what = "a host such as llm.example.com, 10.1.2.3:8000 or *.example.com"
    found = _HOST.fullmatch(value.lower()) if isinstance(value, str) else None
    if found is None or not 0 < int(found[1] or 1) < 65536:
        raise must_be(where, what, value)
    return str(value).lower()


def _plain(bound: float) -> str:
    return str(int(bound)) if bound == int(bound) else f"{bound:g}"
