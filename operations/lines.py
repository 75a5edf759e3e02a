"""Lines of the log about the proxy as a whole: how it starts, and what a changed config changes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from mitmproxy import ctx

from operations.clock import clock
from operations.page_site import DIRECT, HOST
from operations.version import VERSION
from policies.breaker import BreakerState
from policies.settings import Settings

if TYPE_CHECKING:
    from operations.controller import Controller

CHANGES_AT_MOST = 8
VALUE_AT_MOST = 40
"""Characters."""


def start(controller: Controller) -> str:
    """What runs, where its page is, and what is still so from before: open breakers, who waits, what is remembered."""
    settings = controller.state.settings
    said = f"Breakwater {VERSION}: {settings.mode}, {len(settings.upstreams)} upstreams; its state is at {_where()}"
    return f"{said}; {', '.join([*_from_before(controller)]) or 'nothing is paused and nobody waits'}"


def _where() -> str:
    through = f"http://{HOST}/ through this proxy"
    addons: Any = ctx.master.addons
    servers = getattr(addons.get("proxyserver"), "servers", ())
    own = [one.listen_addrs[0][:2] for one in servers if one.mode.type_name in DIRECT and one.listen_addrs]
    return f"http://127.0.0.1:{own[0][1]}/ and at {through}" if own else through


def _from_before(controller: Controller) -> Iterator[str]:
    now, state = clock().now, controller.state
    for breaker in state.breakers.all():
        if breaker.current(now) is not BreakerState.CLOSED:
            view = breaker.state(now)
            left = f" for {view.left:.0f} s" if view.state is BreakerState.OPEN else ", and one request will find out"
            yield f"{breaker.upstream} is paused{left}"
    for many, name in (
        (len(controller.waiting), "waiting request(s)"),
        (len(state.refusals.listed(now)), "remembered refusal(s)"),
        (len(state.windows.learnt()), "learnt window(s)"),
        (len(state.line.limits.listed(now)), "learnt limit(s)"),
    ):
        if many:
            yield f"{many} {name}"


def changed(before: Settings, after: Settings) -> str:
    """Which settings differ, with both values where they are short; never those that may hold a password."""
    found = [*_differences("", before, after)]
    more = f", and {len(found) - CHANGES_AT_MOST} more" if len(found) > CHANGES_AT_MOST else ""
    return ", ".join(found[:CHANGES_AT_MOST]) + more or "no setting differs"


def _differences(where: str, before: Any, after: Any) -> Iterator[str]:
    for field in dataclasses.fields(after):
        old, new, name = getattr(before, field.name), getattr(after, field.name), f"{where}{field.name}"
        if old == new:
            continue
        if dataclasses.is_dataclass(old) and dataclasses.is_dataclass(new):
            yield from _differences(f"{name}.", old, new)
        elif name == "upstreams":
            yield from _upstreams({one.name: one for one in old}, {one.name: one for one in new})
        elif field.repr and isinstance(old, str | float | int | None) and isinstance(new, str | float | int | None):
            yield f"{name} {_short(old)} -> {_short(new)}"
        else:
            yield f"{name} differs"


def _upstreams(before: dict[str, Any], after: dict[str, Any]) -> Iterator[str]:
    for name in sorted({*before, *after}):
        if before.get(name) != after.get(name):
            how = "is new" if name not in before else "is gone" if name not in after else "differs"
            yield f"upstream {_short(name)} {how}"


def _short(value: object) -> str:
    text = "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    text = "".join(sign if sign.isprintable() else "?" for sign in text)
    return text if len(text) <= VALUE_AT_MOST else f"{text[:VALUE_AT_MOST]}…"
