"""What is looked at of an answer whose headers come late, and off the generation paths."""

from __future__ import annotations

import pytest

from policies.decisions import Commit, Replace
from policies.judge import FIRST_LOOK_SECONDS, Judge, reads
from policies.kinds import Head
from tests.policies.exchanges import MTOP, Controller
from tests.rows import over

JSON = ("content-type", "application/json")


@pytest.mark.parametrize("late", [0.0, 39.5, 90.0])
def test_headers_have_their_first_bytes_judged_however_late_they_come(late: float) -> None:
    controller = Controller()
    ex = controller.sent()
    controller.now += late
    judge = Judge(ex, Head(200, (JSON,)), controller.now)
    assert judge.deadline() >= controller.now + FIRST_LOOK_SECONDS
    assert judge.reader.feed(MTOP) is None, "its end has not come"
    controller.now = judge.deadline()
    assert isinstance(judge.tick(controller.now, controller.wall), Replace)


def test_an_unsaid_length_off_the_generation_paths_leaves_one_look() -> None:
    controller = Controller()
    for length, decided in (((), True), ((("content-length", "5000"),), False)):
        ex = controller.sent(path="/api/paas/v4/models")
        judge = Judge(ex, Head(200, (JSON, *length)), controller.now)
        finding = judge.reader.feed(b'{"data":[')
        assert (finding is not None) == decided
        if finding is not None:
            assert isinstance(judge.decide(finding, controller.now, controller.wall), Commit)


def test_a_challenge_in_that_look_is_told() -> None:
    controller = Controller()
    ex = controller.sent(path="/api/paas/v4/models")
    judge = Judge(ex, Head(200, (JSON,)), controller.now)
    finding = judge.reader.feed(MTOP)
    assert finding is not None
    assert isinstance(judge.decide(finding, controller.now, controller.wall), Replace)


@over(("length", "read"), [("12", True), ("1" * 5000, False), ("٣", True), ("x", True), ("", True)])
def test_a_length_of_any_digits_is_compared(length: str, read: bool) -> None:
    controller = Controller()
    ex = controller.sent(path="/api/paas/v4/models")
    assert reads(ex, Head(200, (JSON, ("content-length", length)))) is read
