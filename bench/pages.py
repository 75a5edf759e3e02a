"""Pages of docs/ that a run of a benchmark fills: each table stands between two marks."""

from __future__ import annotations

from pathlib import Path


def filled(page: str, part: str, text: str) -> str:
    """The page with this text as the table of that part, instead of the one before."""
    begin, end = f"<!-- {part} table: filled by the quiet run -->", f"<!-- end of the {part} table -->"
    before, found, rest = page.partition(begin)
    _, ended, after = rest.partition(end)
    if not (found and ended):
        raise SystemExit(f"the page has no {begin} … {end}")
    return f"{before}{begin}\n\n{text}\n\n{end}{after}"


def fill(page: Path, part: str, text: str) -> None:
    page.write_text(filled(page.read_text(encoding="utf-8"), part, text), encoding="utf-8")
