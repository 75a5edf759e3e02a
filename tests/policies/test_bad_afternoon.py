"""A bad afternoon: an upstream challenges everything for 70 seconds and then answers, and real clients' habits meet it.

Every client is a generator that sends and waits as its original was measured to; the clock is simulated.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import Counter
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

from policies.decisions import Commit, Decision, Refuse, Replace
from policies.exchange import Exchange
from tests.policies.exchanges import MTOP, OK, Controller
from tests.rows import over

BAD_SECONDS = 70.0
LATENCY = 0.05
AT_MOST = 4
PAGE = b'<!doctypehtml><html><head><meta name="aliyun_waf_aa" content="x"><meta name="aliyun_waf_bb" content="y"></head></html>'
FORMS = {
    "mtop": (200, MTOP, "application/json"),
    "page": (200, PAGE, "text/html"),
    "3007": (400, b'{"code":3007,"msg":"captcha verify failed"}', "application/json"),
}


@dataclass(frozen=True)
class Told:
    """What a client sees of an answer."""

    status: int
    wait: int = 0

    @property
    def answered(self) -> bool:
        return self.status == 200


@dataclass(frozen=True)
class Send:
    more: dict[str, Any] = field(default_factory=dict)


Client = Generator[Send | float, Told, bool]
"""Sends, sleeps for seconds, and returns whether its turn ended in the answer."""


def sdk(tries: int = 3) -> Client:
    """The Anthropic and OpenAI SDKs: three tries in all, Retry-After kept to the second."""
    for _ in range(tries):
        told = yield Send()
        if told.answered:
            return True
        yield float(told.wait)
    return False


def claude_code() -> Client:
    """2.1: eleven tries, each wait up to a quarter longer than told."""
    dice = random.Random(5)
    for _ in range(11):
        told = yield Send()
        if told.answered:
            return True
        yield told.wait * dice.uniform(1, 1.25)
    return False


def old_claude_code() -> Client:
    """2.0: the first refusal of a stream is followed at once by another spelling of the request, then eleven tries."""
    if (yield Send({"stream": True})).answered:
        return True
    yield 0.1
    for _ in range(11):
        told = yield Send({"max_tokens": 21333, "stream": False})
        if told.answered:
            return True
        yield float(told.wait)
    return False


def qwen_code() -> Client:
    """Four tries of its inner SDK, seven of the loop around it, both keep the wait."""
    for _ in range(7):
        if (yield from sdk(4)):
            return True
    return False


def endless() -> Client:
    """opencode before an HTML page: a request every 0.3 s for as long as it takes."""
    for _ in range(2000):
        if (yield Send()).answered:
            return True
        yield 0.3
    return False


def hasty() -> Client:
    """Thirty tries, 0.2 s apart, whatever it is told; then the person asks again after a minute."""
    for _ in range(4):
        for _ in range(30):
            if (yield Send()).answered:
                return True
            yield 0.2
        yield 60.0
    return False


CLIENTS: dict[str, Callable[[], Client]] = {
    "sdk": sdk,
    "claude code": claude_code,
    "claude code 2.0": old_claude_code,
    "qwen code": qwen_code,
    "endless": endless,
    "hasty": hasty,
}


class Afternoon:
    """The upstream, the guard and the clients, one event at a time."""

    def __init__(self, where: str, form: str, text: str = "") -> None:
        self.controller = Controller(text, now=0.0)
        self.where, self.form = where, FORMS[form]
        self.sends: Counter[str] = Counter()
        self.tries: Counter[str] = Counter()
        self.ended: dict[str, bool] = {}
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def joins(self, name: str, client: Client, *, at: float = 0.0, account: str = "a", **more: Any) -> None:
        self._later(at, lambda: self._go_on(name, client, None, account, more))

    def passes(self) -> Afternoon:
        while self._events:
            self.controller.now, _, event = heapq.heappop(self._events)
            event()
        return self

    def _later(self, at: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (at, next(self._order), event))

    def _go_on(self, name: str, client: Client, told: Told | None, account: str, more: dict[str, Any]) -> None:
        try:
            step = next(client) if told is None else client.send(told)
        except StopIteration as over:
            self.ended[name] = over.value
            return
        if isinstance(step, Send):
            self._send(name, client, account, more, step)
        else:
            self._later(self.controller.now + step, lambda: self._woken(name, client, account, more))

    def _woken(self, name: str, client: Client, account: str, more: dict[str, Any]) -> None:
        self._go_on(name, client, None, account, more)

    def _send(self, name: str, client: Client, account: str, more: dict[str, Any], step: Send) -> None:
        self.tries[name] += 1
        ex, admission = self.controller.ask(self.where, f"turn of {name}", account=account, **{**more, **step.more})
        if isinstance(admission, Refuse):
            self.controller.settle(ex)
            self._go_on(name, client, self._told(admission), account, more)
            return
        self.sends[name] += 1
        bad = self.controller.now < BAD_SECONDS
        self._later(self.controller.now + LATENCY, lambda: self._reply(name, client, account, more, ex, bad=bad))

    def _reply(self, name: str, client: Client, account: str, more: dict[str, Any], ex: Exchange, *, bad: bool) -> None:
        status, body, kind = self.form if bad else (200, OK, "application/json")
        decision = self.controller.reply(ex, body, status, content_type=kind)
        self.controller.settle(ex)
        self._go_on(name, client, self._told(decision), account, more)

    def _told(self, decision: Decision | Refuse) -> Told:
        if isinstance(decision, Commit):
            return Told(200)
        assert isinstance(decision, Replace | Refuse)
        wait = int(dict(decision.answer.headers)["Retry-After"])
        assert 1 <= wait <= 59
        return Told(decision.answer.status, wait)


PLACES = [
    ("zai", "mtop"),
    ("zai", "page"),
    ("qwen-chat", "mtop"),
    ("qwen-chat", "page"),
    ("dashscope", "mtop"),
    ("zcode", "3007"),
]


@over(("where", "form"), PLACES)
@over("name", sorted(CLIENTS))
def test_a_turn_ends_in_the_answer_with_at_most_four_sends(name: str, where: str, form: str) -> None:
    afternoon = Afternoon(where, form)
    afternoon.joins(name, CLIENTS[name]())
    afternoon.passes()
    assert afternoon.ended == {name: True}
    assert afternoon.sends[name] <= AT_MOST, afternoon.tries


@over("name", sorted(CLIENTS))
@over("scope", ["upstream", "account"])
def test_so_do_the_turns_of_two_accounts_side_by_side(name: str, scope: str) -> None:
    afternoon = Afternoon("zai", "mtop", f"breaker: {{scope: {scope}}}")
    afternoon.joins("first", CLIENTS[name](), account="a")
    afternoon.joins("second", CLIENTS[name](), account="b", at=0.4)
    afternoon.passes()
    assert afternoon.ended == {"first": True, "second": True}
    assert max(afternoon.sends.values()) <= AT_MOST


@over("name", sorted(CLIENTS))
def test_so_does_a_turn_with_a_title_request_beside_it(name: str) -> None:
    """A title is asked once and given up, as clients do with background requests."""
    title: dict[str, Any] = {"max_tokens": 100, "system": [{"type": "text", "text": "You are naming a coding session"}]}
    for offset in (-0.2, 0.0, 0.2):
        afternoon = Afternoon("zai", "mtop")
        afternoon.joins("title", sdk(1), at=1 + offset, **title)
        afternoon.joins("main", CLIENTS[name](), at=1.0)
        afternoon.passes()
        assert afternoon.ended == {"main": True, "title": False}
        assert afternoon.sends["main"] <= AT_MOST
        assert afternoon.sends["title"] == 1


def test_all_of_them_at_once_send_no_more_than_one_each_and_what_finds_out() -> None:
    """Who keeps trying is answered; the upstream meets three strikes and a probe a window, and is spared the rest."""
    afternoon = Afternoon("zai", "mtop")
    for number, name in enumerate(sorted(CLIENTS)):
        afternoon.joins(name, CLIENTS[name](), at=number * 0.3, account=str(number))
    afternoon.passes()
    assert all(afternoon.ended[name] for name in CLIENTS if name != "sdk")
    assert max(afternoon.sends.values()) <= AT_MOST
    assert sum(afternoon.sends.values()) <= 5 + len(CLIENTS)


def test_without_remembered_refusals_and_breaker_the_hasty_one_hammers() -> None:
    afternoon = Afternoon("zai", "mtop", "{retry_after: {enforce: false}, breaker: {open_seconds: 0}}")
    afternoon.joins("hasty", hasty())
    assert afternoon.passes().sends["hasty"] > 30
