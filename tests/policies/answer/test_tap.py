import gzip
import json
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.answer.encodings import brotli
from policies.answer.reader import Reader
from policies.answer.tap import HELD_BACK, PAGE_BYTES
from policies.calls import Surface
from policies.kinds import ANSWER, Family, Head, Role, Wire
from policies.refusal.recogniser import Recogniser
from tests.policies.refusal.few_forms import (
    CAPTCHA,
    CREATED,
    DONE,
    HELLO,
    JSON,
    LIMITED,
    PAGE,
    RET,
    SENSITIVE,
    SSE,
    WEB,
    FewForms,
    held,
    reader,
    tapped,
)
from tests.rows import over


@over("size", [1, 2, 7, 40, 10_000])
def test_all_before_a_refusal_passes_and_nothing_of_it(size: int) -> None:
    own = reader()
    body = CREATED + HELLO + b"data: " + RET + b"\n\n" + HELLO
    passed, findings, results = tapped(own, body, size)
    assert passed == CREATED + HELLO
    assert findings == [CAPTCHA]
    assert not any(result.withheld for result in results)


def test_an_answer_and_a_challenge_in_one_chunk_are_told_apart_after_the_commit() -> None:
    body = HELLO + b"data: " + RET + b"\n\n"
    own = reader()
    assert own.feed(body) is ANSWER
    assert tapped(own, body)[:2] == (HELLO, [CAPTCHA])


def test_a_refusal_that_no_wait_cures_passes() -> None:
    body = HELLO + b'data: {"error":{"code":"quota"}}\n\n'
    assert tapped(reader(), body, 9)[:2] == (body, [])


def test_a_refusal_without_a_last_blank_line_is_kept_back() -> None:
    assert tapped(reader(), HELLO + b"data: " + RET, 9)[:2] == (HELLO, [CAPTCHA])


def test_a_bare_document_after_the_answer_is_kept_back() -> None:
    assert tapped(reader(), HELLO + RET, 9)[:2] == (HELLO, [CAPTCHA])


def test_an_answer_frame_passes_before_it_is_whole() -> None:
    own = reader()
    assert own.tap(b'data: {"choices":[{').passed == (b'data: {"choices":[{',)
    assert own.tap(b'"delta":').passed == (b'"delta":',)


def test_a_frame_that_does_not_begin_like_an_answer_is_held_back() -> None:
    own = reader()
    assert own.tap(b'data: {"re').passed == ()
    assert own.tap(b'sult":1}\n\n').passed == (b'data: {"result":1}\n\n',)


def test_only_so_much_is_held_back() -> None:
    own = reader()
    chunk = b'data: {"x":"' + b"y" * (HELD_BACK - 12)
    assert own.tap(chunk).passed == ()
    assert own.tap(b"z").passed == (chunk + b"z",)
    assert own.tap(b"z").passed == (b"z",)


def test_a_page_after_a_silent_commit_is_told_though_it_is_long() -> None:
    own = reader((("content-type", "text/html"),))
    own.cap()
    passed, findings, _ = tapped(own, PAGE + b"x" * (2 * HELD_BACK), 1000)
    assert (passed, findings) == (b"", [CAPTCHA])


def test_a_refusal_in_a_frame_that_has_begun_to_pass_ends_on_a_clean_line() -> None:
    frame = b'data: {"id":"1","error":{"code":"x"}}\n\n'
    passed, findings, _ = tapped(reader(), HELLO + frame + HELLO, 14)
    assert (passed, findings) == (HELLO + frame, [LIMITED])


def test_what_a_model_wrote_about_a_refusal_passes() -> None:
    body = b'data: {"choices":[{"delta":{"content":"\\"ret\\":[\\"FAIL_SYS\\"] \\"error\\""}}]}\n\n'
    assert tapped(reader(), HELLO + body, 5)[:2] == (HELLO + body, [])


def test_the_end_of_an_answer_passes() -> None:
    own = reader()
    body = HELLO + b'data: {"choices":[{"finish_reason":"sensitive"}]}\n\n' + DONE
    assert tapped(own, body, 11)[:2] == (body, [])


def test_an_end_in_the_first_frame_is_found() -> None:
    assert reader().feed(b'data: {"choices":[{"finish_reason":"sensitive"}]}\n\n') is SENSITIVE


def test_a_refusal_with_its_own_status_passes_once_it_is_committed() -> None:
    body = b'event: error\ndata: {"error":{"code":"1302"}}\n\n'
    own = reader(status=429)
    assert own.feed(body) is LIMITED
    assert tapped(own, body)[:2] == (body, [])


def test_after_the_refusal_nothing_passes() -> None:
    own = reader()
    own.tap(b"data: " + RET + b"\n\n")
    assert own.tap(HELLO).passed == ()
    assert own.tap_finish().passed == ()


def test_a_refusal_in_an_encoded_stream_is_withheld() -> None:
    own = reader((*SSE, ("content-encoding", "gzip")))
    packer = zlib.compressobj(wbits=31)
    first = packer.compress(HELLO) + packer.flush(zlib.Z_SYNC_FLUSH)
    half = packer.compress(b'data: {"ret":["FAIL') + packer.flush(zlib.Z_SYNC_FLUSH)
    rest = packer.compress(b'_SYS_USER_VALIDATE"]}\n\n') + packer.flush(zlib.Z_SYNC_FLUSH)
    assert own.tap(first).passed == (first,)
    assert own.tap(half).passed == ()
    last = own.tap(rest)
    assert (last.passed, last.finding, last.withheld) == ((), CAPTCHA, True)


def test_an_encoded_stream_may_be_of_any_length() -> None:
    own = reader((*SSE, ("content-encoding", "gzip")))
    packer = zlib.compressobj(wbits=31)
    for _ in range(40):
        chunk = packer.compress(HELLO * 1000) + packer.flush(zlib.Z_SYNC_FLUSH)
        assert own.tap(chunk).passed == (chunk,)
    half = packer.compress(b"data: " + RET + b"\n\n") + packer.flush(zlib.Z_SYNC_FLUSH)
    assert own.tap(half).withheld


def test_a_coding_that_breaks_lets_everything_through() -> None:
    own = reader((*SSE, ("content-encoding", "gzip")))
    assert own.tap(gzip.compress(b"data: {")).passed == ()
    noise = b"\x1f\xff\xff\xff not a member"
    assert own.tap(noise).passed == (gzip.compress(b"data: {") + noise,)
    assert own.tap(RET).passed == (RET,)


def test_comment_lines_pass_at_once_though_their_frame_is_unfinished() -> None:
    own = reader()
    assert own.tap(b": ping\n").passed == (b": ping\n",)
    assert own.tap(b'data: {"ret":["FAIL').passed == ()
    last = own.tap(b'_SYS_USER_VALIDATE"]}\n\n')
    assert (last.passed, last.finding) == ((), CAPTCHA)


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


@given(ANSWER_FRAMES, st.binary(max_size=12).map(lambda tail: b"data: " + tail), st.integers(1, 60))
def test_a_stream_without_refusals_passes_byte_for_byte(body: bytes, tail: bytes, size: int) -> None:
    assert tapped(reader(), body + tail, size)[:2] == (body + tail, [])


@given(ANSWER_FRAMES, st.integers(1, 60), st.sampled_from([gzip.compress, brotli.compress]))
def test_an_encoded_stream_without_refusals_passes_byte_for_byte(body: bytes, size: int, pack: Any) -> None:
    name = "gzip" if pack is gzip.compress else "br"
    own = reader((*SSE, ("content-encoding", name)))
    packed = pack(body)
    assert tapped(own, packed, size)[:2] == (packed, [])


@given(st.binary(max_size=200), st.integers(1, 60), st.sampled_from([SSE, JSON, ()]))
def test_bytes_of_no_form_pass(body: bytes, size: int, headers: Any) -> None:
    passed, findings, _ = tapped(reader(headers), body, size)
    assert findings or passed == body


@given(ANSWER_FRAMES, ANSWER_FRAMES, st.integers(1, 60))
def test_a_refusal_anywhere_lets_exactly_what_is_before_it_pass(before: bytes, after: bytes, size: int) -> None:
    if not before.endswith((b"\n\n", b"\r\n\r\n")):
        before += DONE
    passed, findings, _ = tapped(reader(), before + b"data: " + RET + b"\n\n" + after, size)
    assert findings == [CAPTCHA]
    assert before.startswith(passed)
    assert not before[len(passed) :].strip()


SAYINGS = (
    '"ret":["FAIL_SYS_USER_VALIDATE","RGV587_ERROR::SM::哎哟喂,被挤爆啦,请稍后重试"]',
    '{"error":{"code":"1302","message":"Rate limit reached"}}',
    'data: {"error":{"code":"1305"}}\n\n',
    "event: error\ndata: {}\n\n",
    '{"code":3007,"msg":"captcha verify failed"}',
    '<!doctypehtml><meta name="aliyun_waf_aa"><title>Verification</title>',
    "/_____tmd_____/punish?x5secdata=a",
    'FRONTEND_CAPTCHA_REQUIRED "success":false',
    ":HTTP_STATUS/429",
    '"finish_reason":"sensitive"',
    "overloaded_error, try again in 5s",
)
SPEECH: dict[Wire, tuple[str, Callable[[str], dict[str, Any]]]] = {
    Wire.OPENAI: ("", lambda said: {"id": "c", "choices": [{"index": 0, "delta": {"content": said}}]}),
    Wire.QWEN_WEB: (
        "",
        lambda said: {"choices": [{"delta": {"content": said, "phase": "answer", "status": "typing"}}]},
    ),
    Wire.ZAI_WEB: ("", lambda said: {"type": "chat:completion", "data": {"delta_content": said, "phase": "answer"}}),
    Wire.ANTHROPIC: (
        "content_block_delta",
        lambda said: {"type": "content_block_delta", "delta": {"type": "input_json_delta", "partial_json": said}},
    ),
    Wire.RESPONSES: (
        "response.output_text.delta",
        lambda said: {"type": "response.output_text.delta", "delta": said},
    ),
    Wire.DASHSCOPE_NATIVE: (
        "result",
        lambda said: {"output": {"choices": [{"message": {"content": said}, "finish_reason": "null"}]}},
    ),
}
FAMILIES = {Wire.QWEN_WEB: Family.QWEN_WEB, Wire.ZAI_WEB: Family.ZAI_WEB, Wire.DASHSCOPE_NATIVE: Family.DASHSCOPE}


@given(
    st.sampled_from(list(SPEECH)),
    st.lists(st.one_of(st.sampled_from(SAYINGS), st.text(max_size=10)), min_size=1, max_size=8),
    st.integers(1, 200),
    st.booleans(),
)
def test_nothing_that_a_model_says_stops_its_stream(wire: Wire, said: list[str], size: int, packed: bool) -> None:
    event, value = SPEECH[wire]
    lead = f"event: {event}\n" if event else ""
    text = "".join(f"{lead}data: {json.dumps(value(part), ensure_ascii=False)}\n\n" for part in said)
    body = gzip.compress(text.encode()) if packed else text.encode()
    surface = Surface("upstream", FAMILIES.get(wire, Family.ZAI), wire, Role.GENERATION)
    own = Reader(surface, Head(200, (*SSE, ("content-encoding", "gzip")) if packed else SSE), Recogniser())
    held(own, body, size)
    assert tapped(own, body, size)[:2] == (body, [])


def test_an_answer_with_an_error_status_passes_whatever_comes_after_its_commit() -> None:
    own = reader(status=429)
    own.cap()
    body = CREATED + b'data: {"error":{"code":"1302"}}\n\n'
    assert tapped(own, body)[:2] == (body, [])


@pytest.mark.timeout(20)
def test_comment_lines_without_end_cost_no_more_than_their_bytes() -> None:
    own = reader()
    own.cap()
    body = b": keep-alive\n" * 4_000
    assert tapped(own, body, 1)[:2] == (body, [])


PAGE_START = b"<!doctype html><meta name=aliyun_waf><script>"
PAGE_PIECE = b"var a = 1;\n\n"


@pytest.mark.parametrize("size", [1, 100, 1 << 16])
def test_a_page_with_blank_lines_is_told_wherever_its_markers_stand(size: int) -> None:
    own = reader()
    own.tap(HELLO)
    page = PAGE_START + PAGE_PIECE * 9 + b"aliyun_waf_aa</script>\n\n" + PAGE_PIECE
    assert tapped(own, page, size)[1] == [CAPTCHA]


def test_data_behind_a_page_ends_it_and_has_it_judged() -> None:
    own = reader()
    own.tap(HELLO)
    own.tap(PAGE_START + b"x" * 1000 + b"\n\n")
    assert own.tap(b"<i>aliyun_waf_aa\n\n").finding is None
    assert own.tap(HELLO).finding is CAPTCHA


def test_a_page_in_a_stream_is_judged_a_bounded_number_of_times() -> None:
    class Counting(FewForms):
        read = 0

        def document(self, surface: Surface, head: Head, body: bytes, *, whole: bool) -> Any:
            Counting.read += len(body)
            return super().document(surface, head, body[:100], whole=whole)

    own = Reader(WEB, Head(200, SSE), Counting())
    own.tap(HELLO)
    body = PAGE_START + PAGE_PIECE * 8_000
    tapped(own, body, 1000)
    assert Counting.read < 8 * PAGE_BYTES
