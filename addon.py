"""Breakwater, as mitmproxy loads it: ``mitmdump -s addon.py``.

Options, hooks and the life of the addon; every decision is made in policies/. See README.md.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import mitmproxy.version
from mitmproxy import connection, ctx, http, tls
from mitmproxy.addonmanager import Loader
from mitmproxy.exceptions import AddonHalt

from requirements import missing, needed

with needed():
    import held_stream
    from operations import content_view, demo, log, page, reload, shared_state, startup
    from operations.backtest import Backtest
    from operations.clock import clock
    from operations.commands import Commands, act, is_killed, settle_killed, settle_left
    from operations.controller import Controller
    from operations.state_file import LOCK_TRIES, StateFile
    from operations.status import Status, status_of
    from policies.comments import Comment
    from policies.request.surfaces import BUILT_IN
    from policies.settings import Settings
    from policies.settings_file import SettingsError, parse
    from policies.tls import ClientHello, Treatment, treatment
    from self_test import self_test

logger = logging.getLogger("breakwater")

LOOK_SECONDS = 1.0
"""Between two looks at the config file; the state file is written as often, where something changed."""


class Breakwater:
    """The addon. All state that outlives a reload is in its controller."""

    def __init__(self) -> None:
        self.controller: Controller | None = None
        self._watch: reload.ConfigWatch | None = None
        self._demo = demo.Demo()
        self._demo_address: asyncio.Task[tuple[str, int]] | None = None
        self._backtest: Backtest | None = None
        self._page = page.make_app(self)
        self._own: set[str] = set()  # ids of the page's flows, until they are over
        self._task: asyncio.Task[None] | None = None

    # -- life -------------------------------------------------------------------------------------------------

    def load(self, loader: Loader) -> None:
        loader.master.commands.collect_commands(Commands(self))
        loader.add_option(
            "breakwater_config", str, "", "Settings of Breakwater, a YAML file; empty: config.yaml beside addon.py."
        )
        loader.add_option("breakwater_demo", bool, False, f"Serve a scripted upstream of our own behind http://{demo.HOST}/.")
        loader.add_option(
            "breakwater_report", bool, False, "Print the evidence report after the flows of a file were read (-nr FILE)."
        )

    def configure(self, updated: set[str]) -> None:
        if self.controller is not None and not updated & {"breakwater_config", "breakwater_demo"}:
            return
        for line in startup.misspelt(ctx.options):
            logger.error("%s", line)
        named = ctx.options.breakwater_config
        self._watch = reload.ConfigWatch(Path(named or Path(__file__).parent / "config.yaml").expanduser())
        if self._watch.fault and (named or self._watch.path.exists()):
            logger.error("%s: %s", self._watch.path, self._watch.fault)
        else:
            self._take(self._watch.text or "")
        if self._task:
            self._start_demo()

    def _take(self, text: str) -> bool:
        """Follow a config text; a bad one is one ERROR line, which ends a start, and the last good one stays."""
        assert self._watch
        built_in = (*BUILT_IN, demo.UPSTREAM) if ctx.options.breakwater_demo else BUILT_IN
        try:
            settings = parse(text, str(self._watch.path), os.environ, built_in)
            if ctx.options.server:
                startup.check_writable(settings, str(self._watch.path))
        except SettingsError as error:
            logger.error("%s", error)  # noqa: TRY400 - one line for a person
            return False
        if self.controller is None:
            self.controller = reload.take() or Controller(settings, StateFile(_state_path(settings)), live=ctx.options.server)
        self.controller.log_transitions(self.controller.state.take(settings, clock().now))
        self.controller.waiting.look()
        if self._task and ctx.options.server:
            shared_state.follow(self.controller)
        return True

    def running(self) -> None:
        """Not async, like ``done``: mitmproxy calls both directly when it reloads this file."""
        if self.controller is None:
            return
        fault = self_test(ctx.options)
        self.controller.can_hold = not fault
        if fault:
            logger.warning(
                "Breakwater: this mitmproxy (%s) cannot hold response headers (%s): JSON and HTML are buffered, "
                "and a challenge in a stream is told inside the stream",
                mitmproxy.version.VERSION,
                fault,
            )
        content_view.register()
        if ctx.options.server:
            startup.warn()
            logger.info("%s", log.start(self.controller))
            shared_state.follow(self.controller)
        self._start_demo()
        self._task = asyncio.get_running_loop().create_task(self._look_on(), name="breakwater")

    def _start_demo(self) -> None:
        if ctx.options.breakwater_demo and self._demo_address is None:
            self._demo_address = asyncio.get_running_loop().create_task(self._demo.start(), name="breakwater demo")
            logger.info("Breakwater: the demo upstream is behind http://%s/", demo.HOST)

    async def _look_on(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                self._look()
            except Exception as fault:  # noqa: BLE001 - a look that fails must not end the looking
                if self.controller:
                    self.controller.fault("look", None, fault)

    def _look(self) -> None:
        before = self.controller and self.controller.state.settings
        if self._watch and (text := self._watch.poll()) is not None and self._take(text) and self.controller:
            news = log.changed(before, self.controller.state.settings) if before else "the settings are read"
            logger.info("Breakwater: %s has changed and was taken up: %s", self._watch.path, news)
        if self._watch and (trouble := self._watch.trouble()):
            logger.warning("Breakwater: %s %s; the last good settings stay", self._watch.path, trouble)
        if self.controller is None:
            return
        settle_killed(self.controller)
        self.controller.look()
        if self.controller.unsaved:
            self.controller.save(_state_path(self.controller.state.settings))
        self.controller.evidence_log.flush()

    def done(self) -> Coroutine[Any, Any, None] | None:
        """Not async: mitmproxy drops what a reload brings back, and awaits it where the process ends."""
        if self._backtest is not None:
            print(self._backtest.report() if ctx.options.breakwater_report else self._backtest.summary())  # noqa: T201
        if self._task:
            self._task.cancel()
        if self._demo_address:
            reload.keep(self._demo.stop())
        content_view.unregister()
        if self.controller and self.controller.shared:
            shared_state.leave(self.controller)
        controller, self.controller = self.controller, None
        if controller and ctx.options.server:
            controller.save(_state_path(controller.state.settings), tries=LOCK_TRIES)
            reload.leave(controller)
        if controller:
            controller.evidence_log.wait()
        ending = controller is not None and ctx.master.should_exit.is_set()
        if controller and ending:
            controller.notify.close()
        return controller.waiting.close() if controller and ending and len(controller.waiting) else None

    # -- connections ------------------------------------------------------------------------------------------

    def next_layer(self, next_layer: Any) -> None:
        if self.controller is not None and self.controller.can_hold:
            # A script comes before the built-in addon, which leaves alone what is chosen already.
            builtin: Any = ctx.master.addons
            builtin.get("nextlayer").next_layer(next_layer)
            held_stream.adopt(next_layer)

    def tls_clienthello(self, data: tls.ClientHelloData) -> None:
        """Tunnel what need not be read: hosts that are not configured, and a person's browser on the web chats."""
        if self.controller is None:
            return
        state, server, hello = self.controller.state, data.context.server.address, data.client_hello
        if server and server[0] == page.HOST:
            return  # nobody is there: it is answered here
        address = (server[0], server[1]) if server else None
        ends_here = data.context.client.proxy_mode.type_name == "reverse"
        extensions = [kind for kind, _ in hello.extensions]
        found = ClientHello(address, ends_here, hello.sni, hello.cipher_suites, extensions)
        how = treatment(found, state.surfaces, state.settings)
        data.ignore_connection = data.ignore_connection or how is not Treatment.USUAL
        if how is Treatment.PERSON:
            self.controller.log.once(f"browser {server}", f"a browser at {hello.sni or server} is tunnelled undecrypted")

    def client_disconnected(self, client: connection.Client) -> None:
        if self.controller is not None:
            settle_left(self.controller, client)

    async def server_connect(self, data: Any) -> None:
        served = self._demo_address if ctx.options.breakwater_demo else None
        if served and data.server.address and data.server.address[0] == demo.HOST:
            data.server.address = await served

    # -- flows ------------------------------------------------------------------------------------------------

    def requestheaders(self, flow: http.HTTPFlow) -> None:
        if self.controller is not None and flow.live and page.site(flow):
            self._own.add(flow.id)
        self._keep_to_ourselves(flow)

    def request(self, flow: http.HTTPFlow) -> None:
        if self.controller is None or flow.response or flow.error or not flow.live:
            return
        try:
            if own := page.site(flow):
                self._own.add(flow.id)
                flow.response = page.answer(self._page, flow.request, own)
            else:
                self.controller.request(flow)
        except Exception as fault:  # noqa: BLE001 - the border: the request goes on unchanged, counted, logged once
            self.controller.fault("request", flow, fault)
        self._keep_to_ourselves(flow)

    def responseheaders(self, flow: http.HTTPFlow) -> None:
        self._keep_to_ourselves(flow)
        if self.controller is None or not flow.live:
            return
        try:
            self.controller.responseheaders(flow)
        except Exception as fault:  # noqa: BLE001 - the border: the answer goes on unchanged, counted, logged once
            self.controller.fault("responseheaders", flow, fault)

    def response(self, flow: http.HTTPFlow) -> None:
        self._keep_to_ourselves(flow, over=True)
        if self.controller is None:
            return
        try:
            if not flow.live and flow not in self.controller.live:
                if not is_killed(flow):
                    self._judge_again(flow)
            elif flow.error:
                self.controller.error(flow)
            else:
                self.controller.response(flow)
        except Exception as fault:  # noqa: BLE001 - the border: the answer goes on unchanged, counted, logged once
            self.controller.fault("response", flow, fault)

    error = response

    def _keep_to_ourselves(self, flow: http.HTTPFlow, *, over: bool = False) -> None:
        """End a hook for requests of the page: lists, logs and files, whose addons come later, never hear of them."""
        if flow.id in self._own:
            self._own -= {flow.id} if over else set()
            raise AddonHalt

    def _judge_again(self, flow: http.HTTPFlow) -> None:
        """A flow out of a file: what would have happened."""
        assert self.controller
        if self._backtest is None:
            self._backtest = Backtest(self.controller.state.settings, evidence=ctx.options.breakwater_report)
        self._backtest.judge(flow)

    # -- what the page reads ----------------------------------------------------------------------------------

    @property
    def token(self) -> str:
        return self.controller.token if self.controller else ""

    def status(self) -> Status:
        assert self.controller
        return status_of(self.controller)

    def act(self, action: str, upstream: str | None, model: str | None) -> Comment:
        assert self.controller
        return act(self.controller, action, upstream, model)


def _state_path(settings: Settings) -> str:
    return str(Path(settings.state_path or Path(ctx.options.confdir) / "breakwater-state.json").expanduser())


addons = [] if missing else [Breakwater()]
