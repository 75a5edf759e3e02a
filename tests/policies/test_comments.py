"""Comments: one value, told in either language, and of what is only observed as that."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from policies import comments
from policies.comments import CHINESE, WHY, Deed, Text, described, say, tries
from policies.kinds import Challenge, Finding, Kind, Reason
from policies.rules import WORDS
from tests.policies.exchanges import MTOP, Controller

DEEDS = {name: each for name, each in vars(comments).items() if isinstance(each, Deed)}


def texts() -> Iterator[tuple[str, Text]]:
    yield from ((name, each) for name, each in vars(comments).items() if isinstance(each, Text))
    for name, deed in DEEDS.items():
        yield from ((f"{name} {part}", getattr(deed, part)) for part in ("text", "done", "would"))


@pytest.mark.parametrize(("name", "text"), [*texts()])
def test_both_languages_have_the_same_blanks(name: str, text: Text) -> None:
    blanks = [sorted(re.findall(r"\{(\w+)", words)) for words in text]
    assert blanks[0] == blanks[1]
    assert not re.search(r"[A-Za-z]{2,}", re.sub(r"\{[^}]*\}", "", text.chinese))


@pytest.mark.parametrize("name", DEEDS)
def test_what_is_only_observed_says_so_and_never_that_it_was_done(name: str) -> None:
    deed = DEEDS[name]
    done, would = deed.say(True), deed.say(False)
    assert would.text == (f"Only observed: {done.text.english}", f"仅观察：{done.text.chinese}")
    assert ("{did}" in done.text.english) == (done.values["did"] != would.values["did"]) == (name != "BODY_SIZE")


def test_every_reason_for_which_a_request_is_refused_here_has_its_why() -> None:
    assert WHY.keys() == WORDS.keys()


def test_every_kind_challenge_and_reason_has_its_chinese() -> None:
    assert {each.value for each in (*Reason, *Kind)} <= CHINESE.keys()
    for challenge in Challenge:
        told = described(Finding(Kind.CHALLENGE, "row-1", challenge=challenge))
        assert told.english == f"a challenge ({challenge.value}) [row-1]"
        assert re.fullmatch(r"质询：\S+ \[row-1\]", told.chinese)
    assert described(Finding(Kind.OVERLOAD)) == ("an overload", "过载")


def test_a_comment_is_told_in_either_language_with_what_fills_its_blanks() -> None:
    made = say(comments.PASSED, what=described(Finding(Kind.RATE_LIMIT, "1302")), tries=tries(3))
    assert str(made) == made.told("en") == "A rate limit [1302]: passed on after 3 attempts."
    assert made.told("zh") == "限流 [1302]：已原样转交（共尝试 3 次）。"


def test_a_blank_is_filled_with_words_as_they_are() -> None:
    assert comments.OVERSIZE.say(True, estimate=1, window=2, model="{wait}").told() == (
        "Refused here: a side request of about 1 tokens against a window of 2 ({wait})."
    )


@pytest.mark.parametrize(
    ("mode", "english", "chinese"),
    [
        ("enforce", "inside a 200 became a 529: wait 59 s.", "200 中的质询：繁忙 [mtop-busy] 已改写为 529：等待 59 秒。"),
        (
            "observe",
            "inside a 200 would have become a 529: wait 59 s.",
            "仅观察：200 中的质询：繁忙 [mtop-busy] 本应改写为 529：等待 59 秒。",
        ),
    ],
)
def test_a_decision_says_in_both_languages_what_was_done_or_would_have_been(mode: str, english: str, chinese: str) -> None:
    rules = Controller(f"{{mode: {mode}, breaker: {{strikes: 1}}}}")
    said = rules.reply(rules.sent(), MTOP).comment
    assert said is not None
    assert english in said.told("en")
    assert re.sub(r"\[[^]]*\]", "[mtop-busy]", said.told("zh")) == chinese
    refused = rules.ask(text="b")[1].comment
    assert refused is not None
    assert (
        refused.told("zh")
        == {
            "enforce": "本地拒绝：熔断器已打开；告知等待 59 秒。",
            "observe": "仅观察：本应在本地拒绝：熔断器已打开；告知等待 59 秒。",
        }[mode]
    )
