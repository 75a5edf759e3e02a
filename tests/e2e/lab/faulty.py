"""A mitmproxy script: lets one function of the addon raise, as the header `x-lab-fault` of a request names it.

`policies.judge:Judge.decide` is the method of that class in that module. The next request without the header heals it.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from mitmproxy.http import HTTPFlow


class LabError(Exception):
    """What a rule raises here: no kind of error that anyone foresees."""


class Faults:
    def __init__(self) -> None:
        self.healing: tuple[Any, str, Any] | None = None

    def requestheaders(self, flow: HTTPFlow) -> None:
        named = flow.request.headers.pop("x-lab-fault", None)
        if self.healing:
            owner, name, sound = self.healing
            setattr(owner, name, sound)
            self.healing = None
        if named:
            self.spoil(named)

    def spoil(self, named: str) -> None:
        module, _, path = named.partition(":")
        owner: Any = import_module(module)
        *classes, name = path.split(".")
        for each in classes:
            owner = getattr(owner, each)
        sound = vars(owner)[name]
        self.healing = owner, name, sound

        def broken(*_arguments: object, **_more: object) -> None:
            raise LabError(named)

        setattr(owner, name, property(broken) if isinstance(sound, property) else broken)


addons = [Faults()]
