"""What is looked at of an answer whose headers come late, and off the generation paths."""

from __future__ import annotations

import pytest

from policies.answer.head import Head
from policies.decisions import Commit, Replace
from policies.rules import FIRST_LOOK_SECONDS, LONGEST_HOLD_SECONDS
from tests.policies.exchanges import MTOP, Controller

JSON = ("content-type", "application/json")


@pytest.mark.parametrize("late", [0.0, LONGEST_HOLD_SECONDS - 0.5, LONGEST_HOLD_SECONDS + 50])
def test_headers_have_their_first_bytes_judged_however_late_they_come(late: float) -> None:
    controller = Controller()
    ex = controller.sent()
    controller.now += late
    controller.rules.begin(ex, Head(200, (JSON,)), controller.now)
    assert controller.rules.deadline(ex) >= controller.now + FIRST_LOOK_SECONDS
    assert ex.reader
    assert ex.reader.feed(MTOP) is None, "its end has not come"
    controller.now = controller.rules.deadline(ex)
    assert isinstance(controller.rules.expire(ex, controller.now, controller.wall), Replace)


def test_an_unsaid_length_off_the_generation_paths_leaves_one_look() -> None:
    controller = Controller()
    for length, decided in (((), True), ((("content-length", "5000"),), False)):
        ex = controller.sent(path="/api/paas/v4/models")
        controller.rules.begin(ex, Head(200, (JSON, *length)), controller.now)
        assert ex.reader
        finding = ex.reader.feed(b'{"data":[')
        assert (finding is not None) == decided
        if finding is not None:
            assert isinstance(controller.rules.decide(ex, finding, controller.now, controller.wall), Commit)


def test_a_challenge_in_that_look_is_told() -> None:
    controller = Controller()
    ex = controller.sent(path="/api/paas/v4/models")
    controller.rules.begin(ex, Head(200, (JSON,)), controller.now)
    assert ex.reader
    finding = ex.reader.feed(MTOP)
    assert finding is not None
    assert isinstance(controller.rules.decide(ex, finding, controller.now, controller.wall), Replace)


@pytest.mark.parametrize(("length", "read"), [("12", True), ("1" * 5000, False), ("٣", True), ("x", True), ("", True)])
def test_a_length_of_any_digits_is_compared(length: str, read: bool) -> None:
    controller = Controller()
    ex = controller.sent(path="/api/paas/v4/models")
    assert controller.rules.reads(ex, Head(200, (JSON, ("content-length", length)))) is read
