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


def _rows(tokens: int, source: str, *models: str, thinking: int | None = None, place: str | None = None) -> list[Entry]:
    """One row a model, for models of one window."""
    return [Entry(model, tokens, source, thinking, place) for model in models]


ENTRIES: tuple[Entry, ...] = (
    *_rows(10_000_000, _MODELS_DEV, "qwen-long*"),
    *_rows(1_048_576, _MODELS_DEV, "qwen3-coder-plus*"),
    *_rows(1_048_576, "OpenRouter; docs.z.ai says 1M", "glm-5.3*"),
    *_rows(1_000_000, "models.dev 2026-07-02, coding plan", "qwen3-coder-plus*", place="dashscope-coding"),
    *_rows(1_000_000, _MODELS_DEV, "qwen3.6-plus*", "qwen3.6-flash*", "qwen3.5-plus*", "qwen3.5-flash*", "qwen3-coder-flash*"),
    *_rows(1_000_000, _MODELS_DEV, "qwen-plus*", "qwen-flash*", "qwen-turbo*", "glm-5.2*"),
    *_rows(1_000_000, "docs.z.ai", "glm-5.3-flash*"),
    *_rows(991_808, _PROBE, "qwen3.8-max*", thinking=983_616),
    *_rows(991_808, "help.aliyun.com Model Studio", "qwen3.8-flash*", thinking=983_616),
    *_rows(991_808, _MODELS_DEV, "qwen3.7-max*", "qwen3.7-plus*", thinking=983_616),
    *_rows(262_144, _MODELS_DEV, "qwen3.6-max-preview*", "qwen3-max*", "qwen3-coder-next*", "qwen3-coder-480b*"),
    *_rows(262_144, _MODELS_DEV, "qwen3-coder-30b*", "qwen3.5-27b*", "qwen3.5-35b-a3b*", "qwen3.5-122b*", "qwen3.5-397b*"),
    *_rows(262_144, _MODELS_DEV, "qwen3.6-27b*", "qwen3.6-35b-a3b*"),
    *_rows(204_800, _MODELS_DEV, "glm-5", "glm-4.7*", "glm-4.6*"),
    *_rows(202_752, "models.dev 2026-07-02, coding plan", "glm-5", place="dashscope"),
    *_rows(202_752, _MODELS_DEV, "glm-5.1*", "glm-5-turbo*", "glm-5v-turbo*", place="dashscope"),
    *_rows(200_000, _MODELS_DEV, "glm-5.1*", "glm-5-turbo*", "glm-5v-turbo*", "glm-4.7-flash*"),
    # 32,768 on the international hosts, which are the same upstream here: the larger one never refuses by mistake.
    *_rows(131_072, "models.dev 2026-07-02, cn", "qwen-max*"),
    *_rows(131_072, _MODELS_DEV, "qwen3-235b*", "qwen3-32b*", "qwen3-14b*", "qwen3-8b*", "glm-4.5*"),
    *_rows(128_000, _MODELS_DEV, "glm-4.6v*"),
    *_rows(64_000, _MODELS_DEV, "glm-4.5v*"),
)
"""The longest name wins, whatever the order."""

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
