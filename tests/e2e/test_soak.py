"""Mixed exchanges by the thousand, a tenth challenged, a tenth left by their clients: all is told, counted and let go."""

from __future__ import annotations

import itertools
import os
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import QUICK, Proxies, upstream_rows
from tests.e2e.lab.client import Connection, ask
from tests.e2e.lab.client_h2 import H2Connection
from tests.e2e.lab.operated import get, status, until
from tests.e2e.lab.proxy import LAB, Proxy
from tests.e2e.lab.script import Hit, Place, Reply
from tests.e2e.lab.wires import (
    MTOP,
    ZCODE,
    account,
    anthropic,
    anthropic_message,
    asked,
    compact,
    event,
    page,
    streamed,
    whole,
)

Places = Callable[..., Place]

EXCHANGES = int(os.environ.get("BREAKWATER_SOAK_EXCHANGES", "2000"))
"""20,000 take some minutes; the bounds are the same for both."""
AT_A_TIME = 32
GROWTH_KIB = 8 * 1024
FRAMES = anthropic("one", "two", "three")
ANSWERS: dict[str, Reply] = {
    "stream": streamed(FRAMES),
    "paced": streamed(FRAMES, pace=0.002),
    "whole": whole(anthropic_message()),
}
CHALLENGES: dict[str, Reply] = {"object": whole(MTOP), "frame": streamed([event(MTOP)]), "page": page()}
BODIES = {"stream": b"".join(FRAMES), "paced": b"".join(FRAMES), "whole": compact(anthropic_message())}
ROADS: tuple[tuple[str, int | None], ...] = (("http", None), ("https", None), ("https", 8443))

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads a process's memory from /proc")


@pytest.fixture
def proxy(proxies: Proxies) -> Iterator[Proxy]:
    config = {**QUICK, "upstreams": upstream_rows(), "breaker": {"open_seconds": 0.1}}
    own = proxies.fresh(config, scripts=(LAB / "census.py",)).start()
    yield own
    own.stop()


def script(hit: Hit) -> Reply:
    return next(reply for name, reply in {**ANSWERS, **CHALLENGES}.items() if f"<{name}>".encode() in hit.body)


class Clients:
    """The clients of a soak, and what they were told."""

    def __init__(self, proxy: Proxy, places: list[Place]) -> None:
        self.proxy, self.places, self.told, self.lock = proxy, places, Counter[str](), threading.Lock()
        self.numbers = itertools.count()

    def run(self, count: int) -> None:
        with ThreadPoolExecutor(AT_A_TIME) as pool:
            shares = [count // AT_A_TIME + (index < count % AT_A_TIME) for index in range(AT_A_TIME)]
            for done in [pool.submit(self.client, index, share) for index, share in enumerate(shares)]:
                done.result()

    def client(self, index: int, count: int) -> None:
        dice = random.Random(index * 1000 + next(self.numbers))
        (over_http2 if index % 4 == 3 else over_http1)(self, self.places[index % len(self.places)], dice, count)

    def pick(self, dice: random.Random) -> tuple[str, str, bytes]:
        """A kind of answer, the moment at which its client leaves, and a request that nobody has sent before."""
        kind = dice.choice(list(CHALLENGES if dice.random() < 0.1 else ANSWERS))
        moment = dice.choice(("sent", "head", "piece")) if dice.random() < 0.1 else ""
        number = next(self.numbers)
        return kind, moment, asked(f"<{kind}> {number}", system=f"session {number % 97}")

    def note(self, kind: str, status: int | None, body: bytes) -> None:
        if status == 200:
            assert body == BODIES.get(kind), f"{kind}: {body!r}"
        else:
            assert status == 529, (kind, status, body)
        with self.lock:
            self.told[kind if status == 200 else "challenge" if kind in CHALLENGES else "refused"] += 1


def over_http1(clients: Clients, here: Place, dice: random.Random, count: int) -> None:
    left = count
    while left:
        scheme, port = dice.choice(ROADS)
        with Connection(clients.proxy, here.url(ZCODE, scheme, port)) as connection:
            for _ in range(min(left, dice.randint(1, 8))):
                left -= 1
                kind, moment, body = clients.pick(dice)
                connection.send(body, account(f"{here.host} {dice.randrange(8)}"))
                if moment:
                    if moment != "sent":
                        answer = connection.head()
                        if moment == "piece":
                            connection.piece(answer)
                    connection.reset()
                    break
                answer = connection.answer()
                clients.note(kind, answer.status, answer.body)
                if not (answer.header("content-length") or answer.header("transfer-encoding")):
                    break  # a stream of an upstream with HTTP/2 ends with the connection, as with a bare mitmproxy


def over_http2(clients: Clients, here: Place, dice: random.Random, count: int) -> None:
    with H2Connection(clients.proxy, here.host, dice.choice([443, 8443])) as connection:
        for _ in range(count):
            kind, moment, body = clients.pick(dice)
            number = connection.open(ZCODE, body, account(f"{here.host} {dice.randrange(8)}"))
            stream = connection.streams[number]
            if moment == "head":
                connection.until(lambda stream=stream: stream.status is not None or stream.done)  # type: ignore[misc]
            elif moment == "piece":
                connection.until(lambda stream=stream: bool(stream.pieces) or stream.done)  # type: ignore[misc]
            elif not moment:
                connection.finish(number)
                clients.note(kind, stream.status, stream.body)
            if not stream.done:
                connection.cancel(number)


def resident_kib(proxy: Proxy) -> int:
    lines = Path(f"/proc/{proxy.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))


def census(proxy: Proxy) -> Any:
    return ask(proxy, "http://census.test/", method="GET").json()


def over(proxy: Proxy) -> bool:
    """Nothing is under way any more but the question itself and its answer."""
    found = census(proxy)
    return (found["live"], found["aliases"]) == (0, 0) and max(found["streams"], found["waking"]) <= 1


@pytest.mark.timeout(900)
def test_a_soak_ends_with_everything_told_counted_and_let_go(proxy: Proxy, place: Places) -> None:
    places = [place("zcode").always(script) for _ in range(8)]
    clients = Clients(proxy, places)
    clients.run(EXCHANGES // 2)
    until(lambda: over(proxy), "the end of the first half")
    before = resident_kib(proxy)
    clients.run(EXCHANGES - EXCHANGES // 2)
    until(lambda: over(proxy), "the end of the second half")
    grown = resident_kib(proxy) - before
    for here in places:
        for hit in here.hits:
            here.wait_ended(hit)
    now = status(proxy)
    sent = {here.host: len(here.hits) for here in places}
    print(dict(clients.told), f"sent {sum(sent.values())}", f"grown by {grown} KiB")  # noqa: T201 - figures, with -s
    assert {host: now["counts"]["sends"].get(host, 0) for host in sent} == sent
    assert clients.told["challenge"] > EXCHANGES / 40
    assert {row["state"] for row in now["upstreams"] if row["name"] in sent} <= {"closed", "half_open", "open"}
    assert not now["counts"]["faults"]
    assert get(proxy, "/healthz").status == 200
    assert grown < GROWTH_KIB, f"{EXCHANGES // 2} exchanges grew it by {grown} KiB, from {before} KiB"
    for here in places:
        until(partial(answers, proxy, here), "an answer, which a probe that stayed out would not let through")


def answers(proxy: Proxy, here: Place) -> bool:
    return ask(proxy, here.url(ZCODE), asked("<whole> last"), account("last")).status == 200
