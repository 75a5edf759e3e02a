"""Shared state of several Breakwaters: what happens here is taken to the server, what others say is taken up.

It is shared from the start of a proxy, or from a change of its settings, to its end.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
from collections import OrderedDict, deque
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from operations import demo, reload, state_file
from operations.clock import clock
from operations.shared_server import KINDS, LostError, Put, Server, parts_of, shown
from policies import shared_rows
from policies.breaker import BreakerState, Transition
from policies.shared import SharedBreaker, Told, offered
from policies.shared_rows import Refusal, Row, RowKind, Value, Window

if TYPE_CHECKING:
    from operations.controller import Controller

logger = logging.getLogger("breakwater")

LOOK_SECONDS = 2.0
"""Between two looks at what changed: a message that was missed is repaired by then."""
RETRY_SECONDS = 2.0
MOST_WAITING = 1000
"""Outcomes, and rows, that wait for the server; with more outcomes it counts as lost."""
TRIES = 50
"""Of one compare-and-set; each that fails means that another process succeeded."""


def follow(controller: Controller) -> None:
    """Share over the server that the settings name, or no more."""
    url, shared = controller.state.settings.shared, controller.shared
    if url == (shared.full_url if shared else None):
        return
    leave(controller)
    if url is not None:
        controller.shared = SharedState(controller, url)


def leave(controller: Controller) -> None:
    """Go on alone; what was learnt stays."""
    shared, controller.shared = controller.shared, None
    if shared is not None:
        shared.leave()


class SharedState:
    """Link of this process to the server; alone until it is there, and again whenever it is lost."""

    def __init__(self, controller: Controller, url: str) -> None:
        self.owner = f"{socket.gethostname()[:40]}-{os.getpid()}-{secrets.token_hex(3)}"
        self.connected = False
        self.trouble = ""
        """Why it is alone; empty while it is not, and before the first try has ended."""
        self.full_url, self.url = url, shown(url)
        self._controller, self._state, self.server = controller, controller.state, Server(url)
        self._outcomes: deque[tuple[SharedBreaker, Told]] = deque()
        self._rows: OrderedDict[tuple[RowKind, str], Row] = OrderedDict()
        self._texts: dict[str, str] = {}
        """Of the breakers, as the server last had them."""
        self._since = 0.0
        self._wake = asyncio.Event()
        self._state.breakers.share(self, without=demo.UPSTREAM.name)
        self._state.refusals.tell = self._state.windows.tell = self.row
        self._task = asyncio.get_running_loop().create_task(self._run(), name="breakwater shared state")

    def leave(self) -> None:
        """Go on alone."""
        self.connected = False
        self._task.cancel()
        reload.keep(self.server.close())
        self._state.breakers.share(None)
        self._state.refusals.tell = self._state.windows.tell = None

    async def _run(self) -> None:
        while True:
            try:
                await self.server.open()
                await self._join()
                await self._serve()
            except LostError as lost:
                self._lost(str(lost))
            except Exception as fault:  # noqa: BLE001 - the border: it goes on alone, and tries again
                self._lost(f"{type(fault).__name__} in the shared state")
            await self.server.close()
            await asyncio.sleep(RETRY_SECONDS)

    async def _serve(self) -> None:
        listening = asyncio.ensure_future(self._listen())
        loop, look_at = asyncio.get_running_loop(), clock().now + LOOK_SECONDS
        waking = loop.create_task(self._wake.wait())
        try:
            while True:
                await asyncio.wait({listening, waking}, timeout=look_at - clock().now, return_when=asyncio.FIRST_COMPLETED)
                if listening.done():
                    raise listening.exception() or LostError("the connection for messages ended")
                if waking.done():
                    self._wake.clear()
                    waking = loop.create_task(self._wake.wait())
                await self._tell_all()
                if clock().now >= look_at:
                    await self._look()
                    look_at = clock().now + LOOK_SECONDS
        finally:
            listening.cancel()
            waking.cancel()

    def _lost(self, why: str) -> None:
        if not self.trouble:
            self._controller.counters.lost(self.url)
            logger.warning("Breakwater: shared state: %s is not to be used (%s): going on by itself until it is", self.url, why)
        self.connected, self.trouble = False, why
        self._outcomes.clear()
        self._rows.clear()
        for breaker in self._state.breakers.all():
            breaker.alone()
        self._changed([])

    def _changed(self, moved: list[Transition]) -> None:
        """After anything was taken up: those who wait may have their turn."""
        self._controller.log_transitions(moved)
        self._controller.waiting.look()

    # -- what happens here ------------------------------------------------------------------------------------------

    def told(self, breaker: SharedBreaker, told: Told) -> None:
        """Take an outcome of a breaker to the server, soon."""
        if len(self._outcomes) < MOST_WAITING:
            breaker.pending += 1
            self._outcomes.append((breaker, told))
        self._wake.set()

    def row(self, kind: RowKind, row: Row) -> None:
        """Take a row to the server, soon; a newer one of its name replaces it."""
        if not self.connected or _is_demo(row):
            return
        self._rows[kind, row.name] = row
        while len(self._rows) > MOST_WAITING:
            self._rows.popitem(last=False)
        self._wake.set()

    async def _tell_all(self) -> None:
        if len(self._outcomes) >= MOST_WAITING:
            raise LostError("more happened than it took")
        while self._outcomes or self._rows:
            if self._outcomes:
                await self._tell(*self._outcomes.popleft())
            else:
                some, self._rows = self._rows, OrderedDict()
                await self.server.put([self._put(kind, row) for (kind, _), row in some.items()])

    async def _tell(self, breaker: SharedBreaker, told: Told) -> None:
        name = breaker.name
        text, sure = self._texts.get(name, ""), False
        for _ in range(TRIES):
            value = offered(breaker, told, self._value(text), clock().now, self.server.now)
            if value is not None:
                done, text = await self.server.swap(_breaker_put(name, value), text)
                sure = True
                if done:
                    break
            elif sure:
                break
            else:  # it counts for nothing there, if what is known of it is true
                text, sure = await self.server.get("breaker", name), True
        breaker.pending = max(0, breaker.pending - 1)
        self._texts[name] = text
        self._adopt(breaker, text, sure=True)

    def _put(self, kind: RowKind, row: Row) -> Put:
        moment = clock()
        text = msgspec.json.encode(row.moved(self.server.now - moment.now)).decode()
        return Put(kind, row.name, text, row.lasts(moment.wall, moment.now))

    # -- what others say --------------------------------------------------------------------------------------------

    async def _listen(self) -> None:
        async for message in self.server.messages():
            if parts := parts_of(message):
                self._hear(*parts)

    async def _look(self) -> None:
        key, self._since, rows = await self.server.changed(self._since)
        if key is None:
            logger.info("Breakwater: shared state: %s was emptied: what is known here is written again", self.url)
            await self._join()
            return
        for row in rows:
            self._hear(*row)
        for breaker in self._state.breakers.all():
            breaker.give_back(clock().now)

    def _hear(self, kind: str, name: str, text: str) -> None:
        now, server_now = clock().now, self.server.now
        if kind == "breaker":
            if breaker := self._breaker(name):
                self._texts[name] = text
                self._adopt(breaker, text, sure=False)
        elif kind == "window":
            window = shared_rows.read(text, Window, server_now)
            if window is not None and self._state.windows.hear(window):
                self._state.refusals.forget_overflows(window.row.upstream, window.row.model)
        elif (row := shared_rows.read(text, Refusal, server_now)) is not None:
            self._state.refusals.hear("block" if kind == "block" else "wait", row.moved(now - server_now), now)

    def _value(self, text: str) -> Value | None:
        return shared_rows.read(text, Value, self.server.now)

    def _adopt(self, breaker: SharedBreaker, text: str, *, sure: bool) -> None:
        value = self._value(text)
        if value is not None:
            moved = breaker.adopt(value, clock().now, self.server.now, sure=sure)
            if moved and moved.after is BreakerState.CLOSED:
                self._state.line.begin_slowly(breaker.upstream, breaker.account)
            self._changed([moved] if moved else [])

    # -- the first meeting, and each after a loss ------------------------------------------------------------------------

    async def _join(self) -> None:
        """Merge what is known here and there: the later end wins."""
        self._take_key(await self.server.key(self._state.key.hex()))
        _, self._since, rows = await self.server.changed(0)
        texts = {(kind, name): text for kind, name, text in rows}
        for (kind, name), text in texts.items():
            if kind != "breaker":
                self._hear(kind, name, text)
        self.connected = True
        names = {name: None for kind, name in texts if kind == "breaker"}
        for name in names | dict.fromkeys(breaker.name for breaker in self._state.breakers.all()):
            await self._meet(name, texts.get(("breaker", name), ""))
        await self._write_missing(texts)
        if self.trouble:
            logger.info("Breakwater: shared state: %s is back", self.url)
        self.trouble = ""
        self._changed([])

    def _take_key(self, text: str) -> None:
        key = state_file.key_of(text)
        if not key:
            raise LostError("what it has for the key of the hashes is none")
        if self._state.key != key:
            self._state.key = key
            self._controller.store.rekey(key)
            logger.info("Breakwater: shared state: hashes have the key of %s from here on", self.url)

    async def _meet(self, name: str, text: str) -> None:
        """One breaker, as it is here and as it is there, becomes one."""
        breaker = self._breaker(name)
        if breaker is None or (breaker.untouched and not text):
            return
        self._outcomes = deque(waiting for waiting in self._outcomes if waiting[0] is not breaker)
        breaker.alone()  # what waited is in its value
        own = breaker.value(clock().now, self.server.now)
        for _ in range(TRIES):
            theirs = self._value(text)
            merged = own if theirs is None else shared_rows.later(own, theirs)
            if theirs is not None and merged.says == theirs.says:
                break
            merged = msgspec.structs.replace(merged, version=merged.next_version(self.server.now))
            done, text = await self.server.swap(_breaker_put(name, merged), text)
            if done:
                break
        self._texts[name], breaker.version = text, 0
        self._adopt(breaker, text, sure=True)

    async def _write_missing(self, texts: Mapping[tuple[str, str], str]) -> None:
        """Rows that are not there, or end earlier there."""
        rows: list[tuple[RowKind, Row]] = [*self._state.refusals.rows(clock().now)]
        rows += [("window", Window(learnt)) for learnt in self._state.windows.learnt()]
        puts = [self._put(kind, row) for kind, row in rows if not _is_demo(row)]
        await self.server.put([put for put in puts if not shared_rows.holds(texts.get((put.kind, put.name), ""), put.text)])

    def _breaker(self, name: str) -> SharedBreaker | None:
        """The breaker of a shared name; None where its upstream is unknown here, or shared with nobody."""
        upstream, _, account = name.partition(":")
        known = upstream != demo.UPSTREAM.name and self._state.surfaces.upstream(upstream)
        return self._state.breakers.shared(upstream, account) if known else None


def _breaker_put(name: str, value: Value) -> Put:
    return Put("breaker", name, msgspec.json.encode(value).decode(), KINDS["breaker"])


def _is_demo(row: Row) -> bool:
    return isinstance(row, Refusal) and row.upstream == demo.UPSTREAM.name
