"""The settings as values: the contract's defaults, and that nothing can change them in use."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from policies.kinds import Family
from policies.settings import Settings, Upstream
from tests.rows import over

DEFAULTS = {
    "mode": "enforce",
    "browsers": "tunnel",
    "queue.seconds": 280,
    "queue.size": 1000,
    "queue.clients": {},
    "concurrency": "learn",
    "breaker.strikes": 3,
    "breaker.open_seconds": 60,
    "breaker.scope": "upstream",
    "breaker.blocked_seconds": 1800,
    "retry_after.challenge": 30,
    "retry_after.overload": 30,
    "retry_after.rate_limit": 5,
    "retry_after.cap": 59,
    "retry_after.enforce": True,
    "hold.seconds": 2,
    "hold.silence_seconds": 30,
    "hold.bytes": 262144,
    "replay.gap_seconds": 1.0,
    "replay.max_attempts": 3,
    "replay.base_seconds": 1.5,
    "replay.min_gap_seconds": 0,
    "replay.captcha": True,
    "side_requests.enabled": True,
    "side_requests.max_output_tokens": 200,
    "side_requests.margin": 1.25,
    "side_requests.traits": (),
    "windows": {},
    "qwen_web.body_limit_bytes": 131072,
    "signatures": (),
    "decrypt": "guarded",
    "shared": None,
    "notify": None,
    "evidence": False,
    "evidence_path": None,
    "view_bytes": 262144,
    "state_path": None,
}


def value_at(settings: Any, key: str) -> object:
    for name in key.split("."):
        settings = getattr(settings, name)
    return settings


def keys_of(value: Any, before: str = "") -> list[str]:
    """Every key with a value of its own, dotted."""
    keys = []
    for field in dataclasses.fields(value):
        inner = getattr(value, field.name)
        name = f"{before}{field.name}"
        keys += keys_of(inner, f"{name}.") if dataclasses.is_dataclass(inner) else [name]
    return keys


@over("key", DEFAULTS)
def test_the_defaults_are_those_of_the_contract(key: str) -> None:
    assert value_at(Settings(), key) == DEFAULTS[key]


def test_every_setting_is_in_the_contract() -> None:
    keys = {key for key in keys_of(Settings()) if not key.startswith("side_requests.weights.")}
    assert keys == {*DEFAULTS, "upstreams"}


@pytest.mark.parametrize("key", ["mode", "breaker", "windows"])
def test_settings_in_use_do_not_change(key: str) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(Settings(), key, None)


def test_a_path_for_evidence_asks_for_it_too() -> None:
    assert [Settings().keeps_evidence, Settings(evidence=True).keeps_evidence] == [False, True]
    assert Settings(evidence_path="x").keeps_evidence


def test_an_upstreams_own_concurrency_goes_before_the_common_one() -> None:
    common, own = Upstream("a", ("a.b",), Family.ZAI), Upstream("b", ("b.b",), Family.ZAI, concurrency="off")
    assert Settings(concurrency=3).concurrency_of(common) == 3
    assert Settings(concurrency=3).concurrency_of(own) == "off"


def test_what_may_hold_a_password_stands_in_no_representation() -> None:
    assert "SECRET" not in repr(Settings(shared="redis://:SECRET@h/0", notify="curl -H SECRET"))
