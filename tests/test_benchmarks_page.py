"""The pages with figures can be filled by the runs that they name."""

from __future__ import annotations

import pytest

from bench.pages import filled
from tests.tree import ROOT


@pytest.mark.parametrize(
    ("name", "part"), [("benchmarks.md", "speed"), ("benchmarks.md", "behaviour"), ("scaling.md", "workers")]
)
def test_the_table_of_a_run_replaces_the_one_before(name: str, part: str) -> None:
    page = (ROOT / "docs" / name).read_text(encoding="utf-8")
    once = filled(page, part, "| a first table |")
    twice = filled(once, part, "| another table |")
    assert "| a first table |" in once
    assert "| a first table |" not in twice
    assert filled(twice, part, "| a first table |") == once
    assert once.partition("<!--")[0] == page.partition("<!--")[0]
    assert once.rpartition("-->")[2] == page.rpartition("-->")[2]


def test_a_page_without_the_marks_is_left_as_it_is() -> None:
    with pytest.raises(SystemExit, match="has no <!-- speed table"):
        filled("# Another page", "speed", "| a table |")
