"""Agents that take one turn after the other, and the two proxies that their tests share."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.e2e.lab.client import Answer, Connection, Pairs, ask
from tests.e2e.lab.proxy import Proxy
from tests.e2e.lab.script import Hit, Place, Reply
from tests.e2e.lab.upstream import Upstream
from tests.e2e.lab.wires import account, anthropic, asked, streamed

SLOW = 3.0
"""Seconds before a send that is never to come, since its client leaves before it is due."""
WINDOW = 4000
"""Tokens of the models whose names begin with `small`."""
ONE_STRIKE = {"strikes": 1, "open_seconds": 0.3}
CALM = {"replay": {"gap_seconds": 0}, "breaker": {"strikes": 1000}}
"""Nothing is a replay, and no challenge stops the next request."""

KINDS: Mapping[str, Mapping[str, Any]] = {
    "zcode": {"family": "zcode"},
    "zai": {"family": "zai"},
    "dashscope": {"family": "dashscope"},
    "web": {"family": "qwen-web"},
    "once": {"family": "zcode", "replay": {"max_attempts": 1}},
    "nocaptcha": {"family": "zcode", "replay": {"captcha": False}},
    "nowait": {"family": "zcode", "replay": {"base_seconds": 0}},
    "slow": {"family": "zcode", "replay": {"base_seconds": SLOW}},
    "paced": {"family": "zcode", "replay": {"min_gap_seconds": 0.6}},
    "patient": {"family": "zcode", "replay": {"min_gap_seconds": SLOW}},
    "human": {"family": "zcode", "replay": {"gap_seconds": 0.2}},
    "fragile": {"family": "zcode", "breaker": ONE_STRIKE},
    "brittle": {"family": "zcode", "breaker": {"strikes": 1}},
    "waiting": {"family": "zcode", "breaker": {"strikes": 1}, "replay": {"base_seconds": 2}},
    "calm-zai": {"family": "zai", **CALM},
    "calm-zcode": {"family": "zcode", **CALM},
    "calm-dashscope": {"family": "dashscope", **CALM},
    "calm-web": {"family": "qwen-web", **CALM},
    "shut": {"family": "zai", "breaker": ONE_STRIKE, "replay": {"gap_seconds": 0}},
    "struck": {"family": "zai", "breaker": {"strikes": 1}, "replay": {"gap_seconds": 0}},
}
"""Upstreams by the settings that are their own."""
COUNTS = {"calm-zai": 120}
"""How many there are of a kind, where not 40."""

NAMES = {kind: [f"{kind}-{number}.test" for number in range(COUNTS.get(kind, 40))] for kind in KINDS}
UPSTREAMS: dict[str, Any] = {name: {"hosts": [name], **KINDS[kind]} for kind, names in NAMES.items() for name in names}
_free = {kind: iter(names) for kind, names in NAMES.items()}

SIGNATURES: Sequence[Mapping[str, Any]] = (
    {"name": "napping", "family": "zai", "finding": "overload", "field": "error.code", "equals": 777001, "wait": 13},
    {"name": "slider", "family": "zai", "finding": "challenge:captcha", "field": "puzzle.kind", "begins": "slide"},
    {"name": "crowd", "finding": "challenge:busy", "begins": "Zu viele Leute"},
    {"name": "credit", "family": "zai", "finding": "quota", "field": "error.code", "equals": "777002"},
    {"name": "slower", "family": "zai", "finding": "rate_limit", "field": "error.code", "equals": "777003", "wait": 7},
    {"name": "teapot", "family": "zai", "finding": "overload", "status": 418},
    {"name": "penalty", "family": "zcode", "finding": "challenge:blocked", "field": "code", "equals": "777004"},
)

CONFIG: dict[str, Any] = {
    # The upstream "gone" is whatever a test itself listens with.
    "upstreams": {**UPSTREAMS, "gone": {"hosts": ["127.0.0.1"], "family": "zcode"}},
    # A minute instead of a second: a loaded machine may take its time between two turns.
    "replay": {"gap_seconds": 60, "base_seconds": 0.2},
    "retry_after": {"challenge": 1, "overload": 1, "rate_limit": 1},
    "windows": {"small*": WINDOW},
    "signatures": SIGNATURES,
}
OFF: dict[str, Any] = {
    **CONFIG,
    "retry_after": {**CONFIG["retry_after"], "enforce": False},
    "side_requests": {"enabled": False},
    "signatures": [],
}
"""The same with these rules turned off."""


def place(upstream: Upstream, kind: str) -> Place:
    """A host of this kind that no other test uses: tests share a proxy and no state."""
    return upstream.place(next(_free[kind]))


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
