"""The Redis or Valkey server of a shared state: every command of ours, each bounded in time."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, NamedTuple, TypeVar
from urllib.parse import parse_qsl, urlsplit, urlunsplit

from operations.clock import clock

ANSWER_SECONDS = (0.15, 0.05)
"""Seconds for an answer; the second part for a loop of ours that was late itself."""
CONNECT_SECONDS = 2.0
OLDEST_MAJOR = 6
"""Version of Redis; older ones know no user names, and nobody tests them any more."""
PREFIX = "breakwater:v1:"
CHANNEL = f"{PREFIX}news"
KINDS = {"breaker": 2 * 86400, "wait": 700, "block": 8 * 86400, "window": 2 * 86400}
"""Kinds of rows, and seconds after its last change in which anything may be left of one; a breaker is kept for so long."""
AT_A_TIME = 200
"""Rows in one command."""

Result = TypeVar("Result")

# Compare and set: WATCH and MULTI would need three round trips and would leave a connection in a state of its own where one
# of them is late; this is one, and it knows nothing of what a value means. Beside it stand an index by the server's time, so
# that a look finds what changed since the last one, and a message with the value itself. The answer carries that time. What
# nothing can be left of leaves the index.
SWAP = """
local time = redis.call('TIME')
local is = redis.call('GET', KEYS[1]) or ''
if ARGV[1] ~= '*' and is ~= ARGV[1] then return {0, is, time[1], time[2]} end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
redis.call('ZADD', KEYS[2], string.format('%.0f', time[1] * 1000000 + time[2]), ARGV[4])
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', string.format('%.0f', (time[1] - ARGV[7]) * 1000000))
redis.call('EXPIRE', KEYS[2], ARGV[7])
redis.call('PUBLISH', ARGV[5], ARGV[6])
return {1, ARGV[2], time[1], time[2]}
"""


class LostError(Exception):
    """The server is not to be used; the words say why, and hold no password."""


class Put(NamedTuple):
    """One row to write, whatever is there."""

    kind: str
    name: str
    text: str
    seconds: float


def shown(url: str) -> str:
    """The URL without user, password and query."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


class Server:
    """One connection for commands, one for messages."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connect: Callable[[str], Any]
        self._client: Any = None
        self._messages: Any = None
        self._ahead = 0.0
        """Seconds of the server's clock less monotonic ones: at most what is true, since an answer takes its time."""

    @property
    def now(self) -> float:
        """The server's clock, in seconds; never ahead of it."""
        return clock().now + self._ahead

    async def open(self) -> None:
        """Connect and subscribe."""
        await self.close()
        try:
            from redis import asyncio as library  # noqa: PLC0415 - an extra: nobody else needs it
            from redis.asyncio.retry import Retry  # noqa: PLC0415
            from redis.backoff import NoBackoff  # noqa: PLC0415
        except ImportError:
            raise LostError("the redis package is missing: pip install 'mitm-breakwater[redis]'") from None
        limits: dict[str, Any] = {"socket_timeout": None, "socket_connect_timeout": CONNECT_SECONDS, "max_connections": 2}
        self._connect = lambda url: library.from_url(url, decode_responses=True, retry=Retry(NoBackoff(), 0), **limits)
        try:
            self._client = self._connect(await self._address())
        except ValueError as error:  # the URL's
            raise LostError(self._without_secrets(error)) from None
        await self._check_version()
        self._messages = self._client.pubsub(ignore_subscribe_messages=True)
        await self._within(self._messages.subscribe(CHANNEL))

    async def _address(self) -> str:
        """The URL of the server itself: of the master that the first sentinel to answer names, where the URL names sentinels."""
        parts, why = urlsplit(self._url), ""
        scheme, _, sentinels = parts.scheme.partition("+")
        if not sentinels:
            return self._url
        user, at, hosts = parts.netloc.rpartition("@")
        name, _, database = parts.path.strip("/").partition("/")
        for host in hosts.split(","):
            sentinel = self._connect(urlunsplit((scheme, host, "", parts.query, "")))
            try:
                found = await self._within(
                    sentinel.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", name), CONNECT_SECONDS
                )
                if found:
                    master = f"[{found[0]}]:{found[1]}" if ":" in found[0] else f"{found[0]}:{found[1]}"
                    return urlunsplit((scheme, f"{user}{at}{master}", database, parts.query, ""))
                why = f"sentinel {host} knows no {name}"
            except LostError as error:
                why = f"sentinel {host}: {error}"
            finally:
                await self._closed(sentinel)
        raise LostError(why)

    async def key(self, own: str) -> str:
        """The shared key of the hashes, which is ``own`` where there was none; fails where the server takes nothing."""
        await self._within(self._client.set(f"{PREFIX}key", own, nx=True))
        return str(await self._within(self._client.get(f"{PREFIX}key")))

    async def _check_version(self) -> None:
        try:
            found = await self._within(self._client.info("server"), CONNECT_SECONDS)
        except LostError as error:
            if "no permissions" not in str(error).lower():
                raise
            return  # a user who may not ask
        version = str(found.get("redis_version", ""))
        if version.partition(".")[0].isdecimal() and int(version.partition(".")[0]) < OLDEST_MAJOR:
            raise LostError(f"it is version {version}; {OLDEST_MAJOR}.0 or newer is needed")

    async def close(self) -> None:
        client, messages, self._client, self._messages = self._client, self._messages, None, None
        for thing in (messages, client):
            if thing is not None:
                await self._closed(thing)

    async def _closed(self, thing: Any) -> None:
        with contextlib.suppress(LostError):
            await self._within(thing.aclose())

    async def swap(self, put: Put, old: str) -> tuple[bool, str]:
        """Replace ``old`` (empty: nothing); whether it was there, and what is there now."""
        replaced, text, seconds, micros = await self._within(self._client.eval(SWAP, *self._arguments(put, old)))
        self._read_clock(seconds, micros)
        return bool(replaced), text

    async def put(self, rows: Sequence[Put]) -> None:
        for first in range(0, len(rows), AT_A_TIME):
            pipe = self._client.pipeline(transaction=False)
            for row in rows[first : first + AT_A_TIME]:
                pipe.eval(SWAP, *self._arguments(row, "*"))
            for answer in await self._within(pipe.execute()):
                self._read_clock(answer[2], answer[3])

    async def get(self, kind: str, name: str) -> str:
        return await self._within(self._client.get(f"{PREFIX}{kind}:{name}")) or ""

    async def changed(self, since: float) -> tuple[str | None, float, list[tuple[str, str, str]]]:
        """Key of the hashes, the server's time, and kind, name and text of what changed since that time; 0: of all."""
        pipe = self._client.pipeline(transaction=True)
        pipe.time()
        pipe.get(f"{PREFIX}key")
        for kind in KINDS:
            pipe.zrangebyscore(f"{PREFIX}index:{kind}", f"{since:.0f}", "+inf")
        (seconds, micros), key, *names = await self._within(pipe.execute())
        self._read_clock(seconds, micros)
        asked = [(kind, name) for kind, found in zip(KINDS, names, strict=True) for name in found]
        rows = []
        for first in range(0, len(asked), AT_A_TIME):
            some = asked[first : first + AT_A_TIME]
            texts = await self._within(self._client.mget([f"{PREFIX}{kind}:{name}" for kind, name in some]))
            rows += [(kind, name, text) for (kind, name), text in zip(some, texts, strict=True) if text]
        return key, float(seconds) * 1e6 + float(micros), rows

    async def messages(self) -> AsyncIterator[str]:
        """What the others say, for as long as the connection lasts."""
        try:
            async for message in self._messages.listen():
                yield message["data"]
        except Exception as error:  # noqa: BLE001 - the library's own kinds, which are not imported here
            raise LostError(self._words(error)) from None

    @staticmethod
    def _arguments(put: Put, old: str) -> tuple[Any, ...]:
        message = f"{put.kind} {len(put.name)} {put.name}{put.text}"
        milliseconds = max(1, math.ceil(put.seconds * 1000))
        keys = (f"{PREFIX}{put.kind}:{put.name}", f"{PREFIX}index:{put.kind}")
        return 2, *keys, old, put.text, milliseconds, put.name, CHANNEL, message, KINDS[put.kind]

    def _read_clock(self, seconds: str, micros: str) -> None:
        self._ahead = float(seconds) + float(micros) / 1e6 - clock().now

    async def _within(self, work: Awaitable[Result], seconds: float = ANSWER_SECONDS[0]) -> Result:
        task = asyncio.ensure_future(work)
        try:
            done, _ = await asyncio.wait({task}, timeout=seconds)
            if not done:
                done, _ = await asyncio.wait({task}, timeout=ANSWER_SECONDS[1])
        finally:
            if not task.done():
                task.cancel()
        if not done:
            raise LostError(f"no answer within {seconds + ANSWER_SECONDS[1]:.1f} s")
        try:
            return task.result()
        except Exception as error:  # noqa: BLE001 - the library's own kinds, which are not imported here
            raise LostError(self._words(error)) from None

    def _words(self, error: Exception) -> str:
        """What went wrong while the server was asked, on one line."""
        if isinstance(error, OSError) or type(error).__module__.startswith("redis."):
            return self._without_secrets(error)
        return "what answers there speaks no Redis"

    def _without_secrets(self, error: Exception) -> str:
        """The words of an error on one line; nothing of the URL but its shown part."""
        parts = urlsplit(self._url)
        words = " ".join(str(error).split()) or type(error).__name__
        asked = dict(parse_qsl(parts.query))
        for secret in (self._url, parts.netloc.rpartition("@")[0], parts.password, parts.username, asked.get("password")):
            words = words.replace(secret, "…") if secret else words
        return words[:200]


def parts_of(message: str) -> tuple[str, str, str] | None:
    """Kind, name and text of a message; None where it is none of ours."""
    kind, _, rest = message.partition(" ")
    length, _, rest = rest.partition(" ")
    if kind not in KINDS or not length.isdecimal() or int(length) > len(rest):
        return None
    return kind, rest[: int(length)], rest[int(length) :]
