"""A fleet through an outage: one probe a window over all, and sends that do not grow with the fleet."""

from __future__ import annotations

import pytest

from bench.fleet_simulation import SETTINGS, Outage

SECONDS = 300.0
WINDOWS = SECONDS / SETTINGS.open_seconds


@pytest.mark.parametrize("lost", [0.0, 0.3, 1.0])
def test_one_probe_a_window_whatever_is_lost(lost: float) -> None:
    run = Outage(40, SECONDS, lost=lost).run()
    assert run.most_probes == 1
    assert run.windows <= WINDOWS + 2
    assert run.refused <= 40
    assert 0 < run.closed_after <= SETTINGS.open_seconds


def test_each_for_itself_sends_many_times_as_much() -> None:
    shared, alone = (Outage(40, SECONDS, shared=one).run() for one in (True, False))
    assert alone.refused > 8 * shared.refused
