from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from policies.kinds import ANSWER, Challenge, Finding, Kind, Wire
from policies.request import body as bodies
from policies.request.body import NOTHING, read_body
from policies.research.evidence import Evidence, Facts, Record, refused
from tests.rows import over

HISTORY = "abc"
"""A conversation, one letter a message; its slices stand for digests."""
FIRST = Facts(
    wall=1_790_000_000.0,
    upstream="zcode",
    wire="anthropic",
    model="GLM-5.3",
    session="zcode\x1faccount-hash\x1fGLM-5.3\x1fclients-own-session-id",
    account="account-hash",
    size=1000,
    digest="digest-of-first",
    prefix=lambda but: HISTORY[: 3 - but],
    roles=("user", "assistant", "user"),
    markers=frozenset({"text"}),
)
REFUSAL = Finding(Kind.CHALLENGE, row="zcode-3007", code="3007", text="captcha verify failed", excerpt=b"secret excerpt")


def second(**changes: object) -> Record:
    """The record of a request that follows ``FIRST`` in its session."""
    evidence = Evidence()
    evidence.note(FIRST, ANSWER)
    return evidence.note(replace(FIRST, **changes), ANSWER)


def test_the_first_request_of_a_session_is_compared_with_nothing() -> None:
    record = Evidence().note(FIRST, ANSWER)
    assert (record.size_change, record.same_digest, record.prefix_changed, record.shrunk) == (None,) * 4
    assert (record.new_roles, record.new_markers, record.previous_refused, record.token_seen_before) == (None,) * 4


def said(history: str, **changes: object) -> dict[str, object]:
    """The facts of a body with this history."""
    facts = {"digest": history, "size": 300 * len(history), "roles": ("user",) * len(history)}
    return {**facts, "prefix": lambda but: history[: len(history) - but], **changes}


@pytest.mark.parametrize("grown", ["abcde", "abcdefg", "abcd"])
def test_a_conversation_that_grew_is_neither_shrunk_nor_changed(grown: str) -> None:
    record = second(**said(grown, size=1200))
    assert (record.size_change, record.shrunk, record.prefix_changed, record.same_digest) == (200, False, False, False)
    assert (record.new_roles, record.new_markers) == ((), ())


@over("history", ["xbcde", "axc", "ab", "xy"])
def test_another_beginning_is_a_changed_prefix(history: str) -> None:
    assert second(**said(history)).prefix_changed is True


@over(
    ("later", "changed"),
    [
        (["q1", "a1", "q2", "a2", "q3"], False),
        (["q1", "a1", "q2"], False),
        (["q1", "a1", "q2", "a2", "r1", "r2", "r3"], False),
        (["summary", "a1", "q2", "a2", "q3"], True),
        (["q1", "q2"], True),
        (["q1", "edited", "q2"], True),
    ],
)
def test_a_changed_history_is_known_by_its_bytes(later: list[str], changed: bool) -> None:
    def facts(texts: list[str]) -> Facts:
        body = msgspec.json.encode({"model": "m", "messages": [{"role": "user", "content": text} for text in texts]})
        fields = read_body(body)
        told = bodies.MessageList(Wire.ANTHROPIC, fields or NOTHING)
        return replace(
            FIRST,
            size=len(body),
            digest=bodies.asked(Wire.ANTHROPIC, body, fields, told),
            prefix=told.prefix,
            roles=told.roles,
        )

    evidence = Evidence()
    evidence.note(facts(["q1", "a1", "q2"]), ANSWER)
    assert evidence.note(facts(later), ANSWER).prefix_changed is changed


def test_a_shorter_body_has_shrunk_whatever_its_beginning() -> None:
    assert (second(size=999).shrunk, second(size=999).prefix_changed) == (True, False)
    grown = second(**said("xbcde", size=2000))
    assert (grown.shrunk, grown.prefix_changed) == (False, True)


def test_without_a_history_the_prefix_is_not_known() -> None:
    assert second(digest="another", prefix=None).prefix_changed is None


def test_a_re_send_of_the_client_has_the_same_digest_and_prefix() -> None:
    record = second()
    assert (record.same_digest, record.prefix_changed) == (True, False)


def test_roles_and_markers_are_new_where_the_previous_body_lacked_them() -> None:
    record = second(roles=("user", "tool"), markers=frozenset({"text", "tool_result", "image"}))
    assert record.roles == ("tool", "user")
    assert record.new_roles == ("tool",)
    assert record.new_markers == ("image", "tool_result")


def test_another_session_is_another_conversation() -> None:
    assert second(session="another").same_digest is None


def test_whether_the_previous_request_was_refused_is_kept() -> None:
    evidence = Evidence()
    evidence.note(FIRST, REFUSAL)
    assert evidence.note(FIRST, ANSWER).previous_refused is True
    assert evidence.note(FIRST, ANSWER).previous_refused is False


def test_an_exchange_that_a_re_send_in_place_cured_was_refused_first() -> None:
    evidence = Evidence()
    cured = evidence.note(replace(FIRST, attempt=2, first=REFUSAL), ANSWER)
    assert (cured.attempt, cured.refused, cured.refused_at_last, cured.finding) == (2, True, False, "answer")
    assert evidence.note(FIRST, ANSWER).previous_refused is False


def test_a_re_send_that_failed_leaves_a_refusal() -> None:
    evidence = Evidence()
    failed = evidence.note(replace(FIRST, attempt=3), REFUSAL)
    assert (failed.refused, failed.refused_at_last) == (True, True)
    assert evidence.note(FIRST, ANSWER).previous_refused is True


def test_a_server_error_that_a_re_send_cured_was_no_refusal() -> None:
    broken = Finding(Kind.UPSTREAM_ERROR, status=500, transient=True)
    assert Evidence().note(replace(FIRST, attempt=2, first=broken), ANSWER).refused is False


def test_a_side_request_is_not_compared_and_is_no_previous_request() -> None:
    evidence = Evidence()
    evidence.note(FIRST, ANSWER)
    title = evidence.note(replace(FIRST, size=50, prefix=lambda _: "title", side=True), ANSWER)
    assert (title.side, title.shrunk, title.prefix_changed) == (True, None, None)
    assert evidence.note(FIRST, ANSWER).size_change == 0


def test_a_token_is_seen_before_in_any_session() -> None:
    evidence = Evidence()
    assert evidence.note(replace(FIRST, token="t1"), ANSWER).token_seen_before is False
    assert evidence.note(replace(FIRST, token="t2"), ANSWER).token_seen_before is False
    assert evidence.note(replace(FIRST, token="t1", session="another"), ANSWER).token_seen_before is True
    assert evidence.note(FIRST, ANSWER).token_seen_before is None


@over(
    ("finding", "counts"),
    [
        (ANSWER, False),
        (REFUSAL, True),
        (Finding(Kind.RATE_LIMIT), True),
        (Finding(Kind.OVERLOAD), True),
        (Finding(Kind.CHALLENGE, challenge=Challenge.BUSY), True),
        (Finding(Kind.CHALLENGE, challenge=Challenge.BODY_SIZE), False),
        (Finding(Kind.CALLER_ERROR, transient=True), True),
        (Finding(Kind.CALLER_ERROR), False),
        (Finding(Kind.QUOTA), False),
        (Finding(Kind.ACCOUNT), False),
        (Finding(Kind.FILTER), False),
        (Finding(Kind.OVERFLOW), False),
        (Finding(Kind.UPSTREAM_ERROR, transient=True), False),
        (Finding(Kind.NOTHING), False),
    ],
)
def test_only_a_passing_refusal_counts_as_one(finding: Finding, counts: bool) -> None:
    assert refused(finding) is counts
    assert Evidence().note(FIRST, finding).refused is counts


def test_a_record_is_one_line_of_json_that_reads_back() -> None:
    evidence = Evidence()
    evidence.note(FIRST, ANSWER)
    record = evidence.note(replace(FIRST, token="t", gap_session=0.25, new_connection=True), REFUSAL)
    line = msgspec.json.encode(record)
    assert b"\n" not in line
    assert msgspec.json.decode(line, type=Record) == record


def test_a_line_carries_no_session_id_account_digest_token_or_text_of_the_upstream() -> None:
    line = msgspec.json.encode(Evidence(key=b"k").note(replace(FIRST, token="captcha-token", model="m" * 5000), REFUSAL))
    for secret in (
        "clients-own",
        "account-hash",
        "digest-of",
        "prefix-of",
        "captcha-token",
        "verify failed",
        "excerpt",
    ):
        assert secret.encode() not in line
    assert len(line) < 1000


def test_hashes_of_two_keys_cannot_be_compared() -> None:
    one, two = (Evidence(key=key).note(FIRST, ANSWER) for key in (b"one", b"two"))
    assert one.session != two.session
    assert one.digest != two.digest
    assert one.account != two.account


def test_only_the_latest_records_sessions_and_tokens_are_kept() -> None:
    evidence = Evidence(limit=5, sessions=2, tokens=2)
    for number in range(20):
        evidence.note(replace(FIRST, size=number, session=str(number), token=str(number)), ANSWER)
    assert [record.size for record in evidence.records()] == [15, 16, 17, 18, 19]
    assert (len(evidence._previous), len(evidence._tokens)) == (2, 2)


def test_a_session_in_use_outlives_an_idle_one() -> None:
    evidence = Evidence(sessions=2)
    for session in ("mine", "idle", "mine", "third"):
        evidence.note(replace(FIRST, session=session), ANSWER)
    assert evidence.note(replace(FIRST, session="mine"), ANSWER).same_digest is True
    assert evidence.note(replace(FIRST, session="idle"), ANSWER).same_digest is None


def test_text_that_is_no_unicode_breaks_nothing() -> None:
    assert msgspec.json.encode(Evidence().note(replace(FIRST, session="\ud800", model="\ud800"), ANSWER))
