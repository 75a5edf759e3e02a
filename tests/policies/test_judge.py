"""What time does to an answer that is held, and a re-send that never reaches its upstream; the clock is an argument."""

from __future__ import annotations

import pytest

from policies.decisions import Commit, End, Forward, Refuse, Replace, Resend
from policies.judge import Judge
from policies.kinds import Head, Kind
from tests.policies.exchanges import CODE_3007, MTOP, OK, Controller, added

PING = b": ping\n\n"
PAGE = b'<html><head><meta name="aliyun_waf_aa" content="x"><meta name="aliyun_waf_bb" content="y"><ti'
BEGUN = b'data: {"choices":[{"index":0,"delta":{"content":"Hi"}}]}\n\n'
LIMITED = b'{"error":{"code":"1302","message":"Rate limit reached for requests"}}'


def replayed(controller: Controller, where: str = "zcode", body: bytes = CODE_3007, status: int = 400) -> Judge:
    """The judge of a replay that was refused, and that waits to be sent again."""
    controller.turn(where, "turn one")
    controller.now += 0.4
    ex = controller.sent(where, "turn two")
    judge = controller.begin(ex, status, "application/json")
    assert judge.feed(body, controller.now, controller.wall) is None
    assert isinstance(judge.finish(cut=False, now=controller.now, wall=controller.wall), Resend)
    return judge


class TestTheDeadline:
    def test_before_it_nothing_is_decided(self) -> None:
        controller = Controller()
        judge = controller.begin(controller.sent())
        assert judge.tick(judge.deadline() - 0.001, controller.wall) is None
        assert judge.ex.decision is None

    def test_at_it_headers_go_out_where_nothing_or_preamble_has_come(self) -> None:
        for seen in (b"", PING):
            controller = Controller()
            judge = controller.begin(controller.sent())
            assert judge.feed(seen, controller.now, controller.wall) is None
            decision = judge.tick(judge.deadline(), controller.wall)
            assert decision == Commit(attempts=1)
            assert judge.ex.committed

    def test_what_comes_after_is_still_told_inside_the_stream_and_the_first_answer_counts(self) -> None:
        controller = Controller()
        for frame, answered in ((BEGUN, True), (b"data: " + MTOP + b"\n\n", False)):
            ex = controller.sent(text=str(answered))
            judge = controller.begin(ex)
            judge.tick(judge.deadline(), controller.wall)
            _, end = judge.tap(frame, controller.now, controller.wall)
            assert ex.answered is answered
            assert isinstance(end, End) is not answered

    def test_a_page_whose_markers_have_come_is_the_challenge(self) -> None:
        controller = Controller()
        ex = controller.sent()
        judge = controller.begin(ex, content_type="text/html")
        assert judge.feed(PAGE, controller.now, controller.wall) is None
        decision = judge.tick(judge.deadline(), controller.wall)
        assert isinstance(decision, Replace)
        assert (decision.answer.status, decision.reason) == (529, "challenge_captcha")
        assert controller.state.breaker(ex.call).state(controller.now).strikes == 1

    def test_how_long_headers_waited_is_known(self) -> None:
        controller = Controller("hold: {silence_seconds: 30}")
        judge = controller.begin(controller.sent())
        judge.tick(controller.now + 30, controller.wall)
        assert judge.ex.held == 30


class TestTheWaitBeforeAReSend:
    def test_is_over_and_the_request_goes_out(self) -> None:
        controller = Controller()
        judge = replayed(controller)
        controller.now += 1.5
        assert judge.due(controller.now, controller.wall) is None
        assert (judge.ex.sends, judge.ex.waiting) == (2, False)

    def test_a_breaker_that_opened_meanwhile_keeps_it_and_the_refusal_before_it_is_told(self) -> None:
        controller = Controller("breaker: {strikes: 1}")
        judge = replayed(controller)
        controller.turn("zcode", "another", MTOP)
        controller.now += 1.5
        decision = judge.due(controller.now, controller.wall)
        assert isinstance(decision, Replace)
        assert (decision.answer.status, decision.attempts, decision.wait) == (529, 1, 58)
        assert judge.ex.sends == 1

    @pytest.mark.parametrize(("where", "body", "status", "told"), [("zcode", CODE_3007, 400, 529), ("zai", LIMITED, 429, 429)])
    def test_one_that_cannot_reach_the_upstream_is_told_as_what_it_was_refused_with(
        self, where: str, body: bytes, status: int, told: int
    ) -> None:
        controller = Controller()
        judge = replayed(controller, where, body, status)
        assert judge.due(controller.now + 1.5, controller.wall) is None
        decision = judge.unsent(controller.now + 1.6, controller.wall)
        assert isinstance(decision, Replace)
        assert (decision.answer.status, decision.attempts) == (told, 2)
        assert dict(decision.answer.headers)["Retry-After"] == str(decision.wait)
        assert b"after 2 attempts" in decision.answer.body

    def test_a_request_that_was_sent_once_has_no_refusal_to_fall_back_on(self) -> None:
        controller = Controller()
        judge = controller.begin(controller.sent(), content_type="application/json")
        assert judge.unsent(controller.now, controller.wall) is None
        judge.feed(OK, controller.now, controller.wall)
        judge.finish(cut=False, now=controller.now, wall=controller.wall)
        assert judge.unsent(controller.now, controller.wall) is None


class TestLookingOn:
    @pytest.mark.parametrize("size", [1, 10, 1000])
    def test_an_answer_and_the_refusal_in_its_stream_are_both_seen(self, size: int) -> None:
        controller = Controller()
        judge = controller.begin(controller.sent("zai-openai"))
        stream = PING + BEGUN + b"data: " + LIMITED + b"\n\n"
        chunks = [stream[at : at + size] for at in range(0, len(stream), size)]
        seen = [one for chunk in [*chunks, b""] for one in judge.look_on(chunk, controller.now, controller.wall)]
        assert [type(one) for one in seen] == [Commit, End]
        assert [one.finding.kind for one in seen if one.finding] == [Kind.ANSWER, Kind.RATE_LIMIT]

    def test_the_end_of_the_body_decides_where_nothing_did(self) -> None:
        controller = Controller()
        judge = controller.begin(controller.sent(), content_type="application/json")
        assert judge.look_on(OK, controller.now, controller.wall) == []
        [decision] = judge.look_on(b"", controller.now, controller.wall)
        assert added(decision if isinstance(decision, Commit) else None) == ()
        assert judge.look_on(b"", controller.now, controller.wall) == []

    def test_what_was_refused_once_is_not_looked_at_any_more(self) -> None:
        controller = Controller("hold: {bytes: 10}")
        head = Head(200, (("content-type", "text/event-stream"), ("bxpunish", "1")))
        judge = Judge(controller.sent("qwen-chat"), head, controller.now)
        assert [type(one) for one in judge.look_on(PING * 2, controller.now, controller.wall)] == [Replace]
        assert judge.look_on(b"data: " + MTOP + b"\n\n", controller.now, controller.wall) == []


class TestARunningStream:
    def running(self, controller: Controller, text: str = "hi") -> Judge:
        judge = controller.begin(controller.sent("zai-openai", text))
        assert added(judge.feed(BEGUN, controller.now, controller.wall)) == ()
        judge.tap(BEGUN, controller.now, controller.wall)
        return judge

    def test_one_that_is_ended_at_a_refusal_is_no_previous_answer_and_its_headers_waited_no_longer(self) -> None:
        controller = Controller()
        judge = self.running(controller)
        controller.now += 10
        judge.tap(b"data: " + LIMITED + b"\n\n", controller.now, controller.wall)
        controller.settle(judge.ex)
        assert (judge.ex.ended, judge.ex.held) == (True, 0)
        controller.now += 0.4
        assert not controller.sent("zai-openai", "next").replay

    def test_every_byte_keeps_the_lease_of_a_probe_held_or_running_and_no_short_way_hides_one(self) -> None:
        controller = Controller("breaker: {strikes: 1, open_seconds: 30}")
        assert self.running(controller).passes
        controller.turn("zai-openai", "strike", MTOP)
        controller.now += 30
        probe = controller.sent("zai-openai", "probe")
        judge = controller.begin(probe)
        for _ in range(3):
            controller.now += 60
            judge.feed(PING, controller.now, controller.wall)
        assert controller.state.breaker(probe.call).state(controller.now).probe_age == 180
        judge.feed(BEGUN, controller.now, controller.wall)
        judge.tap(BEGUN, controller.now, controller.wall)
        assert judge.passes is None


class TestAskingAgain:
    def test_a_request_that_was_refused_may_be_admitted_when_it_is_asked_again_in_the_place_that_it_had(self) -> None:
        controller = Controller("breaker: {strikes: 1, open_seconds: 30}")
        controller.turn(text="before")
        controller.now += 0.5
        ex, _ = controller.ask(text="late")
        controller.turn(text="strike", body=MTOP)
        assert isinstance(controller.rules.admit(ex, controller.now, controller.wall), Refuse)
        controller.now += 30
        assert isinstance(controller.rules.admit(ex, controller.now, controller.wall), Forward)
        assert (ex.gap, ex.refused_here) == (0.5, False)
        assert ex.probes


class TestEvidence:
    @pytest.mark.parametrize(("text", "taken"), [("", False), ("evidence: true", True), ("evidence_path: a.jsonl", True)])
    def test_is_taken_where_it_is_asked_for_and_nothing_of_it_is_computed_elsewhere(self, text: str, taken: bool) -> None:
        controller = Controller(text)
        ex = controller.sent()
        controller.reply(ex, OK)
        assert controller.rules.settle(ex, controller.now, controller.wall) is taken
        assert "digest" not in vars(ex.call)

    def test_a_digest_is_computed_once_there_is_something_to_look_up(self) -> None:
        controller = Controller()
        controller.turn(body=MTOP)
        assert "digest" in vars(controller.ask(text="another")[0].call)
        assert "digest" not in vars(controller.ask(text="another", account="b")[0].call)
