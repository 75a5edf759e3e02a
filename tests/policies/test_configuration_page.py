"""docs/configuration.md: each key of the settings stands there with its true default, range and unit, and no other."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from enum import EnumType
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from msgspec import inspect

from policies.settings import Settings, Upstream
from policies.settings_file import ENVIRONMENT
from tests.policies.settings_lab import parsed

PAGE = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| `([^`]+)` \| (.*?) \| (.*?) \| (.*?) \| (.+?) \|$", PAGE, re.MULTILINE)


def plain(value: object) -> str:
    """A default as YAML writes it."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return {"()": "[]"}.get(str(value), str(value))


def range_of(kind: Any) -> tuple[str, str]:
    """What a value may be, and its unit."""
    if get_origin(kind) in {tuple, frozenset}:
        item = get_args(kind)[0]
        return ("rows, see below", "") if dataclasses.is_dataclass(item) else (f"one or a list: {range_of(item)[0]}", "")
    if get_origin(kind) is Mapping:
        return range_of(get_args(kind)[1])
    info: Any = inspect.type_info(kind)
    meta = {}
    if isinstance(info, inspect.Metadata):
        meta, info = {**(info.extra_json_schema or {}), **(info.extra or {})}, info.type
    if "description" in meta:
        return str(meta["description"]).removesuffix(" or null"), ""
    if isinstance(info, inspect.IntType | inspect.FloatType):
        whole = "whole, " if isinstance(info, inspect.IntType) else ""
        return f"{whole}{info.ge} to {info.le}", meta["unit"]
    if isinstance(info, inspect.BoolType):
        return "true, false", ""
    return ", ".join(list(kind) if isinstance(kind, EnumType) else get_args(kind)), ""


def keys_of(kind: Any, before: str = "") -> Iterator[tuple[str, str, str, str]]:
    """Key, default, range and unit of everything that a file may say."""
    hints = get_type_hints(kind, include_extras=True)
    for field in dataclasses.fields(kind):
        name, hint = f"{before}{field.name}", hints[field.name]
        of = next(arm for arm in (get_args(hint) if type(None) in get_args(hint) else (hint,)) if arm is not type(None))
        if name == "upstreams":
            yield name, "`{}`", "rows, see below", ""
            yield from keys_of(Upstream, "upstreams.NAME.")
        elif dataclasses.is_dataclass(of):
            if before == "upstreams.NAME.":
                yield name, f"as `{field.name}`", f"any key of `{field.name}`", ""
            else:
                yield from keys_of(of, f"{name}.")
        elif name != "upstreams.NAME.name":
            yield name, default_of(field, hint, before), *range_of(of)
            if get_origin(of) is tuple and dataclasses.is_dataclass(get_args(of)[0]):
                yield from keys_of(get_args(of)[0], f"{name}[].")


def default_of(field: dataclasses.Field[Any], hint: Any, before: str) -> str:
    if before == "upstreams.NAME." and field.default is None:
        return f"as `{field.name}`"
    if field.default is not dataclasses.MISSING:
        return f"`{plain(field.default)}`"
    if field.default_factory is not dataclasses.MISSING:
        return f"`{plain(field.default_factory())}`"
    if field.name == "name":
        return "its place"
    return "`null`" if type(None) in get_args(hint) else "must be given"


def test_every_key_stands_there_with_its_default_range_and_unit() -> None:
    assert [row[:4] for row in ROWS] == list(keys_of(Settings))


def test_every_key_says_why() -> None:
    assert [row[0] for row in ROWS if len(row[4].split()) < 3] == []


def test_the_names_in_the_environment_stand_there_with_their_keys() -> None:
    for variable, section, key, _ in ENVIRONMENT:
        assert re.search(rf"^\| `{variable}` \| `{section}\.{key}` \|", PAGE, re.MULTILINE)


EXAMPLES = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("text", EXAMPLES)
def test_every_example_is_a_config(text: str) -> None:
    assert parsed(text) != Settings()
