from __future__ import annotations

import pytest

from policies.kinds import Challenge, Finding, Head, Kind
from policies.refusal.recogniser import Recogniser
from tests.policies.refusal.replies import Reply, corpus, gzipped, read
from tests.rows import over

KINDS = {
    "challenge": {Kind.CHALLENGE},
    "overload": {Kind.OVERLOAD},
    "rate_limit": {Kind.RATE_LIMIT},
    "quota": {Kind.QUOTA},
    "auth": {Kind.ACCOUNT},
    "content_filter": {Kind.FILTER},
    "context_overflow": {Kind.OVERFLOW},
    "other_error": {Kind.CALLER_ERROR, Kind.UPSTREAM_ERROR, Kind.NOTHING},
    "ok": {Kind.ANSWER},
}
REPLIES = corpus()
IDS = [reply.id for reply in REPLIES]


def telling(findings: list[Finding]) -> Finding:
    """What the answer comes to: its first refusal, else how it ended, else the answer."""
    return next((finding for finding in findings if finding.kind is not Kind.ANSWER), findings[0])


@pytest.mark.parametrize("reply", REPLIES, ids=IDS)
def test_every_real_answer_is_what_its_label_says(reply: Reply) -> None:
    finding = telling(read(Recogniser(), reply.surface, reply.head, reply.body, whole=not reply.cut))
    if reply.label["kind"] == "ok" and finding.ends_answer:
        return
    kinds = KINDS[reply.label["kind"]]
    if reply.label["kind"] == "other_error" and reply.label["retry_after_hint"]:
        kinds = kinds | {Kind.RATE_LIMIT}  # an error that a short wait cures
    assert finding.kind in kinds, finding


@over("reply", REPLIES, ids=IDS)
def test_the_window_is_the_labelled_one_or_none(reply: Reply) -> None:
    for finding in read(Recogniser(), reply.surface, reply.head, reply.body, whole=not reply.cut):
        assert finding.window == reply.label["window"]


@over("reply", REPLIES, ids=IDS)
def test_a_wait_of_the_upstream_is_read_from_where_it_stands(reply: Reply) -> None:
    label = reply.label
    finding = telling(read(Recogniser(), reply.surface, reply.head, reply.body, whole=not reply.cut))
    if label["retry_after_source"] in ("header", "body", "text"):
        assert (finding.wait, finding.wait_source) == (label["retry_after_hint"], label["retry_after_source"])
    else:
        assert finding.wait is None


@over("reply", REPLIES, ids=IDS)
def test_what_hides_in_a_success_has_a_real_status(reply: Reply) -> None:
    finding = telling(read(Recogniser(), reply.surface, reply.head, reply.body, whole=not reply.cut))
    expect = reply.label["expect"]
    if (
        finding.kind in (Kind.ANSWER, Kind.NOTHING, Kind.CHALLENGE, Kind.OVERLOAD)
        or finding.ends_answer
        or reply.head.status >= 400
    ):
        assert finding.status is None
    else:
        assert finding.status is not None
        assert 400 <= finding.status < 600
    if expect.startswith("real 4"):
        assert finding.status == int(expect.split()[1])


@over("reply", REPLIES, ids=IDS)
def test_nothing_of_a_captcha_link_is_kept(reply: Reply) -> None:
    for finding in read(Recogniser(), reply.surface, reply.head, reply.body, whole=not reply.cut):
        kept = finding.text.encode() + finding.excerpt
        assert b"x5secdata=x" not in kept
        assert b"_____tmd_____" not in kept
        assert len(finding.excerpt) <= 2048
        assert len(finding.text) <= 500


MUTATIONS = [
    (reply, mutation)
    for reply in REPLIES
    for mutation in ("crlf", "bom", "comment", "gzip")
    if reply.body
    and not reply.head.get("content-encoding")
    and (mutation != "comment" or "event-stream" in reply.head.media_type)
]


@over(("reply", "mutation"), MUTATIONS, ids=[f"{reply.id}-{mutation}" for reply, mutation in MUTATIONS])
def test_spelling_on_the_wire_changes_nothing(reply: Reply, mutation: str) -> None:
    head, body = reply.head, reply.body
    if mutation == "crlf":
        body = body.replace(b"\n", b"\r\n")
    elif mutation == "bom":
        body = b"\xef\xbb\xbf" + body
    elif mutation == "comment":
        body = b": keep-alive\n\n" + body
    elif mutation == "gzip":
        head, body = Head(head.status, (*head.headers, ("Content-Encoding", "gzip"))), gzipped(body)
    as_it_came = telling(read(Recogniser(), reply.surface, reply.head, reply.body, whole=not reply.cut))
    found = telling(read(Recogniser(), reply.surface, head, body, whole=not reply.cut))
    assert (found.kind, found.row, found.window, found.status) == (
        as_it_came.kind,
        as_it_came.row,
        as_it_came.window,
        as_it_came.status,
    )


TRANSIENT = {"rate_limit", "overload"}


@over("reply", REPLIES, ids=IDS)
def test_only_what_may_pass_by_itself_is_worth_a_second_try(reply: Reply) -> None:
    finding = telling(read(Recogniser(), reply.surface, reply.head, reply.body, whole=not reply.cut))
    kind = reply.label["kind"]
    if (
        kind in TRANSIENT
        or finding.kind is Kind.RATE_LIMIT
        or (kind == "other_error" and reply.head.status >= 500)
        or finding.code == "3007"
    ):
        assert finding.transient
    else:
        assert not finding.transient, finding


def test_the_challenges_are_told_apart() -> None:
    found = {
        reply.id: telling(read(Recogniser(), reply.surface, reply.head, reply.body, whole=not reply.cut)).challenge
        for reply in REPLIES
    }
    assert found["q-chal-json"] is Challenge.BUSY
    assert found["q-chal-busy-no-rgv"] is Challenge.BUSY
    assert found["q-chal-html-punish"] is Challenge.CAPTCHA
    assert found["zw-chal-json"] is Challenge.CAPTCHA
    assert found["zc-3007-400"] is Challenge.CAPTCHA
    assert found["zc-3012-405"] is Challenge.BLOCKED
    assert found["zc-3012-method"] is Challenge.BLOCKED
