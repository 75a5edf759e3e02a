"""The page of the benchmarks can be filled by the run that it names."""

from __future__ import annotations

import pytest

from bench.peers import MARKS, filled
from tests.tree import ROOT

PAGE = ROOT / "docs" / "benchmarks.md"


@pytest.mark.parametrize("part", MARKS)
def test_the_table_of_a_run_replaces_the_one_before(part: str) -> None:
    page = PAGE.read_text(encoding="utf-8")
    once = filled(page, part, "| a first table |")
    twice = filled(once, part, "| another table |")
    assert "| a first table |" in once
    assert "| a first table |" not in twice
    assert filled(twice, part, "| a first table |") == once
    assert len(once.partition(MARKS[part])[0]) == len(page.partition(MARKS[part])[0])


def test_a_page_without_the_marks_is_left_as_it_is() -> None:
    with pytest.raises(SystemExit, match="has no <!-- speed table"):
        filled("# Another page", "speed", "| a table |")
