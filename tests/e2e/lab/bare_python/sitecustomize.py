"""Python runs this at its start where it finds it: packages that LAB_MISSING names are not to be found."""

from __future__ import annotations

import os
import sys


class Missing:
    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:  # noqa: ARG004
        if name in os.environ.get("LAB_MISSING", "").split():
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Missing)
