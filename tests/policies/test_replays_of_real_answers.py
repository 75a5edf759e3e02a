from __future__ import annotations

import pytest

from policies.refusal.recogniser import Recogniser
from policies.replays import Attempt, Replays, Step, Why
from policies.settings import ReplaySettings
from tests.policies.refusal.replies import Reply, corpus, read
from tests.rows import over

SENT_AGAIN = {
    # zcode 3007, the only challenge that is
    "zc-3007-400", "zc-3007-403", "zc-3007-hdr",
    # rate limits
    "zc-3009", "za-1302-plainshape", "zo-1303", "za-stream-1302", "q-allocquota-web", "d-rpm-native", "d-burst", "d-plan-conc",
    "d-native-sse-429", "d-429-nobody", "d-plan-usage", "n-bedrock-throttle", "n-openai-tpm", "n-anth-429", "n-other-429",
    "q-inprogress", "t2-r-failed-by-event-name",
    # overloads
    "za-1305-529", "zo-1305-429", "zo-1305-zh", "zo-1312", "d-unavail-503", "d-batch-429", "r-overloaded-event",
    "t2-d-serving-nested-200", "t2-z-null-choices-chunk", "t2-z-1305-429", "t2-d-us-host",
    # server errors
    "zo-1234-500", "zai-html-502", "d-algo-500", "d-timeout-500", "n-newapi-500",
}  # fmt: skip
LEFT_TO_THE_CLIENT = {"za-1302-hdr", "za-1302-body-ra"}
"""The upstream asks for more than ten seconds."""


def step(reply: Reply, settings: ReplaySettings | None = None) -> Step:
    """What is done with this answer to a replay."""
    findings = read(Recogniser(), reply.surface, reply.head, reply.body, whole=not reply.cut)
    attempt = Attempt(
        sends=1,
        started=0.0,
        account="account",
        digest="digest",
        one_time_token=False,
        breaker_closed=True,
        settings=settings or ReplaySettings(),
    )
    return Replays().next(attempt, findings[0], 1.0)


@over("reply", corpus(), ids=lambda reply: reply.id)
def test_a_replay_with_this_answer_is_sent_again_or_not(reply: Reply) -> None:
    assert isinstance(step(reply), float) is (reply.id in SENT_AGAIN)


@pytest.mark.parametrize("reply", [one for one in corpus() if one.id in LEFT_TO_THE_CLIENT], ids=lambda reply: reply.id)
def test_a_long_wait_of_the_upstream_is_left_to_the_client(reply: Reply) -> None:
    assert step(reply) == Why.LONG_WAIT


@over("reply", [one for one in corpus() if one.label["kind"] == "challenge"], ids=lambda reply: reply.id)
def test_no_challenge_is_sent_again_where_that_is_turned_off(reply: Reply) -> None:
    assert isinstance(step(reply, ReplaySettings(captcha=False)), Why)


def test_every_named_answer_exists() -> None:
    assert {one.id for one in corpus()} >= SENT_AGAIN | LEFT_TO_THE_CLIENT
