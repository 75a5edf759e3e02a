"""What every test of the project shares."""

from __future__ import annotations

from hypothesis import settings

# One profile for every machine: no deadline (the machine may be loaded), and no more examples than the suite's time allows.
settings.register_profile("breakwater", deadline=None, max_examples=100)
settings.load_profile("breakwater")
