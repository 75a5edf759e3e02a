from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import pytest
from msgspec.structs import replace

from policies.kinds import ANSWER, Challenge, Finding, Kind
from policies.research.evidence import Evidence, Facts, Record
from policies.research.report import Report, Verdict, as_text, report
from tests.rows import over

REFUSAL = Finding(Kind.CHALLENGE, row="zcode-3007", code="3007", challenge=Challenge.CAPTCHA, transient=True)
SEEDS = range(8)


@dataclass
class Send:
    """What a planted cause may look at."""

    replay: bool
    token_used: bool
    fresh: bool
    shrunk: bool
    repeat: bool
    new_kind: bool


Cause = Callable[[Send], bool]
CAUSES: dict[str, Cause] = {
    "A": lambda send: send.replay,
    "B": lambda send: send.shrunk,
    "C": lambda send: send.new_kind,
    "D": lambda send: send.fresh,
    "E": lambda send: send.token_used,
}


@dataclass
class Conversation:
    size: int = 5000
    body: int = 0
    token: int = 0
    cut: int = 0
    kinds: frozenset[str] = frozenset({"text"})
    refused: bool = False
    begun: bool = False


@dataclass
class World:
    """Eight conversations whose replays tend to repeat body and token and to reuse a connection, whatever the cause is."""

    seed: int
    cause: Cause
    rate: float = 0.85
    base: float = 0.03
    upstream: str = "zcode"
    evidence: Evidence = field(default_factory=Evidence)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.conversations = [Conversation() for _ in range(8)]
        self.tokens: set[str] = set()

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def lived(self, exchanges: int) -> World:
        for moment in range(exchanges):
            self._exchange(moment)
        return self

    def _exchange(self, moment: int) -> None:
        name = self.random.randrange(len(self.conversations))
        talk = self.conversations[name]
        replay = talk.begun and self.chance(0.35)
        repeat = talk.begun and self.chance(0.5 if replay or talk.refused else 0.0)
        shrunk = talk.begun and not repeat and self.chance(0.5 if replay else 0.1)
        kinds = talk.kinds if repeat or not self.chance(0.4) else frozenset(self.random.sample("tid", 2)) | {"text"}
        new_kind = talk.begun and bool(kinds - talk.kinds)
        if not repeat:
            talk.body, talk.kinds = talk.body + 1, kinds
            talk.size += -3000 if shrunk else self.random.randrange(50, 900)
            talk.cut += shrunk
        talk.token += not self.chance(0.6 if replay else 0.2)
        token = f"{name}-{talk.token}"
        send = Send(replay, token in self.tokens, self.chance(0.15 if replay else 0.6), shrunk, repeat, new_kind)
        refused = self.chance(self.rate if self.cause(send) else self.base)
        facts = Facts(
            wall=float(moment),
            upstream=self.upstream,
            wire="anthropic",
            model="GLM-5.3",
            session=f"{self.upstream}{name}",
            account="account",
            size=talk.size,
            digest=f"{name}.{talk.body}",
            prefix=partial(lambda cut, _: f"beginning-{cut}", talk.cut),
            roles=("user",) * 3,
            markers=kinds,
            gap_session=self._gap(talk, replay=replay),
            new_connection=send.fresh,
            token=token,
        )
        self.evidence.note(facts, REFUSAL if refused else ANSWER)
        self.tokens.add(token)
        talk.refused, talk.begun = refused, True

    def _gap(self, talk: Conversation, *, replay: bool) -> float | None:
        if not talk.begun:
            return None
        return self.random.uniform(0.02, 0.95) if replay else self.random.uniform(3, 90)


def told(seed: int, cause: Cause, exchanges: int = 300, **world: float) -> Report:
    return report(World(seed, cause, **world).lived(exchanges).evidence.records())  # type: ignore[arg-type]


def verdicts(of: Report) -> dict[str, Verdict]:
    return {one.suspect.letter: one.verdict for one in of.comparisons}


@pytest.mark.parametrize("letter", CAUSES)
@over("seed", SEEDS)
def test_a_planted_cause_is_named_and_no_other(letter: str, seed: int) -> None:
    assert told(seed, CAUSES[letter], exchanges=500).causes == (letter,)


@over("rate", [0.05, 0.3, 0.7])
@over("seed", SEEDS)
def test_no_cause_is_named_where_refusals_depend_on_nothing(rate: float, seed: int) -> None:
    found = told(seed, lambda _: True, rate=rate)
    assert found.causes == ()
    assert Verdict.CAUSE not in verdicts(found).values()


@over("letter", CAUSES)
def test_ten_exchanges_are_too_few_whatever_they_show(letter: str) -> None:
    for seed in SEEDS:
        found = told(seed, CAUSES[letter], exchanges=10, rate=1.0, base=0.0)
        assert set(verdicts(found).values()) == {Verdict.TOO_FEW}
        assert found.sentences[0] == "Too few exchanges to say anything."


def test_a_cause_that_never_fails_to_refuse_is_named_too() -> None:
    assert told(1, CAUSES["A"], rate=1.0, base=0.0).causes == ("A",)


def test_two_causes_are_both_named() -> None:
    either: Cause = lambda send: send.replay or send.token_used  # noqa: E731
    assert told(1, either, exchanges=1000).causes == ("A", "E")


def test_what_comes_along_with_the_cause_is_said_to_be_explained_by_it() -> None:
    found = told(1, CAUSES["A"], exchanges=1000)
    assert verdicts(found)["F"] is Verdict.EXPLAINED
    same_body = found.comparisons[5]
    assert "while A (gap under 1 s) is held equal" in same_body.sentences[0]


# records made by hand

PLAIN = Record(
    wall=0.0, upstream="zcode", wire="anthropic", model="GLM-5.3", session="s", account="a", gap_session=30.0,
    gap_account=30.0, size=1000, size_change=10, digest="d", same_digest=False, prefix_changed=False, shrunk=False,
    roles=("user",), new_roles=(), new_markers=(), previous_refused=False, new_connection=False,
    token_seen_before=None, attempt=1, side=False, finding="answer", row="answer", refused=False, refused_at_last=False,
)  # fmt: skip


def many(count: int, refusals: int, **changes: object) -> list[Record]:
    answered = replace(PLAIN, **changes)
    refused = replace(answered, finding="challenge", refused=True, refused_at_last=True)
    return [refused] * refusals + [answered] * (count - refusals)


def test_what_always_comes_together_cannot_be_told_apart() -> None:
    found = report(many(100, 90, gap_session=0.2, same_digest=True) + many(100, 5))
    assert found.causes == ()
    assert verdicts(found)["A"] is verdicts(found)["F"] is Verdict.INSEPARABLE
    gap, *_, same_body = found.comparisons
    assert "cannot be told apart from F (same body)" in gap.sentences[0]
    assert "cannot be told apart from A (gap under 1 s)" in same_body.sentences[0]
    assert "comes together" in found.sentences[0]


def test_a_handful_that_came_apart_is_not_enough_to_tell() -> None:
    together = many(100, 90, gap_session=0.2, same_digest=True) + many(100, 5)
    apart = many(3, 3, gap_session=0.2) + many(3, 0, same_digest=True)
    assert report(together + apart).causes == ()


def test_a_dozen_that_came_apart_can_tell() -> None:
    together = many(100, 90, gap_session=0.2, same_digest=True) + many(100, 5)
    apart = many(12, 11, gap_session=0.2) + many(12, 0, same_digest=True)
    assert report(together + apart).causes == ("A",)


def test_a_re_send_after_a_refusal_is_not_named_for_being_refused_again() -> None:
    """In a spell of refusals every re-send has the same body; what it shows is the spell."""
    spell = many(60, 50, same_digest=True, previous_refused=True)
    found = report(spell + many(100, 5))
    assert verdicts(found)["F"] is Verdict.INSEPARABLE
    assert "a refusal just before" in found.comparisons[5].sentences[0]


def test_an_upstream_that_refuses_more_is_not_taken_for_the_habits_of_its_clients() -> None:
    strict = many(100, 90, gap_session=0.2) + many(5, 4)
    lax = many(5, 0, gap_session=0.2, upstream="zai") + many(100, 3, upstream="zai")
    found = report(strict + lax)
    assert verdicts(found)["A"] is Verdict.INSEPARABLE
    assert "the upstream" in found.comparisons[0].sentences[0]


def test_what_is_refused_less_often_is_no_trigger() -> None:
    found = report(many(100, 5, new_connection=True) + many(100, 60))
    assert verdicts(found)["D"] is Verdict.FEWER
    assert found.causes == ()


def test_only_answers_and_passing_refusals_count() -> None:
    others = [
        replace(PLAIN, finding=kind.value)
        for kind in (Kind.QUOTA, Kind.ACCOUNT, Kind.OVERFLOW, Kind.CALLER_ERROR, Kind.NOTHING, Kind.UPSTREAM_ERROR)
    ]
    found = report(others * 20 + many(30, 3))
    assert (found.exchanges, found.counted.all, found.counted.refused) == (150, 30, 3)


def test_a_refusal_that_a_re_send_cured_counts_as_a_refusal_and_as_cured() -> None:
    cured = replace(PLAIN, attempt=2, refused=True)
    failed = replace(cured, attempt=3, finding="challenge", refused_at_last=True)
    found = report([cured] * 6 + [failed] * 2 + many(10, 1))
    assert (found.counted.refused, found.counted.all) == (9, 18)
    assert (found.resent.refused, found.resent.all) == (2, 8)


def test_what_a_record_does_not_say_is_on_neither_side() -> None:
    found = report(many(40, 4, new_connection=None) + many(30, 3, new_connection=True))
    fresh = found.comparisons[3]
    assert (fresh.unknown, fresh.table.having.all, fresh.table.lacking.all) == (40, 30, 0)
    assert fresh.verdict is Verdict.TOO_FEW


def test_no_records_are_too_few() -> None:
    found = report([])
    assert found.sentences == ("Too few exchanges to say anything.", "样本太少，无法判断。")
    assert "0 exchanges" in as_text(found)


def test_the_text_shows_counts_intervals_and_a_sentence_in_both_languages() -> None:
    text = as_text(report(many(60, 54, gap_session=0.2) + many(60, 3)))
    assert "Refusals go with A (gap under 1 s): the likely cause" in text
    assert "间隔小于 1 秒" in text
    assert "with: 54/60 = 90% (80% to 95%); without: 3/60 = 5% (2% to 14%); difference +85%" in text
    assert "p < 0.001" in text
    assert text.count("Too few: at least 10 exchanges") == 5
    assert text.count("样本太少") == 5
