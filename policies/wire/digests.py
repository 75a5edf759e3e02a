"""Digests of what a request asks."""

from __future__ import annotations

import typing

if typing.TYPE_CHECKING:
    from policies.calls import Wire


def asked(wire: Wire, body: bytes) -> str:
    """Hex digest of model, system, messages or input, and tools of a request body."""
    raise NotImplementedError


def system_prompt(wire: Wire, body: bytes) -> str:
    """Hex digest of the system prompt, empty where there is none."""
    raise NotImplementedError
