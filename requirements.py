"""What has to be installed beside mitmproxy. Needs the standard library alone, so that it can say what is missing."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterator

logger = logging.getLogger("breakwater")

PACKAGES = {"yaml": "pyyaml", "tenacity": "tenacity", "msgspec": "msgspec", "prometheus_client": "prometheus_client"}
"""Module to the name under which it is installed."""

missing: list[str] = []
"""What the last look has missed."""


@contextlib.contextmanager
def needed() -> Iterator[None]:
    """Imports whose first missing package becomes one ERROR line in place of a traceback; it ends mitmproxy's start."""
    missing.clear()
    try:
        yield
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        if module not in PACKAGES:
            raise
        missing.append(PACKAGES[module])
        logger.error(  # noqa: TRY400 - one line for a person
            "Breakwater: %s is not installed in the Python that runs mitmproxy, nothing is guarded: %s",
            PACKAGES[module],
            "install mitmproxy from PyPI, its own binaries take no packages"
            if getattr(sys, "frozen", False)
            else f"run {sys.executable} -m pip install {' '.join(PACKAGES.values())}",
        )
