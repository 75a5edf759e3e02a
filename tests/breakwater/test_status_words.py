"""What `breakwater status` says, for a person and in one line."""

from __future__ import annotations

from typing import Any

from breakwater.status import LINE_AT_MOST, line, lines
from operations.status import DecisionRow, Status, UpstreamRow
from tests.operations.page_source import said
from tests.rows import over


def status(*rows: UpstreamRow, mode: str = "enforce", **more: Any) -> dict[str, Any]:
    return Status(now_wall=1000.0, version="0.2.0", mode=mode, upstreams=rows, **more).as_json()


def row(name: str = "zai", state: str = "closed", left: float | None = None, **more: Any) -> UpstreamRow:
    return UpstreamRow(name, state=state, seconds_left=left, **more)


def test_the_line_says_ok_and_what_was_done() -> None:
    assert line(status(row(sent=12), row("qwen-chat", sent=1, avoided=3))) == "Breakwater: ok · 13 sent, 3 refused here"


def test_the_line_says_first_who_is_paused_and_for_how_long() -> None:
    said = line(status(row(sent=2), row("qwen-chat", "open", 41.6), row("zcode", "probing")))
    assert said == "Breakwater: qwen-chat paused 42 s · zcode probing · 2 sent, 0 refused here"


def test_the_line_says_that_it_only_observes() -> None:
    assert line(status(row(), mode="observe")).startswith("Breakwater (observe): ok")


@over("count", range(1, 12))
def test_the_line_is_never_longer_than_a_prompt_bears(count: int) -> None:
    rows = [row(f"a-rather-long-name-{number}", "open", 59.0) for number in range(count)]
    said = line(status(*rows))
    assert len(said) <= LINE_AT_MOST
    assert said.endswith("…") or count == 1


def test_a_name_cannot_steer_the_terminal() -> None:
    said = line(status(row("evil\x1b[2J\n", "open", 1.0)))
    assert "\x1b" not in said
    assert "\n" not in said


def test_a_person_sees_upstreams_in_use_and_how_many_are_idle() -> None:
    rows = (row(sent=4, challenges=3, avoided=2, state="open", left=30.2), row("qwen-chat"), row("zcode", sent=1))
    said = lines(status(*rows), 8080, 1000.0)
    assert said == [
        "Breakwater 0.2.0 at 127.0.0.1:8080, enforce; http://127.0.0.1:8080/ says more",
        "  zai    paused 30 s; 4 sent, 3 challenged, 2 refused here",
        "  zcode  ok; 1 sent, 0 challenged, 0 refused here",
        "  1 more upstreams without a request so far",
    ]


WAITS = (("no_slot", 4.2), ("stated_wait", 3.0), ("no_slot", 12.4))


def test_a_person_sees_the_newest_decisions_and_faults() -> None:
    told = [
        DecisionRow(
            1000.0 - 30 * number, f"f{number}", "zai", "anthropic", "/v1", "challenge", "challenge_busy", said(f"told {number}")
        )
        for number in range(5)
    ]
    shown = lines(status(row(sent=1), decisions=tuple(told), faults={"request": said("KeyError in admit")}), 8080, 1002.0)
    assert shown[-4:] == [
        "  2 s ago: Told 0",
        "  32 s ago: Told 1",
        "  62 s ago: Told 2",
        "  fault: request: KeyError in admit",
    ]


def test_a_person_sees_who_waits_and_for_what() -> None:
    waits = [{"upstream": "zai", "model": "glm", "reason": why, "waited": waited, "longest": 90} for why, waited in WAITS]
    said = lines({**status(row(sent=1)), "waiting": waits}, 8080, 0.0)
    assert said[2:4] == [
        "  zai: 2 waiting here (no_slot), the longest for 12 s",
        "  zai: 1 waiting here (stated_wait), the longest for 3 s",
    ]


def test_a_breaker_of_one_account_is_named_with_it() -> None:
    assert "  zai a1b2  paused 5 s" in lines(status(row(account="a1b2", state="open", left=5.0)), 8080, 0.0)[1]
