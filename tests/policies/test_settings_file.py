"""The config file: what it may say."""

from __future__ import annotations

import dataclasses
import re

import yaml

from policies.kinds import Family
from policies.settings import (
    FINDINGS,
    BreakerSettings,
    EstimateWeights,
    HoldSettings,
    QueueSettings,
    ReplaySettings,
    RetryAfterSettings,
    Settings,
    SignatureRow,
    TraitRow,
    Upstream,
)
from tests.policies.settings_lab import BUILT_IN, SHIPPED, mistake, parsed
from tests.rows import over

# -- what it may say ------------------------------------------------------------------------------------------


@over(
    "text",
    [
        "",
        "\n",
        "# nothing\n",
        "---\n",
        "null",
        "{}",
        "\ufeffmode: enforce",
        "breaker:\n",
        "upstreams:\nwindows:\nsignatures:\n",
    ],
)
def test_what_the_file_leaves_out_takes_the_default(text: str) -> None:
    assert parsed(text) == Settings()


def test_the_shipped_file_is_the_defaults() -> None:
    assert parsed(SHIPPED.read_text(encoding="utf-8")) == Settings()


def test_the_shipped_file_names_every_setting() -> None:
    """Those that a name in the environment may stand for are commented out, else the name would never count."""
    text = re.sub(
        r"^( *)# (open_seconds|max_attempts|base_seconds): ",
        r"\1\2: ",
        SHIPPED.read_text(encoding="utf-8"),
        flags=re.MULTILINE,
    )

    def names(value: object) -> object:
        """The keys of a mapping whose keys are settings; None where they are the user's."""
        return {key: names(inner) if inner else None for key, inner in value.items()} if isinstance(value, dict) else None

    assert names(yaml.safe_load(text)) == names(dataclasses.asdict(Settings()))


def test_the_shipped_file_leaves_room_for_the_environment() -> None:
    environ = {"CHAT_CHALLENGE_BREAKER_SECONDS": "10", "BILI_REPLAY_RETRY_MAX": "2", "BILI_REPLAY_RETRY_BASE_MS": "500"}
    found = parsed(SHIPPED.read_text(encoding="utf-8"), environ)
    assert (found.breaker.open_seconds, found.replay.max_attempts, found.replay.base_seconds) == (10, 2, 0.5)


def test_each_part_can_be_set() -> None:
    found = parsed("""
        mode: observe
        browsers: guard
        queue: {seconds: 0, size: 5, clients: {"my-agent/": 25, "other (x": 0.5}}
        concurrency: 4
        breaker: {strikes: 5, open_seconds: 12.5, scope: account, blocked_seconds: 60}
        retry_after: {challenge: 10, overload: 11, rate_limit: 1, cap: 20, enforce: false}
        hold: {seconds: 1, silence_seconds: 30, bytes: 1000}
        replay: {gap_seconds: 2, max_attempts: 1, base_seconds: 0, min_gap_seconds: 2, captcha: false}
        side_requests:
          enabled: false
          max_output_tokens: 100
          margin: 1.5
          traits: [{name: mine, where: system, text: You name chats, source: seen}, {where: user, text: ping}]
        windows: {qwen3-coder-plus: 1000000, "my-model*": 65536}
        qwen_web: {body_limit_bytes: 1000}
        decrypt: all
        shared: rediss://user:p%40ss@redis.example:6380/2
        notify: notify-send Breakwater 'a check is asked for'
        evidence: true
        evidence_path: ~/evidence.jsonl
        view_bytes: 0
        state_path: /tmp/state.json
    """)
    assert found.queue == QueueSettings(0, 5, {"my-agent/": 25, "other (x": 0.5})
    assert found.concurrency == 4
    assert found.breaker == BreakerSettings(5, 12.5, "account", 60)
    assert found.retry_after == RetryAfterSettings(10, 11, 1, 20, enforce=False)
    assert found.hold == HoldSettings(1, 30, 1000)
    assert found.replay == ReplaySettings(2, 1, 0, 2, captcha=False)
    assert (found.side_requests.enabled, found.side_requests.max_output_tokens) == (False, 100)
    assert found.side_requests.margin == 1.5
    assert found.side_requests.traits == (
        TraitRow("mine", "system", "You name chats", "seen"),
        TraitRow("side_requests.traits[1]", "user", "ping"),
    )
    assert found.windows == {"qwen3-coder-plus": 1_000_000, "my-model*": 65536}
    assert found.qwen_web.body_limit_bytes == 1000
    assert (found.mode, found.browsers, found.decrypt) == ("observe", "guard", "all")
    assert found.shared == "rediss://user:p%40ss@redis.example:6380/2"
    assert found.notify == "notify-send Breakwater 'a check is asked for'"
    assert found.evidence is True
    assert (found.evidence_path, found.view_bytes, found.state_path) == ("~/evidence.jsonl", 0, "/tmp/state.json")


@over("weight", [field.name for field in dataclasses.fields(EstimateWeights)])
def test_each_weight_can_be_set_by_itself(weight: str) -> None:
    found = parsed(f"side_requests: {{weights: {{{weight}: 0.123}}}}").side_requests.weights
    assert found == dataclasses.replace(EstimateWeights(), **{weight: 0.123})


def test_a_smaller_cap_alone_lowers_the_default_waits_to_it() -> None:
    assert parsed("retry_after: {cap: 3}").retry_after == RetryAfterSettings(3, 3, 3, 3)


# -- upstreams ------------------------------------------------------------------------------------------------


def test_further_upstreams_stand_beside_the_built_in_ones() -> None:
    found = parsed(
        'upstreams: {my-gateway: {hosts: ["LLM.example.com", "10.1.2.3:8000", "[::1]:80"], family: zai}}', {}, BUILT_IN
    )
    gateway = Upstream("my-gateway", ("llm.example.com", "10.1.2.3:8000", "[::1]:80"), Family.ZAI)
    assert found.upstreams == (*BUILT_IN, gateway)
    assert all(type(upstream.family) is Family for upstream in found.upstreams)


def test_the_same_name_replaces_a_built_in_one_and_keeps_what_is_not_said() -> None:
    found = parsed("upstreams: {zai: {hosts: [other.example]}, dashscope: {breaker: {strikes: 9}}}", {}, BUILT_IN)
    zai, dashscope = found.upstreams
    assert zai == Upstream("zai", ("other.example",), Family.ZAI)
    assert dashscope == dataclasses.replace(BUILT_IN[1], breaker=BreakerSettings(strikes=9))


def test_an_upstreams_own_rules_go_over_the_common_ones() -> None:
    found = parsed("""
        breaker: {strikes: 5, open_seconds: 20}
        replay: {max_attempts: 2}
        upstreams: {zai: {breaker: {strikes: 1}, replay: {captcha: false}}}
    """, {"BILI_REPLAY_RETRY_BASE_MS": "100"}, BUILT_IN)  # fmt: skip
    assert found.upstreams[0].breaker == BreakerSettings(strikes=1, open_seconds=20)
    assert found.upstreams[0].replay == ReplaySettings(max_attempts=2, captcha=False, base_seconds=0.1)
    assert found.upstreams[1].breaker is None
    assert found.upstreams[1].replay is None


@over(("text", "value"), [("off", "off"), ("'off'", "off"), ("no", "off"), ("learn", "learn"), ("7", 7)])
def test_concurrency_is_a_word_or_a_number_however_yaml_reads_it(text: str, value: object) -> None:
    found = parsed(f"concurrency: {text}\nupstreams: {{zai: {{concurrency: {text}}}}}", {}, BUILT_IN)
    assert [found.concurrency, *(upstream.concurrency for upstream in found.upstreams)] == [value, value, None]


@over(
    "url",
    [
        "redis://localhost",
        "redis://127.0.0.1:6379/0",
        "redis://:pass@[::1]:6379/15",
        "rediss://user:p%2Fss@redis.example/?ssl_cert_reqs=none&socket_timeout=1.5",
        "redis://h?db=3",
        "unix:///run/redis.sock?db=1",
        "unix://user:pass@/run/redis.sock",
        "redis+sentinel://h/mymaster",
        "redis+sentinel://user:p%40ss@one:26379,[::1]:26380,three/mymaster/15?socket_keepalive=true",
        "rediss+sentinel://one:26379/mymaster/0?ssl_ca_certs=/ca.pem",
    ],
)
def test_a_shared_server_is_any_url_of_the_redis_package_or_names_sentinels(url: str) -> None:
    assert parsed(yaml.safe_dump({"shared": url})).shared == url


# -- signatures -----------------------------------------------------------------------------------------------


def test_signatures_are_rows_with_any_status_or_family_where_none_is_named() -> None:
    found = parsed("""
        signatures:
          - {family: zai, field: error.code, equals: 1399, finding: overload, wait: 20}
          - {field: retry_token, finding: upstream_error}
          - {status: 509, finding: quota}
          - {name: page, status: 405, begins: "<html>", finding: "challenge:captcha"}
          - {status: [400, 429], field: code, begins: "Throttling.", finding: rate_limit}
    """)
    assert found.signatures == (
        SignatureRow("signatures[0]", Family.ZAI, "overload", field="error.code", equals="1399", wait=20),
        SignatureRow("signatures[1]", None, "upstream_error", field="retry_token"),
        SignatureRow("signatures[2]", None, "quota", frozenset({509})),
        SignatureRow("page", None, "challenge:captcha", frozenset({405}), begins="<html>"),
        SignatureRow("signatures[4]", None, "rate_limit", frozenset({400, 429}), field="code", begins="Throttling."),
    )


@over("finding", FINDINGS)
def test_a_signature_may_mean_any_finding(finding: str) -> None:
    assert parsed(f'signatures: [{{begins: x, finding: "{finding}"}}]').signatures[0].finding == finding


# -- the environment ------------------------------------------------------------------------------------------

VARIABLES = [
    ("CHAT_CHALLENGE_BREAKER_SECONDS", "90", "breaker", "open_seconds", 90),
    ("CHAT_CHALLENGE_BREAKER_SECONDS", "0", "breaker", "open_seconds", 0),
    ("BILI_REPLAY_RETRY_MAX", " 1 ", "replay", "max_attempts", 1),
    ("BILI_REPLAY_RETRY_BASE_MS", "2500", "replay", "base_seconds", 2.5),
    ("BILI_REPLAY_RETRY_BASE_MS", "0", "replay", "base_seconds", 0),
]


@over(("variable", "value", "section", "key", "expected"), VARIABLES)
def test_names_of_other_systems_count_where_the_file_says_nothing(
    variable: str, value: str, section: str, key: str, expected: object
) -> None:
    assert getattr(getattr(parsed("", {variable: value}), section), key) == expected
    assert getattr(getattr(parsed(f"{section}: {{{key}: 4}}", {variable: value}), section), key) == 4


def test_an_empty_variable_says_nothing() -> None:
    assert parsed("", {"CHAT_CHALLENGE_BREAKER_SECONDS": ""}) == Settings()


@over(
    ("variable", "value", "problem"),
    [
        ("CHAT_CHALLENGE_BREAKER_SECONDS", "soon", "must be a number, got 'soon'"),
        ("CHAT_CHALLENGE_BREAKER_SECONDS", "-1", "must be 0 seconds or more, got -1"),
        ("CHAT_CHALLENGE_BREAKER_SECONDS", "nan", "must be a finite number of seconds, got nan"),
        ("BILI_REPLAY_RETRY_MAX", "0", "must be 1 or more, got 0"),
        ("BILI_REPLAY_RETRY_MAX", "2.5", "must be a whole number, got 2.5"),
        ("BILI_REPLAY_RETRY_BASE_MS", "60000", "must be at most 10 seconds, got 60"),
    ],
)
def test_a_bad_variable_is_named(variable: str, value: str, problem: str) -> None:
    line = mistake("", {variable: value})
    assert line.startswith(f"environment variable {variable} (for ")
    assert line.endswith(f"): {problem}")
