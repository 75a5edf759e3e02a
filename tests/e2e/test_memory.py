"""A proxy that runs for weeks: small exchanges leave nothing behind."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import Proxies, upstream_rows
from tests.e2e.lab.client import Connection
from tests.e2e.lab.operated import get, status
from tests.e2e.lab.proxy import Proxy
from tests.e2e.lab.script import Place
from tests.e2e.lab.wires import MESSAGES, MTOP, account, anthropic, asked, streamed, whole

Places = Callable[..., Place]

FLOWS = int(os.environ.get("BREAKWATER_MEMORY_FLOWS", "3000"))
"""10,000 take a minute; the bound is the same for both."""
WARM_UP = FLOWS // 2
CLIENTS = 4
GROWTH_KIB = 5 * 1024

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads a process's memory from /proc")


@pytest.fixture
def proxy(proxies: Proxies) -> Iterator[Proxy]:
    own = proxies.fresh({"upstreams": upstream_rows()}).start()
    yield own
    own.stop()


def resident_kib(proxy: Proxy) -> int:
    lines = Path(f"/proc/{proxy.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))


def send(proxy: Proxy, places: list[Place], count: int) -> None:
    """So many exchanges, on a few connections at a time; one in sixteen is challenged, one in eight is new."""

    def client(number: int) -> None:
        here = places[number]
        with Connection(proxy, here.url(MESSAGES)) as connection:
            for turn in range(count // CLIENTS):
                said = f"{'challenged' if turn % 16 == 0 else 'answered'} {turn if turn % 8 == 0 else turn % 97} {count}"
                connection.send(asked(said), account(here.host))
                connection.answer()

    threads = [threading.Thread(target=client, args=(number,)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    get(proxy, "/status.json")


@pytest.mark.timeout(300)
def test_thousands_of_flows_do_not_grow_it(proxy: Proxy, place: Places) -> None:
    frames = anthropic("Hello")
    places = [place() for _ in range(CLIENTS)]
    for here in places:
        here.always(lambda hit: whole(MTOP) if b"challenged" in hit.body else streamed(frames))
    send(proxy, places, WARM_UP)
    before = resident_kib(proxy)
    send(proxy, places, FLOWS)
    grown = resident_kib(proxy) - before
    assert sum(status(proxy)["counts"]["sends"].values()) > FLOWS // 2
    assert grown < GROWTH_KIB, f"{FLOWS} flows grew it by {grown} KiB, from {before} KiB"
