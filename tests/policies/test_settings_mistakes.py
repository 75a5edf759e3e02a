"""The config file's mistakes: one line for each, that begins with the path and names the key."""

from __future__ import annotations

import yaml
from hypothesis import given
from hypothesis import strategies as st

from policies.settings_file import SettingsError, parse
from tests.policies.settings_lab import BUILT_IN, PATH, mistake
from tests.rows import over

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
    "mode: off": "mode: must be enforce or observe, got false (YAML reads a bare on, off, yes or no so)",
    "browsers: on": "browsers: must be tunnel or guard, got true (YAML reads a bare on, off, yes or no so)",
    "queue: {seconds: -1}": "queue.seconds: must be 0 seconds or more, got -1",
    "queue: {seconds: 3601}": "queue.seconds: must be at most 3600 seconds, got 3601",
    "queue: {size: 0}": "queue.size: must be 1 requests or more, got 0",
    "queue: {size: 1.5}": "queue.size: must be a whole number of requests, got 1.5",
    "queue: {sizes: 5}": "queue.sizes: unknown key; did you mean size?",
    "queue: {clients: [x]}": "queue.clients: must be a mapping of keys and values, got a list",
    "queue: {clients: {my-agent/: -25}}": "queue.clients.my-agent/: must be 0 seconds or more, got -25",
    "queue: {clients: {my-agent/: 1e400}}": "queue.clients.my-agent/: must be a number of seconds, got '1e400'",
    "queue: {clients: {my-agent/: 100000}}": "queue.clients.my-agent/: must be at most 86400 seconds, got 100000",
    "queue: {clients: {my-agent/: .inf}}": "queue.clients.my-agent/: must be a finite number of seconds, got inf",
    "queue: {clients: {my-agent/: long}}": "queue.clients.my-agent/: must be a number of seconds, got 'long'",
    "queue: {clients: {my-agent/: }}": "queue.clients.my-agent/: must be a number of seconds, got nothing",
    "queue: {clients: {1: 25}}": "queue.clients.1: a key must be text (put it in quotes)",
    "concurrency: 0": "concurrency: must be learn, off or a whole number of calls from 1 to 10000, got 0",
    "concurrency: 10001": "concurrency: must be learn, off or a whole number of calls from 1 to 10000, got 10001",
    "concurrency: 2.5": "concurrency: must be learn, off or a whole number of calls from 1 to 10000, got 2.5",
    "concurrency: lern": "concurrency: must be learn, off or a whole number of calls from 1 to 10000, got 'lern'",
    "concurrency: on": "concurrency: must be learn, off or a whole number of calls from 1 to 10000, got true (YAML reads a bare on, off, yes or no so)",
    "concurrency:": "concurrency: must be learn, off or a whole number of calls from 1 to 10000, got nothing",
    "upstreams: {zai: {concurrency: -1}}": "upstreams.zai.concurrency: must be learn, off or a whole number of calls from 1 to 10000, got -1",
    "shared: 6379": "shared: must be a URL such as redis://127.0.0.1:6379/0 or null, got 6379",
    "shared: [redis://h]": "shared: must be a URL such as redis://127.0.0.1:6379/0 or null, got a list",
    "shared: localhost:6379": "shared: must begin with redis://, rediss://, unix:// or redis+sentinel:// and name a server",
    "shared: redis://": "shared: must begin with redis://, rediss://, unix:// or redis+sentinel:// and name a server",
    "shared: http://u:SECRET@h": "shared: must begin with redis://, rediss://, unix:// or redis+sentinel:// and name a server",
    "shared: redis://u:SECRET@h:port/0": "shared: its host or port cannot be read; in a password write / as %2F, # as %23, ? as %3F, [ as %5B",
    "shared: redis://u:SE/CRET@h:1/0": "shared: its host or port cannot be read; in a password write / as %2F, # as %23, ? as %3F, [ as %5B",
    "shared: redis://u:SE[CRET@h:1/0": "shared: its host or port cannot be read; in a password write / as %2F, # as %23, ? as %3F, [ as %5B",
    "shared: redis://u:1/SECRET@h:1/0": "shared: must end with the number of a database, as in redis://127.0.0.1:6379/0",
    "shared: redis://u:1#SECRET@h:1/0": "shared: must end with the number of a database, as in redis://127.0.0.1:6379/0",
    "shared: redis+cluster://u:SECRET@h": "shared: must begin with redis://, rediss://, unix:// or redis+sentinel:// and name a server",
    "shared: redis+sentinel://u:SECRET@h:1": "shared: must name sentinels and their master, as in redis+sentinel://one:26379,two:26379/mymaster/0",
    "shared: redis+sentinel://u:SECRET@h:1,/m": "shared: must name sentinels and their master, as in redis+sentinel://one:26379,two:26379/mymaster/0",
    "shared: redis+sentinel://u:SECRET@h/m?db=1": "shared: must name sentinels and their master, as in redis+sentinel://one:26379,two:26379/mymaster/0",
    "shared: redis+sentinel://u:SECRET@h:1,i:port/m": "shared: its host or port cannot be read; in a password write / as %2F, # as %23, ? as %3F, [ as %5B",
    "shared: redis+sentinel://u:SECRET@h/m/zero": "shared: must end with the number of a database, as in redis://127.0.0.1:6379/0",
    "shared: redis://u:SECRET@h:1,i:2/0": "shared: its host or port cannot be read; in a password write / as %2F, # as %23, ? as %3F, [ as %5B",
    "shared: redis://h/zero": "shared: must end with the number of a database, as in redis://127.0.0.1:6379/0",
    "shared: redis://h/0?db=SECRET": "shared: must end with the number of a database, as in redis://127.0.0.1:6379/0",
    "shared: unix://?db=0": "shared: must name a socket, as in unix:///run/redis.sock?db=0",
    "shared: redis://u:SECRET @h": "shared: must be a URL such as redis://127.0.0.1:6379/0 or null",
    'shared: "redis://u:SECRET\\0@h"': "shared: must be a URL such as redis://127.0.0.1:6379/0 or null",
    "notify: say 'SECRET": "notify: is no command line: no closing quotation",
    "notify: say SECRET\\": "notify: is no command line: no escaped character",
    "notify: ''": "notify: must be a command line or null",
    "notify: \"''\"": "notify: is no command line: it names no program",
    "notify: [say, hi]": "notify: must be a command line or null, got a list",
    'notify: "a\\0SECRET"': "notify: must be a command line or null",
    "evidence: 1": "evidence: must be true or false, got 1",
    "strikes: 3": "strikes: unknown key; did you mean breaker.strikes?",
    "seconds: 3": "seconds: unknown key; did you mean queue.seconds or hold.seconds?",
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
    "upstreams: {my: {hosts: [a.b], family: zai, strikes: 3}}": "upstreams.my.strikes: unknown key; did you mean breaker.strikes?",
    "upstreams: {my: {name: x}}": "upstreams.my.name: unknown key; known here: hosts, family, breaker, replay, concurrency",
    "upstreams: {my: {hosts: [api.z.ai], family: zai}}": "upstreams.my.hosts[0]: api.z.ai already belongs to 'zai'; use that name to change it",
    "upstreams: {zai: {hosts: [dashscope.aliyuncs.com]}}": "upstreams.zai.hosts[0]: dashscope.aliyuncs.com already belongs to 'dashscope'; use that name to change it",
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


@over("text", MISTAKES, ids=lambda text: text[:60])
def test_a_mistake_is_one_line_that_names_its_key(text: str) -> None:
    line, expected = mistake(text), MISTAKES[text]
    beginning = expected.removesuffix(" …")
    assert line == expected if beginning == expected else line.startswith(beginning)


@over(
    "host",
    ["http://a.example", "a.example/v1", "a.example:0", "a.example:70000", "a.example:", "*.", "*", "a.*.example", "-a", "a b", "",
     "a..b", "[::1", 7, None],
)  # fmt: skip
def test_a_host_is_a_name_without_scheme_or_path(host: object) -> None:
    text = yaml.safe_dump({"upstreams": {"my": {"family": "zai", "hosts": ["ok.example", host]}}})
    assert mistake(text).startswith("upstreams.my.hosts[1]: must be a host such as")


def test_a_list_may_have_a_thousand_items() -> None:
    text = yaml.safe_dump({"signatures": [{"finding": "quota", "status": 429}] * 1001}, default_flow_style=True)
    assert mistake(text) == "signatures: must have at most 1000 items, has 1001"


@over(
    ("text", "problem"),
    [
        ("upstreams: [" + "1," * 20_001 + "]", "too large: more than 20000 values"),
        ("view_bytes: 1" + ":1" * 5_000, "line 1: a value of more than 10000 characters"),
        ("mode: enforce\nnotify: " + "x" * 10_001, "line 2: a value of more than 10000 characters"),
        ("windows: " + "[" * 60 + "]" * 60, "nested too deeply"),
        ("\n".join(" " * level + "a:" for level in range(60)), "nested too deeply"),
    ],
    ids=["values", "a number with base 60", "characters", "lists", "mappings"],
)
def test_a_document_that_no_config_can_be_is_given_up(text: str, problem: str) -> None:
    assert mistake(text) == problem


def test_a_short_text_cannot_stand_for_a_billion_values() -> None:
    lines = ["a: &a0 {k: [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]}"]
    lines += [f"b{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    assert mistake("\n".join(lines)) == "too large: more than 20000 values, with what its aliases stand for"
    merged = ["a: &a0 {k: 1}"]
    merged += [f"b{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 10)}]}}" for n in range(1, 10)]
    assert mistake("\n".join(merged)) == "too large: more than 20000 values, with what its aliases stand for"


KEYS = st.sampled_from(
    ["mode", "breaker", "strikes", "scope", "upstreams", "zai", "hosts", "family", "replay", "gap_seconds", "signatures", "finding",
     "status", "field", "begins", "queue", "clients", "concurrency", "shared", "notify", "evidence", "side_requests", "traits", "weights", "where", "text", "windows", "retry_after", "cap", "challenge"]
) | st.text(max_size=4)  # fmt: skip
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["zai", "system", "quota", "off", "redis://h", "unix://", "say '"]),
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


@given(st.dictionaries(KEYS, VALUES, max_size=4).map(lambda document: yaml.safe_dump(document, allow_unicode=True)))
def test_any_document_is_settings_or_one_line(text: str) -> None:
    assert line_of(text).startswith(f"{PATH}: ")
    assert line_of(text).isprintable()


@given(st.text(max_size=60))
def test_any_text_is_settings_or_one_line(text: str) -> None:
    assert line_of(text).startswith(f"{PATH}: ")
    assert line_of(text).isprintable()
