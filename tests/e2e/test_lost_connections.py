"""The loss of mitmproxy on Python 3.12 and later that docs/troubleshooting-mitmproxy.md tells of."""

from __future__ import annotations

import asyncio
import functools
import re
import sys
from typing import Any

import pytest

from tests.e2e.lab.proxy import PROJECT

pytestmark = pytest.mark.skipif(sys.version_info < (3, 12), reason="tasks are eager on Python 3.12 and later only")


@functools.cache
def script() -> dict[str, Any]:
    """Names of the smallest script, as the documentation prints it."""
    text = (PROJECT / "docs" / "troubleshooting-mitmproxy.md").read_text(encoding="utf-8")
    [code] = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names: dict[str, Any] = {"__name__": "smallest"}
    sys.modules["smallest"] = type(sys)("smallest")  # dataclasses look their module up
    exec(compile(code, "smallest", "exec"), names)
    return names


@pytest.mark.parametrize("eager", [False, True], ids=["plain tasks", "eager tasks"])
def test_a_bare_mitmproxy_loses_a_connection_where_tasks_are_eager(eager: bool) -> None:
    assert asyncio.run(script()["closed"](eager)) is not eager
