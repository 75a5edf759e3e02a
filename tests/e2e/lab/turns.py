"""Agents that take one turn after the other, and hosts whose upstreams have settings of their own."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.e2e.lab.client import Answer, Connection, Pairs, ask
from tests.e2e.lab.proxy import Proxy
from tests.e2e.lab.script import Hit, Place, Reply
from tests.e2e.lab.upstream import Upstream
from tests.e2e.lab.wires import account, anthropic, asked, streamed


class Hosts:
    """Host names by kind, each an upstream of its own, so that tests share a proxy and no state."""

    def __init__(self, prefix: str, kinds: Mapping[str, Mapping[str, Any]], count: int = 60) -> None:
        self._names = {kind: [f"{prefix}-{kind}-{number}.test" for number in range(count)] for kind in kinds}
        self._free = {kind: iter(names) for kind, names in self._names.items()}
        self.rows = {name: {"hosts": [name], **kinds[kind]} for kind in kinds for name in self._names[kind]}

    def place(self, upstream: Upstream, kind: str) -> Place:
        return upstream.place(next(self._free[kind]))


@dataclass
class Agent:
    """A client with a credential of its own at one place."""

    proxy: Proxy
    place: Place
    path: str
    name: str = "agent"
    scheme: str = "http"
    port: int | None = None
    more: Pairs = ()
    """Further headers of each request."""

    @property
    def url(self) -> str:
        return self.place.url(self.path, self.scheme, self.port)

    @property
    def headers(self) -> Pairs:
        return [*account(f"{self.place.host}-{self.name}"), *self.more]

    def turn(self, text: str = "next", **more: object) -> Answer:
        return self.send(asked(text, **more))

    def send(self, body: bytes, headers: Pairs = ()) -> Answer:
        return ask(self.proxy, self.url, body, [*self.headers, *headers])

    def answered(self, reply: Reply | None = None) -> Agent:
        """A turn that is answered: whatever comes next is a replay until the gap is over."""
        self.place.then(reply or streamed(anthropic("Hello")))
        answer = self.turn("first")
        assert (answer.status, answer.whole) == (200, True), answer.body
        return self

    def connection(self) -> Connection:
        return Connection(self.proxy, self.url)

    @property
    def sends(self) -> list[Hit]:
        """What reached the upstream since its first answer."""
        return self.place.hits[1:]


def gaps(hits: Iterable[Hit]) -> list[float]:
    """Seconds between requests as the upstream saw them."""
    return [later.at - earlier.at for earlier, later in itertools.pairwise(hits)]
