"""Lines about the proxy as a whole: what a changed config changes, and what is so from before."""

from __future__ import annotations

from mitmproxy.test import taddons, tflow

from operations import log
from operations.backtest import Backtest
from operations.clock import clock
from operations.controller import Controller
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
        ("upstreams: {mine: {hosts: [a.example], family: zai}}", "upstream mine is new"),
        ("windows: {m: 65536}", "windows differs"),
        ("mode: enforce", "no setting differs"),
    ],
)
def test_a_changed_config_says_what_differs_and_no_secret(text: str, said: str) -> None:
    before = settings("mode: enforce")
    assert log.changed(before, settings(text)) == said


def test_many_changes_are_counted() -> None:
    after = settings("upstreams: {" + ", ".join(f"u{n}: {{hosts: [a{n}.example], family: zai}}" for n in range(12)) + "}")
    assert log.changed(settings("mode: enforce"), after).endswith("upstream u5 is new, and 4 more")


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
