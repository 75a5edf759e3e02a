"""The log's lines: each begins with the upstream and the reason; the flow's id comes last."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterable

from policies.breaker import BreakerState, Transition

logger = logging.getLogger("breakwater")

LEARNT = "learnt"
"""In a reason's place, before what was learnt of a model."""


class Log:
    """Lines of one run, each kind of which that is said once is remembered."""

    def __init__(self) -> None:
        self.faults: dict[str, str] = {}
        """By kind of fault: one sentence about the first of that kind."""
        self._said: set[str] = set()

    def once(self, kind: str, words: str) -> None:
        """Say one line per run of its kind."""
        if kind not in self._said:
            self._said.add(kind)
            logger.info("Breakwater: %s", words)

    def fault(self, kind: str, flow_id: str | None, fault: Exception) -> None:
        """Say a fault of ours once per kind, with the flow's id; never its own words, which may quote what was being read."""
        words = f"{type(fault).__name__} in {kind}" + (f" (flow {flow_id})" if flow_id else "")
        if kind not in self.faults:
            logger.warning("Breakwater: %s: traffic goes on unchanged; further ones are only counted", words)
            logger.debug("Breakwater: %s, at\n%s", words, "".join(traceback.format_tb(fault.__traceback__)))
        self.faults.setdefault(kind, words)


def of_flow(upstream: str, reason: str, words: str, path: str, flow_id: str) -> None:
    """Say what became of one request."""
    logger.info("Breakwater: %s %s: %s (%s, flow %s)", upstream, reason, words.removesuffix("."), path, flow_id)


def transitions(moved: Iterable[Transition], *, observing: bool) -> None:
    """Say openings and closings of breakers; what lies between goes without a line."""
    for one in moved:
        if one.level == "debug":
            continue
        level = logging.WARNING if one.level == "warning" else logging.INFO
        word = "would be" if observing else "is"
        how = f"opened for {one.left:.0f} s" if one.after is BreakerState.OPEN else one.after.value
        logger.log(level, "Breakwater: %s %s: its breaker %s (it was %s)", one.upstream, one.reason, f"{word} {how}", one.before.value)
