from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.kinds import ANSWER, Challenge, Finding, Kind
from policies.replays import Attempt, Replays, Sessions, Step, Why, forbidden, is_replay, pace
from policies.settings import ReplaySettings
from tests.rows import over

BUSY = Finding(Kind.RATE_LIMIT, code="1302", transient=True)
CAPTCHA = Finding(Kind.CHALLENGE, row="zcode-3007", code="3007", challenge=Challenge.CAPTCHA, transient=True)
REPLAY = Attempt(
    sends=1,
    started=100.0,
    account="account",
    digest="digest",
    one_time_token=False,
    breaker_closed=True,
    settings=ReplaySettings(),
)

CURABLE = [
    BUSY,
    CAPTCHA,
    Finding(Kind.OVERLOAD, code="1305", transient=True),
    Finding(Kind.UPSTREAM_ERROR, status=500, transient=True),
    Finding(Kind.CALLER_ERROR, row="marker:risk control", transient=True),
]
INCURABLE = [
    (ANSWER, Why.NOT_TRANSIENT),
    (Finding(Kind.CHALLENGE, code="3012", challenge=Challenge.BLOCKED), Why.CHALLENGE),
    (Finding(Kind.CHALLENGE, code="3012", challenge=Challenge.BLOCKED, transient=True), Why.CHALLENGE),
    (Finding(Kind.CHALLENGE, code="FAIL_SYS_USER_VALIDATE", challenge=Challenge.BUSY), Why.CHALLENGE),
    (Finding(Kind.CHALLENGE, challenge=Challenge.CAPTCHA, transient=True), Why.CHALLENGE),
    (Finding(Kind.CHALLENGE, challenge=Challenge.BODY_SIZE, transient=True), Why.CHALLENGE),
    (Finding(Kind.OVERFLOW, window=131072, transient=True), Why.NOT_TRANSIENT),
    (Finding(Kind.QUOTA, code="1308", transient=True), Why.NOT_TRANSIENT),
    (Finding(Kind.ACCOUNT, code="1113", transient=True), Why.NOT_TRANSIENT),
    (Finding(Kind.FILTER, code="1301", transient=True), Why.NOT_TRANSIENT),
    (Finding(Kind.CALLER_ERROR, code="1210"), Why.NOT_TRANSIENT),
    (Finding(Kind.NOTHING, cut=True, transient=True), Why.CUT),
    (replace(BUSY, cut=True), Why.CUT),
    (replace(BUSY, transient=False), Why.NOT_TRANSIENT),
]


def rounds(first: Attempt, finding: Finding, took: float = 0.0) -> Iterator[Step]:
    """Every step of a request that is refused each time, ``took`` seconds after each send."""
    replays, now = Replays(), first.started + took
    for sends in itertools.count(1):
        step = replays.next(replace(first, sends=sends), finding, now)
        yield step
        if isinstance(step, Why):
            return
        now += step + took


# what is repeated


@over("finding", CURABLE, ids=lambda finding: finding.kind)
def test_a_refused_replay_is_sent_again_after_one_and_a_half_seconds_and_then_three(finding: Finding) -> None:
    assert list(rounds(REPLAY, finding)) == [
        1.5,
        3.0,
        Why.ATTEMPTS,
    ]


@over(("finding", "why"), INCURABLE)
def test_what_a_slower_try_cannot_cure_is_sent_once(finding: Finding, why: Why) -> None:
    assert Replays().next(REPLAY, finding, 100.0) == why


@over("kind", list(Kind))
def test_nothing_that_is_not_marked_transient_is_sent_again(kind: Kind) -> None:
    assert isinstance(Replays().next(REPLAY, Finding(kind, code="3007"), 100.0), Why)


@pytest.mark.parametrize(
    ("attempt", "why"),
    [
        (replace(REPLAY, one_time_token=True), Why.ONE_TIME_TOKEN),
        (replace(REPLAY, breaker_closed=False), Why.BREAKER),
        (replace(REPLAY, settings=ReplaySettings(max_attempts=1)), Why.ATTEMPTS),
    ],
)
def test_a_request_that_may_not_be_repeated_is_sent_once_whatever_its_refusal(attempt: Attempt, why: Why) -> None:
    assert {Replays().next(attempt, finding, 100.0) for finding in CURABLE} == {why}


def test_the_captcha_case_can_be_turned_off_alone() -> None:
    attempt = replace(REPLAY, settings=ReplaySettings(captcha=False))
    assert Replays().next(attempt, CAPTCHA, 100.0) == Why.CAPTCHA_OFF
    assert isinstance(Replays().next(attempt, BUSY, 100.0), float)


def test_a_breaker_that_leaves_closed_between_two_sends_stops_the_round() -> None:
    replays = Replays()
    assert isinstance(replays.next(REPLAY, BUSY, 100.0), float)
    opened = replace(REPLAY, sends=2, breaker_closed=False)
    assert forbidden(opened) is Why.BREAKER
    assert replays.next(opened, BUSY, 102.0) == Why.BREAKER


# when


def test_a_base_of_zero_repeats_at_once() -> None:
    steps = list(rounds(replace(REPLAY, settings=ReplaySettings(base_seconds=0)), BUSY))
    assert steps == [0.0, 0.0, Why.ATTEMPTS]


@over(("wait", "after"), [(0.5, 1.5), (4.0, 4.0), (10.0, 10.0), (None, 1.5), (-3.0, 1.5)])
def test_the_longer_of_our_wait_and_the_upstreams_is_kept(wait: float | None, after: float) -> None:
    assert Replays().next(REPLAY, replace(BUSY, wait=wait), 100.0) == after


@over("wait", [10.1, 38.0, 504641.0, float("inf")])
def test_an_upstream_wait_of_more_than_ten_seconds_goes_to_the_client(wait: float) -> None:
    assert Replays().next(REPLAY, replace(BUSY, wait=wait), 100.0) == Why.LONG_WAIT


def test_our_own_wait_of_more_than_ten_seconds_goes_to_the_client_too() -> None:
    patient = replace(REPLAY, settings=ReplaySettings(max_attempts=10, base_seconds=1.5))
    steps = list(rounds(patient, BUSY))
    assert [step for step in steps if isinstance(step, float)] == [1.5, 3.0, 6.0]
    assert steps[-1] == Why.LONG_WAIT


@over(("now", "again"), [(138.0, True), (138.6, False), (139.9, False), (500.0, False)])
def test_no_repeat_starts_later_than_forty_seconds_after_the_request(now: float, again: bool) -> None:
    assert isinstance(Replays().next(REPLAY, BUSY, now), float) is again


@given(
    attempts=st.integers(1, 9),
    base=st.floats(0, 20),
    wait=st.none() | st.floats(0, 100),
    took=st.floats(0, 30),
    started=st.floats(0, 1e6),
)
def test_a_round_never_sends_more_often_or_later_or_waits_longer_than_it_may(
    attempts: int, base: float, wait: float | None, took: float, started: float
) -> None:
    settings = ReplaySettings(max_attempts=attempts, base_seconds=base)
    now, sends = started, 1
    for step in rounds(replace(REPLAY, started=started, settings=settings), replace(BUSY, wait=wait), took):
        now += took
        if isinstance(step, float):
            sends += 1
            now += step
            assert sends <= attempts
            assert base <= step <= 10
            assert step >= (wait or 0)
            assert now - started <= 40 + 1e-6


def test_the_decision_reads_no_clock_but_the_one_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = list(rounds(REPLAY, BUSY, took=2.0))
    monkeypatch.setattr("tenacity.time.monotonic", lambda: 1e9)
    assert list(rounds(REPLAY, BUSY, took=2.0)) == plain


# one round a minute


def test_the_same_account_and_digest_get_no_second_round_within_a_minute() -> None:
    replays = Replays()
    assert isinstance(replays.next(REPLAY, BUSY, 100.0), float)
    assert isinstance(replays.next(replace(REPLAY, sends=2), BUSY, 102.0), float)
    later = replace(REPLAY, started=161.0)
    assert replays.next(later, BUSY, 161.0) == Why.SECOND_ROUND
    assert isinstance(replays.next(replace(later, started=163.0), BUSY, 163.0), float)


@pytest.mark.parametrize("other", [replace(REPLAY, account="another"), replace(REPLAY, digest="another")])
def test_another_account_or_body_has_a_round_of_its_own(other: Attempt) -> None:
    replays = Replays()
    assert isinstance(replays.next(REPLAY, BUSY, 100.0), float)
    assert isinstance(replays.next(other, BUSY, 100.0), float)


def test_a_request_that_was_never_repeated_leaves_no_round_behind() -> None:
    replays = Replays()
    assert replays.next(REPLAY, replace(BUSY, wait=30), 100.0) == Why.LONG_WAIT
    assert isinstance(replays.next(replace(REPLAY, started=131.0), BUSY, 131.0), float)


def test_a_round_of_one_does_not_shorten_the_minute_of_another() -> None:
    replays = Replays()
    replays.next(REPLAY, BUSY, 100.0)
    replays.next(replace(REPLAY, digest="another", started=155.0), replace(BUSY, wait=9), 155.0)
    assert replays.next(replace(REPLAY, started=158.0), BUSY, 158.0) == Why.SECOND_ROUND


def test_the_memory_of_rounds_is_bounded() -> None:
    replays = Replays(limit=10)
    for number in range(50):
        replays.next(replace(REPLAY, digest=str(number)), BUSY, 100.0)
    assert len(replays._rounds) == 10


# timing


@over(("gap", "replay"), [(None, False), (0.0, True), (0.999, True), (1.0, False), (60.0, False)])
def test_a_replay_comes_less_than_a_second_after_the_previous_answer(gap: float | None, replay: bool) -> None:
    assert is_replay(gap, ReplaySettings()) is replay


def test_pacing_is_off_by_default() -> None:
    assert pace(0.1, ReplaySettings()) == 0


@over(("gap", "delay"), [(0.5, 1.5), (0.0, 2.0), (1.0, 0.0), (1.5, 0.0), (None, 0.0), (-1.0, 2.0)])
def test_pacing_holds_a_replay_until_the_gap_is_reached_and_nothing_else(gap: float | None, delay: float) -> None:
    assert pace(gap, ReplaySettings(min_gap_seconds=2)) == delay


def test_the_gap_of_a_session_runs_from_the_end_of_its_latest_answer() -> None:
    sessions = Sessions()
    assert sessions.place("mine", "me", 10.0, ReplaySettings()) == (None, None, False)
    sessions.finished("mine", 10.0, account="me")
    sessions.finished("mine", 12.0, account="me")
    sessions.finished("other", 12.5, account="me")
    assert sessions.place("mine", "me", 12.75, ReplaySettings()) == (0.75, 0.25, True)
    assert sessions.place("mine", "you", 14.5, ReplaySettings()) == (2.5, None, False)


def test_a_session_is_forgotten_after_an_hour() -> None:
    sessions = Sessions()
    sessions.finished("mine", 0.0)
    assert sessions.place("mine", "", 3600.0, ReplaySettings())[0] == 3600.0
    assert sessions.place("mine", "", 3601.0, ReplaySettings())[0] is None
    sessions.finished("other", 3700.0)
    assert len(sessions) == 1


def test_sessions_keep_the_latest_ones_and_no_more_than_their_limit() -> None:
    sessions = Sessions(limit=3)
    for moment, name in enumerate(["a", "b", "c", "a", "d"]):
        sessions.finished(name, float(moment))
    assert [name for name in "abcd" if sessions.place(name, "", 5.0, ReplaySettings())[0] is not None] == ["a", "c", "d"]
