"""Context windows of the models as data: what a vendor or a measurement states, per place where it differs."""

from __future__ import annotations

from typing import NamedTuple

from policies.kinds import Family


class Entry(NamedTuple):
    """The window of a model, or of every model whose name begins with ``model`` where that ends in ``*``."""

    model: str
    tokens: int
    """Largest input where it is published apart from the window, else the window."""
    source: str
    thinking: int | None = None
    """Largest input with thinking on, where it differs."""
    place: str | None = None
    """A family or an upstream's name, where the row holds only there."""


_MODELS_DEV = "models.dev 2026-07-02"
_PROBE = "measured 2026-09-13, help.aliyun.com qwen3-8-max"

ENTRIES: tuple[Entry, ...] = (
    Entry("qwen3.8-max*", 991_808, _PROBE, thinking=983_616),
    Entry("qwen3.8-flash*", 991_808, "help.aliyun.com Model Studio", thinking=983_616),
    Entry("qwen3.7-max*", 991_808, _MODELS_DEV, thinking=983_616),
    Entry("qwen3.7-plus*", 991_808, _MODELS_DEV, thinking=983_616),
    Entry("qwen3.6-plus*", 1_000_000, _MODELS_DEV),
    Entry("qwen3.6-flash*", 1_000_000, _MODELS_DEV),
    Entry("qwen3.5-plus*", 1_000_000, _MODELS_DEV),
    Entry("qwen3.5-flash*", 1_000_000, _MODELS_DEV),
    Entry("qwen3.6-max-preview*", 262_144, _MODELS_DEV),
    Entry("qwen3-max*", 262_144, _MODELS_DEV),
    Entry("qwen3-coder-plus*", 1_048_576, _MODELS_DEV),
    Entry("qwen3-coder-plus*", 1_000_000, "models.dev 2026-07-02, coding plan", place="dashscope-coding"),
    Entry("qwen3-coder-flash*", 1_000_000, _MODELS_DEV),
    Entry("qwen3-coder-next*", 262_144, _MODELS_DEV),
    Entry("qwen3-coder-480b*", 262_144, _MODELS_DEV),
    Entry("qwen3-coder-30b*", 262_144, _MODELS_DEV),
    Entry("qwen-plus*", 1_000_000, _MODELS_DEV),
    Entry("qwen-flash*", 1_000_000, _MODELS_DEV),
    Entry("qwen-turbo*", 1_000_000, _MODELS_DEV),
    # 32,768 on the international hosts, which are the same upstream here: the larger one never refuses by mistake.
    Entry("qwen-max*", 131_072, "models.dev 2026-07-02, cn"),
    Entry("qwen-long*", 10_000_000, _MODELS_DEV),
    Entry("qwen3.5-27b*", 262_144, _MODELS_DEV),
    Entry("qwen3.5-35b-a3b*", 262_144, _MODELS_DEV),
    Entry("qwen3.5-122b*", 262_144, _MODELS_DEV),
    Entry("qwen3.5-397b*", 262_144, _MODELS_DEV),
    Entry("qwen3.6-27b*", 262_144, _MODELS_DEV),
    Entry("qwen3.6-35b-a3b*", 262_144, _MODELS_DEV),
    Entry("qwen3-235b*", 131_072, _MODELS_DEV),
    Entry("qwen3-32b*", 131_072, _MODELS_DEV),
    Entry("qwen3-14b*", 131_072, _MODELS_DEV),
    Entry("qwen3-8b*", 131_072, _MODELS_DEV),
    Entry("glm-5.3*", 1_048_576, "OpenRouter; docs.z.ai says 1M"),
    Entry("glm-5.3-flash*", 1_000_000, "docs.z.ai"),
    Entry("glm-5.2*", 1_000_000, _MODELS_DEV),
    Entry("glm-5.1*", 200_000, _MODELS_DEV),
    Entry("glm-5.1*", 202_752, _MODELS_DEV, place="dashscope"),
    Entry("glm-5-turbo*", 200_000, _MODELS_DEV),
    Entry("glm-5-turbo*", 202_752, _MODELS_DEV, place="dashscope"),
    Entry("glm-5v-turbo*", 200_000, _MODELS_DEV),
    Entry("glm-5v-turbo*", 202_752, _MODELS_DEV, place="dashscope"),
    Entry("glm-5", 204_800, _MODELS_DEV),
    Entry("glm-5", 202_752, "models.dev 2026-07-02, coding plan", place="dashscope"),
    Entry("glm-4.7*", 204_800, _MODELS_DEV),
    Entry("glm-4.7-flash*", 200_000, _MODELS_DEV),
    Entry("glm-4.6*", 204_800, _MODELS_DEV),
    Entry("glm-4.6v*", 128_000, _MODELS_DEV),
    Entry("glm-4.5*", 131_072, _MODELS_DEV),
    Entry("glm-4.5v*", 64_000, _MODELS_DEV),
)

UNPUBLISHED = frozenset({Family.QWEN_WEB, Family.ZAI_WEB})
"""Families whose windows nobody states: on chat.qwen.ai the size of the body is met first (Qwen2API#147)."""


def fits(pattern: str, model: str) -> bool:
    """True where a name or a prefix with a trailing ``*`` means this model; both in lower case."""
    return model.startswith(pattern[:-1]) if pattern.endswith("*") else model == pattern


def look_up(upstream: str, family: Family, model: str) -> Entry | None:
    """The row for a model there: the longest name wins, among equals the one of this place."""
    if family in UNPUBLISHED:
        return None
    model = model.lower()
    for name in dict.fromkeys((model, model.rpartition("/")[2])):
        rows = [row for row in ENTRIES if row.place in {None, family.value, upstream} and fits(row.model, name)]
        if rows:
            return max(rows, key=lambda row: (len(row.model), row.place is not None, row.place == upstream))
    return None
