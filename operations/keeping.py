"""What is kept over a restart: open breakers, blocked accounts, learnt windows, and the key of the hashes."""

from __future__ import annotations

import logging
import math
import secrets
import time
from collections.abc import Mapping
from typing import Any

from operations import demo, state_file
from policies.state import State

logger = logging.getLogger("breakwater")

KEY_BYTES = 32


def save(path: str, key: bytes, state: State) -> None:
    """Write the state file, without the demo, which starts anew each time; a failure is one WARNING."""
    now, wall = time.monotonic(), time.time()
    saved = {
        "saved_at": wall,
        "key": key.hex(),
        "breakers": [row for row in state.breakers.dump(wall, now) if row["upstream"] != demo.UPSTREAM.name],
        "refusals": state.refusals.dump(wall, now),
        "windows": state.windows.dump(),
    }
    warning = state_file.save(path, saved)
    if warning:
        logger.warning("Breakwater: %s", warning)


def restore(saved: Mapping[str, Any], state: State) -> None:
    """Take up a state; an odd row in it is left out."""
    now, wall = time.monotonic(), time.time()
    if state_file.clock_went_back(saved, wall):
        wall = _saved_at(saved, wall)
    state.breakers.load(_rows(saved, "breakers"), wall, now)
    state.refusals.load(_rows(saved, "refusals"), wall, now)
    for complaint in state.windows.load(_rows(saved, "windows"), wall):
        logger.warning("Breakwater: state file: %s", complaint)


def key_of(state: Mapping[str, Any]) -> bytes:
    """The key of the hashes: the one that was kept, else a fresh one."""
    text = state.get("key")
    try:
        key = bytes.fromhex(text) if isinstance(text, str) else b""
    except ValueError:
        key = b""
    return key if len(key) == KEY_BYTES else secrets.token_bytes(KEY_BYTES)


def _saved_at(state: Mapping[str, Any], wall: float) -> float:
    """Where the clock went back, no time has passed since the state was saved."""
    saved_at = state.get("saved_at")
    return saved_at if isinstance(saved_at, float) and math.isfinite(saved_at) else wall


def _rows(state: Mapping[str, Any], name: str) -> list[Any]:
    rows = state.get(name, [])
    return rows if isinstance(rows, list) else []
