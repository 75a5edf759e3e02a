import gzip
from typing import Any

import pytest

from policies.answer.encodings import brotli
from policies.answer.reader import Reader
from policies.kinds import ANSWER, Kind
from policies.refusal.recogniser import Recogniser
from tests.policies.refusal.few_forms import CAPTCHA, CREATED, HELLO, JSON, PAGE, RET, SSE, held, reader, tapped
from tests.policies.refusal.replies import Reply, corpus
from tests.rows import over


@pytest.mark.parametrize("size", [1, 5, 1000])
def test_the_hold_goes_on_over_preamble_until_the_first_answer(size: int) -> None:
    own = reader()
    assert held(own, b": ping\n\n" + CREATED, size) is None
    assert own.preamble
    assert held(own, HELLO, size) is ANSWER
    assert own.answered


def test_nothing_has_come_before_the_first_frame() -> None:
    own = reader()
    assert own.feed(b"data: {") is None
    assert not own.preamble


def test_a_comment_line_alone_is_preamble_already() -> None:
    own = reader()
    own.feed(b": ping\n")
    assert own.preamble


@over("size", [1, 5, 1000])
@over("headers", [SSE, JSON, ()])
def test_a_challenge_in_the_first_frame_is_one_under_any_content_type(size: int, headers: Any) -> None:
    assert held(reader(headers), CREATED + b"data: " + RET + b"\n\n", size) is CAPTCHA


@over("headers", [SSE, JSON, ()])
@over("lead", [b"", b"\r\n ", b"\xef\xbb\xbf"])
@over("size", [1, 1000])
def test_a_document_is_known_by_its_first_byte_whatever_the_content_type(headers: Any, lead: bytes, size: int) -> None:
    own = reader(headers)
    assert held(own, lead + RET, size) is None
    assert own.finish(cut=False) is CAPTCHA


@over("lead", [b": ping\n\n", b": ping\n", b": ping\r\n\r\n: ping\r\n", CREATED])
@over("end", [b"", b"\n", b"\n\n"])
@over("size", [1, 1000])
def test_a_bare_document_after_comments_is_a_document_again(lead: bytes, end: bytes, size: int) -> None:
    own = reader()
    assert held(own, lead + RET + end, size) is None
    assert own.finish(cut=False) is CAPTCHA


def test_lines_of_data_that_hold_json_are_no_bare_document() -> None:
    assert reader().feed(b"data: [\ndata: " + RET + b"\n" + RET + b"\n\n").kind is Kind.ANSWER


def test_a_document_is_held_to_its_end() -> None:
    own = reader(JSON)
    assert held(own, b'{"id":"m","content":[]}', 4) is None
    assert own.finish(cut=False) is ANSWER


def test_a_document_above_the_bound_streams_on() -> None:
    own = reader(JSON, hold_bytes=100)
    assert own.feed(b'{"content":"' + b"x" * 80) is None
    assert own.feed(b"x" * 20).kind is Kind.NOTHING
    body = b'{"content":"' + b"x" * 100 + b'"}'
    assert tapped(own, body, 7)[0] == body


def test_a_frame_above_the_bound_streams_on() -> None:
    own = reader(hold_bytes=100)
    assert held(own, b'data: {"choices":[' + b"x" * 200, 10).row == "hold-cap"


def test_a_cut_page_that_shows_its_markers_is_the_challenge() -> None:
    own = reader((("content-type", "text/html"),))
    held(own, PAGE)
    finding = own.finish(cut=True)
    assert (finding.kind, finding.cut) == (Kind.CHALLENGE, True)


@over("body", [b"", b"\n", b": ping\n\n", CREATED, CREATED + b'data: {"choi'])
def test_a_cut_with_nothing_but_preamble_is_nothing(body: bytes) -> None:
    own = reader()
    held(own, body)
    finding = own.finish(cut=True)
    assert (finding.kind, finding.cut) == (Kind.NOTHING, True)
    assert not own.answered


@pytest.mark.parametrize("body", [b"", b": ping\n\n", CREATED])
def test_an_end_with_nothing_but_preamble_is_nothing(body: bytes) -> None:
    own = reader()
    held(own, body)
    finding = own.finish(cut=False)
    assert (finding.kind, finding.cut) == (Kind.NOTHING, False)


def test_a_frame_without_its_blank_line_is_judged_at_the_end() -> None:
    own = reader()
    assert held(own, b"data: " + RET) is None
    assert own.finish(cut=False) is CAPTCHA


def test_a_cut_challenge_frame_is_still_the_challenge() -> None:
    own = reader()
    held(own, b"data: " + RET)
    assert own.finish(cut=True).kind is Kind.CHALLENGE


def test_any_other_body_commits_at_once() -> None:
    own = reader((("content-type", "image/png"),))
    assert own.feed(b"\x89PNG\r\n\x1a\n") is not None
    assert tapped(own, b"\x89PNG\n\n" + RET)[0] == b"\x89PNG\n\n" + RET


def test_a_cap_without_any_byte_is_nothing_and_the_tap_watches_on() -> None:
    own = reader()
    assert own.cap().kind is Kind.NOTHING
    passed, findings, _ = tapped(own, CREATED + b"data: " + RET + b"\n\n", 3)
    assert (passed, findings) == (CREATED, [CAPTCHA])


def test_an_answer_after_a_cap_is_noticed() -> None:
    own = reader()
    own.cap()
    assert not own.answered
    tapped(own, CREATED + HELLO)
    assert own.answered


def test_headers_that_are_a_challenge_say_so_where_the_body_is_empty() -> None:
    own = reader((("bxpunish", "1"),))
    assert own.early is CAPTCHA
    assert own.finish(cut=False) is CAPTCHA


@pytest.mark.parametrize(("name", "pack"), [("gzip", gzip.compress), ("br", brotli.compress)])
def test_an_encoded_challenge_is_read(name: str, pack: Any) -> None:
    own = reader((*JSON, ("content-encoding", name)))
    held(own, pack(RET), 10)
    assert own.finish(cut=False) is CAPTCHA


def test_a_coding_that_is_not_known_commits_unread() -> None:
    own = reader((*JSON, ("content-encoding", "snappy")))
    assert own.feed(b"x").row == "unreadable"
    assert tapped(own, RET)[0] == RET


def test_a_broken_coding_commits() -> None:
    own = reader((*JSON, ("content-encoding", "gzip")))
    assert own.feed(RET).kind is Kind.NOTHING


def test_a_bomb_commits() -> None:
    own = reader((*JSON, ("content-encoding", "gzip")))
    body = gzip.compress(b" " * (8 << 20))
    assert own.feed(body).kind is Kind.NOTHING
    assert tapped(own, body)[0] == body


def test_a_decision_stays() -> None:
    own = reader()
    own.feed(HELLO)
    assert own.feed(b"data: " + RET + b"\n\n") is ANSWER
    assert own.finish(cut=True) is ANSWER
    assert own.cap() is ANSWER


@over("reply", corpus(), ids=lambda reply: str(reply.id))
def test_no_chunking_of_a_real_answer_changes_what_it_is(reply: Reply) -> None:
    def run(size: int) -> tuple[Any, ...]:
        own = Reader(reply.surface, reply.head, Recogniser())
        found = held(own, reply.body, size) or own.finish(cut=reply.cut)
        passed, later, _ = tapped(own, reply.body, size)
        return found, later, passed, own.usage_input

    once = run(1 << 20)
    assert [run(size) for size in (1, 7, 100)] == [once] * 3
    assert once[1] or once[2] == reply.body


LINE = b'{"choices":[{"delta":{"content":"hello"}}]}\n'


@over("size", [1, 7, 1000])
@over("headers", [JSON, (("content-type", "application/x-ndjson"),), ()])
def test_a_body_of_json_lines_streams_on_from_its_first_line(headers: Any, size: int) -> None:
    own = reader(headers)
    assert held(own, LINE, size) is ANSWER
    for _ in range(3):
        assert b"".join(own.tap(LINE).passed) == LINE, "a line is not kept back"


def test_lines_that_are_keep_alive_are_preamble() -> None:
    own = reader(JSON)
    assert own.feed(b'{"type":"message_start"}\n') is None
    assert own.preamble
    assert own.feed(RET + b"\n") is CAPTCHA


def test_a_refusal_in_the_first_line_is_told_before_the_body_ends() -> None:
    assert reader(JSON).feed(RET + b"\n") is CAPTCHA


def test_a_refusal_in_a_later_line_cuts_the_body() -> None:
    own = reader(JSON)
    own.feed(LINE)
    passed, findings, results = tapped(own, LINE + RET + b"\n" + LINE, 9)
    assert (passed, findings) == (LINE, [CAPTCHA])
    assert any(result.withheld for result in results), "no event of ours can stand among lines of JSON"


def test_a_document_over_several_lines_is_held_to_its_end() -> None:
    own = reader(JSON)
    assert held(own, b'{\n "ret":\n ["FAIL_SYS_USER_VALIDATE"]\n}\n', 3) is None
    assert own.finish(cut=False) is CAPTCHA


@pytest.mark.parametrize("blank", [b" ", b"\n", b"\r\n"])
def test_blanks_before_a_document_are_keep_alive(blank: bytes) -> None:
    own = reader(JSON)
    assert own.feed(blank) is None
    assert own.preamble
    own.cap()
    assert [own.tap(blank).passed, own.tap(blank).passed] == [(blank,), (blank,)]
    assert tapped(own, RET)[1] == [CAPTCHA]


def test_blanks_before_a_document_do_not_hide_it() -> None:
    own = reader(JSON)
    assert held(own, b"\xef\xbb\xbf" + b" " * 3000 + RET, 1) is None
    assert own.finish(cut=False) is CAPTCHA


def test_a_body_of_unsaid_length_is_judged_by_its_first_chunk_where_asked() -> None:
    assert reader(JSON, first_only=True).feed(b'{"a":').kind is Kind.NOTHING
    assert reader(JSON, first_only=True).feed(RET) is CAPTCHA
    own = reader(JSON, first_only=True)
    assert own.feed(b"\n") is None
    assert own.feed(b'{"a":') is not None
    assert tapped(own, RET)[0] == RET, "what is judged is not watched"
