import gzip
import json
import zlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.calls import Family, Role, Surface, Wire
from policies.findings import ANSWER, Challenge, Finding, Kind
from policies.wire.encodings import brotli
from policies.wire.frames import Frame
from policies.wire.head import Head
from policies.wire.reader import Reader
from policies.wire.tap import HELD_BACK

WEB = Surface("qwen-chat", Family.QWEN_WEB, Wire.QWEN_WEB, Role.GENERATION)
ANTHROPIC = Surface("zai", Family.ZAI, Wire.ANTHROPIC, Role.GENERATION)
SSE = (("Content-Type", "text/event-stream; charset=utf-8"),)
JSON = (("Content-Type", "application/json"),)
CAPTCHA = Finding(Kind.CHALLENGE, row="captcha", challenge=Challenge.CAPTCHA)
LIMITED = Finding(Kind.RATE_LIMIT, row="limited")
QUOTA = Finding(Kind.QUOTA, row="quota")
SENSITIVE = Finding(Kind.FILTER, row="sensitive", ends_answer=True)
PAGE = b"<!doctype html><meta name=aliyun_waf_aa><title>Verification</title>"
RET = b'{"ret":["FAIL_SYS_USER_VALIDATE","x"],"data":{}}'
CREATED = b'data: {"response.created":{"chat_id":"C"}}\n\n'
HELLO = b'data: {"choices":[{"delta":{"content":"hello"}}]}\n\n'
DONE = b"data: [DONE]\n\n"


def judged(value: Any) -> Finding | None:
    if "ret" in value:
        return CAPTCHA
    if "error" in value:
        return QUOTA if value["error"].get("code") == "quota" else LIMITED
    if any(choice.get("finish_reason") == "sensitive" for choice in value.get("choices", [])):
        return SENSITIVE
    return None


class FewForms:
    """Knows a few forms, as the tables know many."""

    def head(self, _: Surface, head: Head) -> Finding | None:
        return CAPTCHA if head.get("bxpunish") else None

    def document(self, _: Surface, __: Head, body: bytes, *, whole: bool) -> Finding:
        if b"aliyun_waf_aa" in body[:4000] and body.startswith(b"<"):
            return CAPTCHA
        try:
            value = json.loads(body)
        except ValueError:
            return Finding(Kind.NOTHING, row="other whole" if whole else "other")
        return judged(value) or ANSWER

    def frame(self, _: Surface, __: Head, frame: Frame) -> Finding | None:
        if not frame.data:
            return None
        try:
            value = json.loads(frame.data)
        except ValueError:
            return ANSWER
        if not isinstance(value, dict):
            return ANSWER
        if "response.created" in value or value.get("type") == "message_start":
            return None
        return judged(value) or ANSWER

    def suspicious(self, _: Surface, data: bytes) -> bool:
        return any(marker in data for marker in (b'"ret"', b'"error"', b"aliyun_waf", b"sensitive"))


def reader(headers: Any = SSE, surface: Surface = WEB, status: int = 200, **more: Any) -> Any:
    return Reader(surface, Head(status, headers), FewForms(), **more)


def held(own: Reader, body: bytes, size: int = 1 << 20) -> Any:
    for at in range(0, len(body), size):
        finding = own.feed(body[at : at + size])
        if finding is not None:
            return finding
    return None


def tapped(own: Reader, body: bytes, size: int = 1 << 20) -> Any:
    results = [own.tap(body[at : at + size]) for at in range(0, len(body), size)]
    results.append(own.tap_finish())
    assert all(chunk for result in results for chunk in result.passed), "an empty chunk would end the client's body"
    findings = [result.finding for result in results if result.finding is not None]
    return b"".join(chunk for result in results for chunk in result.passed), findings, results


class TestHold:
    @pytest.mark.parametrize("size", [1, 5, 1000])
    def test_the_hold_goes_on_over_preamble_until_the_first_answer(self, size: int) -> None:
        own = reader()
        assert held(own, b": ping\n\n" + CREATED, size) is None
        assert own.preamble
        assert held(own, HELLO, size) is ANSWER
        assert own.answered

    def test_nothing_has_come_before_the_first_frame(self) -> None:
        own = reader()
        assert own.feed(b"data: {") is None
        assert not own.preamble

    def test_a_comment_line_alone_is_preamble_already(self) -> None:
        own = reader()
        own.feed(b": ping\n")
        assert own.preamble

    @pytest.mark.parametrize("size", [1, 5, 1000])
    @pytest.mark.parametrize("headers", [SSE, JSON, ()])
    def test_a_challenge_in_the_first_frame_is_one_under_any_content_type(self, size: int, headers: Any) -> None:
        assert held(reader(headers), CREATED + b"data: " + RET + b"\n\n", size) is CAPTCHA

    @pytest.mark.parametrize("headers", [SSE, JSON, ()])
    @pytest.mark.parametrize("lead", [b"", b"\r\n ", b"\xef\xbb\xbf"])
    @pytest.mark.parametrize("size", [1, 1000])
    def test_a_document_is_known_by_its_first_byte_whatever_the_content_type(
        self, headers: Any, lead: bytes, size: int
    ) -> None:
        own = reader(headers)
        assert held(own, lead + RET, size) is None
        assert own.finish(cut=False) is CAPTCHA

    @pytest.mark.parametrize("lead", [b": ping\n\n", b": ping\n", b": ping\r\n\r\n: ping\r\n", CREATED])
    @pytest.mark.parametrize("end", [b"", b"\n", b"\n\n"])
    @pytest.mark.parametrize("size", [1, 1000])
    def test_a_bare_document_after_comments_is_a_document_again(self, lead: bytes, end: bytes, size: int) -> None:
        own = reader()
        assert held(own, lead + RET + end, size) is None
        assert own.finish(cut=False) is CAPTCHA

    def test_a_document_is_held_to_its_end(self) -> None:
        own = reader(JSON)
        assert held(own, b'{"id":"m","content":[]}', 4) is None
        assert own.finish(cut=False) is ANSWER

    def test_a_document_above_the_bound_streams_on(self) -> None:
        own = reader(JSON, hold_bytes=100)
        assert own.feed(b'{"content":"' + b"x" * 80) is None
        assert own.feed(b"x" * 20).kind is Kind.NOTHING
        body = b'{"content":"' + b"x" * 100 + b'"}'
        assert tapped(own, body, 7)[0] == body

    def test_a_frame_above_the_bound_streams_on(self) -> None:
        own = reader(hold_bytes=100)
        assert held(own, b'data: {"choices":[' + b"x" * 200, 10).row == "hold-cap"

    def test_a_cut_page_that_shows_its_markers_is_the_challenge(self) -> None:
        own = reader((("content-type", "text/html"),))
        held(own, PAGE)
        finding = own.finish(cut=True)
        assert (finding.kind, finding.cut) == (Kind.CHALLENGE, True)

    @pytest.mark.parametrize("body", [b"", b"\n", b": ping\n\n", CREATED, CREATED + b'data: {"choi'])
    def test_a_cut_with_nothing_but_preamble_is_nothing(self, body: bytes) -> None:
        own = reader()
        held(own, body)
        finding = own.finish(cut=True)
        assert (finding.kind, finding.cut) == (Kind.NOTHING, True)
        assert not own.answered

    @pytest.mark.parametrize("body", [b"", b": ping\n\n", CREATED])
    def test_an_end_with_nothing_but_preamble_is_nothing(self, body: bytes) -> None:
        own = reader()
        held(own, body)
        finding = own.finish(cut=False)
        assert (finding.kind, finding.cut) == (Kind.NOTHING, False)

    def test_a_frame_without_its_blank_line_is_judged_at_the_end(self) -> None:
        own = reader()
        assert held(own, b"data: " + RET) is None
        assert own.finish(cut=False) is CAPTCHA

    def test_a_cut_challenge_frame_is_still_the_challenge(self) -> None:
        own = reader()
        held(own, b"data: " + RET)
        assert own.finish(cut=True).kind is Kind.CHALLENGE

    def test_any_other_body_commits_at_once(self) -> None:
        own = reader((("content-type", "image/png"),))
        assert own.feed(b"\x89PNG\r\n\x1a\n") is not None
        assert tapped(own, b"\x89PNG\n\n" + RET)[0] == b"\x89PNG\n\n" + RET

    def test_a_cap_without_any_byte_is_nothing_and_the_tap_watches_on(self) -> None:
        own = reader()
        assert own.cap().kind is Kind.NOTHING
        passed, findings, _ = tapped(own, CREATED + b"data: " + RET + b"\n\n", 3)
        assert (passed, findings) == (CREATED, [CAPTCHA])

    def test_an_answer_after_a_cap_is_noticed(self) -> None:
        own = reader()
        own.cap()
        assert not own.answered
        tapped(own, CREATED + HELLO)
        assert own.answered

    def test_headers_that_are_a_challenge_say_so_where_the_body_is_empty(self) -> None:
        own = reader((("bxpunish", "1"),))
        assert own.early is CAPTCHA
        assert own.finish(cut=False) is CAPTCHA

    @pytest.mark.parametrize(("name", "pack"), [("gzip", gzip.compress), ("br", brotli.compress)])
    def test_an_encoded_challenge_is_read(self, name: str, pack: Any) -> None:
        own = reader((*JSON, ("content-encoding", name)))
        held(own, pack(RET), 10)
        assert own.finish(cut=False) is CAPTCHA

    def test_a_coding_that_is_not_known_commits_unread(self) -> None:
        own = reader((*JSON, ("content-encoding", "snappy")))
        assert own.feed(b"x").row == "unreadable"
        assert tapped(own, RET)[0] == RET

    def test_a_broken_coding_commits(self) -> None:
        own = reader((*JSON, ("content-encoding", "gzip")))
        assert own.feed(RET).kind is Kind.NOTHING

    def test_a_bomb_commits(self) -> None:
        own = reader((*JSON, ("content-encoding", "gzip")))
        body = gzip.compress(b" " * (8 << 20))
        assert own.feed(body).kind is Kind.NOTHING
        assert tapped(own, body)[0] == body

    def test_a_decision_stays(self) -> None:
        own = reader()
        own.feed(HELLO)
        assert own.feed(b"data: " + RET + b"\n\n") is ANSWER
        assert own.finish(cut=True) is ANSWER
        assert own.cap() is ANSWER


class TestTap:
    @pytest.mark.parametrize("size", [1, 2, 7, 40, 10_000])
    def test_all_before_a_refusal_passes_and_nothing_of_it(self, size: int) -> None:
        own = reader()
        body = CREATED + HELLO + b"data: " + RET + b"\n\n" + HELLO
        passed, findings, results = tapped(own, body, size)
        assert passed == CREATED + HELLO
        assert findings == [CAPTCHA]
        assert not any(result.withheld for result in results)

    def test_an_answer_and_a_challenge_in_one_chunk_are_told_apart_after_the_commit(self) -> None:
        body = HELLO + b"data: " + RET + b"\n\n"
        own = reader()
        assert own.feed(body) is ANSWER
        assert tapped(own, body)[:2] == (HELLO, [CAPTCHA])

    def test_a_refusal_that_no_wait_cures_passes(self) -> None:
        body = HELLO + b'data: {"error":{"code":"quota"}}\n\n'
        assert tapped(reader(), body, 9)[:2] == (body, [])

    def test_a_refusal_without_a_last_blank_line_is_kept_back(self) -> None:
        assert tapped(reader(), HELLO + b"data: " + RET, 9)[:2] == (HELLO, [CAPTCHA])

    def test_a_bare_document_after_the_answer_is_kept_back(self) -> None:
        assert tapped(reader(), HELLO + RET, 9)[:2] == (HELLO, [CAPTCHA])

    def test_an_answer_frame_passes_before_it_is_whole(self) -> None:
        own = reader()
        assert own.tap(b'data: {"choices":[{').passed == (b'data: {"choices":[{',)
        assert own.tap(b'"delta":').passed == (b'"delta":',)

    def test_a_frame_that_does_not_begin_like_an_answer_is_held_back(self) -> None:
        own = reader()
        assert own.tap(b'data: {"re').passed == ()
        assert own.tap(b'sult":1}\n\n').passed == (b'data: {"result":1}\n\n',)

    def test_only_so_much_is_held_back(self) -> None:
        own = reader()
        chunk = b'data: {"x":"' + b"y" * (HELD_BACK - 12)
        assert own.tap(chunk).passed == ()
        assert own.tap(b"z").passed == (chunk + b"z",)
        assert own.tap(b"z").passed == (b"z",)

    def test_a_page_after_a_silent_commit_is_told_though_it_is_long(self) -> None:
        own = reader((("content-type", "text/html"),))
        own.cap()
        passed, findings, _ = tapped(own, PAGE + b"x" * (2 * HELD_BACK), 1000)
        assert (passed, findings) == (b"", [CAPTCHA])

    def test_a_refusal_in_a_frame_that_has_begun_to_pass_ends_on_a_clean_line(self) -> None:
        frame = b'data: {"id":"1","error":{"code":"x"}}\n\n'
        passed, findings, _ = tapped(reader(), HELLO + frame + HELLO, 14)
        assert (passed, findings) == (HELLO + frame, [LIMITED])

    def test_what_a_model_wrote_about_a_refusal_passes(self) -> None:
        body = b'data: {"choices":[{"delta":{"content":"\\"ret\\":[\\"FAIL_SYS\\"] \\"error\\""}}]}\n\n'
        assert tapped(reader(), HELLO + body, 5)[:2] == (HELLO + body, [])

    def test_the_end_of_an_answer_passes_and_is_noticed(self) -> None:
        own = reader()
        body = HELLO + b'data: {"choices":[{"finish_reason":"sensitive"}]}\n\n' + DONE
        assert tapped(own, body, 11)[:2] == (body, [])
        assert own.ended is SENSITIVE

    def test_an_end_in_the_first_frame_is_noticed(self) -> None:
        own = reader()
        assert own.feed(b'data: {"choices":[{"finish_reason":"sensitive"}]}\n\n') is SENSITIVE
        assert own.ended is SENSITIVE

    def test_a_refusal_with_its_own_status_passes_once_it_is_committed(self) -> None:
        body = b'event: error\ndata: {"error":{"code":"1302"}}\n\n'
        own = reader(status=429)
        assert own.feed(body) is LIMITED
        assert tapped(own, body)[:2] == (body, [])

    def test_after_the_refusal_nothing_passes(self) -> None:
        own = reader()
        own.tap(b"data: " + RET + b"\n\n")
        assert own.tap(HELLO).passed == ()
        assert own.tap_finish().passed == ()

    def test_a_refusal_in_an_encoded_stream_is_withheld(self) -> None:
        own = reader((*SSE, ("content-encoding", "gzip")))
        packer = zlib.compressobj(wbits=31)
        first = packer.compress(HELLO) + packer.flush(zlib.Z_SYNC_FLUSH)
        half = packer.compress(b'data: {"ret":["FAIL') + packer.flush(zlib.Z_SYNC_FLUSH)
        rest = packer.compress(b'_SYS_USER_VALIDATE"]}\n\n') + packer.flush(zlib.Z_SYNC_FLUSH)
        assert own.tap(first).passed == (first,)
        assert own.tap(half).passed == ()
        last = own.tap(rest)
        assert (last.passed, last.finding, last.withheld) == ((), CAPTCHA, True)

    def test_an_encoded_stream_may_be_of_any_length(self) -> None:
        own = reader((*SSE, ("content-encoding", "gzip")))
        packer = zlib.compressobj(wbits=31)
        for _ in range(40):
            chunk = packer.compress(HELLO * 1000) + packer.flush(zlib.Z_SYNC_FLUSH)
            assert own.tap(chunk).passed == (chunk,)
        half = packer.compress(b"data: " + RET + b"\n\n") + packer.flush(zlib.Z_SYNC_FLUSH)
        assert own.tap(half).withheld

    def test_a_coding_that_breaks_lets_everything_through(self) -> None:
        own = reader((*SSE, ("content-encoding", "gzip")))
        assert own.tap(gzip.compress(b"data: {")).passed == ()
        noise = b"\x1f\xff\xff\xff not a member"
        assert own.tap(noise).passed == (gzip.compress(b"data: {") + noise,)
        assert own.tap(RET).passed == (RET,)


ANSWER_FRAMES = st.lists(
    st.sampled_from(
        [
            HELLO,
            CREATED,
            DONE,
            b": keep-alive\n\n",
            b": ping\r\n",
            b"event: ping\ndata: {}\n\n",
            b'id:1\nevent:result\n:HTTP_STATUS/200\ndata:{"output":{}}\n\n',
            b'data: {"odd":1}\r\n\r\n',
            b'data: {"usage":{"input_tokens":3}}\n\n',
            b'data: {"choices":[{"delta":{"content":"\\"ret\\": \\"error\\" <html>"}}]}\n\n',
            b"\n",
        ]
    ),
    max_size=12,
).map(b"".join)


class TestPassage:
    @settings(max_examples=200)
    @given(ANSWER_FRAMES, st.binary(max_size=12).map(lambda tail: b"data: " + tail), st.integers(1, 60))
    def test_a_stream_without_refusals_passes_byte_for_byte(self, body: bytes, tail: bytes, size: int) -> None:
        assert tapped(reader(), body + tail, size)[:2] == (body + tail, [])

    @settings(max_examples=100)
    @given(ANSWER_FRAMES, st.integers(1, 60), st.sampled_from([gzip.compress, brotli.compress]))
    def test_an_encoded_stream_without_refusals_passes_byte_for_byte(self, body: bytes, size: int, pack: Any) -> None:
        name = "gzip" if pack is gzip.compress else "br"
        own = reader((*SSE, ("content-encoding", name)))
        packed = pack(body)
        assert tapped(own, packed, size)[:2] == (packed, [])

    @settings(max_examples=100)
    @given(st.binary(max_size=200), st.integers(1, 60), st.sampled_from([SSE, JSON, ()]))
    def test_bytes_of_no_form_pass(self, body: bytes, size: int, headers: Any) -> None:
        passed, findings, _ = tapped(reader(headers), body, size)
        assert findings or passed == body

    @settings(max_examples=150)
    @given(ANSWER_FRAMES, ANSWER_FRAMES, st.integers(1, 60))
    def test_a_refusal_anywhere_lets_exactly_what_is_before_it_pass(
        self, before: bytes, after: bytes, size: int
    ) -> None:
        if not before.endswith((b"\n\n", b"\r\n\r\n")):
            before += DONE
        passed, findings, _ = tapped(reader(), before + b"data: " + RET + b"\n\n" + after, size)
        assert findings == [CAPTCHA]
        assert before.startswith(passed)
        assert not before[len(passed) :].strip()


def anthropic(kind: str, where: str, **usage: Any) -> Any:
    value = {"type": kind, where: {"usage": usage}} if where else {"type": kind, "usage": usage}
    return f"event: {kind}\ndata: {json.dumps(value)}\n\n".encode()


class TestUsage:
    def test_anthropic_counts_its_cache_apart(self) -> None:
        own = reader(surface=ANTHROPIC)
        tapped(own, anthropic("message_start", "message", input_tokens=5, cache_read_input_tokens=100), 9)
        assert own.usage_input == 105

    def test_a_later_delta_that_states_more_is_taken(self) -> None:
        own = reader(surface=ANTHROPIC)
        start = anthropic("message_start", "message", input_tokens=0, output_tokens=1)
        delta = anthropic("message_delta", "", input_tokens=7, cache_creation_input_tokens=3, output_tokens=9)
        tapped(own, start + delta)
        assert own.usage_input == 10

    @pytest.mark.parametrize(
        "frame",
        [
            {"choices": [], "usage": {"prompt_tokens": 42, "prompt_tokens_details": {"cached_tokens": 40}}},
            {"type": "response.completed", "response": {"usage": {"input_tokens": 42}}},
            {"choices": [{"delta": {}}], "usage": {"input_tokens": 42, "output_tokens": 1}},
            {"output": {}, "usage": {"input_tokens": 42}},
            {"type": "chat:completion", "data": {"usage": {"prompt_tokens": 42}}},
        ],
    )
    def test_the_other_wires_state_it_whole(self, frame: Any) -> None:
        own = reader()
        tapped(own, f"data: {json.dumps(frame)}\n\n".encode(), 8)
        assert own.usage_input == 42

    @pytest.mark.parametrize(
        "frame",
        [
            {"choices": [{"delta": {"content": '{"usage":{"prompt_tokens":42}}'}}]},
            {"choices": [{"usage": {"prompt_tokens": 42}}]},
            {"usage": None},
            {"usage": {"prompt_tokens": "42"}},
            {"usage": [42]},
            {"message": "usage"},
        ],
    )
    def test_it_is_never_read_from_anywhere_else(self, frame: Any) -> None:
        own = reader()
        tapped(own, f"data: {json.dumps(frame)}\n\n".encode())
        assert own.usage_input is None

    def test_a_document_states_it_too(self) -> None:
        own = reader(JSON)
        held(own, b'{"content":[],"usage":{"input_tokens":4,"cache_read_input_tokens":3}}', 9)
        assert own.finish(cut=False) is ANSWER
        assert own.usage_input == 7
