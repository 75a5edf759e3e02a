"""The state file as values: odd rows are left out, and two proxies that share a file lose nothing that protects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.concurrency import LearntLimit
from policies.saved import SECTIONS, Known, OpenBreaker, Saved, StandingRefusal, decode, merge, seen_in
from policies.windows import Learnt
from tests.rows import over

WALL = 1.7e9
BREAKER = OpenBreaker("zai", "", WALL + 60, 3)
REFUSAL = StandingRefusal("blocked", "a", "zcode", "zcode", WALL + 60, 60.0)
LIMIT = LearntLimit("zai", "a", "glm-5", 2, WALL)
WINDOW = Learnt("zai", "glm-5", False, 98_304, "maximum context length", WALL)
ROWS: dict[str, Any] = {"breakers": BREAKER, "refusals": REFUSAL, "windows": WINDOW, "limits": LIMIT}


def with_rows(rows: Mapping[str, list[Any]]) -> Saved:
    saved = Saved(saved_at=WALL)
    for section in SECTIONS:
        setattr(saved, section, rows.get(section, []))
    return saved


def fields(**given: object) -> dict[str, msgspec.Raw]:
    return msgspec.json.decode(msgspec.json.encode(given), type=dict[str, msgspec.Raw])


def test_every_section_is_read_as_it_was_written() -> None:
    assert set(ROWS) == set(SECTIONS)
    saved = with_rows({name: [row] for name, row in ROWS.items()})
    read, complaints = decode(msgspec.json.decode(msgspec.json.encode(saved), type=dict[str, msgspec.Raw]))
    assert (read, complaints) == (saved, [])


def test_an_older_files_further_fields_are_no_matter() -> None:
    row = {**msgspec.to_builtins(WINDOW), "seen": 2}
    assert decode(fields(windows=[row], breakers=[{**msgspec.to_builtins(BREAKER), "epoch": 1}]))[1] == []


ODD: dict[str, dict[str, list[object]]] = {
    "breakers": {
        "upstream": [1, None], "account": [None, 7], "ends_at": ["soon", True, 10**400, -1.0, None, 1e13],
        "strikes": ["3", -1, 1.5, True],
    },
    "refusals": {
        "kind": ["wait", ["blocked"], None], "account": [None, 7], "digest": [[]], "upstream": [1], "code": [3012],
        "ends_at": ["soon", True, 10**400, 1e13], "left": [10**400, -1, None, 1e9],
    },
    "windows": {
        "tokens": ["98304", 999, -1, 10**12, True, None], "thinking": ["no"], "when": ["yesterday", None],
        "model": [5, "m" * 10_000], "source": [None],
    },
}  # fmt: skip


@over(
    ("section", "name", "value"),
    [(section, name, value) for section, names in ODD.items() for name, values in names.items() for value in values],
)
def test_an_odd_row_is_left_out_and_named_and_the_rest_is_kept(section: str, name: str, value: object) -> None:
    whole = msgspec.to_builtins(ROWS[section])
    saved, complaints = decode(fields(**{section: [{**whole, name: value}, whole]}))
    assert getattr(saved, section) == [ROWS[section]]
    assert len(complaints) == 1
    assert complaints[0].startswith(f"{section}[0]: ")
    assert name in complaints[0] or "out of range" in complaints[0]


@over("section", SECTIONS)
@over("row", [None, [], "row", {}, 5])
def test_what_is_no_row_is_left_out_and_named(section: str, row: object) -> None:
    whole = msgspec.to_builtins(ROWS[section])
    saved, complaints = decode(fields(**{section: [whole, row]}))
    assert getattr(saved, section) == [ROWS[section]]
    assert [complaint.partition(": ")[0] for complaint in complaints] == [f"{section}[1]"]


@over("section", SECTIONS)
@over("rows", [None, {}, "x", 5])
def test_what_is_no_list_of_rows_is_named(section: str, rows: object) -> None:
    saved, complaints = decode(fields(**{section: rows}))
    assert getattr(saved, section) == []
    assert [complaint.partition(", got")[0] for complaint in complaints] == [f"{section}: Expected `array`"]


# -- two proxies on one file ----------------------------------------------------------------------------------


class Proxy:
    """Rows that one proxy holds, and what it has seen in the file."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, Any], Any] = {}
        self.known: Known = {}

    def hold(self, row: Any) -> None:
        section = next(name for name, kind in ROWS.items() if type(kind) is type(row))
        self.rows[section, row.key] = row

    def save(self, file: Saved, wall: float = WALL) -> Saved:
        mine = with_rows({name: [row for key, row in self.rows.items() if key[0] == name] for name in SECTIONS})
        written, news = merge(mine, file, self.known, wall)
        for section in SECTIONS:
            for row in getattr(news, section):
                self.hold(row)
        return written


@over("row", ROWS.values())
def test_what_one_proxy_has_learnt_the_other_takes_up_and_keeps(row: Any) -> None:
    one, other = Proxy(), Proxy()
    one.hold(row)
    file = other.save(one.save(Saved()))
    assert list(other.rows.values()) == [row]
    assert one.save(file) == file == with_rows({name: [row] for name, kind in ROWS.items() if kind is row})


@pytest.mark.parametrize("first", [True, False])
def test_the_later_end_wins(first: bool) -> None:
    one, other = Proxy(), Proxy()
    later = msgspec.structs.replace(BREAKER, until=WALL + 90)
    one.hold(BREAKER if first else later)
    other.hold(later if first else BREAKER)
    file = one.save(other.save(one.save(Saved())))
    assert file.breakers == [later]
    assert next(iter(one.rows.values())) == later


def test_what_was_ended_here_is_not_taken_up_again_but_a_new_block_is() -> None:
    one, other = Proxy(), Proxy()
    one.hold(BREAKER)
    file = other.save(one.save(Saved()))
    one.rows.clear()
    file = one.save(file)
    assert not file.breakers
    file = one.save(other.save(file))
    assert not one.rows
    other.hold(msgspec.structs.replace(BREAKER, until=WALL + 120))
    one.save(other.save(file))
    assert one.rows


def test_a_block_made_shorter_here_stays_shorter() -> None:
    one = Proxy()
    one.hold(BREAKER)
    file = one.save(Saved())
    one.hold(msgspec.structs.replace(BREAKER, until=WALL + 10))
    assert one.save(file).breakers[0].until == WALL + 10


def test_an_end_told_by_a_clock_that_drifts_is_no_news() -> None:
    one, other = Proxy(), Proxy()
    one.hold(BREAKER)
    file = other.save(one.save(Saved()))
    other.rows.clear()
    one.hold(msgspec.structs.replace(BREAKER, until=BREAKER.until + 0.5))
    other.save(one.save(file))
    assert not other.rows


def test_what_is_over_is_not_taken_up() -> None:
    one, other = Proxy(), Proxy()
    one.hold(BREAKER)
    other.save(one.save(Saved()), WALL + 61)
    assert not other.rows


def test_the_files_key_stands() -> None:
    assert merge(Saved(key="mine"), Saved(key="theirs"), {}, WALL).written.key == "theirs"
    assert merge(Saved(key="mine"), Saved(), {}, WALL).written.key == "mine"


def test_what_was_seen_is_forgotten_when_it_is_over() -> None:
    known = seen_in(Saved(breakers=[BREAKER]))
    merge(Saved(), Saved(), known, WALL + 61)
    assert known == {}


STEPS = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from(["hold", "save", "drop"]), st.sampled_from("ab"), st.integers(5, 500)),
    max_size=40,
)


@given(STEPS)
def test_a_block_that_nobody_ended_is_held_by_whoever_saved_last(steps: list[tuple[int, str, str, int]]) -> None:
    proxies, file, wall = [Proxy() for _ in range(3)], Saved(), WALL
    latest: dict[str, float] = {}
    dropped = set()
    for who, what, account, seconds in steps:
        wall += 1
        row = StandingRefusal("blocked", account, "zcode", "zcode", wall + seconds, float(seconds))
        if what == "hold":
            old = proxies[who].rows.get(("refusals", row.key))
            if old is None or old.until < row.until:
                proxies[who].hold(row)
                latest[account] = max(latest.get(account, 0.0), row.until)
        elif what == "drop":
            dropped.add(account)
            proxies[who].rows.pop(("refusals", row.key), None)
        else:
            file = proxies[who].save(file, wall)
    for proxy in proxies:
        file = proxy.save(file, wall)
    held = {row.account: row.until for row in file.refusals}
    for account, end in latest.items():
        if account not in dropped and end > wall:
            assert held[account] >= end - 1.0
