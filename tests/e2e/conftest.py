"""Fixtures of the end-to-end tests: a scripted upstream, real proxies that many tests share, and a place per test."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.lab import fleet as lab
from tests.e2e.lab.certificates import Authority
from tests.e2e.lab.installed import Home, build_wheel, install
from tests.e2e.lab.line import LONG, ONE, PERMITS, QUEUED
from tests.e2e.lab.proxy import LAB, Proxy
from tests.e2e.lab.script import Place
from tests.e2e.lab.shared_server import PROGRAM, SharedServer
from tests.e2e.lab.upstream import Upstream

FAMILIES = {
    "zai": ("z", 1300),
    "qwen-web": ("q", 200),
    "zcode": ("c", 150),
    "dashscope": ("d", 100),
    "zai-web": ("w", 40),
}
"""Family to the prefix of its host names and how many there are; every test takes hosts of its own, so that tests
share a proxy and not a breaker."""

NO_QUEUE: dict[str, Any] = {"queue": {"seconds": 0}, "concurrency": "off"}
"""Whoever need only wait is told so at once: what most tests are about."""

QUICK: dict[str, Any] = {
    "retry_after": {"challenge": 1, "overload": 1},
    "breaker": {"open_seconds": 1},
    "hold": {"seconds": 0.5, "silence_seconds": 3},
}
"""Settings with short times for tests that live through them."""


def hosts(family: str) -> list[str]:
    prefix, count = FAMILIES[family]
    return [f"{prefix}{number}.test" for number in range(count)]


def upstream_rows() -> dict[str, Any]:
    return {host: {"hosts": [host], "family": family} for family in FAMILIES for host in hosts(family)}


class Proxies:
    """The running proxies by what makes them differ; the same wish gets the same process."""

    def __init__(self, folder: Path, upstream: Upstream) -> None:
        self.folder, self._upstream = folder, upstream
        self._running: dict[str, Proxy] = {}

    def __call__(self, config: Mapping[str, Any] | None = None, *, addon: bool = True, **more: Any) -> Proxy:
        key = json.dumps([config, addon, more], default=str, sort_keys=True)
        if key not in self._running or self._running[key].process.poll() is not None:
            # One that died has failed its own test; the others get a new one.
            self._running[key] = self.fresh(config, addon=addon, **more).start()
        return self._running[key]

    def fresh(self, config: Mapping[str, Any] | str | None = None, **more: Any) -> Proxy:
        """A proxy of its own, not started; the caller stops it."""
        folder = self.folder / f"proxy{len(list(self.folder.iterdir()))}"
        text = config if isinstance(config, str) else {"upstreams": upstream_rows(), **NO_QUEUE, **(config or {})}
        return Proxy(folder, self._upstream, config=text, **more)

    @property
    def running(self) -> Sequence[Proxy]:
        return list(self._running.values())


@pytest.fixture(scope="session")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Upstream]:
    server = Upstream(Authority(tmp_path_factory.mktemp("authority")))
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def proxies(tmp_path_factory: pytest.TempPathFactory, upstream: Upstream) -> Iterator[Proxies]:
    pool = Proxies(tmp_path_factory.mktemp("proxies"), upstream)
    yield pool
    for proxy in pool.running:
        proxy.stop()


@pytest.fixture(scope="session")
def numbers() -> dict[str, Iterator[int]]:
    return {family: itertools.count() for family in FAMILIES}


@pytest.fixture
def place(upstream: Upstream, numbers: dict[str, Iterator[int]]) -> Callable[..., Place]:
    """Makes a place: a host of this family that no other test uses."""

    def make(family: str = "zai") -> Place:
        return upstream.place(hosts(family)[next(numbers[family])])

    return make


@pytest.fixture
def guarded(proxies: Proxies) -> Proxy:
    """The addon with its default times."""
    return proxies()


@pytest.fixture
def quick(proxies: Proxies) -> Proxy:
    """The addon with short times."""
    return proxies(QUICK)


@pytest.fixture
def queued(proxies: Proxies) -> Proxy:
    """The addon with its line, short times, and one strike that opens."""
    return proxies(QUEUED, scripts=(PERMITS,))


@pytest.fixture
def one_at_a_time(proxies: Proxies) -> Proxy:
    """The addon with its line and one slot."""
    return proxies(ONE, scripts=(PERMITS,))


@pytest.fixture
def long_paused(proxies: Proxies) -> Proxy:
    """The addon with its line and a window that is longer than any test."""
    return proxies(LONG, scripts=(PERMITS,))


@pytest.fixture
def many() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(40) as pool:
        yield pool


@pytest.fixture
def bare(proxies: Proxies) -> Proxy:
    """mitmproxy without the addon, streaming server-sent events."""
    return proxies(addon=False, scripts=(LAB / "streaming.py",))


@pytest.fixture
def server(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[SharedServer]:
    """A Redis server of the test's own, or the program that the test names."""
    running = SharedServer(tmp_path / "redis", program=getattr(request, "param", PROGRAM)).start()
    yield running
    running.end()


@pytest.fixture
def fleet(proxies: Proxies, server: SharedServer) -> Iterator[Callable[..., list[Proxy]]]:
    """Starts proxies that share the server, and waits until they do."""
    started: list[Proxy] = []

    def start(number: int = 2, *, joined: bool = True, **config: Any) -> list[Proxy]:
        new = [proxies.fresh({**lab.SHORT, "shared": server.url, **config}) for _ in range(number)]
        started.extend(new)
        for proxy in new:
            proxy.start()
        if joined:
            lab.wait_for(lambda: all(lab.connection(proxy) == "connected" for proxy in new), "one never joined")
        return new

    yield start
    for proxy in started:
        proxy.end()
        proxy.assert_quiet()


@pytest.fixture(autouse=True)
def no_faults(proxies: Proxies, upstream: Upstream) -> Iterator[None]:
    """No test may leave a fault in a proxy's log or in the lab itself."""
    marks = [(proxy, proxy.log_lines) for proxy in proxies.running]
    upstream.faults.clear()
    yield
    for proxy, mark in marks:
        proxy.assert_quiet(mark)
        assert proxy.process.poll() is None, f"the proxy ended:\n{proxy.log}"
    assert not upstream.faults, upstream.faults


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def command(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Path:
    """The installed `breakwater`."""
    return install(wheel, tmp_path_factory.mktemp("installed") / "venv")


@pytest.fixture
def home(tmp_path: Path, command: Path, upstream: Upstream) -> Iterator[Home]:
    """An empty home of a person who has the command."""
    made = Home(tmp_path / "home", command, upstream, {"upstreams": upstream_rows()})
    yield made
    made.close()
