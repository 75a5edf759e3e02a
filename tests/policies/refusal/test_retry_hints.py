from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.kinds import Head
from policies.refusal import retry_hints
from tests.policies.refusal.judged import document
from tests.policies.refusal.replies import corpus
from tests.rows import over


@over(
    ("words", "seconds"),
    [
        ("Rate limit reached. Please try again in 20s.", 20),
        ("Please try again in 20 seconds", 20),
        ("try again in 350ms", 0.35),
        ("Please try again in 1m30s.", 90),
        ("Please retry after 7 seconds", 7),
        ("Please wait 3 seconds before", 3),
        ("try again in 2 hours", 7200),
        ("请 5 秒后重试", 5),
        ("请在 5 秒钟后重试", 5),
        ("Please try again later", None),
        ("try again in a while", None),
        ("try again in 5 moments", None),
        ("limit 30000, requested 20 seconds ago", None),
    ],
)
def test_a_wait_in_words(words: str, seconds: float | None) -> None:
    assert retry_hints.in_words(words) == (pytest.approx(seconds) if seconds else None)


@over(
    ("headers", "seconds"),
    [
        ({"Retry-After": "14"}, 14),
        ({"retry-after": "504641"}, 504641),
        ({"retry-after": "2.5"}, 2.5),
        ({"retry-after": "0"}, None),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:30 GMT", "date": "Wed, 21 Oct 2026 07:28:00 GMT"}, 30),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:30 GMT"}, None),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT", "date": "Wed, 21 Oct 2026 07:28:30 GMT"}, None),
        ({"retry-after-ms": "1500"}, 1.5),
        ({}, None),
    ],
)
def test_a_wait_in_the_header_is_seconds_or_a_date_after_the_answers_own(
    headers: dict[str, str], seconds: float | None
) -> None:
    assert retry_hints.in_header(Head(429, tuple(headers.items()))) == seconds


@over("key", ["retry-after", "retry_after", "retryAfter", "Retry-After"])
@over("value", ["40", 40, 40.0, "40s"])
def test_a_wait_in_the_body_has_many_spellings(key: str, value: object) -> None:
    assert retry_hints.wait_of(Head(429), ({key.lower(): value},), "") == (40, "body")


def test_the_header_comes_before_the_body_and_the_body_before_the_words() -> None:
    words = "try again in 3s"
    assert retry_hints.wait_of(Head(429, (("retry-after", "1"),)), ({"retry_after": 2},), words) == (1, "header")
    assert retry_hints.wait_of(Head(429), ({"retry_after": 2},), words) == (2, "body")
    assert retry_hints.wait_of(Head(429), ({},), words) == (3, "text")
    assert retry_hints.wait_of(Head(429), ({"retry_after": None},), "") == (None, None)


@over(
    ("words", "reset"),
    [
        ("Usage limit reached for 5 hour. Your limit will reset at 2026-09-08 14:29:33", "2026-09-08 14:29:33"),
        ("已达到 5 小时的使用上限。您的限额将在 2026-09-21 19:46:31 重置。", "2026-09-21 19:46:31"),
        ("Usage limit reached for the past 7 days. Resets at 2026-09-21T19:46:31Z.", "2026-09-21T19:46:31Z"),
        ("Created at 2026-09-21 19:46:31", None),
    ],
)
def test_a_reset_time_stays_as_the_upstream_wrote_it(words: str, reset: str | None) -> None:
    assert retry_hints.reset_in(words) == reset
    assert retry_hints.in_words(words) is None


@over(
    ("reset", "seconds"),
    [
        ("2026-09-08 14:29:33", 33),
        ("2026-09-08T06:29:33Z", 33),
        ("2026-09-08 06:29:33.250 UTC", 33),
        ("2026-09-08T14:29:33+08:00", 33),
        ("2026-09-08 14:29:33 (UTC+8)", 33),
        ("2026-09-08 01:29:33-0500", 33),
        ("2026-09-08 14:30", 60),
        ("2026-09-08 14:28:59", None),
        ("2026-13-40 14:29:33", None),
        ("soon", None),
    ],
)
def test_a_reset_time_counts_from_now_in_its_zone(reset: str, seconds: float | None) -> None:
    wall = 1788848940.0  # 2026-09-08 14:29:00 in UTC+8
    assert retry_hints.until(reset, wall) == seconds


def test_every_recorded_reset_is_a_moment() -> None:
    told = [
        (reply.id, document(reply.body, reply.head.status, where=reply.surface, headers=reply.head.headers).reset)
        for reply in corpus()
    ]
    named = {name: reset for name, reset in told if reset}
    assert {"za-1308-en", "za-1308-zh", "za-1308-type", "za-1310-ra"} <= set(named)
    assert all(retry_hints.until(reset, 1764000000.0) for reset in named.values()), named


@given(
    st.dictionaries(
        st.sampled_from(retry_hints.KEYS),
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20)),
    )
)
def test_odd_waits_neither_raise_nor_count(body: dict[str, object]) -> None:
    seconds, source = retry_hints.wait_of(Head(429), (body,), "")
    assert (seconds is None) == (source is None)
    assert seconds is None or 0 < seconds <= retry_hints.LONGEST
