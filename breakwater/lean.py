"""mitmproxy without the work that nobody needs here: hooks are looked up once, and what is not in use is not called."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

from mitmproxy import addonmanager, exceptions, flow, hooks, http
from mitmproxy.options import Options
from mitmproxy.tools.dump import DumpMaster

SLEEPERS: dict[str, tuple[str, ...]] = {
    "anticache": ("anticache",),
    "anticomp": ("anticomp",),
    "blocklist": ("block_list",),
    "dumper": ("flow_detail",),
    "maplocal": ("map_local",),
    "mapremote": ("map_remote",),
    "modifybody": ("modify_body",),
    "modifyheaders": ("modify_headers",),
    "onboarding": ("onboarding",),
    "proxyauth": ("proxyauth",),
    "save": ("save_stream_file",),
    "savehar": ("hardump",),
    "serverplayback": ("server_replay",),
    "stickyauth": ("stickyauth",),
    "stickycookie": ("stickycookie",),
    "upstreamauth": ("upstream_auth",),
}
"""mitmproxy's own addons that do nothing unless one of these options is set: until then nothing calls them."""

ALWAYS = frozenset({"running", "done"})
"""Hooks of the life of an addon; sleepers hear of these too."""

DEFAULTS: dict[str, Any] = {"flow_detail": 0, "onboarding": False}
"""Options whose own default is to do something for each flow."""

Called = tuple[Callable[..., Any], ...]


class Addons(addonmanager.AddonManager):
    """mitmproxy's chain of addons, with a table of who listens to what; a change of addons or options drops it."""

    table: dict[str, Called]

    def register(self, addon: Any) -> Any:
        self.table.clear()
        return super().register(addon)

    def add(self, *addons: Any) -> None:
        super().add(*addons)
        self.table.clear()

    def remove(self, addon: Any) -> None:
        super().remove(addon)
        self.table.clear()

    def clear(self) -> None:
        super().clear()
        self.table.clear()

    def trigger(self, event: hooks.Hook) -> None:
        try:
            super().trigger(event)
        finally:
            if isinstance(event, hooks.ConfigureHook):
                self.table.clear()

    def _look_up(self, event: hooks.Hook) -> Called:
        asleep = [] if event.name in ALWAYS else [self.lookup.get(name) for name in SLEEPERS if not self._awake(name)]
        found = tuple(
            function
            for top in self.chain
            for addon, function in self._iter_hooks(top, event)
            if not any(addon is one for one in asleep)
        )
        self.table[event.name] = found
        return found

    def _awake(self, name: str) -> bool:
        return any(getattr(self.master.options, option, None) for option in SLEEPERS[name])

    async def handle_lifecycle(self, event: hooks.Hook) -> None:
        message = event.args()[0]
        await self._call(event, (message,))
        if isinstance(message, flow.Flow) and self.table.get("update") != ():
            await self.trigger_event(hooks.UpdateHook([message]))

    async def trigger_event(self, event: hooks.Hook) -> None:
        await self._call(event, event.args())

    async def _call(self, event: hooks.Hook, arguments: Any) -> None:
        called = self.table.get(event.name)
        for function in self._look_up(event) if called is None else called:
            try:
                result = function(*arguments)
                if result is not None and inspect.isawaitable(result):
                    await result
            except exceptions.AddonHalt:
                return
            except exceptions.OptionsError:
                raise
            except Exception:  # as mitmproxy does: logged with its traceback, and the next one is called
                with addonmanager.safecall():
                    raise


class Lean(DumpMaster):
    """mitmdump's master with such a chain."""

    def __init__(self, options: Options, loop: asyncio.AbstractEventLoop | None = None) -> None:
        super().__init__(options, loop=loop)
        chain: Any = self.addons
        chain.__class__, chain.table = Addons, {}
        options.update(**DEFAULTS)


def trust_messages() -> None:
    """Leave out the check of each field's type that mitmproxy makes of every message: what it parses itself is of these types."""
    data: Any = http.MessageData
    if hasattr(data, "__post_init__"):  # not where Python runs with -O
        data.__post_init__ = lambda _: None
