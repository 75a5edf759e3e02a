"""A config text, read as the addon reads it, with two upstreams built in."""

from __future__ import annotations

from pathlib import Path

import pytest

from policies.kinds import Family
from policies.settings import Settings, Upstream
from policies.settings_file import SettingsError, parse

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
    assert "SECRET" not in line
    assert line.startswith(f"{PATH}: ")
    assert line.isprintable(), "one line"
    assert len(line) < 400
    return line.removeprefix(f"{PATH}: ")
