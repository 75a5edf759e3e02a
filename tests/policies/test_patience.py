"""What a client bears, read from its own request."""

from __future__ import annotations

from policies import patience
from tests.rows import over

NOBODY: dict[str, float] = {}


@over(
    ("headers", "limit"),
    [
        ({}, 45),
        ({"x-stainless-read-timeout": "600"}, 600),
        ({"x-stainless-read-timeout": "100", "x-stainless-timeout": "200"}, 100),
        ({"x-stainless-timeout": "600"}, 300),
        ({"x-stainless-timeout": "120.5"}, 120.5),
        ({"x-stainless-timeout": "60", "user-agent": "QwenCode/0.24.4 (linux)"}, 60),
        ({"user-agent": "opencode/1.18.33"}, 300),
        ({"user-agent": "codex_cli_rs/0.171.0"}, 585),
        ({"user-agent": "QwenCode/0.24.4 (linux)"}, 119),
        ({"user-agent": "claude-cli/0.24.4 (external, cli)"}, 119),
        ({"user-agent": "claude-cli/2.1.112 (external, cli)"}, 45),
        ({"user-agent": "not opencode"}, 45),
    ],
)
def test_a_client_says_how_long_it_bears_or_is_known_by_its_name(headers: dict[str, str], limit: float) -> None:
    assert patience.of(headers, NOBODY, 280).limit == limit


@over("name", ["x-stainless-read-timeout", "x-stainless-timeout"])
@over("value", ["-1", "1e9", "abc", "nan", "inf", "", "0", "9" * 5000, "86401", "٣٠", "600;x", "1_0"])
def test_a_limit_that_is_no_number_of_seconds_says_nothing(name: str, value: str) -> None:
    assert patience.of({name: value}, NOBODY, 280).limit == 45


def test_it_waits_twenty_seconds_less_than_it_bears_and_never_longer_than_the_queue_lets_it() -> None:
    assert patience.of({}, NOBODY, 280).waits == 25
    assert patience.of({"x-stainless-timeout": "300"}, NOBODY, 280).waits == 280
    assert patience.of({"x-stainless-timeout": "10"}, NOBODY, 280).waits == 0
    assert patience.of({}, NOBODY, 0).waits == 0


def test_headers_go_out_five_seconds_before_it_leaves() -> None:
    assert patience.of({}, NOBODY, 280).headers == 40
    assert patience.of({"x-stainless-timeout": "3"}, NOBODY, 280).headers == 0


def test_rows_of_the_config_go_before_ours_and_the_longest_beginning_wins() -> None:
    rows = {"my-agent/": 100.0, "my-agent/2": 200.0, "opencode": 50.0, "endless": float("inf"), "gone": -1.0}
    for agent, limit in [("my-agent/1", 100), ("my-agent/2.1", 200), ("opencode/1", 50), ("endless", 45), ("gone", 45)]:
        assert patience.of({"user-agent": agent}, rows, 280).limit == limit
