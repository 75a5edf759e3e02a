"""The breaker: every event in every state, and what a client is told."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from policies.breaker import LEASE_SECONDS, TRANSITIONS, Breaker, BreakerState, Event, Permit, Refused, Transition, tell
from policies.kinds import Family
from policies.saved import OpenBreaker
from policies.settings import BreakerSettings, RetryAfterSettings, Settings, Upstream
from policies.state import Breakers
from tests.rows import over

CAP = 59
START = 1000.0
CLOSED, OPEN, HALF_OPEN, PROBING = BreakerState.CLOSED, BreakerState.OPEN, BreakerState.HALF_OPEN, BreakerState.PROBING


def passed(breaker: Breaker, now: float) -> Permit:
    permit = breaker.admit(now)
    assert isinstance(permit, Permit)
    return permit


def refused(breaker: Breaker, now: float) -> Refused:
    answer = breaker.admit(now)
    assert isinstance(answer, Refused)
    return answer


def opened(now: float = START, **settings: Any) -> Breaker:
    breaker = Breaker(BreakerSettings(**settings), CAP, upstream="zai")
    for _ in range(breaker.settings.strikes):
        breaker.challenged(passed(breaker, now), now)
    assert breaker.state(now).state is OPEN
    return breaker


class Case:
    """A breaker in a state, with a pass that it knows (where the state has one) and one of before."""

    def __init__(self, state: BreakerState) -> None:
        self.breaker = Breaker(BreakerSettings(), CAP, upstream="zai")
        self.old = passed(self.breaker, START)
        self.now = START + 1
        self.known = self.old
        if state is CLOSED:
            self.breaker.challenged(passed(self.breaker, START), START)
            self.breaker.open(START)
            self.breaker.close(START)
            self.known = passed(self.breaker, START)
            self.breaker.challenged(passed(self.breaker, START), START)
            return
        self.breaker.open(START)
        if state is not OPEN:
            self.now = START + CAP
        if state is PROBING:
            self.known = passed(self.breaker, self.now)
            self.now += 1


EVENTS: dict[str, Callable[[Case], object]] = {
    "answered": lambda case: case.breaker.answered(case.known, case.now),
    "challenged": lambda case: case.breaker.challenged(case.known, case.now),
    "ended": lambda case: case.breaker.ended(case.known, case.now),
    "an old request answered": lambda case: case.breaker.answered(case.old, case.now),
    "an old request challenged": lambda case: case.breaker.challenged(case.old, case.now),
    "an old request ended": lambda case: case.breaker.ended(case.old, case.now),
    "opened by hand": lambda case: case.breaker.open(case.now),
    "closed by hand": lambda case: case.breaker.close(case.now),
    "reset by hand": lambda case: case.breaker.reset(case.now),
    "a request": lambda case: case.breaker.admit(case.now),
    "a preparation step": lambda case: case.breaker.preparation(case.now),
}

# state, event -> state after, strikes after (of the one before), reason of the transition
MOVES: dict[tuple[BreakerState, str], tuple[BreakerState, int, str]] = {
    (CLOSED, "answered"): (CLOSED, 0, ""),
    (CLOSED, "challenged"): (CLOSED, 2, ""),
    (CLOSED, "opened by hand"): (OPEN, 1, "opened_by_hand"),
    (CLOSED, "closed by hand"): (CLOSED, 0, ""),
    (CLOSED, "reset by hand"): (CLOSED, 0, ""),
    (OPEN, "opened by hand"): (OPEN, 0, "opened_by_hand"),
    (OPEN, "closed by hand"): (CLOSED, 0, "closed_by_hand"),
    (OPEN, "reset by hand"): (CLOSED, 0, "reset_by_hand"),
    (HALF_OPEN, "a request"): (PROBING, 0, ""),
    (HALF_OPEN, "opened by hand"): (OPEN, 0, "opened_by_hand"),
    (HALF_OPEN, "closed by hand"): (CLOSED, 0, "closed_by_hand"),
    (HALF_OPEN, "reset by hand"): (CLOSED, 0, "reset_by_hand"),
    (PROBING, "answered"): (CLOSED, 0, "answered"),
    (PROBING, "challenged"): (OPEN, 1, "probe_challenged"),
    (PROBING, "ended"): (HALF_OPEN, 0, "ended_otherwise"),
    (PROBING, "opened by hand"): (OPEN, 0, "opened_by_hand"),
    (PROBING, "closed by hand"): (CLOSED, 0, "closed_by_hand"),
    (PROBING, "reset by hand"): (CLOSED, 0, "reset_by_hand"),
}


@over("event", EVENTS)
@over("state", BreakerState)
def test_every_event_in_every_state_does_what_the_table_says_and_else_nothing(state: BreakerState, event: str) -> None:
    case = Case(state)
    strikes = 1 if state is CLOSED else 0
    before = case.breaker.state(case.now)
    assert (before.state, before.strikes) == (state, strikes)
    after, strikes_after, reason = MOVES.get((state, event), (state, strikes, ""))

    result = EVENTS[event](case)

    view = case.breaker.state(case.now)
    assert (view.state, view.strikes) == (after, strikes_after)
    transition = result if isinstance(result, Transition) else None
    assert (transition.reason if transition else "") == reason
    if transition:
        assert (transition.upstream, transition.before, transition.after) == ("zai", state, after)
    if (state, event) not in MOVES:
        assert view == before


def test_each_state_has_a_row_and_each_event_a_cell() -> None:
    assert set(TRANSITIONS) == set(BreakerState)
    assert {event for row in TRANSITIONS.values() for event in row} == set(Event)


def test_the_third_challenge_in_a_row_opens_it_with_a_warning_and_the_window() -> None:
    breaker = Breaker(BreakerSettings(), CAP, upstream="zai")
    passes = [passed(breaker, START) for _ in range(3)]
    assert breaker.challenged(passes[0], START) is None
    assert breaker.challenged(passes[1], START) is None
    assert breaker.challenged(passes[2], START) == Transition("zai", CLOSED, OPEN, "repeated_challenges", "warning", 59.0)


def test_an_answer_in_between_starts_the_row_again() -> None:
    breaker = Breaker(BreakerSettings(strikes=2), CAP)
    breaker.challenged(passed(breaker, START), START)
    breaker.answered(passed(breaker, START), START)
    breaker.challenged(passed(breaker, START), START)
    assert breaker.state(START).state is CLOSED


def test_the_resends_of_one_request_are_one_strike() -> None:
    breaker = Breaker(BreakerSettings(strikes=2), CAP)
    permit = passed(breaker, START)
    for _ in range(5):
        breaker.challenged(permit, START)
    breaker.answered(passed(breaker, START), START)
    breaker.challenged(permit, START)
    assert breaker.state(START).strikes == 0


def test_only_the_first_answer_frame_of_a_request_clears() -> None:
    breaker = Breaker(BreakerSettings(), CAP)
    long_answer = passed(breaker, START)
    breaker.answered(long_answer, START)
    breaker.challenged(passed(breaker, START), START)
    breaker.answered(long_answer, START)
    assert breaker.state(START).strikes == 1


def test_a_challenge_after_the_first_answer_frame_is_a_strike() -> None:
    breaker = Breaker(BreakerSettings(), CAP)
    permit = passed(breaker, START)
    breaker.answered(permit, START)
    breaker.challenged(permit, START)
    assert breaker.state(START).strikes == 1


def test_nothing_counts_for_a_request_that_has_ended() -> None:
    breaker = Breaker(BreakerSettings(), CAP)
    gone, other = passed(breaker, START), passed(breaker, START)
    breaker.challenged(other, START)
    breaker.ended(gone, START)
    breaker.answered(gone, START)
    breaker.challenged(gone, START)
    breaker.ended(gone, START)
    assert breaker.state(START).strikes == 1


def test_zero_seconds_turn_it_off() -> None:
    breaker = Breaker(BreakerSettings(strikes=1, open_seconds=0), CAP)
    for _ in range(10):
        assert breaker.challenged(passed(breaker, START), START) is None
    assert breaker.open(START) is None
    assert breaker.state(START).state is CLOSED


@over(
    ("open_seconds", "cap", "window"),
    [(60, 59, 59), (59.5, 59, 59), (61, 59, 61), (59, 59, 59), (10, 59, 10), (21, 20, 20)],
)
def test_a_window_a_second_longer_than_the_cap_ends_at_the_cap(open_seconds: float, cap: int, window: float) -> None:
    breaker = Breaker(BreakerSettings(strikes=1, open_seconds=open_seconds), cap)
    breaker.challenged(passed(breaker, START), START)
    refused(breaker, START + window - 0.001)
    assert passed(breaker, START + window).probe


def test_what_is_told_later_never_moves_the_window() -> None:
    breaker = opened()
    told = [tell(refused(breaker, START + second).left, CAP) for second in range(59)]
    assert told == list(range(59, 0, -1))
    assert passed(breaker, START + 59).probe


def test_while_the_probe_is_out_everyone_else_is_told_what_is_left_of_its_lease() -> None:
    breaker = opened()
    probe = passed(breaker, START + 59)
    assert probe.probe
    for second in (59, 60, 100):
        assert refused(breaker, START + second) == Refused(left=59 + LEASE_SECONDS - second, probe_out=True)


def test_a_byte_from_the_upstream_keeps_the_probe_and_silence_ends_it() -> None:
    breaker = opened()
    probe = passed(breaker, START + 59)
    breaker.heard(probe, START + 120)
    refused(breaker, START + 120 + LEASE_SECONDS - 0.001)
    breaker.heard(probe, START + 120 + LEASE_SECONDS)
    assert passed(breaker, START + 120 + LEASE_SECONDS).probe


@pytest.mark.parametrize("outcome", ["answered", "challenged", "ended"])
def test_a_probe_that_lapsed_changes_nothing_any_more(outcome: str) -> None:
    breaker = opened()
    lapsed = passed(breaker, START + 59)
    late = START + 59 + LEASE_SECONDS
    assert getattr(breaker, outcome)(lapsed, late) is None
    assert breaker.state(late).state is HALF_OPEN
    successor = passed(breaker, late)
    assert getattr(breaker, outcome)(lapsed, late) is None
    breaker.heard(lapsed, late + 60)
    assert breaker.state(late + LEASE_SECONDS).state is HALF_OPEN, "the lapsed probe must not keep its successor's lease"
    assert successor.probe


def test_a_lapsed_probe_neither_clears_nor_strikes_once_it_is_closed_again() -> None:
    breaker = opened(strikes=2)
    lapsed = passed(breaker, START + 59)
    later = START + 59 + LEASE_SECONDS
    assert breaker.answered(passed(breaker, later), later) == Transition("zai", PROBING, CLOSED, "answered", "info")
    breaker.challenged(lapsed, later)
    assert breaker.state(later).strikes == 0
    breaker.challenged(passed(breaker, later), later)
    breaker.answered(lapsed, later)
    assert breaker.state(later).strikes == 1


def test_the_very_next_request_after_a_probe_without_a_verdict_is_the_probe() -> None:
    breaker = opened()
    for _ in range(5):
        probe = passed(breaker, START + 59)
        assert probe.probe
        refused(breaker, START + 59)
        breaker.ended(probe, START + 59)


def test_a_preparation_step_passes_between_window_and_probe_without_taking_it() -> None:
    breaker = opened()
    assert breaker.preparation(START) == Refused(59.0, probe_out=False)
    assert breaker.preparation(START + 59) is None
    assert breaker.state(START + 59).state is HALF_OPEN
    assert passed(breaker, START + 59).probe
    assert breaker.preparation(START + 60) == Refused(LEASE_SECONDS - 1, probe_out=True)


def test_a_reset_forgets_what_is_under_way() -> None:
    breaker = Breaker(BreakerSettings(strikes=1), CAP)
    under_way = passed(breaker, START)
    breaker.reset(START)
    assert breaker.challenged(under_way, START) is None


def test_a_view_shows_what_is_left_since_when_and_how_old_the_probe_is() -> None:
    breaker = opened()
    view = breaker.state(START + 10)
    assert (view.left, view.opened_at, view.probe_age, view.strikes) == (49.0, START, None, 3)
    passed(breaker, START + 60)
    view = breaker.state(START + 65)
    assert (view.left, view.opened_at, view.probe_age) == (0.0, START, 5.0)


@over(
    ("seconds", "told"),
    [(-5, 1), (0, 1), (0.2, 1), (1, 1), (1.01, 2), (30.0000000001, 30), (58.2, 59), (59, 59), (60, 59), (float("inf"), 59),
     (float("nan"), 59)],
)  # fmt: skip
def test_told_are_whole_seconds_from_one_to_the_cap(seconds: float, told: int) -> None:
    assert tell(seconds, CAP) == told


def test_passes_that_nobody_hands_back_are_forgotten_from_the_oldest_on() -> None:
    breaker = Breaker(BreakerSettings(strikes=1), CAP)
    oldest = passed(breaker, START)
    for _ in range(2000):
        newest = passed(breaker, START)
    assert breaker.challenged(oldest, START) is None
    assert breaker.challenged(newest, START) is not None


# -- settings that change, and a restart ----------------------------------------------------------------------


def test_changed_settings_shorten_a_running_window_and_never_lengthen_it() -> None:
    breaker = opened()
    breaker.update(BreakerSettings(open_seconds=600), CAP, START)
    assert breaker.state(START).left == 59
    breaker.update(BreakerSettings(open_seconds=10), CAP, START)
    assert breaker.state(START).left == 10


def test_turning_it_off_closes_it() -> None:
    transition = opened().update(BreakerSettings(open_seconds=0), CAP, START)
    assert transition == Transition("zai", OPEN, CLOSED, "disabled", "info")


def restarted(row: Any, wall: float, **settings: Any) -> Breaker:
    breaker = Breaker(BreakerSettings(**settings), CAP)
    assert breaker.load(row, wall, 5.0)
    return breaker


def test_a_restart_keeps_it_open_for_what_is_left() -> None:
    row = opened().dump(1.7e9, START + 20)
    assert restarted(row, 1.7e9 + 9).state(5.0).left == pytest.approx(30)


def test_a_probe_under_way_is_the_next_request_after_a_restart() -> None:
    breaker = opened()
    passed(breaker, START + 59)
    assert passed(restarted(breaker.dump(1.7e9, START + 60), 1.7e9), 5.0).probe


def test_a_closed_breaker_has_no_row() -> None:
    assert Breaker(BreakerSettings(), CAP).dump(1.7e9, START) is None


@over("jump", [-1e9, -60, 60, 1e9])
def test_whatever_the_wall_clock_did_it_is_open_for_a_window_at_most(jump: float) -> None:
    left = restarted(opened().dump(1.7e9, START), 1.7e9 + jump).state(5.0).left
    assert 0 <= left <= 59


def test_a_row_opens_nothing_where_the_breaker_is_disabled() -> None:
    breaker = Breaker(BreakerSettings(open_seconds=0), CAP)
    assert not breaker.load(OpenBreaker("zai", "", 1.7e9 + 9), 1.7e9, 5.0)
    assert breaker.state(5.0).state is CLOSED


# -- all of them ----------------------------------------------------------------------------------------------


def settings_of(*upstreams: Upstream, **changes: Any) -> Settings:
    return dataclasses.replace(Settings(upstreams=upstreams), **changes)


PER_ACCOUNT = Upstream("pool", ("pool.example",), Family.ZAI, breaker=BreakerSettings(strikes=1, scope="account"))


def strike(breaker: Breaker, now: float = START) -> None:
    breaker.challenged(passed(breaker, now), now)


def strike_once(breaker: Breaker) -> None:
    if breaker.closed:
        strike(breaker)


def test_one_breaker_an_upstream_whatever_the_account() -> None:
    breakers = Breakers(settings_of())
    assert breakers.of("zai", "a") is breakers.of("zai", "b")
    assert breakers.of("zai", "a") is not breakers.of("zcode", "a")


def test_one_an_account_where_the_upstream_says_so() -> None:
    breakers = Breakers(settings_of(PER_ACCOUNT))
    strike(breakers.of("pool", "a"))
    assert isinstance(breakers.of("pool", "a").admit(START), Refused)
    assert isinstance(breakers.of("pool", "b").admit(START), Permit)


def test_accounts_are_bounded_and_an_open_one_stays_while_others_exist() -> None:
    breakers = Breakers(settings_of(PER_ACCOUNT), limit=10)
    strike(breakers.of("pool", "struck"))
    for number in range(100):
        breakers.of("pool", f"account {number}")
    assert len(breakers.all()) == 10
    assert breakers.of("pool", "struck").state(START).state is OPEN


def test_one_with_strikes_goes_before_an_open_one() -> None:
    patient = dataclasses.replace(PER_ACCOUNT, breaker=BreakerSettings(strikes=2, scope="account"))
    breakers = Breakers(settings_of(patient), limit=3)
    breakers.of("zai", "").open(START)
    for account, strikes in (("open", 2), ("struck", 1), ("new", 0)):
        for _ in range(strikes):
            strike(breakers.of("pool", account))
        breakers.of("pool", account)
    assert [breaker.account for breaker in breakers.all()] == ["", "open", "new"]


def test_room_is_never_made_by_an_upstreams_own_breaker() -> None:
    breakers = Breakers(settings_of(PER_ACCOUNT), limit=2)
    own = breakers.of("zai", "")
    for account in "abc":
        breakers.of("pool", account)
    assert own in breakers.all()


def test_where_all_are_open_the_longest_unused_goes() -> None:
    breakers = Breakers(settings_of(PER_ACCOUNT), limit=3)
    for account in ("a", "b", "c", "a", "d"):
        strike_once(breakers.of("pool", account))
    assert [breaker.account for breaker in breakers.all()] == ["c", "a", "d"]


def test_a_pass_of_a_dropped_breaker_means_nothing_to_its_successor() -> None:
    breakers = Breakers(settings_of(PER_ACCOUNT), limit=1)
    old = passed(breakers.of("pool", "a"), START)
    breakers.of("pool", "b")
    fresh = breakers.of("pool", "a")
    passed(fresh, START)
    assert fresh.challenged(old, START) is None


def test_changed_settings_reach_every_breaker_and_keep_its_state() -> None:
    breakers = Breakers(settings_of())
    breaker = breakers.of("zai", "")
    breaker.open(START)
    changed = settings_of(breaker=BreakerSettings(open_seconds=20), retry_after=RetryAfterSettings(20, 20, 5, 20))
    assert breakers.update(changed, START) == []
    assert breakers.of("zai", "") is breaker
    assert breaker.state(START).left == 20


def test_a_changed_scope_drops_the_breakers_of_the_former() -> None:
    breakers = Breakers(settings_of(PER_ACCOUNT))
    strike(breakers.of("pool", "a"))
    breakers.update(settings_of(), START)
    assert breakers.all() == ()


def test_what_is_under_way_with_a_dropped_breaker_counts_for_nothing() -> None:
    at_once = BreakerSettings(strikes=1)
    breakers = Breakers(settings_of(PER_ACCOUNT, breaker=at_once), limit=2)
    dropped = breakers.of("zai", ""), breakers.of("pool", "a")
    passes = [passed(breaker, START) for breaker in dropped]
    breakers.of("pool", "b")  # makes room
    by_account_now = dataclasses.replace(PER_ACCOUNT, name="zai", hosts=("zai.test",))
    breakers.update(settings_of(PER_ACCOUNT, by_account_now, breaker=at_once), START)
    for breaker, permit in zip(dropped, passes, strict=True):
        assert breaker not in breakers.all()
        assert breaker.challenged(permit, START) is None
        assert breaker.current(START) is CLOSED


def test_breakers_turned_off_say_so() -> None:
    breakers = Breakers(settings_of())
    breakers.of("zai", "").open(START)
    (transition,) = breakers.update(settings_of(breaker=BreakerSettings(open_seconds=0)), START)
    assert (transition.upstream, transition.after) == ("zai", CLOSED)


def test_a_command_is_for_the_upstreams_breaker_or_for_each_accounts() -> None:
    breakers = Breakers(settings_of(PER_ACCOUNT))
    assert [breaker.upstream for breaker in breakers.named("zai")] == ["zai"]
    assert breakers.named("pool") == ()
    breakers.of("pool", "a")
    breakers.of("pool", "b")
    assert [breaker.account for breaker in breakers.named("pool")] == ["a", "b"]


def test_a_restart_opens_what_was_open_and_leaves_out_another_scope() -> None:
    breakers = Breakers(settings_of(PER_ACCOUNT))
    breakers.of("zai", "").open(START)
    breakers.of("zcode", "")
    strike(breakers.of("pool", "a"))
    rows = breakers.dump(1.7e9, START)
    fresh = Breakers(settings_of(PER_ACCOUNT))
    wrong_scope = OpenBreaker("zai", "a", 1.7e9 + 9)
    assert fresh.load([*rows, wrong_scope], 1.7e9, 5.0) == 2
    assert {(b.upstream, b.account): b.state(5.0).left for b in fresh.all()} == {("zai", ""): 59, ("pool", "a"): 59}
