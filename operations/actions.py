"""What a person may do to the state: the page's buttons and the commands, and flows killed in mitmweb."""

from __future__ import annotations

import time

from mitmproxy import http
from mitmproxy.flow import Error

import hold
from operations.controller import Controller
from policies.breaker import Breaker, Transition


def act(controller: Controller, action: str, upstream: str | None, model: str | None) -> str:
    """Do it and say what was done; ValueError, with a sentence for the person, where it cannot be."""
    controller.unsaved = True
    if action == "forget":
        if not model:
            raise ValueError("Which model's window should be forgotten?")
        windows = controller.state.windows.forget(model)
        overflows = controller.state.refusals.forget_overflows(None, model)
        return f"Forgot {windows} learnt window(s) and {overflows} remembered overflow(s) of {model}."
    if not upstream or controller.state.surfaces.upstream(upstream) is None:
        known = ", ".join(row.name for row in controller.state.settings.upstreams)
        raise ValueError(f"No upstream {upstream!r}; there are {known}.")
    breakers = controller.state.breakers.named(upstream)
    now = time.monotonic()
    controller.log_transitions([moved for breaker in breakers if (moved := _move(breaker, action, now))])
    if action == "reset":
        forgotten = controller.state.refusals.reset(upstream)
        return f"Breaker of {upstream} closed; {forgotten} remembered refusal(s) forgotten."
    if action == "open" and any(breaker.closed for breaker in breakers):
        raise ValueError(f"The breaker of {upstream} is disabled (breaker.open_seconds: 0).")
    return f"Breaker of {upstream} {'opened' if action == 'open' else 'closed'}."


def is_killed(flow: http.HTTPFlow) -> bool:
    return flow.error is not None and flow.error.msg == Error.KILLED_MESSAGE


def settle_killed(controller: Controller) -> None:
    """Settle what was killed by hand, and end it: mitmproxy says so with the upstream's next bytes, and a probe cannot wait."""
    for flow in [flow for flow in controller.live if is_killed(flow)]:
        controller.error(flow)
        flow.intercepted = True  # one that was intercepted would wait for ever, and its client with it
        flow.resume()  # type: ignore[no-untyped-call]
        hold.wake(flow)  # its layer hears of the kill now, and not with the upstream's next bytes


def _move(breaker: Breaker, action: str, now: float) -> Transition | None:
    if action == "open":
        return breaker.open(now)
    if action == "close":
        return breaker.close(now)
    if action == "reset":
        return breaker.reset(now)
    raise ValueError(f"No action {action!r}; there are open, close, reset and forget.")
