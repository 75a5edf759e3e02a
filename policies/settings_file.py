"""The config file: YAML text in, checked settings out, or one line that names the key."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import yaml

from policies.settings import ReplaySettings, RetryAfterSettings, Settings, Upstream
from policies.settings_fields import WrongError, joined, known, mapping, must_be, section, shown
from policies.settings_table import ENVIRONMENT, SECTIONS, SINGLE, UPSTREAM, WINDOW


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
    found = mapping(document, "")
    known(found, [field.name for field in dataclasses.fields(Settings)], "")
    given = {name: read(found.get(name), name) for name, (_, read) in SECTIONS.items()}
    _take_environment(given, environ)
    _keep_defaults_under_cap(given["retry_after"])
    values: dict[str, Any] = {name: kind(**given[name]) for name, (kind, _) in SECTIONS.items()}
    values |= {name: read(found[name], name) for name, read in SINGLE.items() if name in found}
    settings = Settings(windows=_windows(found.get("windows")), **values)
    _check_waits(settings.retry_after)
    _check_replay(settings.replay, "replay")
    return dataclasses.replace(settings, upstreams=_upstreams(found.get("upstreams"), settings, built_in))


# -- relations ------------------------------------------------------------------------------------------------


_FIRST_WAITS = ("challenge", "overload", "rate_limit")


def _keep_defaults_under_cap(given: dict[str, Any]) -> None:
    """Whoever sets only a smaller cap need not set every wait as well."""
    defaults = RetryAfterSettings()
    cap = given.get("cap", defaults.cap)
    for name in _FIRST_WAITS:
        given.setdefault(name, min(getattr(defaults, name), cap))


def _check_waits(waits: RetryAfterSettings) -> None:
    for name in _FIRST_WAITS:
        value = getattr(waits, name)
        if value > waits.cap:
            raise must_be(f"retry_after.{name}", f"at most retry_after.cap ({waits.cap})", value)


def _check_replay(replay: ReplaySettings, where: str) -> None:
    if replay.min_gap_seconds > replay.gap_seconds:
        what = f"at most {where}.gap_seconds ({replay.gap_seconds:g})"
        raise must_be(joined(where, "min_gap_seconds"), what, replay.min_gap_seconds)


# -- what is more than a table --------------------------------------------------------------------------------


def _windows(value: Any) -> Mapping[str, int]:
    windows = {}
    for model, tokens in mapping(value, "windows").items():
        where = joined("windows", model)
        if "*" in model[:-1]:
            raise WrongError(where, "a * may only stand at the end of a model's name")
        windows[model] = WINDOW(tokens, where)
    return windows


def _upstreams(value: Any, settings: Settings, built_in: tuple[Upstream, ...]) -> tuple[Upstream, ...]:
    """The built-in ones and the file's. One of the same name replaces, and keeps what the file does not say of it."""
    upstreams = {upstream.name: upstream for upstream in built_in}
    for name, row in mapping(value, "upstreams").items():
        where = joined("upstreams", name)
        given = section(UPSTREAM, required=() if name in upstreams else ("hosts", "family"))(row, where)
        if "breaker" in given:
            given["breaker"] = dataclasses.replace(settings.breaker, **given["breaker"])
        if "replay" in given:
            given["replay"] = dataclasses.replace(settings.replay, **given["replay"])
            _check_replay(given["replay"], joined(where, "replay"))
        known_as = upstreams.get(name)
        upstreams[name] = dataclasses.replace(known_as, **given) if known_as else Upstream(name, **given)
    _check_hosts(upstreams, mapping(value, "upstreams"))
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


def _take_environment(given: Mapping[str, dict[str, Any]], environ: Mapping[str, str]) -> None:
    """What other systems' variables say, wherever the file says nothing."""
    for variable, section_name, key, read, units in ENVIRONMENT:
        text = environ.get(variable, "").strip()
        if not text or key in given[section_name]:
            continue
        where = f"environment variable {variable} (for {section_name}.{key})"
        try:
            value = float(text) / units
        except ValueError:
            raise must_be(where, "a number", text) from None
        given[section_name][key] = read(int(value) if value.is_integer() else value, where)


# -- YAML -----------------------------------------------------------------------------------------------------


def _load(text: str) -> Any:
    """The document as plain values; YAML alone would silently take the last of two equal keys."""
    if "\ufffd" in text:
        raise WrongError(_line(text.count("\n", 0, text.index("\ufffd"))), "is not UTF-8 text")
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        _no_key_twice(node, "", set())
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


def _no_key_twice(node: yaml.Node | None, where: str, seen: set[int]) -> None:
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            _no_key_twice(item, f"{where}[{index}]", seen)
    elif isinstance(node, yaml.MappingNode):
        keys = set()
        for key, value in node.value:
            inner = joined(where, key.value)
            if isinstance(key, yaml.ScalarNode) and key.value in keys:
                raise WrongError(inner, f"stands there twice (line {key.start_mark.line + 1})")
            keys.add(key.value if isinstance(key, yaml.ScalarNode) else id(key))
            _no_key_twice(value, inner, seen)
