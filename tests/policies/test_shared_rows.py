"""Told waits, blocked accounts and learnt windows, from one process to another."""

from __future__ import annotations

import msgspec

from policies import shared_rows
from policies.saved import LONGEST_SECONDS
from policies.shared_rows import Refusal, Row, RowKind, SharedRefusals, SharedWindows, Window
from tests.policies.test_refusal_memory import call
from tests.policies.test_windows import asked

SERVER = 1.7e9
WALL = 1.7e9


class Pair:
    """Two processes; what the first tells is heard by the second, whose clock shows something else."""

    def __init__(self) -> None:
        self.told: list[tuple[RowKind, Row]] = []
        self.here, self.there = SharedRefusals(), SharedRefusals()
        self.windows, self.other_windows = SharedWindows({}), SharedWindows({})
        self.here.tell = self.windows.tell = lambda kind, row: self.told.append((kind, row))

    def cross(self, now: float = 100.0, there: float = 5000.0) -> None:
        for kind, row in self.told:
            text = msgspec.json.encode(row.moved(SERVER - now))
            if kind == "window":
                window = shared_rows.read(text, Window, SERVER)
                assert window is not None
                self.other_windows.hear(window)
            else:
                heard = shared_rows.read(text, Refusal, SERVER)
                assert heard is not None
                self.there.hear(kind, heard.moved(there - SERVER), there)
        self.told.clear()


def refuse(memory: SharedRefusals, now: float, digest: str = "d") -> int:
    about = call(digest, upstream="zai", model="m")
    return memory.refused(about, None, now, first=30, cap=59, stated=None, sent=now)


def test_a_wait_that_was_told_here_is_told_there_with_what_is_left() -> None:
    pair = Pair()
    assert refuse(pair.here, 100.0) == 30
    pair.cross(now=110.0)
    found = pair.there.waiting("a", "d", 5000.0)
    assert found is not None
    assert abs(found.left - 20) < 1e-3


def test_the_next_refusal_is_told_twice_as_much_wherever_it_comes() -> None:
    pair = Pair()
    refuse(pair.here, 100.0)
    pair.cross()
    assert refuse(pair.there, 5031.0) == 59


def test_an_answer_here_ends_the_wait_there() -> None:
    pair = Pair()
    refuse(pair.here, 100.0)
    pair.here.answered(call())
    pair.cross()
    assert pair.there.waiting("a", "d", 5000.0) is None


def test_the_later_end_holds_and_nothing_heard_is_told_again() -> None:
    pair = Pair()
    said: list[object] = []
    pair.there.tell = lambda *row: said.append(row)
    refuse(pair.there, 5020.0)
    said.clear()
    refuse(pair.here, 100.0)
    pair.cross()
    found = pair.there.waiting("a", "d", 5020.0)
    assert found is not None
    assert abs(found.left - 30) < 1e-3
    assert not said


def test_a_blocked_account_is_blocked_there_until_it_is_reset_here() -> None:
    pair = Pair()
    pair.here.block(call(upstream="zcode", model="m"), "3012", 100.0, 1800)
    pair.cross()
    assert pair.there.blocked("a", "zcode", 5000.0) is not None
    pair.here.reset("zcode")
    pair.cross()
    assert pair.there.blocked("a", "zcode", 5000.0) is None


def test_what_a_request_cannot_help_stays_here() -> None:
    pair = Pair()
    pair.here.hopeless(call(upstream="zai"), "overflow", None, 100.0)
    pair.here.answered(call())
    pair.here.reset()
    assert not pair.told


def test_a_learnt_window_is_known_there_until_it_is_taken_back() -> None:
    pair = Pair()
    assert pair.windows.learn(asked("zai", "m"), 65536, "text", WALL)
    pair.cross()
    assert [row.tokens for row in pair.other_windows.learnt()] == [65536]
    pair.windows.succeeded(asked("zai", "m"), 100_000, WALL)
    pair.cross()
    assert not pair.other_windows.learnt()


def test_a_window_that_is_forgotten_is_forgotten_there() -> None:
    pair = Pair()
    pair.windows.learn(asked("zai", "m"), 65536, "text", WALL)
    pair.windows.forget("m")
    pair.cross()
    assert not pair.other_windows.learnt()


def test_rows_that_last_too_long_or_are_none_are_none() -> None:
    sound = Refusal("a", "d", "zai", left=30, until=SERVER + 30, forget_at=SERVER + 600)
    assert shared_rows.read(msgspec.json.encode(sound), Refusal, SERVER) == sound
    late = SERVER + LONGEST_SECONDS + 1
    for broken in (
        msgspec.structs.replace(sound, until=late),
        msgspec.structs.replace(sound, forget_at=late),
        msgspec.structs.replace(sound, left=-1.0),
        msgspec.structs.replace(sound, rounds=99),
        msgspec.structs.replace(sound, model="m" * 501),
    ):
        assert shared_rows.read(msgspec.json.encode(broken), Refusal, SERVER) is None
    assert shared_rows.read(b'{"account": 1}', Refusal, SERVER) is None
    assert shared_rows.read(b"{}", Window, SERVER) is None


def test_what_the_server_has_is_written_again_only_where_it_ends_earlier() -> None:
    row = Refusal("a", "d", "zai", left=30, until=SERVER + 30, forget_at=SERVER + 600)
    text = msgspec.json.encode(row).decode()
    sooner = msgspec.json.encode(msgspec.structs.replace(row, until=SERVER + 20)).decode()
    assert shared_rows.holds(text, text)
    assert shared_rows.holds(text, sooner)
    assert not shared_rows.holds(sooner, text)
    assert not shared_rows.holds("", text)


def test_a_row_is_kept_by_the_server_for_as_long_as_it_matters() -> None:
    pair = Pair()
    refuse(pair.here, 100.0)
    pair.windows.learn(asked("zai", "m"), 65536, "text", WALL)
    (_, wait), (_, window) = pair.told
    assert wait.lasts(WALL, 100.0) == 600
    assert window.lasts(WALL, 100.0) == 86_400
    assert all(len(msgspec.json.encode(row)) < 250 for _, row in pair.told)
