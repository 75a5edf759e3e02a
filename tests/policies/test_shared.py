"""The shared breaker, case by case: what counts, what is adopted, and what the word of the others costs."""

from __future__ import annotations

import msgspec

from bench.fleet_lab import PaperProcess, PaperServer
from policies.breaker import LEASE_SECONDS, Breaker, BreakerState, Permit
from policies.settings import DAY, BreakerSettings
from policies.shared import ANSWER_SECONDS, RENEW_SECONDS, UNUSED_SECONDS, Told, applied
from policies.shared_rows import MARGIN_SECONDS, Value, later, read

SETTINGS = BreakerSettings(strikes=3, open_seconds=30)
NOW = 1.7e9


def fleet(number: int = 2) -> tuple[PaperServer, list[PaperProcess]]:
    server = PaperServer()
    return server, [PaperProcess(f"p{one}", server, SETTINGS, 1000.0 * one, 0.05 * one) for one in range(number)]


def permit_of(process: PaperProcess) -> Permit:
    permit = process.ask()
    assert permit is not None
    return permit


def strike(process: PaperProcess) -> None:
    process.breaker.challenged(permit_of(process), process.now)


def settle(*processes: PaperProcess) -> None:
    for process in processes:
        while process.outbox:
            process.tell()
    for process in processes:
        process.inbox.clear()
        process.look()


def opened(server: PaperServer, *processes: PaperProcess) -> None:
    processes[0].breaker.open(processes[0].now)
    settle(*processes)
    server.now += SETTINGS.open_seconds + 0.5


def states(*processes: PaperProcess) -> list[str]:
    return [process.breaker.current(process.now).value for process in processes]


def test_strikes_on_different_processes_open_all_of_them() -> None:
    _, (one, two) = fleet()
    strike(one)
    settle(one, two)
    strike(two)
    settle(one, two)
    assert states(one, two) == ["closed", "closed"]
    strike(one)
    settle(one, two)
    assert states(one, two) == ["open", "open"]
    assert abs(one.breaker.state(one.now).left - two.breaker.state(two.now).left) < 0.2


def test_strikes_at_one_moment_are_all_counted() -> None:
    _, processes = fleet(3)
    for process in processes:
        strike(process)
    settle(*processes)
    assert states(*processes) == ["open"] * 3


def test_an_answer_anywhere_begins_the_count_again() -> None:
    _, (one, two) = fleet()
    strike(one)
    strike(one)
    settle(one, two)
    two.breaker.answered(permit_of(two), two.now)
    settle(one, two)
    strike(one)
    settle(one, two)
    assert states(one, two) == ["closed", "closed"]
    assert one.breaker.state(one.now).strikes == 1


def test_while_nothing_is_refused_nothing_is_told() -> None:
    server, (one, two) = fleet()
    for process in (one, two):
        for _ in range(50):
            permit = permit_of(process)
            process.breaker.heard(permit, process.now)
            process.breaker.answered(permit, process.now)
            process.breaker.ended(permit, process.now)
    assert not one.outbox
    assert not two.outbox
    assert server.messages == 0


def test_of_thirty_that_come_as_the_window_ends_one_is_sent() -> None:
    server, processes = fleet(2)
    opened(server, *processes)
    sent = [process.ask() for process in processes for _ in range(15)]
    for process in processes:
        while process.outbox:
            process.tell()
    sent += [process.ask() for process in processes for _ in range(15)]
    assert sum(permit is not None for permit in sent) == 1


def test_the_answer_of_the_probe_closes_all_and_its_challenge_opens_all() -> None:
    server, (one, two) = fleet()
    for outcome, state in (("challenged", "open"), ("answered", "closed")):
        opened(server, one, two)
        one.ask()
        settle(one, two)
        permit = permit_of(one)
        settle(one, two)
        assert states(one, two) == ["probing", "probing"]
        getattr(one.breaker, outcome)(permit, one.now)
        settle(one, two)
        assert states(one, two) == [state, state]
        two.breaker.reset(two.now)
        settle(one, two)


def test_the_probe_of_a_killed_owner_is_free_after_its_lease_and_the_margin() -> None:
    server, (one, two) = fleet()
    opened(server, one, two)
    one.ask()
    settle(one, two)
    permit_of(one)
    server.listeners.remove(one)
    server.now += LEASE_SECONDS
    two.look()
    assert two.ask() is None
    assert states(two) == ["probing"]
    server.now += MARGIN_SECONDS + 0.1
    assert two.ask() is None
    settle(two)
    assert permit_of(two).probe


def test_a_lease_is_renewed_while_bytes_come_and_seldom() -> None:
    server, (one, two) = fleet()
    opened(server, one, two)
    one.ask()
    settle(one, two)
    permit = permit_of(one)
    writes = server.writes
    for _ in range(300):
        server.now += 0.5
        one.breaker.heard(permit, one.now)
        settle(one, two)
    assert states(one, two) == ["probing", "probing"]
    assert server.writes - writes <= 150 / RENEW_SECONDS
    one.breaker.answered(permit, one.now)
    settle(one, two)
    assert states(one, two) == ["closed", "closed"]


def test_without_word_from_the_others_a_probe_goes_after_a_moment() -> None:
    server, (one, two) = fleet()
    opened(server, one, two)
    until = one.breaker.asks_until(one.now)
    assert until is not None
    assert until - one.now <= ANSWER_SECONDS + 1e-6
    server.now += ANSWER_SECONDS
    assert one.breaker.asks_until(one.now) is None
    assert permit_of(one).probe
    settle(one, two)
    assert states(one, two) == ["probing", "probing"]


def test_a_granted_probe_that_nobody_takes_is_given_back() -> None:
    server, (one, two) = fleet()
    opened(server, one, two)
    one.ask()
    settle(one, two)
    assert states(two) == ["probing"]
    server.now += UNUSED_SECONDS
    one.look()
    settle(one, two)
    assert states(one, two) == ["half_open", "half_open"]
    two.ask()
    settle(two)
    assert permit_of(two).probe


def test_a_granted_probe_is_not_kept_longer_than_its_lease() -> None:
    server, (one, two) = fleet()
    opened(server, one, two)
    one.ask()
    settle(one, two)
    server.now += LEASE_SECONDS + MARGIN_SECONDS + 1  # and nobody looked
    assert one.ask() is None, "it asks anew"
    assert two.ask() is None
    settle(one, two)
    assert sum(process.ask() is not None for process in (one, two)) == 1


def test_the_lease_of_a_granted_probe_runs_from_the_asking_on() -> None:
    server, (one, two) = fleet()
    opened(server, one, two)
    one.ask()
    settle(one, two)
    server.now += UNUSED_SECONDS - 0.5
    assert permit_of(one).probe
    server.now += LEASE_SECONDS - UNUSED_SECONDS + 0.6
    assert states(one) == ["half_open"]
    assert states(two) == ["probing"]


def test_a_request_sent_before_an_opening_moves_nothing_after_it() -> None:
    server, (one, two) = fleet()
    old = permit_of(two)
    opened(server, one)  # two hears nothing of it
    one.breaker.close(one.now)
    while one.outbox:
        one.tell()
    strike(one)
    while one.outbox:
        one.tell()
    two.breaker.challenged(old, two.now)
    settle(two, one)
    assert one.breaker.state(one.now).strikes == 1
    value = Value(state=BreakerState.CLOSED, strikes=2, epoch=4)
    assert applied(value, Told("answered", 3), SETTINGS, 59, NOW) is None
    assert applied(value, Told("answered", 4), SETTINGS, 59, NOW) is not None


def test_only_the_lease_that_stands_counts() -> None:
    value = Value(1, BreakerState.PROBING, 3, 1, NOW - 40, NOW - 10, "p0:1", NOW + 60)
    assert applied(value, Told("answered", 1, "p1:1"), SETTINGS, 59, NOW) is None
    assert applied(value, Told("answered", 1), SETTINGS, 59, NOW) is None
    assert applied(value, Told("taken", 1, "p1:1"), SETTINGS, 59, NOW) is None
    closed = applied(value, Told("answered", 1, "p0:1"), SETTINGS, 59, NOW)
    assert closed is not None
    assert closed.state is BreakerState.CLOSED


def test_what_others_say_is_a_transition_with_what_is_left_of_the_window() -> None:
    _, (one, two) = fleet()
    one.breaker.open(one.now)
    one.tell()
    value = read(two.inbox[0], Value, two.server_now)
    assert value is not None
    moved = two.breaker.adopt(value, two.now, two.server_now)
    assert moved is not None
    assert (moved.before, moved.after, moved.reason, moved.level) == (
        BreakerState.CLOSED, BreakerState.OPEN, "told_by_others", "info",
    )  # fmt: skip
    assert abs(moved.left - SETTINGS.open_seconds) < 0.2


def test_messages_in_any_order_leave_the_newest_value() -> None:
    _, (one, two) = fleet()
    strike(one)
    strike(one)
    one.breaker.answered(permit_of(one), one.now)
    while one.outbox:
        one.tell()
    assert len(two.inbox) == 3
    for _ in range(3):
        two.hear(len(two.inbox) - 1)
    assert two.breaker.state(two.now).strikes == 0


def test_what_is_heard_undoes_nothing_that_is_not_told_yet() -> None:
    _, (one, two) = fleet()
    strike(two)
    while two.outbox:
        two.tell()
    for _ in range(3):
        strike(one)
    one.hear(0)
    assert states(one) == ["open"]
    settle(one, two)
    assert states(one, two) == ["open", "open"]


def test_alone_each_goes_on_by_itself_and_the_later_end_holds_afterwards() -> None:
    server, (one, two) = fleet()
    two.lose()
    two.breaker.open(two.now)
    settle(one)
    assert states(one, two) == ["closed", "open"]
    server.now += SETTINGS.open_seconds
    assert permit_of(two).probe, "nobody is asked"
    two.breaker.challenged(Permit(probe=True, serial=1), two.now)
    two.breaker.open(two.now)
    two.join()
    settle(one, two)
    assert states(one, two) == ["open", "open"]


def test_a_server_that_was_emptied_gets_what_is_known_here() -> None:
    server, (one, two) = fleet()
    strike(one)
    strike(one)
    settle(one, two)
    server.text = one.known = two.known = ""
    strike(one)
    settle(one, two)
    assert states(one, two) == ["open", "open"]
    version = one.breaker.version
    server.text = one.known = two.known = ""
    two.join()
    settle(one, two)
    assert states(one, two) == ["open", "open"]
    assert one.breaker.version >= version


def test_the_value_of_one_upstream_is_small_and_garbage_is_none() -> None:
    value = Value(int(NOW * 1e6), BreakerState.PROBING, 3, 12, NOW - 40, NOW - 10, "host-12345-abcd:17", NOW + 60)
    text = msgspec.json.encode(value)
    assert len(text) < 250
    assert read(text, Value, NOW) == value
    for broken in (b"", b"[]", b'{"state": "ajar"}', b'{"ends": "soon"}', b'{"strikes": -1}', b"\xff"):
        assert read(broken, Value, NOW) is None
    assert read(msgspec.json.encode(Value(ends=NOW + 2 * DAY)), Value, NOW) is None


def test_versions_grow_over_the_loss_of_everything() -> None:
    assert Value(version=5).next_version(NOW) == int(NOW * 1e6)
    assert Value(version=int(NOW * 1e6)).next_version(NOW) == int(NOW * 1e6) + 1


def test_of_two_values_of_one_window_the_one_further_along_holds() -> None:
    is_open = Value(1, BreakerState.OPEN, 3, 1, NOW - 30, NOW)
    probing = Value(1, BreakerState.PROBING, 3, 1, NOW - 30, NOW, "p0:1", NOW + 70)
    assert later(is_open, probing) == probing
    assert later(Value(9, ends=NOW + 1), probing).state is BreakerState.CLOSED


def test_an_unshared_breaker_is_as_ever() -> None:
    _, (one, _) = fleet()
    one.lose()
    plain = Breaker(SETTINGS, 59)
    for process, now in ((one.breaker, 10.0), (plain, 10.0)):
        for _ in range(3):
            permit = process.admit(now)
            assert isinstance(permit, Permit)
            process.challenged(permit, now)
    for later_on in (10.0, 39.9, 40.0, 45.0):
        assert one.breaker.state(later_on) == plain.state(later_on)
