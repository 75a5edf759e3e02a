"""The line before an upstream: who goes, who waits, who is told."""

from __future__ import annotations

from typing import Any

import pytest

from policies import hurdles
from policies.breaker import LEASE_SECONDS, BreakerState
from policies.concurrency import Limits
from policies.hurdles import Refusal, Refused
from policies.kinds import Reason
from policies.queue import MOVES, SIDE_SECONDS, Asking, Move, Place, Returning, Standing
from policies.settings import BreakerSettings, Concurrency, QueueSettings
from policies.shared import SharedBreaker
from policies.turns import Line
from tests.rows import over

CHALLENGE = Refusal(Refused.CHALLENGE)
CROWD = Refusal(Refused.CROWD)


class Lab:
    """A line with its clock."""

    def __init__(self, concurrency: Concurrency = "learn", **settings: Any) -> None:
        self.now = 1000.0
        self.breaker = SharedBreaker(BreakerSettings(), 59, upstream="zai")
        self.line = Line(QueueSettings(**settings), lambda *_: self.breaker, lambda _: concurrency)

    def comes(self, name: str, **more: Any) -> Place:
        facts = {"session": name, "digest": name, "patience": 280.0, "model": "glm", **more}
        return self.line.arrive(Asking("zai", facts.pop("account", "acc"), **facts), self.now)

    def refused(self, place: Place, refusal: Refusal = CHALLENGE) -> None:
        self.line.refused(place, refusal, self.now)

    def answered(self, place: Place) -> list[Place]:
        self.line.answered(place, self.now)
        return self.due()

    def due(self) -> list[Place]:
        return [p for p in self.line.due(self.now) if p.standing is Standing.UNDER_WAY]

    def later(self, seconds: float) -> list[Place]:
        self.now += seconds
        return self.due()

    def opened(self) -> Lab:
        self.breaker.open(self.now)
        return self


def names(places: list[Place]) -> str:
    return "".join(str(place.asking.digest) for place in places)


def test_with_nothing_in_the_way_everybody_goes_at_once() -> None:
    lab = Lab()
    assert all(lab.comes(str(n)).standing is Standing.UNDER_WAY for n in range(50))
    assert lab.line.next_look() is None


def test_a_long_line_makes_a_coming_no_dearer(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Place] = []
    block = hurdles.Hurdles.block
    monkeypatch.setattr(hurdles.Hurdles, "block", lambda own, place, *a, **k: asked.append(place) or block(own, place, *a, **k))  # type: ignore[func-returns-value]
    lab = Lab().opened()
    for number in range(200):
        place = lab.comes(str(number), account=str(number))
        assert asked[-1] is place
        assert lab.line.next_look() == lab.now + 59
    assert len(asked) == 200


def test_the_line_is_looked_at_when_the_first_patience_ends_whoever_has_it() -> None:
    lab = Lab().opened()
    for number, patience in enumerate((40.0, 30.0, 50.0)):
        lab.comes(str(number), patience=patience)
    assert lab.line.next_look() == lab.now + 30
    lab.later(30.0)
    assert lab.line.next_look() == lab.now + 10


def test_a_coming_that_lets_another_go_says_that_it_is_to_be_woken() -> None:
    lab = Lab().opened()
    first = lab.comes("first")
    lab.now += 60.0  # the timer is late
    second = lab.comes("second")
    assert (first.standing, second.standing) == (Standing.UNDER_WAY, Standing.WAITING)
    look = lab.line.next_look()
    assert look is not None
    assert look < lab.now
    assert lab.due() == [first]


def test_a_coming_that_is_told_at_once_leaves_nothing_to_look_at() -> None:
    lab = Lab().opened()
    assert lab.comes("x", patience=0.0).standing is Standing.TOLD
    assert lab.line.next_look() is None


def test_after_an_opening_one_goes_first_and_the_others_follow_by_twos() -> None:
    lab = Lab().opened()
    places = [lab.comes(str(n)) for n in range(40)]
    assert {p.standing for p in places} == {Standing.WAITING}
    assert lab.line.next_look() == lab.now + 59
    out = lab.later(59.0)
    assert names(out) == "0"
    assert lab.line.why(places[1], lab.now).why is Reason.PROBE_OUT  # type: ignore[union-attr]
    sizes = []
    while out:
        out = [p for place in out for p in lab.answered(place)]
        sizes.append(len(out))
    assert sizes[0] == 1
    assert sum(sizes) == 39
    assert lab.comes("x").standing is Standing.UNDER_WAY


def test_a_refusal_goes_back_to_one() -> None:
    lab = Lab()
    first, second = lab.comes("a"), lab.comes("b")
    lab.refused(first)
    assert lab.comes("c").standing is Standing.UNDER_WAY
    assert lab.comes("d").standing is Standing.WAITING
    lab.refused(second)
    assert lab.due() == [], "what was sent before the refusal begins no round of its own"


def test_main_requests_go_before_side_ones_and_never_sent_before_refused() -> None:
    lab = Lab(1)
    lab.refused(lab.comes("r"))
    lab.opened()
    lab.comes("s", side=True)
    lab.comes("r")
    lab.comes("n")
    assert order(lab, 3) == "nrs"


def test_an_opening_by_hand_forgets_the_round_before_it() -> None:
    lab = Lab()
    lab.refused(lab.comes("a"))
    assert lab.comes("b").standing is Standing.UNDER_WAY
    lab.opened()
    place = lab.comes("c")
    assert lab.later(59.0) == [place]
    assert lab.comes("d").standing is Standing.WAITING
    assert names(lab.answered(place)) == "d"


def order(lab: Lab, count: int) -> str:
    """One after the other is sent and ends."""
    out = lab.later(59.0)
    text = ""
    while out and len(text) < count:
        text += names(out)
        for place in out:
            lab.line.ended(place, lab.now)
        out = lab.due()
    return text


def test_one_that_waited_before_keeps_its_place_when_its_client_comes_again() -> None:
    lab = Lab().opened()
    gone = lab.comes("a", patience=10.0)
    lab.now += 1
    lab.comes("b")
    lab.now += 10
    lab.line.due(lab.now)
    assert gone.told is not None
    lab.comes("a", session="a")
    assert order(lab, 2) == "ab"


def test_a_session_does_not_get_ahead_by_asking_more_often() -> None:
    lab = Lab(1).opened()
    for digest in "1234":
        lab.comes(digest, session="greedy")
    lab.comes("x", session="modest")
    assert order(lab, 5).index("x") == 1


def test_a_place_is_ones_own_account_s() -> None:
    lab = Lab()
    lab.refused(lab.comes("a"))
    other = lab.comes("a", account="other")
    assert other.refusals == 0


def test_the_first_refusal_is_told_and_the_next_is_held_until_its_turn() -> None:
    lab = Lab()
    first = lab.comes("a")
    lab.refused(first, Refusal(Refused.CHALLENGE, wait=30))
    assert first.standing is Standing.TOLD
    assert first.told is not None
    assert (first.told.why, first.told.left) == (Reason.REMEMBERED_WAIT, 30)
    lab.now += 30
    again = lab.comes("a")
    lab.refused(again, Refusal(Refused.CHALLENGE, wait=40))
    assert again.standing is Standing.WAITING
    assert lab.line.next_look() == lab.now + 40
    assert lab.later(39.9) == []
    assert lab.later(0.1) == [again]
    lab.refused(again)
    assert lab.breaker.current(lab.now) is BreakerState.OPEN, "each send is a strike of its own"
    assert again.standing is Standing.WAITING


@over(
    ("asking", "refusal"),
    [
        ({"holdable": False}, CHALLENGE),
        ({}, Refusal(Refused.CHALLENGE, curable=False)),
        ({"patience": 0.0}, CHALLENGE),
        ({}, Refusal(Refused.RATE_LIMIT)),
    ],
)
def test_what_waiting_does_not_cure_is_told_every_time(asking: dict[str, Any], refusal: Refusal) -> None:
    lab = Lab()
    lab.refused(lab.comes("a"))
    again = lab.comes("a", **asking)
    lab.refused(again, refusal)
    assert again.standing is Standing.TOLD


def test_after_an_answer_the_next_refusal_is_a_first_one() -> None:
    lab = Lab()
    lab.refused(lab.comes("a"))
    good = lab.comes("a")
    lab.answered(good)
    for _ in range(2):
        lab.line.ended(good, lab.now)
    third = lab.comes("a")
    lab.refused(third)
    assert third.standing is Standing.TOLD


def test_its_own_wait_is_waited_for_here() -> None:
    lab = Lab()
    place = lab.comes("a", not_before=lab.now + 12)
    assert lab.line.why(place, lab.now).why is Reason.REMEMBERED_WAIT  # type: ignore[union-attr]
    assert lab.comes("b").standing is Standing.UNDER_WAY
    assert lab.later(12) == [place]


def test_patience_ends_with_the_truth() -> None:
    lab = Lab().opened()
    place = lab.comes("a", patience=25.0)
    assert lab.line.next_look() == lab.now + 25
    lab.now += 25
    assert lab.line.due(lab.now) == (place,)
    assert place.told is not None
    assert (place.told.why, place.told.left) == (Reason.BREAKER_OPEN, 34)
    assert place.waited == 25
    assert lab.line.due(lab.now) == ()


def test_where_the_queue_is_off_it_is_told_at_once_and_of_a_probe_what_is_left_of_its_lease() -> None:
    lab = Lab("off", seconds=0).opened()
    told = lab.comes("a").told
    assert told is not None
    assert (told.why, told.left) == (Reason.BREAKER_OPEN, 59)
    lab.now += 59
    probe = lab.comes("a")
    lab.now += 20
    told = lab.comes("b").told
    assert told is not None
    assert (told.why, told.left) == (Reason.PROBE_OUT, LEASE_SECONDS - 20)
    lab.line.heard(probe, lab.now)
    assert lab.comes("c").told.left == LEASE_SECONDS  # type: ignore[union-attr]


def test_where_the_queue_is_off_nothing_starts_slowly_and_no_stated_wait_holds_others() -> None:
    lab = Lab("off", seconds=0)
    lab.refused(lab.comes("a"), Refusal(Refused.RATE_LIMIT, stated=40))
    lab.refused(lab.comes("b"), Refusal(Refused.OVERLOAD))
    lab.refused(lab.comes("c"))
    assert all(lab.comes(str(n)).standing is Standing.UNDER_WAY for n in range(5))


def test_a_full_queue_refuses_the_next_and_only_it() -> None:
    lab = Lab(size=2).opened()
    assert [lab.comes(n).standing for n in "abc"] == [Standing.WAITING, Standing.WAITING, Standing.TOLD]
    assert lab.later(59.0)[0].asking.digest == "a"
    assert lab.comes("d").standing is Standing.WAITING


def test_a_side_request_is_no_probe_while_a_main_one_waits_or_has_just_come() -> None:
    lab = Lab().opened()
    side = lab.comes("s", side=True)
    main = lab.comes("m", not_before=lab.now + 100)
    assert lab.later(59.0) == []
    lab.line.ended(main, lab.now)
    assert lab.due() == [side]
    lab.line.ended(side, lab.now)
    main = lab.comes("m")
    lab.line.ended(main, lab.now)
    side = lab.comes("s", side=True)
    assert side.standing is Standing.WAITING
    assert lab.line.next_look() == lab.now + 5
    assert lab.later(5.0) == [side]


def test_a_side_request_that_waited_long_stands_among_the_main_ones() -> None:
    lab = Lab(1)
    running = lab.comes("x")
    side = lab.comes("s", side=True)
    lab.comes("m")
    lab.now += SIDE_SECONDS
    lab.comes("n")
    lab.line.ended(running, lab.now)
    assert lab.due() == [side]


def test_a_crowd_goes_back_to_the_head_five_times_and_is_then_told() -> None:
    lab = Lab()
    place = lab.comes("a")
    for pause in (5, 10, 20, 30, 30):
        lab.refused(place, CROWD)
        assert place.standing is Standing.WAITING
        lab.comes(str(pause))
        assert lab.later(pause) == [place]
    lab.refused(place, CROWD)
    assert place.standing is Standing.TOLD


def test_a_crowd_is_told_where_concurrency_is_off() -> None:
    lab = Lab("off")
    place = lab.comes("a")
    lab.refused(place, CROWD)
    assert place.standing is Standing.TOLD


def test_a_stated_wait_holds_back_its_account_and_model_and_no_other() -> None:
    lab = Lab()
    lab.refused(lab.comes("a"), Refusal(Refused.RATE_LIMIT, wait=40, stated=40))
    behind = [lab.comes(n) for n in "bcd"]
    assert {p.standing for p in behind} == {Standing.WAITING}
    assert lab.comes("e", model="other").standing is Standing.UNDER_WAY
    assert lab.comes("f", account="other").standing is Standing.UNDER_WAY
    assert lab.line.next_look() == lab.now + 40
    assert names(lab.later(40.0)) == "b", "one goes first when it ends"
    assert names(lab.answered(behind[0])) == "c"


def test_a_longer_stated_wait_is_told_for_a_minute_at_a_time_and_then_one_asks_again() -> None:
    lab = Lab()
    queued = lab.comes("q", not_before=lab.now + 1)
    lab.refused(lab.comes("a"), Refusal(Refused.RATE_LIMIT, wait=59, stated=3600))
    assert lab.line.due(lab.now + 1) == (queued,)
    assert queued.standing is Standing.TOLD
    lab.now += 1
    told = lab.comes("b").told
    assert told is not None
    assert (told.why, told.left) == (Reason.STATED_WAIT, 58)
    lab.now += 58
    again, behind = lab.comes("b"), lab.comes("c")
    assert (again.standing, behind.standing) == (Standing.UNDER_WAY, Standing.WAITING)
    lab.refused(again, Refusal(Refused.RATE_LIMIT, wait=59, stated=3500))
    assert lab.line.due(lab.now) == (behind,)
    assert behind.standing is Standing.TOLD


def test_an_overload_without_a_stated_wait_only_makes_its_own_model_start_slowly() -> None:
    lab = Lab()
    lab.refused(lab.comes("a"), Refusal(Refused.OVERLOAD, wait=30))
    assert [lab.comes(n).standing for n in "bc"] == [Standing.UNDER_WAY, Standing.WAITING]
    assert all(lab.comes(n, model="other").standing is Standing.UNDER_WAY for n in "de")


def test_a_client_that_leaves_costs_no_send_and_blocks_nobody() -> None:
    lab = Lab().opened()
    first, second = lab.comes("a"), lab.comes("b")
    lab.line.ended(first, lab.now)
    assert lab.later(59.0) == [second]
    assert first.permit is None


def test_a_probe_that_leaves_hands_its_turn_on() -> None:
    lab = Lab().opened()
    lab.comes("a")
    second = lab.comes("b")
    (probe,) = lab.later(59.0)
    lab.line.ended(probe, lab.now)
    assert lab.due() == [second]
    lab.line.ended(probe, lab.now)
    assert lab.due() == []


def test_closing_by_hand_lets_everybody_go_and_the_end_of_the_process_tells_everybody() -> None:
    lab = Lab().opened()
    places = [lab.comes(str(n), not_before=lab.now + 30) for n in range(30)]
    lab.breaker.close(lab.now)
    lab.line.release("zai", lab.now)
    assert lab.due() == places
    lab.opened()
    last = lab.comes("x")
    lab.line.close(lab.now)
    assert last.told is not None
    assert last.told.why is Reason.CLOSING


def test_changed_settings_let_everybody_go_and_nothing_of_them_counts() -> None:
    lab = Lab().opened()
    place = lab.comes("a")
    lab.line.update(QueueSettings(seconds=0), lab.now)
    assert lab.line.due(lab.now) == (place,)
    assert place.standing is Standing.OVER
    assert place.told is None


def test_what_is_remembered_of_those_who_may_come_again_is_bounded() -> None:
    lab = Lab()
    lab.line._returning = Returning(limit=3)
    for name in "abcd":
        lab.refused(lab.comes(name), Refusal(Refused.RATE_LIMIT))
    assert [lab.comes(name).refusals for name in "abcd"] == [0, 1, 1, 1]
    lab.now += 600
    assert lab.comes("d").refusals == 0


@over("standing", Standing)
@over("move", Move)
def test_a_move_that_the_table_has_not_changes_nothing(standing: Standing, move: Move) -> None:
    place = Lab().comes("a")
    place.standing = standing
    assert place.move(move, 1.0) == (move in MOVES[standing])
    assert place.standing is MOVES[standing].get(move, standing)


def test_what_is_over_moves_nothing_however_often_it_is_reported() -> None:
    lab = Lab()
    place = lab.comes("a")
    lab.line.ended(place, lab.now)
    for _ in range(2):
        assert lab.line.answered(place, lab.now) is None
        assert lab.line.ended(place, lab.now) is None
        lab.refused(place)
    assert place.standing is Standing.OVER


def test_one_of_a_crowd_goes_before_those_who_were_never_sent() -> None:
    lab = Lab(1)
    lab.refused(lab.comes("r"), Refusal(Refused.RATE_LIMIT))
    running = lab.comes("r")
    lab.comes("n")
    lab.refused(running, CROWD)
    assert lab.due() == []
    assert lab.later(5.0) == [running]


def test_a_place_at_the_head_is_for_one_turn() -> None:
    lab = Lab(1)
    place = lab.comes("x")
    lab.refused(place, CROWD)
    lab.later(5.0)
    assert not place.head


def test_whoever_leaves_between_its_turn_and_its_waking_is_not_handed_out() -> None:
    lab = Lab().opened()
    place = lab.comes("a")
    lab.now += 59
    lab.line._serve_all(lab.now)
    assert place.standing is Standing.UNDER_WAY
    lab.line.ended(place, lab.now)
    assert lab.line.due(lab.now) == ()
    assert lab.comes("b").standing is Standing.UNDER_WAY


def test_an_end_makes_room_in_a_slow_start() -> None:
    lab = Lab()
    lab.refused(lab.comes("a"))
    first, second = lab.comes("b"), lab.comes("c")
    lab.line.ended(first, lab.now)
    assert lab.due() == [second]


@over("refusal", [Refusal(Refused.RATE_LIMIT, stated=40), Refusal(Refused.OVERLOAD), CHALLENGE, CROWD], ids=lambda r: r.kind)
def test_closing_by_hand_ends_stated_waits_slow_starts_and_pauses(refusal: Refusal) -> None:
    lab = Lab(3)
    lab.refused(lab.comes("a"), refusal)
    first, second = lab.comes("b"), lab.comes("c")
    lab.line.release("zai", lab.now)
    assert {first.standing, second.standing} == {Standing.UNDER_WAY}


def test_a_session_that_asked_much_before_is_not_held_back_when_the_line_was_empty() -> None:
    lab = Lab(1)
    for _ in range(3):
        lab.line.ended(lab.comes("x", session="one"), lab.now)
    lab.opened()
    lab.comes("a", session="one")
    lab.now += 1
    lab.comes("b", session="two")
    assert order(lab, 2) == "ab"


def test_a_session_that_comes_late_begins_where_the_others_stand() -> None:
    lab = Lab(1).opened()
    for digest in "1234":
        lab.comes(digest, session="first")
    (one,) = lab.later(59.0)
    lab.line.ended(one, lab.now)
    (two,) = lab.due()
    for digest in "abc":
        lab.comes(digest, session="late")
    lab.line.ended(two, lab.now)
    text = ""
    out = lab.due()
    while out:
        text += names(out)
        lab.line.ended(out[0], lab.now)
        out = lab.due()
    assert text == "a3b4c"


def test_a_side_request_stands_behind_a_main_one_that_came_later() -> None:
    lab = Lab(1)
    running = lab.comes("x")
    lab.comes("s", side=True)
    lab.now += 1
    main = lab.comes("m")
    lab.line.ended(running, lab.now)
    assert lab.due() == [main]


def test_slow_starts_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hurdles, "_MOST_STARTS", 3)
    lab = Lab()
    for number in range(10):
        lab.refused(lab.comes("a", model=str(number)), Refusal(Refused.OVERLOAD))
    assert len(lab.line._hurdles._starts) == 3


def test_a_request_that_a_fault_meets_as_it_comes_stays_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab()
    for broken in (hurdles.Hurdles, "block"), (hurdles.Hurdles, "take"), (Limits, "sent"):
        with monkeypatch.context() as patch:
            patch.delattr(*broken)
            with pytest.raises(AttributeError):
                lab.comes("met")
        assert lab.line.waiting() == ()
        assert not lab.line._hurdles._under_way
    assert lab.comes("next").standing is Standing.UNDER_WAY
    assert lab.breaker.current(lab.now) is BreakerState.CLOSED
