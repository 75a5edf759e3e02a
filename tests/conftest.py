"""What every test of the project shares: how many examples Hypothesis tries.

``ci`` is the default; ``--hypothesis-profile=thorough`` tries some ten times as many. No test sets a number of its own, and
no example has a deadline, since a machine may be loaded.
"""

from __future__ import annotations

import gc

from hypothesis import settings

settings.register_profile("ci", deadline=None, max_examples=25, derandomize=True)
settings.register_profile("thorough", deadline=None, max_examples=300)
settings.load_profile("ci")


gc.disable()


def pytest_collection_finish() -> None:
    """What was imported and collected stays: no look for garbage goes over it, now or later. What tests make is little."""
    gc.freeze()
    gc.set_threshold(10_000)
    gc.enable()
