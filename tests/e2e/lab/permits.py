"""A mitmproxy script: tells what the line has given out and not got back, at http://permits.lab/ through the proxy."""

from __future__ import annotations

import json
from collections import Counter

from mitmproxy import ctx
from mitmproxy.http import HTTPFlow, Response


class Permits:
    def request(self, flow: HTTPFlow) -> None:
        if flow.request.host == "permits.lab":
            flow.response = Response.make(200, json.dumps(self.told()), {"content-type": "application/json"})

    def told(self) -> dict[str, dict[str, int]]:
        """By upstream: requests with a permit, calls that take a slot, requests that wait and flows that wait."""
        addons: object = ctx.master.addons
        controller = addons.get("breakwater").controller  # type: ignore[attr-defined]
        line, flows = controller.state.line, controller.waiting._flows
        slots: Counter[str] = Counter()
        for key, plan in line.limits._plans.items():
            slots[key.upstream] += len(plan.under_way)
        return {
            "permits": Counter(place.asking.upstream for place in line._hurdles._under_way),
            "slots": slots,
            "waiting": Counter(place.asking.upstream for place in line.waiting()),
            "flows": Counter(place.asking.upstream for place in flows),
        }


addons = [Permits()]
