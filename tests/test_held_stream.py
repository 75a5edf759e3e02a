"""The layer that holds a response, driven in memory: every state meets every event, on HTTP/1.1 and HTTP/2 on either side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import h2.events
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from held_stream import LOOK_SECONDS
from hold import can_hold
from tests.layers import Clock, Layers, ScriptedHold, clock, killed, options_of
from tests.rows import over

__all__ = ["clock"]

Build = Callable[..., Layers]
SIDES = [(False, False), (False, True), (True, False), (True, True)]
OPTIONS = options_of()


@pytest.fixture(params=SIDES, ids=lambda sides: "-".join("h2" if h2 else "h1" for h2 in sides))
def build(request: pytest.FixtureRequest, clock: Clock) -> Build:
    client_h2, upstream_h2 = request.param
    return lambda **more: Layers(clock, client_h2=client_h2, upstream_h2=upstream_h2, **{"options": OPTIONS, **more})


def begun(layers: Layers, *data: bytes) -> Layers:
    """One request that the upstream has begun to answer."""
    layers.request()
    layers.answer_head()
    for chunk in data:
        layers.answer_data(chunk)
    return layers


def assert_over(layers: Layers) -> None:
    """The client was answered or is gone, every flow was told its end once, and nothing of it is left."""
    assert not layers.streams
    assert all(not held.live for held in layers.flows)
    ends = sum(layers.hooks.count(name) for name in ("response", "error"))
    assert ends == len(layers.flows), layers.hooks


def timers(layers: Layers) -> list[float]:
    """When those of our streams are due; mitmproxy's own for pings on HTTP/2 are later."""
    return [due for due, command in layers.timers if command.delay <= LOOK_SECONDS]


def test_headers_wait_until_the_hold_has_decided(build: Build) -> None:
    layers = begun(build(), b"x")
    assert not layers.client_status
    layers.answer_data(b"C")
    assert (layers.client_status, layers.client_body) == (200, b"xC")
    layers.answer_data(b"more")
    layers.answer_end()
    assert layers.client_body == b"xCmore"
    assert layers.client_ended
    assert_over(layers)


def test_a_whole_answer_reaches_its_client_before_the_hooks_and_stays_on_the_flow(build: Build) -> None:
    layers = begun(build(slow=["response"]), b"x" * 9000, b"yz")
    assert not layers.client_status
    layers.answer_end()
    assert [hook.name for hook in layers.pending] == ["response"]
    assert (layers.client_status, layers.client_body) == (200, b"x" * 9000 + b"yz")
    [held] = layers.flows
    assert held.response
    assert held.response.raw_content == layers.client_body
    layers.finish_hooks()
    assert layers.client_ended
    assert_over(layers)


def test_an_answer_of_our_own_takes_the_place_of_the_upstreams(build: Build) -> None:
    layers = begun(build(), b"R")
    assert (layers.client_status, layers.client_body) == (529, b"ours")
    assert layers.client_ended
    assert_over(layers)


def test_a_request_is_sent_again_byte_for_byte_and_the_second_answer_counts(build: Build) -> None:
    layers = begun(build(), b"A")
    assert not layers.client_status
    layers.pass_time(0.9)
    assert len(layers.streams) == 1
    layers.pass_time(0.2)
    layers.answer_head()
    layers.answer_data(b"C")
    layers.answer_end()
    assert (layers.client_status, layers.client_body) == (200, b"C")
    assert_over(layers)


def test_what_a_given_up_attempt_still_says_is_not_heard(build: Build) -> None:
    layers = begun(build(), b"A")
    layers.answer_data(b"C late")
    layers.pass_time(1)
    layers.answer_head()
    layers.answer_data(b"C")
    layers.answer_end()
    assert layers.client_body == b"C"
    assert_over(layers)


def test_the_clock_of_a_hold_runs_on_after_a_late_wake_up(build: Build) -> None:
    """A timer of the attempt before fires while the addon looks at the headers of the next one."""
    layers = begun(build(slow=["responseheaders"], hold=lambda held: ScriptedHold(held, again=0.0)))
    layers.finish_hooks()
    layers.answer_data(b"A")  # with a timer of the hold still running
    layers.pass_time(0)
    layers.answer_head()
    layers.pass_time(1.5)  # the old timer fires during the hook
    layers.finish_hooks()
    layers.pass_time(3)
    assert layers.client_status == 200  # the hold's time was up


def test_an_empty_data_frame_is_not_the_end_of_the_body(clock: Clock) -> None:
    ends: list[bytes] = []

    class Noted(ScriptedHold):
        def __call__(self, data: bytes) -> list[bytes]:
            ends.append(data)
            return super().__call__(data)

    layers = begun(Layers(clock, upstream_h2=True, options=OPTIONS, hold=Noted), b"C", b"", b"more")
    assert b"" not in ends
    layers.answer_end()
    assert layers.client_body == b"Cmore"
    assert_over(layers)


class Noted(ScriptedHold):
    """A hold that notes with what it was called."""

    def __call__(self, data: bytes) -> list[bytes]:
        self.fed.append(data)
        return super().__call__(data)


@over("upstream_h2", [False, True])
def test_chunks_that_came_while_a_hook_ran_are_read_in_one_go_and_stay_chunks(clock: Clock, upstream_h2: bool) -> None:
    holds: list[Noted] = []
    build = Layers(
        clock,
        upstream_h2=upstream_h2,
        options=OPTIONS,
        slow=["responseheaders"],
        hold=lambda held: holds.append(Noted(held)) or holds[-1],  # type: ignore[func-returns-value]
    )
    layers = begun(build, b"C", b"one", *([b""] if upstream_h2 else []), b"two")
    layers.finish_hooks()
    assert holds[0].fed == [b"Conetwo", b"Conetwo"]  # held, then let through
    assert layers.client.received.endswith(b"Conetwo" if upstream_h2 else b"1\r\nC\r\n3\r\none\r\n3\r\ntwo\r\n")
    layers.answer_end()
    assert layers.client_body == b"Conetwo"
    assert_over(layers)


def test_chunks_of_one_packet_are_read_and_written_in_one_go_and_stay_chunks(clock: Clock) -> None:
    holds: list[Noted] = []
    build = Layers(
        clock,
        options=OPTIONS,
        hold=lambda held: holds.append(Noted(held)) or holds[-1],  # type: ignore[func-returns-value]
    )
    layers = begun(build, b"C")
    writes: list[bytes] = []
    take = layers.client.take
    layers.client.take = lambda data: writes.append(data) or take(data)  # type: ignore[func-returns-value, method-assign]
    packet = b"3\r\none\r\n3\r\ntwo\r\n"
    layers.upstream.say(packet)
    assert holds[0].fed == [b"C", b"C", b"onetwo"]
    assert writes == [packet]
    layers.upstream.say(packet)
    layers.answer_end()
    assert writes == [packet, packet, b"0\r\n\r\n"]
    assert_over(layers)


def test_an_answer_that_comes_in_one_packet_with_its_end_starts_no_timer(build: Build) -> None:
    layers = begun(build(slow=["responseheaders"]), b"x")
    layers.answer_end()
    layers.finish_hooks()
    assert layers.client_body == b"x"
    assert not timers(layers)
    assert_over(layers)


def test_a_held_answer_has_one_timer_however_many_packets_it_comes_in(build: Build) -> None:
    layers = begun(build(), *[b"x"] * 20)
    assert len(timers(layers)) == 1
    layers.pass_time(3)
    assert layers.client_body == b"x" * 20


class Hastening(ScriptedHold):
    """A hold that waits for a short time only as soon as something has come, and counts how often it is asked."""

    asked = 0

    def pause(self) -> float:
        self.asked += 1
        return 0.1 if self.fed else 0.9


def test_a_timer_is_drawn_nearer(build: Build) -> None:
    layers = begun(build(hold=Hastening), b"x")
    layers.pass_time(0.2)
    assert layers.client_body == b"x"


def test_a_held_answer_is_not_asked_for_what_another_stream_gets(clock: Clock) -> None:
    holds: list[Hastening] = []
    build = Layers(
        clock,
        client_h2=True,
        upstream_h2=True,
        options=OPTIONS,
        hold=lambda held: holds.append(Hastening(held)) or holds[-1],  # type: ignore[func-returns-value]
    )
    layers = begun(build)
    assert holds[0].asked == 1
    begun(layers, b"x", b"x")
    assert holds[0].asked == 1


def test_an_end_in_chunks_that_came_while_a_hook_ran_is_the_end(build: Build) -> None:
    layers = begun(build(slow=["responseheaders"]), b"C", b"one", b"twoE", b"three")
    layers.finish_hooks()
    assert layers.client_body == b"Conetwo!error!"
    assert layers.client_ended
    assert_over(layers)


@over("until", ["asked", "headers", "held", "committed", "waiting", "sent again", "second held"])
def test_a_client_may_leave_at_any_moment(build: Build, until: str) -> None:
    layers = build()
    layers.request()
    steps: dict[str, Callable[[], object]] = {
        "headers": layers.answer_head,
        "held": lambda: layers.answer_data(b"x"),
        "committed": lambda: layers.answer_data(b"C"),
    }
    if until in ("waiting", "sent again", "second held"):
        del steps["committed"]
        steps["waiting"] = lambda: layers.answer_data(b"A")
        steps["sent again"] = lambda: layers.pass_time(1)
        steps["second held"] = layers.answer_head
    for name, step in steps.items():
        if until == "asked":
            break
        step()
        if name == until:
            break
    layers.cancel()
    assert_over(layers)
    assert layers.hooks.count("error") == 1
    layers.pass_time(200)
    assert_over(layers)


@over("until", ["request", "responseheaders", "response", "connect"])
@over("again", [False, True])
def test_a_client_may_leave_while_a_hook_or_a_connection_is_waited_for(build: Build, until: str, *, again: bool) -> None:
    layers = build()
    if again:
        begun(layers, b"A")
    layers.slow = [until]
    layers.connects = None if until == "connect" else True
    if again:
        layers.pass_time(1)
    else:
        layers.request()
    if not layers.pending and not layers.opening and layers.upstreams:
        layers.answer_head()
        if not layers.pending:
            layers.answer_data(b"R")
    layers.cancel()
    layers.finish_hooks()
    layers.connected()
    layers.pass_time(200)
    for peer in layers.upstreams:
        peer.leave()
    layers.finish_hooks()
    assert_over(layers)


@over("until", ["asked", "headers", "held", "committed", "sent again", "second held"])
def test_an_upstream_may_break_off_at_any_moment(build: Build, until: str) -> None:
    layers = build()
    layers.request()
    if until != "asked":
        layers.answer_head()
    if until == "held":
        layers.answer_data(b"x")
    elif until == "committed":
        layers.answer_data(b"C")
    elif until in ("sent again", "second held"):
        layers.answer_data(b"A")
        layers.pass_time(1)
        if until == "second held":
            layers.answer_head()
    layers.upstream.leave()
    assert layers.client_ended
    wanted = {"asked": 502, "committed": 200}
    assert layers.client_status == wanted.get(until, 529)
    assert_over(layers)


@over("until", ["held", "waiting", "sent again"])
def test_a_flow_that_is_killed_while_it_waits_leaves_nothing(build: Build, until: str) -> None:
    layers = begun(build(), b"x" if until == "held" else b"A")
    if until == "sent again":
        layers.connects = None
        layers.pass_time(1)
        killed(layers.flows[0])
        layers.connected()
        if layers.upstream_h2:  # the connection is there already
            layers.answer_head()
    else:
        killed(layers.flows[0])
        layers.wake()
    layers.pass_time(1)
    assert layers.client_ended
    assert_over(layers)


def test_a_send_that_is_paced_waits_without_a_connection(build: Build) -> None:
    layers = build(after=0.4)
    layers.request()
    assert not layers.upstreams
    layers.pass_time(0.5)
    begun_on = layers.upstream
    layers.answer_head()
    layers.answer_data(b"C")
    layers.answer_end()
    assert begun_on is layers.upstream
    assert layers.client_body == b"C"
    assert_over(layers)


@over("paused", [0.0, 0.4])
def test_an_upstream_hears_of_a_client_that_left_as_its_answer_began(build: Build, paused: float) -> None:
    layers = build(after=paused, slow=["responseheaders"])
    layers.request()
    layers.pass_time(0.5)
    layers.answer_head()
    layers.cancel()
    layers.finish_hooks()
    upstream = layers.upstream
    if upstream.h2:
        assert any(isinstance(event, h2.events.StreamReset) for event in upstream.seen)
    else:
        assert not upstream.open
    layers.finish_hooks()
    assert_over(layers)


def queued(build: Build) -> Layers:
    layers = build(after=None)
    layers.request()
    return layers


def test_a_request_that_waits_is_not_sent_until_its_gate_says_so(build: Build) -> None:
    layers = queued(build)
    layers.pass_time(300)
    layers.wake()
    assert not layers.upstreams
    assert not layers.timers
    assert layers.gates[0].asked == 1
    layers.wake("go")
    layers.answer_head()
    layers.answer_data(b"C")
    layers.answer_end()
    assert (layers.client_status, layers.client_body) == (200, b"C")
    assert layers.gates[0].sends == 1
    assert_over(layers)


def test_a_request_that_waited_too_long_is_refused_through_the_usual_hooks(build: Build) -> None:
    layers = queued(build)
    layers.wake("refuse")
    assert (layers.client_status, layers.client_body) == (529, b"ours")
    assert layers.hooks[-2:] == ["responseheaders", "response"]
    assert not layers.upstreams
    assert_over(layers)


@over("end", ["leave", "kill"])
def test_a_request_that_waits_ends_with_its_client_or_its_flow(build: Build, end: str) -> None:
    layers = queued(build)
    if end == "leave":
        layers.cancel()
    else:
        killed(layers.flows[0])
    layers.wake("go")
    assert layers.hooks[-1] == "error"
    assert layers.client_ended
    assert not layers.upstreams
    assert_over(layers)


def test_a_sibling_goes_on_while_a_request_waits(clock: Clock) -> None:
    layers = Layers(clock, client_h2=True, options=OPTIONS, after=None)
    layers.request()
    layers.request()
    layers.wake("go", 1)
    layers.answer_head()
    layers.answer_data(b"C")
    layers.answer_end()
    assert layers.client_body == b"C"
    layers.wake("refuse", 0)
    assert_over(layers)


def test_a_refused_request_can_wait_for_its_turn_with_nothing_told(build: Build) -> None:
    layers = begun(build(), b"Q")
    layers.pass_time(300)
    assert not layers.client_status
    layers.wake("go")
    layers.answer_head()
    layers.answer_data(b"Q")
    layers.wake("go")
    layers.answer_head()
    layers.answer_data(b"C")
    layers.answer_end()
    assert (layers.client_status, layers.client_body) == (200, b"C")
    assert layers.gates[0].sends == 3
    assert_over(layers)


def test_a_refused_request_that_waited_too_long_is_told(build: Build) -> None:
    layers = begun(build(), b"Q")
    layers.wake("refuse")
    assert (layers.client_status, layers.client_body) == (529, b"ours")
    assert layers.hooks.count("responseheaders") == 1
    assert_over(layers)


def test_waking_what_does_not_wait_changes_nothing(build: Build) -> None:
    layers = begun(build(), b"x")
    layers.wake("refuse")
    assert layers.gates[0].asked == 0
    layers.answer_data(b"C")
    layers.wake("refuse")
    layers.answer_end()
    assert layers.client_body == b"xC"
    assert_over(layers)


def test_another_addon_that_streams_gets_the_bytes_and_takes_no_hold_away(build: Build) -> None:
    layers = build(foreign=lambda data: [data.upper(), b"!"] if data else b"?")
    begun(layers, b"xy")
    assert not layers.client_status
    layers.answer_data(b"C")
    layers.answer_data(b"z")
    layers.answer_end()
    assert layers.client_body == b"XY!C!Z!?"
    assert_over(layers)


def test_another_addon_that_streams_hides_no_refusal(build: Build) -> None:
    layers = begun(build(foreign=lambda data: data), b"R")
    assert (layers.client_status, layers.client_body) == (529, b"ours")
    assert_over(layers)


def test_a_copy_and_a_replay_of_a_flow_have_no_stream(clock: Clock) -> None:
    layers = begun(Layers(clock, options=OPTIONS), b"x")
    assert can_hold(layers.flows[0])
    assert not can_hold(layers.flows[0].copy())  # type: ignore[no-untyped-call]
    layers.flows[0].is_replay = "request"
    assert not can_hold(layers.flows[0])


def test_a_re_send_that_cannot_connect_ends_in_the_refusal_before_it(clock: Clock) -> None:
    layers = begun(Layers(clock, options=OPTIONS), b"A")
    layers.connects = False
    layers.pass_time(1)
    assert (layers.client_status, layers.client_body) == (529, b"ours")
    assert_over(layers)


def test_an_error_frame_ends_a_running_stream_cleanly(build: Build) -> None:
    layers = begun(build(), b"C", b"more", b"lastE")
    assert layers.client_body == b"Cmorelast!error!"
    assert layers.client_ended
    assert_over(layers)


def test_a_stream_that_has_to_be_cut_is_cut(build: Build) -> None:
    layers = begun(build(), b"C", b"S")
    assert layers.client_body == b"C"
    assert layers.client_ended
    assert_over(layers)


def test_a_connection_serves_the_next_request_after_a_replaced_one(build: Build) -> None:
    layers = begun(build(), b"R")
    begun(layers, b"C")
    layers.answer_end()
    assert layers.client_ended
    assert_over(layers)


# -- any sequence of events --------------------------------------------------------------------------------------

LETTERS = st.sampled_from([b"x", b"C", b"R", b"A", b"E", b"S", b"Q", b"CE", b"xA", b""])
STEPS = st.one_of(
    st.sampled_from(
        ["request", "head", "head+body", "end", "cancel", "leave", "hooks", "connect", "refuse", "kill", "reset", "goaway"]
    ),
    st.tuples(st.just("data"), LETTERS),
    st.tuples(st.just("wake"), st.sampled_from(["", "go", "refuse"])),
    st.tuples(st.just("time"), st.sampled_from([0.0, 0.5, 1.0, 2.5])),
)
SLOW = st.lists(st.sampled_from(["request", "responseheaders", "response", "error"]), max_size=2, unique=True)


def kill(layers: Layers) -> None:
    killed(layers.flows[-1])
    if layers.gates:
        layers.wake()


def act(layers: Layers, step: Any) -> None:
    name, argument = step if isinstance(step, tuple) else (step, None)
    acts: dict[str, Callable[[], object]] = {
        "time": lambda: layers.pass_time(argument),
        "hooks": layers.finish_hooks,
        "connect": layers.connected,
        "refuse": lambda: layers.connected("refused"),
        "cancel": layers.cancel,
        "kill": lambda: kill(layers),
        "wake": lambda: layers.wake(argument) if layers.gates else None,
        "request": lambda: layers.request() if layers.client.open and (layers.client.h2 or layers.client_ended) else None,
    }
    if layers.upstreams:
        acts |= {
            "data": lambda: layers.answer_data(argument),
            "head": layers.answer_head,
            "head+body": lambda: [layers.answer_head(2), layers.answer_data(b"xC", length=True)],  # type: ignore[func-returns-value]
            "end": layers.answer_end,
            "leave": layers.upstream.leave,
        }
    if layers.upstreams and layers.upstream.h2:
        acts["reset"] = lambda: layers.frames(lambda peer: peer.reset_stream(layers.asked(), 2))
        acts["goaway"] = lambda: layers.frames(lambda peer: peer.close_connection())
    if name in acts:
        acts[name]()


def let_end(layers: Layers) -> None:
    """Every hook returns, every connection is made, every upstream goes away, and much time passes."""
    layers.slow, layers.connects = [], True
    for _ in range(6):
        layers.finish_hooks()
        layers.connected()
        for number in range(len(layers.gates)):
            layers.wake("refuse", number)
        layers.pass_time(100)
        for peer in layers.upstreams:
            peer.leave()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    sides=st.sampled_from(SIDES),
    steps=st.lists(STEPS, max_size=18),
    slow=SLOW,
    connects=st.sampled_from([True, True, None]),
    paused=st.sampled_from([0.0, 0.0, 0.4, None]),
    again=st.sampled_from([0.0, 1.0]),
)
def test_no_sequence_of_events_raises_hangs_or_leaves_anything(
    clock: Clock,
    sides: tuple[bool, bool],
    steps: list[Any],
    slow: list[str],
    connects: bool | None,
    paused: float | None,
    again: float,
) -> None:
    layers = Layers(
        clock,
        client_h2=sides[0],
        upstream_h2=sides[1],
        slow=slow,
        options=OPTIONS,
        after=paused,
        hold=lambda held: ScriptedHold(held, again=again),
    )
    layers.connects = connects
    layers.request()
    for step in steps:
        act(layers, step)
    let_end(layers)
    assert_over(layers)
    assert layers.client_ended or not layers.client.open
