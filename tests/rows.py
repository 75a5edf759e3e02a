"""One test that goes over many rows, where each row as a test of its own would cost more than what it asks."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import pytest

EACH = os.environ.get("BREAKWATER_ROWS") == "each"
"""Every row is a test of its own again, with an id: to run or to debug a single one."""
SHOWN = 20
"""Rows that fail and are told in full."""

Test = Callable[..., None]
Axis = tuple[tuple[str, ...], list[Any], list[str]]
"""The names of columns, the rows, and what each row is called."""


def over(
    names: str | Sequence[str], rows: Iterable[Any], ids: Iterable[Any] | Callable[[Any], Any] | None = None
) -> Callable[[Test], Test]:
    """``pytest.mark.parametrize`` within one test: all rows are tried, and all that fail are named in one failure.

    Rows share what is made once for a test, its fixtures. Several stand above one another as marks do: every row of
    one with every row of the other. A value that no row had would be a test that asks nothing, so none is an error.
    """
    columns = tuple(name.strip() for name in names.split(",")) if isinstance(names, str) else tuple(names)
    table = list(rows)
    assert table, f"no row for {columns}"
    if EACH:
        return pytest.mark.parametrize(columns if len(columns) > 1 else columns[0], table, ids=ids)
    named = _ids(table, ids, len(columns))

    def folded(test: Test) -> Test:
        body, axes = getattr(test, "rows", (test, ()))
        return _test(test, body, (*axes, (columns, table, named)))

    return folded


def _test(marked: Test, body: Test, axes: Sequence[Axis]) -> Test:
    filled = {column for columns, _, _ in axes for column in columns}

    @functools.wraps(marked)
    def test(**fixtures: Any) -> None:
        wrong: list[tuple[str, BaseException]] = []
        tried = 0
        for name, values in _product(axes):
            tried += 1
            try:
                body(**fixtures, **values)
            except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - told below, with its row
                wrong.append((name, error))
        if wrong:
            told = [f"[{name}] {type(error).__name__}: {error}" for name, error in wrong[:SHOWN]]
            told += [f"[{name}]" for name, _ in wrong[SHOWN:]]
            raise AssertionError(f"{len(wrong)} of {tried} rows fail\n" + "\n".join(told)) from wrong[0][1]

    del test.__wrapped__  # pytest would read the columns off it
    own = inspect.signature(body)
    left = [parameter for name, parameter in own.parameters.items() if name not in filled]
    test.__signature__ = own.replace(parameters=left)  # type: ignore[attr-defined]
    test.rows = (body, axes)  # type: ignore[attr-defined]
    return test


def _product(axes: Sequence[Axis]) -> Iterable[tuple[str, dict[str, Any]]]:
    if not axes:
        yield "", {}
        return
    columns, table, names = axes[-1]
    for name, values in _product(axes[:-1]):
        for row, own in zip(table, names, strict=True):
            cells = (row,) if len(columns) == 1 else row
            yield f"{own}-{name}" if name else own, {**values, **dict(zip(columns, cells, strict=True))}


def _ids(table: list[Any], ids: Iterable[Any] | Callable[[Any], Any] | None, columns: int) -> list[str]:
    if ids is not None and not callable(ids):
        named = [str(name) for name in ids]
        assert len(named) == len(table)
        return named
    naming = ids or _short
    return ["-".join(str(naming(cell)) for cell in ((row,) if columns == 1 else row)) for row in table]


def _short(value: object) -> str:
    text = value if isinstance(value, str) else repr(value) if isinstance(value, Collection) else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
