"""Which event loop: uvloop where the extra `fast` is installed and works with this Python."""

from __future__ import annotations

import asyncio
import importlib
import warnings
from typing import Any


def uvloop_fault() -> str:
    """Say why uvloop cannot be used here, in some words; empty where it can."""
    try:
        uvloop: Any = importlib.import_module("uvloop")
    except ImportError:
        return "not installed (pip install 'mitm-breakwater[fast]')"
    try:
        _try(uvloop.new_event_loop())
    except Exception as fault:  # noqa: BLE001 - whatever a foreign loop raises, asyncio's own does the work
        return f"uvloop {uvloop.__version__} does not work with this Python ({type(fault).__name__})"
    return ""


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
