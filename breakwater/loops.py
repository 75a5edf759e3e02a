"""Which event loop: uvloop where the extra `fast` is installed and works with this Python."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import shlex
import sys
import warnings
from typing import Any

WANTED = "uvloop>=0.22" if sys.version_info >= (3, 14) else "uvloop>=0.21,<0.22"
"""As the extra `fast` asks for it."""


def uvloop_fault() -> str:
    """Say why uvloop cannot be used here, in some words; empty where it can."""
    try:
        uvloop: Any = importlib.import_module("uvloop")
    except ImportError:
        return f"not installed ({_installing()})"
    try:
        _try(uvloop.new_event_loop())
    except Exception as fault:  # noqa: BLE001 - whatever a foreign loop raises, asyncio's own does the work
        return f"uvloop {uvloop.__version__} does not work with this Python ({type(fault).__name__})"
    return ""


def _installing() -> str:
    """The command that brings uvloop to this Python, however Breakwater came to it: no index has a package of that name."""
    if sys.platform == "win32":
        return "not for Windows"
    python = shlex.quote(sys.executable)
    way = f"{python} -m pip install" if importlib.util.find_spec("pip") else f"uv pip install --python {python}"
    return f"{way} {shlex.quote(WANTED)}"


def _try(loop: Any) -> None:
    """What mitmproxy does with its loop: tasks with names, begun at once where Python can (3.12 and newer)."""
    eager = getattr(asyncio, "eager_task_factory", None)
    if eager:
        loop.set_task_factory(eager)

    async def nothing() -> None:
        pass

    coroutines = [nothing()]

    async def ask() -> None:
        await asyncio.create_task(coroutines[0], name="probe")

    coroutines.append(ask())
    try:
        loop.run_until_complete(coroutines[-1])
    finally:
        for coroutine in coroutines:
            coroutine.close()  # a loop that failed has begun none
        loop.close()


def choose() -> str:
    """Make uvloop the loop of `asyncio.run` where it works; the name of what it will be."""
    if uvloop_fault():
        return "asyncio"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # policies end with Python 3.16; mitmproxy knows no other way
        asyncio.set_event_loop_policy(importlib.import_module("uvloop").EventLoopPolicy())
    return "uvloop"
