"""The flows that wait in line: woken when their turn comes, after every event and by one timer for all of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from mitmproxy import http

import hold
from operations.clock import clock
from policies.queue import Place, Standing
from policies.turns import Line

logger = logging.getLogger("breakwater")

CLOSING_SECONDS = 1.0
"""In which the clients that wait when the process ends are told so."""

CLIENT_LEFT, RELEASED = "client_left", "released"
HOW = {Standing.UNDER_WAY: "sent", Standing.TOLD: "patience"}


@dataclass(slots=True)
class _Spell:
    """The time in which somebody waits for one upstream."""

    waiting: int = 0
    left: int = 0
    longest: float = 0.0


class Waiting:
    """Keeps who waits. ``count``: told the upstream, how a wait ended and its seconds; ``fault``: hears of a fault of ours."""

    def __init__(
        self, line: Line, count: Callable[[str, str, float], None], fault: Callable[[str, None, Exception], None]
    ) -> None:
        self.line, self._count, self._fault = line, count, fault
        self._flows: dict[Place, http.HTTPFlow] = {}
        self._spells: dict[str, _Spell] = {}
        self._timer: asyncio.TimerHandle | None = None

    def numbers(self) -> dict[str, int]:
        """How many wait, by upstream."""
        return {upstream: spell.waiting for upstream, spell in self._spells.items()}

    def __len__(self) -> int:
        return len(self._flows)

    def add(self, place: Place, flow: http.HTTPFlow, why: str) -> None:
        """Keep a flow until its wait ends; the first of an upstream is said."""
        self._flows[place] = flow
        upstream = place.asking.upstream
        spell = self._spells.setdefault(upstream, _Spell())
        if not spell.waiting:
            logger.info("Breakwater: %s %s: requests wait for their turn (the first is flow %s)", upstream, why, flow.id)
        spell.waiting += 1
        self.look(came=True)

    def leave(self, place: Place | None, how: str = CLIENT_LEFT) -> None:
        """Forget a flow whose client left, or that was killed."""
        if place is not None and self._flows.pop(place, None) is not None:
            self._ended(place, how)
        self.look()

    def look(self, *, came: bool = False) -> None:
        """Wake those whose wait has ended, and look again when time alone may end another. Never raises.

        ``came``: only that somebody came to wait, which ends nobody's wait.
        """
        if not self._flows:
            return
        try:
            if not came:
                self._wake(self.line.due(clock().now))
            self._look_later()
        except Exception as fault:  # noqa: BLE001 - the border: nobody is kept by a fault of ours
            self._fault("line", None, fault)
            self.line.let_go(clock().now)
            self._wake(tuple(self._flows))

    def _look_later(self) -> None:
        if self._timer:
            self._timer.cancel()
        at, loop = self.line.next_look(), asyncio.get_running_loop()
        self._timer = None if at is None or not self._flows else loop.call_later(max(at - clock().now, 0.0), self.look)

    def _wake(self, places: tuple[Place, ...]) -> None:
        for place in places:
            if (flow := self._flows.pop(place, None)) is not None:
                self._ended(place, HOW.get(place.standing, RELEASED))
                hold.wake(flow)

    async def close(self) -> None:
        """Tell everybody who waits that the process ends."""
        flows = list(self._flows.values())
        self.line.close(clock().now)
        self.look()
        end = clock().now + CLOSING_SECONDS
        while any(flow.live for flow in flows) and clock().now < end:  # noqa: ASYNC110 - no event tells a flow's end
            await asyncio.sleep(0.01)

    def _ended(self, place: Place, how: str) -> None:
        upstream = place.asking.upstream
        self._count(upstream, how, place.waited)
        spell = self._spells[upstream]
        spell.waiting, spell.left, spell.longest = spell.waiting - 1, spell.left + 1, max(spell.longest, place.waited)
        if not spell.waiting:
            del self._spells[upstream]
            words = "Breakwater: %s queue_empty: nobody waits any more; %d waited, the longest for %.0f s"
            logger.info(words, upstream, spell.left, spell.longest)
