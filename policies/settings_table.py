"""The keys of the config file: for each the kind of its value, its range and its unit. Defaults are in settings.py."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from policies.kinds import Family, Kind
from policies.refusal.signatures import WRITTEN_BY_MODELS
from policies.settings import (
    BreakerSettings,
    EstimateWeights,
    HoldSettings,
    QwenWebSettings,
    ReplaySettings,
    RetryAfterSettings,
    SideRequestSettings,
    SignatureRow,
    TraitRow,
)
from policies.settings_fields import (
    Field,
    WrongError,
    choice,
    code_text,
    each,
    flag,
    host,
    joined,
    number,
    one_or_more,
    optional,
    path,
    section,
    text,
    whole,
)

DAY = 86400
MIB = 1 << 20

BREAKER: Mapping[str, Field] = {
    "strikes": whole(1, 1000),
    "open_seconds": number(0, DAY, "seconds"),
    "scope": choice("upstream", "account"),
    "blocked_seconds": number(0, 7 * DAY, "seconds"),
}
RETRY_AFTER: Mapping[str, Field] = {
    "challenge": whole(1, 59, "seconds"),
    "overload": whole(1, 59, "seconds"),
    "rate_limit": whole(1, 59, "seconds"),
    "cap": whole(1, 59, "seconds"),
    "enforce": flag,
}
HOLD: Mapping[str, Field] = {
    "seconds": number(0, 100, "seconds"),
    "silence_seconds": number(0, 100, "seconds"),
    "bytes": whole(1, 16 * MIB, "bytes"),
}
REPLAY: Mapping[str, Field] = {
    "gap_seconds": number(0, 60, "seconds"),
    "max_attempts": whole(1, 10),
    "base_seconds": number(0, 10, "seconds"),
    "min_gap_seconds": number(0, 60, "seconds"),
    "captcha": flag,
}
WEIGHTS: Mapping[str, Field] = {
    weight.name: number(0, 1.98, "tokens") for weight in dataclasses.fields(EstimateWeights)
}
TRAIT: Mapping[str, Field] = {
    "name": text,
    "where": choice("system", "user", "schema"),
    "text": text,
    "source": text,
}
FINDINGS = (*Kind, "challenge:busy", "challenge:captcha", "challenge:blocked")
SIGNATURE: Mapping[str, Field] = {
    "name": text,
    "family": optional(choice(*Family)),
    "finding": choice(*FINDINGS),
    "status": optional(one_or_more(whole(100, 599))),
    "field": optional(text),
    "equals": optional(code_text),
    "begins": optional(code_text),
    "wait": optional(number(0, 7 * DAY, "seconds")),
}
UPSTREAM: Mapping[str, Field] = {
    "hosts": one_or_more(host),
    "family": choice(*Family),
    "breaker": section(BREAKER),
    "replay": section(REPLAY),
}

WAITING = frozenset({"challenge", "overload", "rate_limit"})
"""Findings that pass by themselves; a wait for any other would be invented."""


def trait(value: Any, where: str) -> TraitRow:
    return TraitRow(**{"name": where} | section(TRAIT, required=("where", "text"))(value, where))


def signature(value: Any, where: str) -> SignatureRow:
    row = {"name": where, "family": None} | section(SIGNATURE, required=("finding",))(value, where)
    row = {key: item for key, item in row.items() if item is not None or key == "family"}
    if "equals" in row and "begins" in row:
        raise WrongError(where, "equals and begins are two ways to say it; keep one")
    if not row.keys() & {"field", "equals", "begins"} and min(row.get("status", [0])) < 400:
        raise WrongError(where, "must have field, equals or begins, or only a status from 400 on")
    for part in row.get("field", "").split("."):
        if part in WRITTEN_BY_MODELS:
            raise WrongError(joined(where, "field"), f"{part} is what a model writes; no rule may look there")
    if "wait" in row and row["finding"].partition(":")[0] not in WAITING:
        raise WrongError(joined(where, "wait"), f"no wait cures {row['finding']}; leave it out")
    if "status" in row:
        row["status"] = frozenset(row["status"])
    return SignatureRow(**row)


def weights(value: Any, where: str) -> EstimateWeights:
    return EstimateWeights(**section(WEIGHTS)(value, where))


SECTIONS: Mapping[str, tuple[type[Any], Field]] = {
    "breaker": (BreakerSettings, section(BREAKER)),
    "retry_after": (RetryAfterSettings, section(RETRY_AFTER)),
    "hold": (HoldSettings, section(HOLD)),
    "replay": (ReplaySettings, section(REPLAY)),
    "side_requests": (
        SideRequestSettings,
        section(
            {
                "enabled": flag,
                "max_output_tokens": whole(1, 1_000_000, "tokens"),
                "margin": number(1, 10),
                "traits": each(trait),
                "weights": weights,
            }
        ),
    ),
    "qwen_web": (QwenWebSettings, section({"body_limit_bytes": whole(1, 1024 * MIB, "bytes")})),
}
"""The mappings of the file, each with the value that it becomes."""

SINGLE: Mapping[str, Field] = {
    "mode": choice("enforce", "observe"),
    "browsers": choice("tunnel", "guard"),
    "signatures": each(signature),
    "decrypt": choice("guarded", "all"),
    "evidence_path": optional(path),
    "view_bytes": whole(0, 64 * MIB, "bytes"),
    "state_path": optional(path),
}
"""The keys without keys of their own."""

WINDOW = whole(1, 1_000_000_000, "tokens")

ENVIRONMENT: Sequence[tuple[str, str, str, Field, float]] = (
    ("CHAT_CHALLENGE_BREAKER_SECONDS", "breaker", "open_seconds", BREAKER["open_seconds"], 1),
    ("BILI_REPLAY_RETRY_MAX", "replay", "max_attempts", REPLAY["max_attempts"], 1),
    ("BILI_REPLAY_RETRY_BASE_MS", "replay", "base_seconds", REPLAY["base_seconds"], 1000),
)
"""Names of other systems: the section and key that each stands for, and how many of its units make one of ours.

BILI_REPLAY_RETRY_MAX counts all sends and 1 turns re-sending off, as max_attempts does (ranxianglei/billion-context#190).
"""
