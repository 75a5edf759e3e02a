"""The config file: what it may say, and the one line for each mistake."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.kinds import Family
from policies.settings import (
    BreakerSettings,
    EstimateWeights,
    HoldSettings,
    ReplaySettings,
    RetryAfterSettings,
    Settings,
    SignatureRow,
    TraitRow,
    Upstream,
)
from policies.settings_file import SettingsError, parse
from policies.settings_table import FINDINGS

PATH = "/home/me/config.yaml"
SHIPPED = Path(__file__).parents[2] / "config.yaml"
BUILT_IN = (
    Upstream("zai", ("api.z.ai",), Family.ZAI),
    Upstream("dashscope", ("dashscope.aliyuncs.com", "*.maas.aliyuncs.com"), Family.DASHSCOPE),
)


def parsed(text: str, environ: dict[str, str] | None = None, built_in: tuple[Upstream, ...] = ()) -> Settings:
    return parse(text, PATH, environ or {}, built_in)


def mistake(text: str, environ: dict[str, str] | None = None) -> str:
    """The error's line without the path that it begins with."""
    with pytest.raises(SettingsError) as caught:
        parse(text, PATH, environ or {}, BUILT_IN)
    line = str(caught.value)
    assert line.startswith(f"{PATH}: ")
    assert line.isprintable(), "one line"
    assert len(line) < 400
    return line.removeprefix(f"{PATH}: ")


# -- what it may say ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
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
        return (
            {key: names(inner) if inner else None for key, inner in value.items()} if isinstance(value, dict) else None
        )

    assert names(yaml.safe_load(text)) == names(dataclasses.asdict(Settings()))


def test_the_shipped_file_leaves_room_for_the_environment() -> None:
    environ = {"CHAT_CHALLENGE_BREAKER_SECONDS": "10", "BILI_REPLAY_RETRY_MAX": "2", "BILI_REPLAY_RETRY_BASE_MS": "500"}
    found = parsed(SHIPPED.read_text(encoding="utf-8"), environ)
    assert (found.breaker.open_seconds, found.replay.max_attempts, found.replay.base_seconds) == (10, 2, 0.5)


def test_each_part_can_be_set() -> None:
    found = parsed("""
        mode: observe
        browsers: guard
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
        evidence_path: ~/evidence.jsonl
        view_bytes: 0
        state_path: /tmp/state.json
    """)
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
    assert (found.evidence_path, found.view_bytes, found.state_path) == ("~/evidence.jsonl", 0, "/tmp/state.json")


@pytest.mark.parametrize("weight", [field.name for field in dataclasses.fields(EstimateWeights)])
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


@pytest.mark.parametrize("finding", FINDINGS)
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


@pytest.mark.parametrize(("variable", "value", "section", "key", "expected"), VARIABLES)
def test_names_of_other_systems_count_where_the_file_says_nothing(
    variable: str, value: str, section: str, key: str, expected: object
) -> None:
    assert getattr(getattr(parsed("", {variable: value}), section), key) == expected
    assert getattr(getattr(parsed(f"{section}: {{{key}: 4}}", {variable: value}), section), key) == 4


def test_an_empty_variable_says_nothing() -> None:
    assert parsed("", {"CHAT_CHALLENGE_BREAKER_SECONDS": ""}) == Settings()


@pytest.mark.parametrize(
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


# -- mistakes -------------------------------------------------------------------------------------------------

MISTAKES = {
    "breaker: {strikes: -1}": "breaker.strikes: must be 1 or more, got -1",
    "breaker: {strikes: 0}": "breaker.strikes: must be 1 or more, got 0",
    "breaker: {strikes: 2.5}": "breaker.strikes: must be a whole number, got 2.5",
    "breaker: {strikes: true}": "breaker.strikes: must be a whole number, got true",
    "breaker: {strikes: '3'}": "breaker.strikes: must be a whole number, got '3'",
    "breaker: {strikes: null}": "breaker.strikes: must be a whole number, got nothing",
    "breaker: {strikes: [3]}": "breaker.strikes: must be a whole number, got a list",
    "breaker: {strikes: 0x1" + "0" * 6000 + "}": "breaker.strikes: must be at most 1000, got a number out of all bounds",
    "breaker: {open_seconds: -1}": "breaker.open_seconds: must be 0 seconds or more, got -1",
    "breaker: {open_seconds: 100000}": "breaker.open_seconds: must be at most 86400 seconds, got 100000",
    "breaker: {open_seconds: .nan}": "breaker.open_seconds: must be a finite number of seconds, got nan",
    "breaker: {open_seconds: .inf}": "breaker.open_seconds: must be a finite number of seconds, got inf",
    "breaker: {open_seconds: 60s}": "breaker.open_seconds: must be a number of seconds, got '60s'",
    "breaker: {scope: global}": "breaker.scope: must be upstream or account, got 'global'",
    "breaker: {strike: 3}": "breaker.strike: unknown key; did you mean strikes?",
    "breaker: [3]": "breaker: must be a mapping of keys and values, got a list",
    "breaker: 3": "breaker: must be a mapping of keys and values, got 3",
    "braker: {strikes: 3}": "braker: unknown key; did you mean breaker?",
    "- mode": "must be a mapping of keys and values, got a list",
    "enforce": "must be a mapping of keys and values, got 'enforce'",
    "1: x": "1: a key must be text (put it in quotes)",
    "mode: off": "mode: must be enforce or observe, got false",
    "mode:": "mode: must be enforce or observe, got nothing",
    "mode: {enforce: 1}": "mode: must be enforce or observe, got a mapping",
    'mode: "a\\nb"': "mode: must be enforce or observe, got 'a\\nb'",
    "retry_after: {cap: 60}": "retry_after.cap: must be at most 59 seconds, got 60",
    "retry_after: {cap: 0}": "retry_after.cap: must be 1 seconds or more, got 0",
    "retry_after: {cap: 20, challenge: 30}": "retry_after.challenge: must be at most retry_after.cap (20), got 30",
    "retry_after: {cap: 20, overload: 21}": "retry_after.overload: must be at most retry_after.cap (20), got 21",
    "retry_after: {cap: 2, rate_limit: 3}": "retry_after.rate_limit: must be at most retry_after.cap (2), got 3",
    "retry_after: {enforce: 1}": "retry_after.enforce: must be true or false, got 1",
    "hold: {seconds: 101}": "hold.seconds: must be at most 100 seconds, got 101",
    "hold: {bytes: 1.5}": "hold.bytes: must be a whole number of bytes, got 1.5",
    "replay: {min_gap_seconds: 2}": "replay.min_gap_seconds: must be at most replay.gap_seconds (1), got 2",
    "replay: {max_attempts: 0}": "replay.max_attempts: must be 1 or more, got 0",
    "side_requests: {margin: 0.5}": "side_requests.margin: must be 1 or more, got 0.5",
    "side_requests: {weights: {spaec: 1}}": "side_requests.weights.spaec: unknown key; did you mean space?",
    "side_requests: {weights: {space: 2}}": "side_requests.weights.space: must be at most 1.98 tokens, got 2",
    "side_requests: {traits: {a: 1}}": "side_requests.traits: must be a list, got a mapping",
    "side_requests: {traits: [{where: user}]}": "side_requests.traits[0].text: is missing",
    "side_requests: {traits: [{where: tool, text: x}]}": "side_requests.traits[0].where: must be system, user or schema, got 'tool'",
    "windows: {glm: -5}": "windows.glm: must be 1 tokens or more, got -5",
    "windows: {4.7: 1000}": "windows.4.7: a key must be text (put it in quotes)",
    'windows: {"a*b": 1000}': "windows.a*b: a * may only stand at the end of a model's name",
    "windows: [1]": "windows: must be a mapping of keys and values, got a list",
    "view_bytes: 1e3": "view_bytes: must be a whole number of bytes, got '1e3'",
    "evidence_path: 3": "evidence_path: must be a file's path or null, got 3",
    "state_path: ''": "state_path: must be a file's path or null, got ''",
    "upstreams: {my: {family: zai}}": "upstreams.my.hosts: is missing",
    "upstreams: {my: {hosts: [x.example]}}": "upstreams.my.family: is missing",
    "upstreams: {my: {hosts: [], family: zai}}": "upstreams.my.hosts: must have one item or more",
    "upstreams: {my: {hosts: [a.b], family: openai}}": "upstreams.my.family: must be qwen-web, dashscope, zai, zai-web or zcode, got 'openai'",
    "upstreams: {my: {hosts: [a.b], family: zai, strikes: 3}}": "upstreams.my.strikes: unknown key; known here: hosts, family, breaker, replay",
    "upstreams: {my: {hosts: [api.z.ai], family: zai}}": "upstreams.my.hosts[0]: api.z.ai already belongs to 'zai'; use that name to change it",
    "upstreams: {zai: {breaker: {strikes: 0}}}": "upstreams.zai.breaker.strikes: must be 1 or more, got 0",
    "upstreams: {zai: {replay: {gap_seconds: 3, min_gap_seconds: 4}}}": "upstreams.zai.replay.min_gap_seconds: must be at most upstreams.zai.replay.gap_seconds (3), got 4",
    "signatures: {a: 1}": "signatures: must be a list, got a mapping",
    "signatures: [x]": "signatures[0]: must be a mapping of keys and values, got 'x'",
    "signatures: [{begins: x}]": "signatures[0].finding: is missing",
    "signatures: [{finding: quota, begins: x}, {finding: nope, begins: x}]": "signatures[1].finding: must be answer, …",
    "signatures: [{finding: quota, begins: x, status: 999}]": "signatures[0].status: must be at most 599, got 999",
    "signatures: [{finding: quota, begins: x, status: [429, true]}]": "signatures[0].status[1]: must be a whole number, got true",
    "signatures: [{finding: quota, begins: x, status: []}]": "signatures[0].status: must have one item or more",
    "signatures: [{finding: quota}]": "signatures[0]: must have field, equals or begins, or only a status from 400 on",
    "signatures: [{finding: quota, status: [200, 429]}]": "signatures[0]: must have field, equals or begins, or only a status from 400 on",
    "signatures: [{finding: quota, field: code, equals: a, begins: b}]": "signatures[0]: equals and begins are two ways to say it; keep one",
    "signatures: [{finding: quota, begins: ''}]": "signatures[0].begins: must be text, got ''",
    "signatures: [{finding: quota, begins: x, wait: 5}]": "signatures[0].wait: no wait cures quota; leave it out",
    "signatures: [{finding: overload, begins: x, wait: -5}]": "signatures[0].wait: must be 0 seconds or more, got -5",
    "signatures: [{finding: overload, field: choices.0.delta.content, begins: x}]": "signatures[0].field: choices is what a model writes; no rule may look there",
    "breaker:\n  strikes: 3\n  strikes: 4\n": "breaker.strikes: stands there twice (line 3)",
    "mode: enforce\nmode: observe\n": "mode: stands there twice (line 2)",
    "signatures:\n- {finding: quota, finding: filter}": "signatures[0].finding: stands there twice (line 2)",
    "breaker: {strikes: 3": "line 1, column 21: while parsing a flow mapping, expected ',' or '}' …",
    "breaker:\n\tstrikes: 3": "line 2, column 1: while scanning for the next token, found character '\\t' …",
    "mode: *nowhere": "line 1, column 7: found undefined alias …",
    "mode: !!python/name:os.system x": "line 1, column 7: could not determine a constructor for the tag …",
    "mode: observe\n---\nmode: observe": "line 2, column 1: expected a single document in the stream, but found another document",
    "mode: \x00": "line 1: a character that YAML does not allow",
    "mode: enforce\n# \ufffd": "line 2: is not UTF-8 text",
    "[" * 5000: "nested too deeply",
    "view_bytes: " + "9" * 5000: "a value that cannot be read: …",
    "mode: 2020-99-99": "a value that cannot be read: …",
    "windows: &a {glm: *a}": "windows.glm: must be a whole number of tokens, got a mapping",
    "? [a]\n: 1": "line 1, column 3: while constructing a mapping, found unhashable key",
}  # fmt: skip


@pytest.mark.parametrize("text", MISTAKES, ids=lambda text: text[:60])
def test_a_mistake_is_one_line_that_names_its_key(text: str) -> None:
    line, expected = mistake(text), MISTAKES[text]
    beginning = expected.removesuffix(" …")
    assert line == expected if beginning == expected else line.startswith(beginning)


@pytest.mark.parametrize(
    "host",
    ["http://a.example", "a.example/v1", "a.example:0", "a.example:70000", "a.example:", "*.", "*", "a.*.example", "-a", "a b", "",
     "a..b", "[::1", 7, None],
)  # fmt: skip
def test_a_host_is_a_name_without_scheme_or_path(host: object) -> None:
    text = yaml.safe_dump({"upstreams": {"my": {"family": "zai", "hosts": ["ok.example", host]}}})
    assert mistake(text).startswith("upstreams.my.hosts[1]: must be a host such as")


KEYS = st.sampled_from(
    ["mode", "breaker", "strikes", "scope", "upstreams", "zai", "hosts", "family", "replay", "gap_seconds", "signatures", "finding",
     "status", "field", "begins", "side_requests", "traits", "weights", "where", "text", "windows", "retry_after", "cap", "challenge"]
) | st.text(max_size=4)  # fmt: skip
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["zai", "system", "quota"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=8,
)


def line_of(text: str) -> str:
    """The error's line; where there is none, one that would do."""
    try:
        parse(text, PATH, {}, BUILT_IN)
    except SettingsError as error:
        return str(error)
    return f"{PATH}: fine"


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(KEYS, VALUES, max_size=4).map(lambda document: yaml.safe_dump(document, allow_unicode=True)))
def test_any_document_is_settings_or_one_line(text: str) -> None:
    assert line_of(text).startswith(f"{PATH}: ")
    assert line_of(text).isprintable()


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=60))
def test_any_text_is_settings_or_one_line(text: str) -> None:
    assert line_of(text).startswith(f"{PATH}: ")
    assert line_of(text).isprintable()
