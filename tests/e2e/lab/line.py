"""The line, as the tests ask and fill it."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.e2e.lab.client import Answer, Connection, Pairs, ask
from tests.e2e.lab.operated import get, until
from tests.e2e.lab.proxy import LAB, Proxy
from tests.e2e.lab.script import Gate, Place
from tests.e2e.lab.wires import MESSAGES, MTOP, account, anthropic, asked, event, streamed, whole

CHALLENGE = streamed([event(MTOP)])
ANSWER = streamed(anthropic("one"))
CROWD = whole({"error": {"code": "1302", "message": "Rate limit reached for requests"}}, status=429)
QUEUED: dict[str, Any] = {
    "queue": {"seconds": 280, "size": 1000},
    "concurrency": "learn",
    "retry_after": {"challenge": 1, "overload": 1},
    "breaker": {"open_seconds": 2, "strikes": 1},
    "hold": {"seconds": 0.5, "silence_seconds": 3},
}
ONE: dict[str, Any] = {**QUEUED, "concurrency": 1}
"""One call at a time: whoever comes second waits for the first one's end."""
LONG: dict[str, Any] = {**QUEUED, "breaker": {"open_seconds": 60, "strikes": 1}}
"""Whoever waits at the breaker waits longer than any test."""
PERMITS = LAB / "permits.py"
PATIENT = [("x-stainless-timeout", "300")]
SIDE: dict[str, Any] = {"tools": [], "max_tokens": 100}


def send(proxy: Proxy, here: Place, text: str, who: str = "", more: Pairs = (), **body: object) -> Answer:
    """One request of a patient client."""
    headers = [*account(who or here.host), *PATIENT, *more]
    return ask(proxy, here.url(MESSAGES), asked(text, **body), headers)


def status(proxy: Proxy) -> Any:
    return get(proxy, "/status.json?parts=waiting,limits,counts").json()


def waiting(proxy: Proxy, here: Place) -> list[Any]:
    return [row for row in status(proxy)["waiting"] if row["upstream"] == here.host]


def until_waiting(proxy: Proxy, here: Place, count: int) -> None:
    until(lambda: len(waiting(proxy, here)) == count, f"{count} who wait")


def in_turn(pool: ThreadPoolExecutor, proxy: Proxy, here: Place, *texts: str, who: str = "") -> list[Future[Answer]]:
    """Requests that come one after the other, and wait; the answers to come."""
    before, answers = len(waiting(proxy, here)), []
    for number, text in enumerate(texts, 1):
        answers.append(pool.submit(send, proxy, here, text, who, **(SIDE if text.startswith("side") else {})))
        until_waiting(proxy, here, before + number)
    return answers


def paused(proxy: Proxy, here: Place) -> None:
    """A challenge has opened the breaker."""
    assert send(proxy, here.then(CHALLENGE), "first", "another").status == 529


def taken(pool: ThreadPoolExecutor, proxy: Proxy, here: Place, gate: Gate) -> Future[Answer]:
    """A request that takes the only slot until the gate opens."""
    answer = pool.submit(send, proxy, here.then(streamed(anthropic("one"), before=gate)), "taken")
    gate.wait_reached()
    return answer


def order(here: Place) -> list[str]:
    """The texts of the requests in the order in which they reached the upstream."""
    return [hit.body.rpartition(b'"content":"')[2].partition(b'"')[0].decode() for hit in here.hits]


def assert_nothing_is_out(proxy: Proxy, *places: Place) -> None:
    """Every permit and slot came back, and nobody waits."""

    def left() -> dict[str, dict[str, int]]:
        told = ask(proxy, "http://permits.lab/", method="GET").json()
        return {kind: {here.host: n for here in places if (n := rows.get(here.host, 0))} for kind, rows in told.items()}

    until(lambda: not any(left().values()), f"all permits and slots, still out: {left()}")


def cpu_seconds(proxy: Proxy) -> float:
    """Of the process so far, from /proc."""
    fields = Path(f"/proc/{proxy.process.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def cpu_share(proxy: Proxy, seconds: float) -> float:
    before, began = cpu_seconds(proxy), time.monotonic()
    time.sleep(seconds)
    return (cpu_seconds(proxy) - before) / (time.monotonic() - began)


class Crowd:
    """Clients that sent their request and wait for the answer, each on a connection of its own."""

    def __init__(self, proxy: Proxy, here: Place, count: int) -> None:
        self.connections = [Connection(proxy, here.url(MESSAGES)) for _ in range(count)]
        for number, connection in enumerate(self.connections):
            connection.send(asked(f"crowd {number}"), [*account(f"{here.host}{number}"), *PATIENT])

    def leave(self, count: int) -> None:
        for connection in self.connections[:count]:
            connection.close()
        del self.connections[:count]

    def answers(self) -> list[Answer]:
        answers = [connection.answer() for connection in self.connections]
        self.leave(len(self.connections))
        return answers
