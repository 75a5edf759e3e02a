"""A mitmproxy script: answers at http://notebook.internal/ with what the flows' notes and the commands say."""

import json
from typing import Any

from mitmproxy import ctx, http

HOST = "notebook.internal"
COMMANDS: dict[str, tuple[str, ...]] = {
    "status": (),
    "report": (),
    "windows": (),
    "open": ("zai",),
    "close": ("zai",),
    "reset": ("zai",),
    "forget": ("tiny",),
}
OF_FLOWS = ("explain", "export")

seen: list[http.HTTPFlow] = []


def request(flow: http.HTTPFlow) -> None:
    if flow.request.host == HOST:
        flow.response = http.Response.make(200, json.dumps(notes(), default=str), {"content-type": "application/json"})
    elif not flow.request.host.endswith(".internal"):
        seen.append(flow)


def notes() -> dict[str, Any]:
    said = {name: ctx.master.commands.call(f"breakwater.{name}", *args) for name, args in COMMANDS.items()}
    said |= {name: ctx.master.commands.call(f"breakwater.{name}", seen) for name in OF_FLOWS}
    return {
        "flows": [{"comment": flow.comment, "marked": flow.marked, "metadata": flow.metadata} for flow in seen],
        "commands": said,
    }
