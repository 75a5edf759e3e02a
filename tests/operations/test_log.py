"""Lines about the proxy as a whole: what a changed config changes, and what is so from before."""

from __future__ import annotations

import logging

import pytest
from mitmproxy.test import taddons, tflow

from operations import log
from operations.backtest import Backtest
from operations.clock import clock
from operations.controller import Controller
from policies.breaker import BreakerState, Transition
from tests.policies.exchanges import settings
from tests.rows import over


@over(
    ("text", "said"),
    [
        ("breaker: {strikes: 5}", "breaker.strikes 3 -> 5"),
        ("mode: observe", "mode enforce -> observe"),
        ("browsers: guard\nreplay: {captcha: false}", "browsers tunnel -> guard, replay.captcha true -> false"),
        ("notify: curl -u me:SECRET https://ntfy.example", "notify differs"),
        ("shared: redis://:SECRET@127.0.0.1:6379/0", "shared differs"),
        ("upstreams: {mine: {hosts: [a.example], family: zai}}", "upstreams.mine is new"),
        ("windows: {m: 65536}", "windows.m null -> 65536"),
        ("side_requests: {traits: [{name: t, where: user, text: hi}]}", "side_requests.traits.t is new"),
        ("mode: enforce", "no setting differs"),
    ],
)
def test_a_changed_config_says_what_differs_and_no_secret(text: str, said: str) -> None:
    before = settings("mode: enforce")
    assert log.changed(before, settings(text)) == said


MINE = "upstreams: {mine: {hosts: [%s], family: zai%s}}"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (MINE % ("a.example", ", breaker: {strikes: 5}"), "upstreams.mine.breaker.strikes 4 -> 5"),
        (MINE % ("a.example", ""), "upstreams.mine.breaker is gone"),
        (MINE % ("b.example", ", breaker: {strikes: 4}"), "upstreams.mine.hosts differs"),
        ("mode: enforce", "upstreams.mine is gone"),
    ],
)
def test_a_changed_upstream_says_what_of_it_differs(text: str, said: str) -> None:
    before = settings(MINE % ("a.example", ", breaker: {strikes: 4}"))
    assert log.changed(before, settings(text)) == said


def test_a_breaker_that_a_flow_opened_names_it_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    moved = Transition("zai", BreakerState.CLOSED, BreakerState.OPEN, "repeated_challenges", "warning", 59.0)
    log.transitions([moved], "f1", observing=False)
    log.transitions([moved], observing=True)
    assert caplog.messages == [
        "Breakwater: zai repeated_challenges: its breaker is opened for 59 s (it was closed, flow f1)",
        "Breakwater: zai repeated_challenges: its breaker would be opened for 59 s (it was closed)",
    ]


def test_a_fault_is_said_once_with_its_flow_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    said = log.Log()
    for flow_id in ("f1", "f2"):
        said.fault("judge", flow_id, KeyError("a prompt"))
    (line,) = caplog.messages
    assert line.endswith(": KeyError in judge (flow f1)")


def test_many_changes_are_counted() -> None:
    after = settings("upstreams: {" + ", ".join(f"u{n}: {{hosts: [a{n}.example], family: zai}}" for n in range(12)) + "}")
    assert log.changed(settings("mode: enforce"), after).endswith("upstreams.u7 is new, and 4 more")


def test_a_start_says_what_is_open_from_before() -> None:
    controller = Controller(settings("mode: enforce"))
    with taddons.context():  # type: ignore[no-untyped-call]
        assert log.start(controller).endswith("; nothing is paused and nobody waits")
        controller.state.breakers.named("zai")[0].open(clock().now)
        assert "; zai is paused for 59 s" in log.start(controller)


def test_a_recording_says_which_hosts_were_not_guarded() -> None:
    backtest = Backtest(settings("mode: enforce"), evidence=False)
    for host in ("api.z.ai", "api.openai.com", "api.openai.com", "evil\x1b[2J.example"):
        flow = tflow.tflow(resp=True)
        flow.request.host = host
        backtest.judge(flow)
    said = backtest.summary()
    assert "4 flows read, 1 of them to guarded hosts" in said
    assert "not guarded: api.openai.com (2), " in said
    assert "\x1b" not in said
