"""Log of the evidence: taken in batches, which cost each half as much as exchanges one by one.

Several passes over a body: of a large one they take milliseconds, and nobody's answer has to wait for them.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import msgspec

from policies.exchange import Exchange
from policies.rules import Rules

BATCH = 16
BATCH_BYTES = 16 << 20
"""Of the bodies that wait: with so many, or so much, a batch does not wait for a quiet moment."""
PATIENCE = 5.0
"""Seconds."""
LARGE_BYTES = 65536
"""From here on a batch is taken on a thread of its own."""


class EvidenceLog:
    """Evidence in the order in which the exchanges ended. Nobody else writes evidence, and no two batches are taken at a time."""

    def __init__(self, rules: Rules, fault: Callable[[str, None, Exception], None]) -> None:
        """``fault`` is told of what fails in here."""
        self._rules, self._fault = rules, fault
        self._waiting: list[tuple[Exchange, float]] = []
        self._bytes = 0
        self._thread = ThreadPoolExecutor(1, "breakwater evidence")
        self._newest: Future[None] | None = None
        """Of the batches on the thread."""

    def add(self, ex: Exchange, wall: float) -> None:
        """Keep an exchange that has ended for the next batch; ``wall``: Unix seconds of its request."""
        self._waiting.append((ex, wall))
        self._bytes += len(ex.call.body)
        if len(self._waiting) >= BATCH or self._bytes >= BATCH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Take the batch that waits; to be called now and then, or a quiet hour would write nothing."""
        batch, size = self._waiting, self._bytes
        self._waiting, self._bytes = [], 0
        if size >= LARGE_BYTES or (self._newest and not self._newest.done()):
            self._newest = self._thread.submit(self._take, batch)
        else:
            self._take(batch)

    def wait(self) -> None:
        """Until everything is written down, at the end of a run: some milliseconds, and never longer than ``PATIENCE``."""
        self.flush()
        if self._newest:
            try:
                self._newest.result(PATIENCE)
            except TimeoutError as fault:
                self._fault("evidence", None, fault)

    def _take(self, batch: list[tuple[Exchange, float]]) -> None:
        rules, lines = self._rules, []
        path = rules.state.settings.evidence_path
        for ex, wall in batch:
            try:
                record = rules.note(ex, wall)
                lines += [msgspec.json.encode(record), b"\n"] if path else []
            except Exception as fault:  # noqa: BLE001 - evidence that fails must not cost anything else
                self._fault("evidence", None, fault)
        try:
            if path and lines:
                with Path(path).expanduser().open("ab") as file:
                    file.writelines(lines)
        except Exception as fault:  # noqa: BLE001 - nor may a file that fails
            self._fault("evidence", None, fault)
