"""A mitmproxy script: `http://census.test/` says what the addon holds on to, and the most that one response ever kept."""

from __future__ import annotations

import asyncio
import gc
import json
from typing import Any

from mitmproxy.http import HTTPFlow, Response

import held_stream
from operations.controller import Controller

most = 0
obey: Any = held_stream.HeldStream._obey


def counted(self: Any, decision: Any, *, whole: bool) -> Any:
    global most  # noqa: PLW0603
    most = max(most, sum(map(len, self._kept)))
    return obey(self, decision, whole=whole)


setattr(held_stream.HeldStream, "_obey", counted)  # noqa: B010


def request(flow: HTTPFlow) -> None:
    if flow.request.host == "census.test":
        gc.collect()
        layers = [each for each in gc.get_objects() if isinstance(each, held_stream.HeldHttpLayer)]
        desks = [each for each in gc.get_objects() if isinstance(each, Controller)]
        found = {
            "live": sum(len(controller.live) for controller in desks),
            "streams": sum(len(layer.streams) for layer in layers),
            "aliases": sum(number >= 2**32 for layer in layers for number in layer.streams),
            "waking": sum(len(layer.command_sources) for layer in layers),
            "tasks": len(asyncio.all_tasks()),
            "most": most,
        }
        flow.response = Response.make(200, json.dumps(found))
