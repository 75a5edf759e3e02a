"""The scripted upstream: one thread, three loopback ports (clear HTTP/1.1, TLS with HTTP/1.1, TLS with HTTP/2)."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import ssl
import threading
from collections.abc import Coroutine
from typing import Any

from tests.e2e.lab.certificates import Authority
from tests.e2e.lab.script import Hit, Place, Reply
from tests.e2e.lab.serve_h1 import serve_h1
from tests.e2e.lab.serve_h2 import serve_h2


class Upstream:
    """Serves every `Place` by host name; started and stopped by its fixture."""

    def __init__(self, authority: Authority) -> None:
        self._changed = threading.Condition()
        self._places: dict[str, Place] = {}
        self._numbers = itertools.count(1)
        self._authority = authority
        self.ca_path = authority.ca_path
        """What a client has to trust to speak with this upstream undecrypted."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="upstream", daemon=True)
        self._ready = threading.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._servers: list[asyncio.Server] = []
        self.faults: list[BaseException] = []
        """What went wrong in the upstream itself; a test that leaves one here fails."""
        self.clear_port = self.tls_port = self.h2_port = 0

    def place(self, host: str) -> Place:
        place = Place(host, self._changed)
        with self._changed:
            self._places[host] = place
        return place

    def start(self) -> None:
        self._thread.start()
        assert self._ready.wait(10), "the upstream did not start"

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._listen())
        self._ready.set()
        self._loop.run_forever()
        self._loop.run_until_complete(self._close())
        self._loop.close()

    async def _listen(self) -> None:
        self.clear_port = await self._server(serve_h1, None)
        self.tls_port = await self._server(serve_h1, self._authority.server_context(["http/1.1"]))
        self.h2_port = await self._server(serve_h2, self._authority.server_context(["h2"]))

    async def _server(self, serve: Any, context: ssl.SSLContext | None) -> int:
        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._keep(self._connection(serve(self, reader, writer, next(self._numbers)), writer))

        # A peer that goes without a TLS goodbye is gone, and not after asyncio's usual 30 seconds.
        more: dict[str, Any] = {"ssl_shutdown_timeout": 0.2} if context else {}
        server = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=context, backlog=256, **more)
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    async def _connection(self, serving: Coroutine[Any, Any, None], writer: asyncio.StreamWriter) -> None:
        try:
            await serving
        except (ConnectionError, ssl.SSLError, TimeoutError):
            pass
        except Exception as fault:  # noqa: BLE001 - a fault of the lab must fail the test, not vanish in a task
            self.faults.append(fault)
        finally:
            with contextlib.suppress(Exception):
                writer.close()

    async def _keep(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        with contextlib.suppress(asyncio.CancelledError):
            await task

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        rest = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for other in rest:
            other.cancel()
        await asyncio.gather(*rest, return_exceptions=True)

    def received(self, hit: Hit) -> tuple[Place, Reply]:
        with self._changed:
            place = self._places.get(hit.host)
        if place is None:
            place = self.place(hit.host)
        return place, place.received(hit)
