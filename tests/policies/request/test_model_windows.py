"""The catalogue: which row a model name finds, and where."""

from __future__ import annotations

import pytest

from policies.kinds import Family
from policies.request import surfaces
from tests.rows import over


@over(
    ("upstream", "family", "model", "tokens"),
    [
        ("dashscope", Family.DASHSCOPE, "qwen3.8-max", 991_808),
        ("dashscope", Family.DASHSCOPE, "qwen3.8-max-0902", 991_808),
        ("dashscope", Family.DASHSCOPE, "qwen3-max-2026-01-23", 262_144),
        ("dashscope", Family.DASHSCOPE, "qwen3.6-max-preview", 262_144),
        ("dashscope", Family.DASHSCOPE, "Qwen3-Coder-Plus", 1_048_576),
        ("dashscope-coding", Family.DASHSCOPE, "qwen3-coder-plus", 1_000_000),
        ("dashscope", Family.DASHSCOPE, "qwen-plus-latest", 1_000_000),
        ("dashscope", Family.DASHSCOPE, "glm-5.1", 202_752),
        ("zai", Family.ZAI, "glm-5.1", 200_000),
        ("zai", Family.ZAI, "glm-5", 204_800),
        ("bigmodel", Family.ZAI, "GLM-4.6", 204_800),
        ("zai", Family.ZAI, "glm-4.6v", 128_000),
        ("zai", Family.ZAI, "glm-4.5-air", 131_072),
        ("zai", Family.ZAI, "glm-4.5v", 64_000),
        ("zai", Family.ZAI, "glm-4.7-flashx", 200_000),
        ("zai", Family.ZAI, "glm-5.3-flash", 1_000_000),
        ("zcode", Family.ZCODE, "glm-5.2", 1_000_000),
        ("my-gateway", Family.ZAI, "z-ai/glm-4.6", 204_800),
    ],
)
def test_a_known_model_has_its_window(upstream: str, family: Family, model: str, tokens: int) -> None:
    entry = surfaces.model_window(upstream, family, model)
    assert entry is not None
    assert entry.tokens == tokens


@over("model", ["", "glm", "glm-5.9", "glm-6", "claude-haiku-4-5", "qwen4-max", "qwen3", "m", "/"])
def test_an_unknown_model_has_none(model: str) -> None:
    assert surfaces.model_window("zai", Family.ZAI, model) is None


@pytest.mark.parametrize("family", [Family.QWEN_WEB, Family.ZAI_WEB])
def test_no_window_is_known_of_the_web_chats(family: Family) -> None:
    assert surfaces.model_window("qwen-chat", family, "qwen3-max") is None


def test_rows_are_plausible_named_in_lower_case_and_sourced() -> None:
    for entry in surfaces.MODEL_WINDOWS:
        assert entry.source
        assert entry.model == entry.model.lower()
        assert 1_000 < entry.tokens <= 10_000_000
        assert entry.thinking is None or entry.thinking <= entry.tokens
    assert len({(entry.model, entry.place) for entry in surfaces.MODEL_WINDOWS}) == len(surfaces.MODEL_WINDOWS)
