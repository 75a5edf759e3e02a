"""The order of the rules, through the whole of policies/."""

from __future__ import annotations

import json
from typing import Any

import pytest

from policies.breaker import BreakerState
from policies.decisions import Answer, Decision, Forward, Refuse, Replace, Resend
from policies.exchange import Exchange
from policies.judge import reads
from policies.kinds import Head, Kind, Reason
from policies.patience import Patience
from tests.policies.exchanges import CODE_3007, MTOP, OK, Controller, added

CODE_3012 = b'{"code":3012,"msg":"request has been blocked due to unusual activity"}'
OVERFLOW = (
    b'{"error":{"message":"<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 6000]",'
    b'"type":"invalid_request_error","param":null,"code":"invalid_parameter_error"}}'
)


def zai_error(code: str, message: str) -> bytes:
    return json.dumps({"error": {"code": code, "message": message}}, ensure_ascii=False).encode()


def answer_of(decision: Decision | Refuse | Forward) -> Answer:
    assert isinstance(decision, Replace | Refuse), decision
    return decision.answer


def header(answer: Answer, name: str) -> str | None:
    return {k.lower(): v for k, v in answer.headers}.get(name)


class TestChallenges:
    @pytest.mark.parametrize(
        ("where", "status", "kind"),
        [("zai", 529, "overloaded_error"), ("zai-openai", 503, "server_error"), ("qwen-chat", 503, "server_error")],
    )
    def test_a_challenge_in_a_200_becomes_the_wires_own_overload_with_a_wait(self, where: str, status: int, kind: str) -> None:
        answer = answer_of(Controller().turn(where, body=MTOP))
        assert (answer.status, header(answer, "retry-after")) == (status, "30")
        assert json.loads(answer.body)["error"]["type"] == kind
        assert b"SECRETTOKEN" not in answer.body

    def test_three_in_a_row_open_the_breaker_and_the_last_is_told_the_window(self) -> None:
        controller = Controller()
        told = [header(answer_of(controller.turn(text=f"q{n}", body=MTOP)), "retry-after") for n in range(3)]
        assert told == ["30", "30", "59"]
        refused = controller.ask(text="another")[1]
        assert header(answer_of(refused), "x-breakwater") == "breaker_open"

    def test_an_answer_in_between_clears_the_strikes(self) -> None:
        controller = Controller()
        for n, body in enumerate([MTOP, MTOP, OK, MTOP, MTOP]):
            controller.turn(text=f"q{n}", body=body)
        assert isinstance(controller.ask(text="next")[1], Forward)

    def test_the_same_request_is_told_longer_when_it_is_challenged_again_after_its_wait(self) -> None:
        controller = Controller()
        assert header(answer_of(controller.turn(body=MTOP)), "retry-after") == "30"
        controller.now += 31
        assert header(answer_of(controller.turn(body=MTOP)), "retry-after") == "59"

    def test_the_upstreams_own_wait_goes_before_ours_and_a_longer_one_is_told_in_words(self) -> None:
        controller = Controller()
        assert header(answer_of(controller.reply(controller.sent(), MTOP, retry_after="12")), "retry-after") == "12"
        answer = answer_of(controller.reply(controller.sent(text="b"), MTOP, retry_after="600"))
        assert header(answer, "retry-after") == "59"
        assert b"600" in answer.body

    def test_on_a_path_that_asks_no_model_it_is_told_truthfully_without_a_strike(self) -> None:
        controller = Controller()
        for n in range(4):
            answer = answer_of(controller.turn(text=f"q{n}", body=MTOP, path="/api/anthropic/v1/messages/count_tokens"))
            assert answer.status == 529
        assert controller.state.breakers.of("zai", "a").state(controller.now).strikes == 0

    @pytest.mark.parametrize("path", ["/api/v2/chats/new", "/api/models", "/api/v2/files/getstsToken"])
    def test_there_too_its_headers_say_it_whatever_filler_stands_below(self, path: str) -> None:
        controller, filler = (
            Controller(),
            b"<html><head><title>302 Found</title></head><body><hr/>Powered by Tengine</body></html>",
        )
        link = "https://chat.qwen.ai//_____tmd_____/punish?x5secdata=a"
        for status, location, sign in ((302, link, ""), (307, link, ""), (200, "", "1")):
            ex = controller.sent("qwen-chat", path=path)
            answer = answer_of(controller.reply(ex, filler, status, location=location, bxpunish=sign, content_type="text/html"))
            assert (answer.status, header(answer, "retry-after")) == (503, "30")
        for status, location in ((302, "/login"), (200, "")):
            ex = controller.sent("qwen-chat", path=path)
            assert added(controller.reply(ex, filler, status, location=location, content_type="text/html")) == ()
        assert (
            added(controller.reply(controller.sent("qwen-chat", path=path), b'{"success":true,"data":{"id":1}}', bxpunish="1"))
            == ()
        )

    @pytest.mark.parametrize("url", ["/api/punish?action=captcha&x5secdata=1", "/punish?x5step=2&action=captcha"])
    def test_a_punish_link_is_one_whatever_its_query_begins_with(self, url: str) -> None:
        controller = Controller()
        link = {"url": url}
        for body in ({"data": link}, {"success": False, "data": {"code": "x", **link}}, {"ret": ["F::y"], "data": link}):
            ex = controller.sent("qwen-chat", text=str(body))
            assert answer_of(controller.reply(ex, json.dumps(body).encode())).status == 503

    def test_an_account_that_was_blocked_is_refused_here_and_others_are_not(self) -> None:
        controller = Controller()
        answer = answer_of(controller.turn("zcode", body=CODE_3012, status=405))
        assert (answer.status, header(answer, "retry-after")) == (529, "59")
        assert header(answer_of(controller.ask("zcode", "other")[1]), "x-breakwater") == "account_blocked"
        assert isinstance(controller.ask("zcode", account="b")[1], Forward)
        controller.now += 1801
        assert isinstance(controller.ask("zcode", "other")[1], Forward)

    def test_of_a_blocked_account_nothing_at_all_is_sent(self) -> None:
        controller = Controller()
        controller.turn("zcode", body=CODE_3012, status=405)
        path = "/api/v1/zcode-plan/anthropic/v1/messages/count_tokens"
        refused = answer_of(controller.ask("zcode", path=path)[1])
        assert header(refused, "x-breakwater") == "account_blocked"
        assert b"1800" in refused.body
        assert isinstance(controller.ask("zcode", path=path, account="b")[1], Forward)

    def test_a_body_at_the_limit_of_the_web_chat_is_hopeless_and_remembered(self) -> None:
        controller = Controller()
        big = "x" * 140_000
        answer = answer_of(controller.turn("qwen-chat", big, body=MTOP))
        assert (answer.status, header(answer, "x-should-retry"), header(answer, "retry-after")) == (413, "false", None)
        again = answer_of(controller.ask("qwen-chat", big)[1])
        assert header(again, "x-breakwater") == "remembered_body_size"
        assert controller.state.breakers.of("qwen-chat", "a").state(controller.now).strikes == 0
        controller.now += 601
        assert isinstance(controller.ask("qwen-chat", big)[1], Forward)


class TestPreparation:
    path = "/api/v2/chats/new"

    def test_is_refused_while_the_breaker_is_open_and_passes_after_without_taking_the_probe(self) -> None:
        controller = Controller()
        for n in range(3):
            controller.turn("qwen-chat", f"q{n}", body=MTOP)
        assert isinstance(controller.ask("qwen-chat", path=self.path)[1], Refuse)
        controller.now += 60
        assert isinstance(controller.ask("qwen-chat", path=self.path)[1], Forward)
        assert controller.sent("qwen-chat", "probe").place
        assert isinstance(controller.ask("qwen-chat", path=self.path)[1], Refuse)

    def test_neither_its_challenge_nor_its_success_counts(self) -> None:
        controller = Controller()
        controller.turn("qwen-chat", "a", body=MTOP)
        controller.turn("qwen-chat", path=self.path, body=b'{"success":true,"data":{"id":"C"}}')
        assert answer_of(controller.turn("qwen-chat", path=self.path, body=MTOP)).status == 503
        assert controller.state.breakers.of("qwen-chat", "a").state(controller.now).strikes == 1

    def test_any_refusal_hidden_in_a_200_gets_its_status(self) -> None:
        body = b'{"success":false,"data":{"code":"unauthorized","details":"Token has expired, please log in again."}}'
        assert answer_of(Controller().turn("qwen-chat", path=self.path, body=body)).status == 401


class TestProbe:
    def opened(self) -> Controller:
        controller = Controller()
        for n in range(3):
            controller.turn(text=f"q{n}", body=MTOP)
        controller.now += 59
        return controller

    def state(self, controller: Controller) -> BreakerState:
        return controller.state.breakers.of("zai", "a").state(controller.now).state

    def test_there_is_one_and_everyone_else_is_told_a_fresh_window(self) -> None:
        controller = self.opened()
        controller.sent(text="probe")
        answer = answer_of(controller.ask(text="other")[1])
        assert (header(answer, "x-breakwater"), header(answer, "retry-after")) == ("breaker_probing", "59")

    def test_answered_closes_and_challenged_opens_again(self) -> None:
        controller = self.opened()
        controller.reply(controller.sent(text="probe"), OK)
        assert self.state(controller) is BreakerState.CLOSED
        controller = self.opened()
        controller.reply(controller.sent(text="probe"), MTOP)
        assert self.state(controller) is BreakerState.OPEN

    @pytest.mark.parametrize(
        ("body", "status"),
        [
            (zai_error("1113", "Insufficient balance"), 429),
            (zai_error("1214", "Input cannot be empty"), 400),
            (zai_error("1305", "overloaded"), 429),
            (zai_error("1302", "Rate limit reached for requests"), 429),
            (b"", 200),
            (b"<html><body>maintenance</body></html>", 200),
        ],
    )
    def test_any_other_end_hands_it_to_the_very_next_request(self, body: bytes, status: int) -> None:
        controller = self.opened()
        probe = controller.sent(text="probe")
        controller.reply(probe, body, status)
        controller.settle(probe)
        assert self.state(controller) is BreakerState.HALF_OPEN
        assert controller.sent(text="next").place

    def test_a_client_that_leaves_frees_it(self) -> None:
        controller = self.opened()
        probe = controller.sent(text="probe")
        controller.rules.settle(probe, controller.now, controller.wall)
        assert controller.sent(text="next").place

    def test_an_oversize_side_request_never_takes_it(self) -> None:
        controller = self.opened()
        huge = controller.ask("zai", "word " * 2_000_000, max_tokens=50, model="glm-4.5")[1]
        assert answer_of(huge).status == 413
        assert self.state(controller) is BreakerState.HALF_OPEN


class TestWhatPasses:
    @pytest.mark.parametrize(
        ("where", "body", "status"),
        [
            ("zai", OK, 200),
            ("zai-openai", zai_error("1214", "Input cannot be empty"), 400),
            ("zai-openai", zai_error("1302", "Rate limit reached for requests"), 429),
            ("zai-openai", zai_error("9999", "never seen"), 418),
            ("dashscope", OVERFLOW, 400),
            ("zai", b"<html>502</html>", 502),
        ],
    )
    def test_goes_on_unchanged(self, where: str, body: bytes, status: int) -> None:
        assert added(Controller().turn(where, body=body, status=status)) == ()

    @pytest.mark.parametrize("code", ["1113", "1308", "1310", "1304", "1311"])
    def test_a_spent_quota_or_a_billing_error_passes_with_the_word_that_stops_retries(self, code: str) -> None:
        decision = Controller().turn("zai-openai", body=zai_error(code, "x"), status=429)
        assert added(decision) == (("x-should-retry", "false"),)

    def test_a_wait_in_the_body_of_a_rate_limit_becomes_a_header(self) -> None:
        body = b'{"error":{"code":"1302","message":"Rate limit reached"},"retry-after":"40"}'
        assert added(Controller().turn("zai-openai", body=body, status=429)) == (("Retry-After", "40"),)

    def test_an_honest_529_is_neither_relabelled_nor_counted(self) -> None:
        controller = Controller()
        ex = controller.sent()
        body = b'{"type":"error","error":{"type":"overloaded_error","message":"busy"}}'
        assert added(controller.reply(ex, body, 529, retry_after="30", x_breakwater="challenge_busy")) == ()
        assert controller.state.breakers.of("zai", "a").state(controller.now).strikes == 0


class TestHiddenIn200:
    @pytest.mark.parametrize(
        ("where", "body", "status"),
        [
            ("qwen-chat", {"success": False, "data": {"code": "RateLimited", "num": 10}}, 429),
            ("bigmodel", {"code": 1001, "msg": "Header中未收到Authorization参数", "success": False}, 401),
            ("bigmodel", {"code": 1261, "msg": "Prompt 超长", "success": False}, 400),
            ("bigmodel", {"code": 1301, "msg": "sensitive", "success": False}, 400),
            ("zcode", {"code": 1005, "msg": "exceed quota limit"}, 429),
        ],
    )
    def test_leaves_with_a_real_status_and_its_code(self, where: str, body: dict[str, Any], status: int) -> None:
        answer = answer_of(Controller().turn(where, body=json.dumps(body, ensure_ascii=False).encode()))
        assert answer.status == status
        assert header(answer, "retry-after") is None
        code = str(body.get("code") or body["data"]["code"])
        assert code in answer.body.decode()

    def test_a_quota_says_that_a_retry_is_hopeless(self) -> None:
        body = b'{"success":false,"data":{"code":"RateLimited","num":10}}'
        assert header(answer_of(Controller().turn("qwen-chat", body=body)), "x-should-retry") == "false"

    def test_a_rate_limit_gets_its_short_wait(self) -> None:
        answer = answer_of(Controller().turn("bigmodel", body=b'{"code":1302,"msg":"Rate limit","success":false}'))
        assert (answer.status, header(answer, "retry-after")) == (429, "5")

    def test_a_rate_limit_that_comes_again_after_its_wait_is_told_no_longer_one(self) -> None:
        controller = Controller()
        for _ in range(3):
            answer = answer_of(controller.turn("bigmodel", body=b'{"code":1302,"msg":"Rate limit","success":false}'))
            assert header(answer, "retry-after") == "5"
            controller.now += 6


class TestCuts:
    def test_nothing_but_preamble_is_a_real_502_without_a_wait(self) -> None:
        controller = Controller()
        decision = controller.reply(controller.sent(), b": ping\n\n", cut=True, content_type="text/event-stream")
        assert (answer_of(decision).status, header(answer_of(decision), "retry-after")) == (502, None)

    def test_a_cut_page_whose_markers_have_come_is_the_challenge(self) -> None:
        controller = Controller()
        page = b'<html><head><meta name="aliyun_waf_aa" content="x"><meta name="aliyun_waf_bb" content="y"><ti'
        assert answer_of(controller.reply(controller.sent(), page, cut=True, content_type="text/html")).status == 529


class TestReplays:
    def replayed(self, controller: Controller, where: str = "zcode", **more: Any) -> Exchange:
        controller.turn(where, "turn one", **more)
        controller.now += 0.4
        return controller.sent(where, "turn two", **more)

    def test_3007_right_after_an_answer_is_sent_again_twice_then_told_with_the_count(self) -> None:
        controller = Controller()
        ex = self.replayed(controller)
        waits = []
        for _ in range(2):
            decision = controller.reply(ex, CODE_3007, 400)
            assert isinstance(decision, Resend)
            waits.append(decision.after)
            controller.now += decision.after
        answer = answer_of(controller.reply(ex, CODE_3007, 400))
        assert waits == [1.5, 3.0]
        assert answer.status == 529
        assert b"3" in answer.body
        assert controller.state.breakers.of("zcode", "a").state(controller.now).strikes == 1

    def test_a_human_pace_is_not_sent_again(self) -> None:
        controller = Controller()
        controller.turn("zcode", "turn one")
        controller.now += 1.1
        assert answer_of(controller.reply(controller.sent("zcode", "turn two"), CODE_3007, 400)).status == 529

    def test_a_one_time_token_is_spent_and_the_message_says_so(self) -> None:
        controller = Controller()
        ex = self.replayed(controller, headers={"x_aliyun_captcha_verify_param": "TOKEN"})
        answer = answer_of(controller.reply(ex, CODE_3007, 400))
        assert b"one-time" in answer.body

    def test_a_client_that_leaves_before_the_next_send_was_challenged_once_and_sent_once(self) -> None:
        controller = Controller()
        ex = self.replayed(controller)
        assert isinstance(controller.reply(ex, CODE_3007, 400), Resend)
        controller.settle(ex)
        assert ex.sends == 1
        assert controller.state.breakers.of("zcode", "a").state(controller.now).strikes == 1

    def test_the_final_refusal_that_passes_carries_the_count_in_a_header(self) -> None:
        controller = Controller("replay: {max_attempts: 2, base_seconds: 0}")
        ex = self.replayed(controller, "zai-openai")
        body = zai_error("1302", "Rate limit reached for requests")
        assert isinstance(controller.reply(ex, body, 429), Resend)
        assert added(controller.reply(ex, body, 429)) == (("X-Breakwater", "rate_limit; after 2 attempts"),)

    def test_pacing_delays_a_replay_until_the_gap_and_nothing_else(self) -> None:
        controller = Controller("replay: {min_gap_seconds: 0.9}")
        controller.turn("zai", "turn one")
        controller.now += 0.4
        paced = controller.ask("zai", "turn two")[1]
        assert isinstance(paced, Forward)
        assert paced.after == pytest.approx(0.5)
        assert controller.ask("zai", "turn two", account="b")[1] == Forward(0.0)


class TestSideRequests:
    def test_an_overflow_is_remembered_for_the_same_side_request_alone(self) -> None:
        controller = Controller()
        body = zai_error("1261", "Prompt exceeds max length")
        assert added(controller.turn("zai-openai", "title of all this", body=body, status=400, max_tokens=50)) == ()
        refused = answer_of(controller.ask("zai-openai", "title of all this", max_tokens=50)[1])
        assert (refused.status, header(refused, "x-breakwater")) == (413, "remembered_overflow")
        assert isinstance(controller.ask("zai-openai", "another title", max_tokens=50)[1], Forward)
        assert isinstance(controller.ask("zai-openai", "title of all this")[1], Forward)

    def test_a_learnt_window_refuses_and_a_success_above_it_releases(self) -> None:
        controller = Controller()
        text = "word " * 9000
        model: dict[str, Any] = {"model": "my-model"}
        assert added(controller.turn("dashscope", text, body=OVERFLOW, status=400, **model)) == ()
        assert answer_of(controller.ask("dashscope", text + "x", max_tokens=50, **model)[1]).status == 413
        usage = OK.replace(b'"usage": {}', b'"usage": {"prompt_tokens": 9000}')
        controller.turn("dashscope", text, body=usage, **model)
        assert isinstance(controller.ask("dashscope", text + "x", max_tokens=50, **model)[1], Forward)

    def test_a_main_request_of_any_size_goes_on(self) -> None:
        assert isinstance(Controller().ask("zai", "word " * 2_000_000, model="glm-4.5")[1], Forward)


class TestRemembered:
    def test_the_same_request_waits_here_also_with_other_flags(self) -> None:
        controller = Controller()
        controller.turn(body=MTOP)
        again = answer_of(controller.ask(max_tokens=21333, stream=True)[1])
        assert (header(again, "x-breakwater"), header(again, "retry-after")) == ("remembered_wait", "30")
        assert isinstance(controller.ask(text="other")[1], Forward)
        assert isinstance(controller.ask(account="b")[1], Forward)
        controller.now += 30
        assert isinstance(controller.ask()[1], Forward)

    def test_is_off_where_the_config_says_so(self) -> None:
        controller = Controller("retry_after: {enforce: false}")
        controller.turn(body=MTOP)
        assert isinstance(controller.ask()[1], Forward)


class TestObserve:
    def test_everything_goes_upstream_and_what_would_have_been_is_still_known(self) -> None:
        controller = Controller("mode: observe")
        for n in range(4):
            controller.turn(text=f"q{n}", body=MTOP)
        _, admission = controller.ask(text="next")
        assert isinstance(admission, Forward)
        assert (admission.reason, admission.wait) == ("breaker_open", 59)

    def test_nothing_is_paced_and_a_comment_does_not_say_that_it_happened(self) -> None:
        controller = Controller("{mode: observe, replay: {min_gap_seconds: 0.9}, breaker: {strikes: 2}}")
        controller.turn()
        ex, admission = controller.ask()
        assert (ex.replay, admission) == (True, Forward(0.0))
        assert "would have become a 529" in str(controller.reply(ex, MTOP).comment)
        controller.turn(text="b", body=MTOP)
        assert str(controller.ask(text="c")[1].comment).startswith("Only observed: it would have been refused here")


class TestSideRequestsOff:
    def test_a_title_is_no_previous_answer_and_an_overflow_of_it_is_not_remembered(self) -> None:
        controller = Controller("side_requests: {enabled: false}")
        controller.turn(max_tokens=100)
        assert not controller.ask(text="main")[0].replay
        overflow = b'{"error":{"code":"1261","message":"Prompt exceeds max length"}}'
        controller.turn("zai-openai", "title", body=overflow, status=400, max_tokens=100)
        assert isinstance(controller.ask("zai-openai", "title", max_tokens=100)[1], Forward)


class TestHold:
    def test_headers_wait_for_the_first_frame_and_not_for_ever(self) -> None:
        controller = Controller()
        ex = controller.sent()
        judge = controller.begin(ex)
        assert judge.deadline() == controller.now + 30
        controller.now += 1
        judge.feed(b": ping\n\n", controller.now, controller.wall)
        assert judge.deadline() == controller.now + 2

    def test_headers_go_out_five_seconds_before_their_client_would_leave(self) -> None:
        controller = Controller()
        ex = controller.sent()
        ex.patience = Patience(119.0, 99.0)
        controller.now += 100
        assert controller.begin(ex).deadline() == ex.started + 114

    @pytest.mark.parametrize("status", [101, 204, 304])
    def test_answers_without_a_body_are_not_looked_at(self, status: int) -> None:
        controller = Controller()
        assert not reads(controller.sent(), Head(status))

    def test_an_event_stream_of_another_path_is_not_held(self) -> None:
        controller = Controller()
        ex = controller.ask(path="/api/mcp/web_search/mcp")[0]
        assert not reads(ex, Head(200, (("content-type", "text/event-stream"),)))
        assert reads(ex, Head(200, (("content-type", "text/html"),)))
        assert not reads(ex, Head(200, (("content-type", "application/json"), ("content-length", "999999"))))

    def test_a_finding_of_the_headers_counts_unless_the_body_says_it_better(self) -> None:
        controller = Controller()
        decision = controller.reply(controller.sent("zcode"), b'{"code":42,"msg":"?"}', 400, x_aliyun_captcha_verify_param="C")
        assert answer_of(decision).status == 529
        assert added(controller.reply(controller.sent("zcode", "b"), OK, 200, x_aliyun_captcha_verify_param="C")) == ()


def test_every_kind_of_finding_has_a_reason() -> None:
    for kind in Kind:
        assert kind is Kind.CHALLENGE or Reason(kind.value)
