"""Documents: what they say of the code is so, their links lead somewhere, and the Chinese README keeps step."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from operations.flow_adapter import PASSED_REFUSAL, REFUSED_HERE, REPLACED, RESENT
from policies.kinds import Challenge, Finding, Kind, Reason
from policies.patience import ROWS
from policies.reply import wording
from policies.request.surfaces import BUILT_IN
from policies.settings_file import parse

ROOT = Path(__file__).parents[1]
PAGES = sorted(path for path in (ROOT, ROOT / "docs") for path in path.glob("*.md"))
ENGLISH, CHINESE = (ROOT / name for name in ("README.md", "README.zh-CN.md"))
SHOWN = re.compile(r"<!--.*?-->", re.DOTALL)
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
ANALYZE = shutil.which("systemd-analyze")


def text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def prose(path: Path) -> str:
    return FENCED.sub("", text(path))


def commands(path: Path) -> list[str]:
    """Lines of shell, without what a comment says."""
    return [
        re.sub(r"\s+#.*", "", line) for kind, block in FENCED.findall(text(path)) if kind == "sh" for line in block.splitlines()
    ]


def headings(path: Path) -> list[int]:
    return [len(signs) for signs in re.findall(r"^(#+) ", prose(path), re.MULTILINE)]


def tables(path: Path) -> list[tuple[int, list[str]]]:
    """Of each row: its columns, and what is code in it."""
    rows = re.findall(r"^\|.*\|$", prose(path), re.MULTILINE)
    return [(row.count("|"), re.findall(r"`([^`]+)`", row)) for row in rows]


def anchors(path: Path) -> set[str]:
    return {
        re.sub(r"[^\w\- ]", "", line).strip().lower().replace(" ", "-")
        for line in re.findall(r"^#+ (.*)$", prose(path), re.MULTILINE)
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if target.startswith("http"):
            continue
        name, _, anchor = target.partition("#")
        file = page.parent / name if name else page
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), target


def test_each_page_of_docs_is_reached_from_the_readme() -> None:
    reached, new = set(), {ENGLISH}
    while new:
        page = new.pop()
        reached.add(page)
        linked = {(page.parent / name).resolve() for name in re.findall(r"\]\(([^)#\s]+\.md)", text(page)) if "://" not in name}
        new |= linked - reached
    assert {page.resolve() for page in PAGES} <= reached


def test_the_readme_is_short() -> None:
    shown = SHOWN.sub("", text(ENGLISH))
    assert sum(bool(re.search(r"\w", word)) for word in shown.split()) <= 1200


def test_the_chinese_readme_keeps_step() -> None:
    assert headings(CHINESE) == headings(ENGLISH)
    assert commands(CHINESE) == commands(ENGLISH)
    assert tables(CHINESE) == tables(ENGLISH)
    assert SHOWN.findall(text(CHINESE)) == SHOWN.findall(text(ENGLISH))
    links = [re.findall(r"\]\(([^)\s]+)\)", text(page).split("\n", 4)[4]) for page in (CHINESE, ENGLISH)]
    assert links[0] == links[1]
    assert prose(CHINESE).count("\n- ") == prose(ENGLISH).count("\n- ")


def test_each_reason_is_explained_and_no_other() -> None:
    page = text(ROOT / "docs" / "answers.md")
    explained = set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) | {"answer", "nothing"}
    assert explained == {reason.value for reason in Reason}


def test_each_mark_has_its_filter() -> None:
    page = text(ROOT / "docs" / "mitmweb.md")
    for mark in (REFUSED_HERE, REPLACED, RESENT, PASSED_REFUSAL):
        assert any(name in mark for name in re.findall(r"`~marker (\w+)`", page))


def test_the_page_of_clients_says_what_the_code_knows() -> None:
    page = text(ROOT / "docs" / "clients.md")
    for row in ROWS:
        assert re.search(rf"User-Agent `{re.escape(row.agent)}` \| {row.seconds:.0f} \|", page), row
    said = re.findall(r"^\| `([\w-]+)` \| (\S+\.\S.*?) \| ([\w-]+) \|$", page, re.MULTILINE)
    assert said == [(each.name, ", ".join(each.hosts), each.family.value) for each in BUILT_IN]


def test_the_words_that_agents_are_said_to_show_are_ours() -> None:
    captcha = Finding(Kind.CHALLENGE, challenge=Challenge.CAPTCHA)
    assert f"\n> {wording.challenge(captcha, site='api.z.ai')}\n" in text(ROOT / "docs" / "agents.md")


@pytest.mark.skipif(ANALYZE is None, reason="needs systemd-analyze, which this machine has not")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    unit = next(block for kind, block in FENCED.findall(text(ROOT / "docs" / "service.md")) if kind == "ini")
    here = tmp_path / "breakwater.service"
    here.write_text(unit.replace("%h/.local/bin/breakwater", "/bin/true"))
    assert ANALYZE
    said = subprocess.run([ANALYZE, "--man=no", "verify", here], capture_output=True, text=True, check=False, timeout=60)
    assert "breakwater.service" not in said.stderr, said.stderr
    assert said.returncode == 0, said.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_settings_in_the_pages_are_taken(page: Path) -> None:
    for kind, block in FENCED.findall(text(page)):
        if kind == "yaml" and "scrape_configs" not in block:
            parse(block, page.name, {}, BUILT_IN)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_shell_of_the_pages_is_shell(page: Path) -> None:
    for kind, block in FENCED.findall(text(page)):
        if kind == "sh":
            said = subprocess.run(["bash", "-n"], input=block, capture_output=True, text=True, check=False)
            assert said.returncode == 0, f"{block}\n{said.stderr}"
