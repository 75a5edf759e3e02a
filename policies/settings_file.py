"""The config file: YAML text in, checked settings out, or one line that names the key."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

from policies.refusal.signatures import WRITTEN_BY_MODELS
from policies.settings import ReplaySettings, RetryAfterSettings, Settings, SignatureRow, Upstream
from policies.settings_values import WrongError, hints_of, joined, known, mapping, must_be, read, shown, values

NODES_AT_MOST = 20_000
"""In one document, with what its aliases stand for: a short text can stand for billions of values."""
LEVELS_AT_MOST = 50
LONGEST_VALUE = 10_000
"""Characters. YAML reads a number such as 1:1:1 with base 60, which takes seconds where it is long."""
FIRST_WAITS = ("challenge", "overload", "rate_limit")
"""Keys of retry_after, and findings that pass by themselves: a wait for any other would be invented."""
ENVIRONMENT = (
    ("CHAT_CHALLENGE_BREAKER_SECONDS", "breaker", "open_seconds", 1),
    ("BILI_REPLAY_RETRY_MAX", "replay", "max_attempts", 1),
    ("BILI_REPLAY_RETRY_BASE_MS", "replay", "base_seconds", 1000),
)
"""Names of other systems: the section and key that each stands for, and how many of its units make one of ours.

BILI_REPLAY_RETRY_MAX counts all sends and 1 turns re-sending off, as max_attempts does (ranxianglei/billion-context#190).
"""


class SettingsError(ValueError):
    """A config that cannot be used; its text is one line that begins with the file's path."""


def parse(text: str, path: str, environ: Mapping[str, str], built_in: tuple[Upstream, ...]) -> Settings:
    """The settings that the ``text`` of a config file asks for, else a ``SettingsError``.

    ``path`` is named in the error, and the names in ``environ`` hold where the file says nothing.
    """
    try:
        return _settings(_load(text), environ, built_in)
    except WrongError as wrong:
        raise SettingsError(f"{path}: {wrong}") from None


def _settings(document: Any, environ: Mapping[str, str], built_in: tuple[Upstream, ...]) -> Settings:
    found = known(mapping(document, ""), Settings, "")
    rows = mapping(found.pop("upstreams", None), "upstreams")
    _take_environment(found, environ)
    settings: Settings = read(found, Settings, "")
    _check(settings)
    waits = _waits(settings.retry_after, mapping(found.get("retry_after"), "retry_after"))
    return replace(settings, retry_after=waits, upstreams=_upstreams(rows, settings, built_in))


# -- what is more than a type ---------------------------------------------------------------------------------


def _check(settings: Settings) -> None:
    for index, row in enumerate(settings.signatures):
        _check_signature(row, f"signatures[{index}]")
    for model in settings.windows:
        if "*" in model[:-1]:
            raise WrongError(joined("windows", model), "a * may only stand at the end of a model's name")
    _check_replay(settings.replay, "replay")
    if settings.shared is not None:
        _check_shared(settings.shared)
    try:
        command = shlex.split(settings.notify or "true")
    except ValueError as error:
        raise WrongError("notify", f"is no command line: {str(error).lower()}") from None
    if not command or not command[0].strip():
        raise WrongError("notify", "is no command line: it names no program")


def _check_signature(row: SignatureRow, where: str) -> None:
    if row.equals is not None and row.begins is not None:
        raise WrongError(where, "equals and begins are two ways to say it; keep one")
    if row.field is row.equals is row.begins is None and min(row.status or [0]) < 400:
        raise WrongError(where, "must have field, equals or begins, or only a status from 400 on")
    for part in (row.field or "").split("."):
        if part in WRITTEN_BY_MODELS:
            raise WrongError(f"{where}.field", f"{part} is what a model writes; no rule may look there")
    if row.wait is not None and row.finding.partition(":")[0] not in FIRST_WAITS:
        raise WrongError(f"{where}.wait", f"no wait cures {row.finding}; leave it out")


def _check_replay(replay: ReplaySettings, where: str) -> None:
    if replay.min_gap_seconds > replay.gap_seconds:
        what = f"at most {where}.gap_seconds ({replay.gap_seconds:g}), got {replay.min_gap_seconds:g}"
        raise WrongError(f"{where}.min_gap_seconds", f"must be {what}")


def _check_shared(url: str) -> None:
    """The form of the URL; a mistake shows nothing of it, since a password may stand anywhere in it."""
    scheme, _, rest = url.partition("://")
    sentinels = scheme in {"redis+sentinel", "rediss+sentinel"}
    if (scheme not in {"redis", "rediss", "unix"} and not sentinels) or not rest:
        raise WrongError("shared", "must begin with redis://, rediss://, unix:// or redis+sentinel:// and name a server")
    try:
        parts = urlsplit(url)
        named = parse_qs(parts.query).get("db", [])
        hosts = parts.netloc.rpartition("@")[2]
        ports = [(host, urlsplit(f"//{host}").port) for host in (hosts.split(",") if sentinels else [hosts])]
    except ValueError:
        advice = "in a password write / as %2F, # as %23, ? as %3F, [ as %5B"
        raise WrongError("shared", f"its host or port cannot be read; {advice}") from None
    master, _, database = parts.path.strip("/").partition("/") if sentinels else ("", "", parts.path.strip("/"))
    if sentinels and (named or not master or not all(host for host, _ in ports)):
        raise WrongError(
            "shared", "must name sentinels and their master, as in redis+sentinel://one:26379,two:26379/mymaster/0"
        )
    databases = named if scheme == "unix" else [database, *named]
    if parts.fragment or not all(name == "" or (name.isascii() and name.isdecimal()) for name in databases):
        raise WrongError("shared", "must end with the number of a database, as in redis://127.0.0.1:6379/0")
    if scheme == "unix" and not parts.path.strip("/"):
        raise WrongError("shared", "must name a socket, as in unix:///run/redis.sock?db=0")


def _waits(waits: RetryAfterSettings, given: Mapping[str, Any]) -> RetryAfterSettings:
    """Whoever sets only a smaller cap need not set every wait as well."""
    lowered: dict[str, Any] = {}
    for name in FIRST_WAITS:
        if getattr(waits, name) > waits.cap:
            if name in given:
                raise must_be(f"retry_after.{name}", f"at most retry_after.cap ({waits.cap})", given[name])
            lowered[name] = waits.cap
    return replace(waits, **lowered)


def _take_environment(found: dict[str, Any], environ: Mapping[str, str]) -> None:
    """What other systems' variables say, wherever the file says nothing."""
    for variable, section, key, units in ENVIRONMENT:
        text, given = environ.get(variable, "").strip(), mapping(found.get(section), section)
        if not text or key in given:
            continue
        where = f"environment variable {variable} (for {section}.{key})"
        try:
            value = float(text) / units
        except ValueError:
            raise must_be(where, "a number", text) from None
        kind = hints_of(hints_of(Settings)[section])[key]
        found[section] = {**given, key: read(int(value) if value.is_integer() else value, kind, where)}


def _upstreams(rows: Mapping[str, Any], settings: Settings, built_in: tuple[Upstream, ...]) -> tuple[Upstream, ...]:
    """The built-in ones and the file's. One of an equal name replaces, and keeps what the file does not say of it."""
    upstreams = {upstream.name: upstream for upstream in built_in}
    for name, row in rows.items():
        where, base = joined("upstreams", name), upstreams.get(name)
        given = known(mapping(row, where), Upstream, where)
        parts: dict[str, Any] = {}
        for part, common in (("breaker", settings.breaker), ("replay", settings.replay)):
            if part in given:
                own = known(mapping(given.pop(part), f"{where}.{part}"), type(common), f"{where}.{part}")
                parts[part] = replace(common, **values(own, type(common), f"{where}.{part}"))
        missing = [key for key in ("hosts", "family") if base is None and key not in given]
        if missing:
            raise WrongError(f"{where}.{missing[0]}", "is missing")
        parts |= values(given, Upstream, where)
        upstreams[name] = replace(base, **parts) if base else Upstream(name, **parts)
        if "replay" in parts:
            _check_replay(parts["replay"], f"{where}.replay")
    _check_hosts(upstreams, rows)
    return tuple(upstreams.values())


def _check_hosts(upstreams: Mapping[str, Upstream], of_file: Mapping[str, Any]) -> None:
    """A host belongs to one upstream, since it has one breaker. Those of the file are looked at last and named."""
    owners: dict[str, str] = {}
    for name in sorted(upstreams, key=lambda name: name in of_file):
        for index, host in enumerate(upstreams[name].hosts):
            owner = owners.setdefault(host, name)
            if owner != name:
                where = f"{joined('upstreams', name)}.hosts[{index}]"
                raise WrongError(where, f"{host} already belongs to {shown(owner)}; use that name to change it")


# -- YAML -----------------------------------------------------------------------------------------------------


class _Loader(yaml.SafeLoader):
    """Gives up a document that no config can be, before it has cost much: the whole proxy waits while it is read."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._nodes = self._levels = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        self._nodes, self._levels = self._nodes + 1, self._levels + 1
        if self._levels > LEVELS_AT_MOST:
            raise WrongError("", "nested too deeply")
        if self._nodes > NODES_AT_MOST:
            raise WrongError("", f"too large: more than {NODES_AT_MOST} values")
        node = super().compose_node(parent, index)
        self._levels -= 1
        if isinstance(node, yaml.ScalarNode) and len(node.value) > LONGEST_VALUE:
            raise WrongError(_line(node.start_mark.line), f"a value of more than {LONGEST_VALUE} characters")
        return node


def _load(text: str) -> Any:
    """The document as plain values."""
    if "\ufffd" in text:
        raise WrongError(_line(text.count("\n", 0, text.index("\ufffd"))), "is not UTF-8 text")
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        _no_key_twice(node, "", (), itertools.count(1))
        return None if node is None else loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = " ".join(", ".join(filter(None, (error.context, error.problem))).split())
        raise WrongError(_line(mark.line, mark.column) if mark else "", problem) from None
    except yaml.reader.ReaderError as error:
        raise WrongError(_line(text.count("\n", 0, error.position)), "a character that YAML does not allow") from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise WrongError("", f"a value that cannot be read: {' '.join(str(error).split())[:100]}") from None
    except RecursionError:
        raise WrongError("", "nested too deeply") from None


def _line(line: int, column: int | None = None) -> str:
    return f"line {line + 1}" if column is None else f"line {line + 1}, column {column + 1}"


def _no_key_twice(node: yaml.Node | None, where: str, above: tuple[int, ...], count: Iterator[int]) -> None:
    """YAML alone would silently take the last of two equal keys."""
    if node is None or id(node) in above:
        return
    if next(count) > NODES_AT_MOST:
        raise WrongError("", f"too large: more than {NODES_AT_MOST} values, with what its aliases stand for")
    above = (*above, id(node))
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            _no_key_twice(item, f"{where}[{index}]", above, count)
    elif isinstance(node, yaml.MappingNode):
        keys = set()
        for key, value in node.value:
            inner = joined(where, key.value)
            if isinstance(key, yaml.ScalarNode) and key.value in keys:
                raise WrongError(inner, f"stands there twice (line {key.start_mark.line + 1})")
            keys.add(key.value if isinstance(key, yaml.ScalarNode) else id(key))
            _no_key_twice(value, inner, above, count)
