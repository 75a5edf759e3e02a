"""A rule or a hook of ours that raises: bytes and their times stay as they are, it is said once, counted, and holds no probe."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.e2e.conftest import QUICK, Proxies
from tests.e2e.lab.client import Answer, Connection, ask
from tests.e2e.lab.operated import breaker, press, status, until
from tests.e2e.lab.proxy import LAB, Proxy
from tests.e2e.lab.script import Gate, Place
from tests.e2e.lab.wires import COMPLETIONS, PAGE, account, asked, openai, openai_message, page, streamed, whole

Places = Callable[..., Place]

ASKING = [
    "policies.request.surfaces:Surfaces.recognise",
    "policies.rules:Rules.admit",
    "policies.rules:Rules._refusal",
    "policies.breaker:Breaker.admit",
    "policies.request.reading:read",
    "policies.windows:is_side",
    "operations.flow_adapter:_account",
    "operations.controller:exchange_of",
    "operations.controller:Controller.turn",
    "operations.controller:Controller._log",
]
HOLDING = [
    "operations.controller:reads",
    "operations.controller:Judge",
    "policies.exchange:Exchange.heard",
    "policies.judge:Judge.deadline",
    "policies.judge:Judge.decide",
    "policies.judge:Reader",
    "policies.breaker:Breaker.heard",
    "policies.breaker:Breaker.answered",
    "policies.exchange:Exchange.answer_began",
    "policies.decide:Ruling.held",
    "policies.answer.reader:Reader.feed",
    "policies.answer.reader:Reader._frames",
    "policies.refusal.recogniser:Recogniser.head",
    "policies.refusal.recogniser:Recogniser.frame",
    "policies.answer.frames:Framer.split",
    "operations.controller:HeldResponse",
    "operations.controller:head_of",
    "operations.controller:Controller.decided",
    "operations.held:HeldResponse._carry_out",
    "operations.held:amend",
]
RUNNING = [
    "policies.judge:Judge.streams",
    "policies.answer.reader:Reader.tap",
    "policies.answer.reader:Reader.tap_finish",
    "policies.answer.tap:Tap._go_on",
    "policies.answer.tap:Tap._release",
    "policies.refusal.recogniser:may_refuse",
]
ENDING = [
    "policies.rules:Rules.settle",
    "policies.breaker:Breaker.ended",
    "policies.replays:Sessions.finished",
    "operations.controller:describe",
    "operations.controller:Controller._settle",
    "operations.controller:Controller.response",
]
SELDOM = {"policies.judge:Judge.deadline", "policies.judge:Judge.streams", "policies.breaker:Breaker.heard"}
"""Not asked by every answer: only where there is silence, a late first frame, a probe."""


@pytest.fixture
def faulty(proxies: Proxies) -> Proxy:
    return proxies({**QUICK, "breaker": {"open_seconds": 0.2}}, scripts=(LAB / "faulty.py",))


def faults(proxy: Proxy) -> dict[str, int]:
    return dict(status(proxy)["counts"]["faults"])


def broken(name: str) -> list[tuple[str, str]]:
    return [("x-lab-fault", name)]


@pytest.mark.parametrize("name", [*ASKING, *HOLDING, *RUNNING, *ENDING])
def test_a_running_answer_passes_as_it_comes(faulty: Proxy, place: Places, name: str) -> None:
    gate = Gate()
    frames = openai("a", "b", "c")
    tail = frames[3][:11], frames[3][11:]
    here = place().then(streamed([*frames[:3], tail[0], gate, tail[1], *frames[4:]]))
    before, mark = faults(faulty), faulty.log_lines
    with Connection(faulty, here.url(COMPLETIONS)) as client:
        client.send(asked(), [*account(here.host), *broken(name)])
        answer = client.head()
        while len(answer.body) < sum(map(len, frames[:3])):
            assert client.piece(answer)
        gate.open()
        client.rest(answer)
    assert (answer.status, answer.body, answer.whole) == (200, b"".join(frames), True)
    assert answer.header("x-breakwater") is None
    assert_said_once(faulty, before, mark, met=name not in SELDOM)
    assert_free(faulty, here)


@pytest.mark.parametrize(
    "name", [*ASKING, *HOLDING, *ENDING, "policies.answer.reader:Reader.finish", "operations.held:respond"]
)
def test_a_whole_body_passes_or_is_judged_but_never_lost(faulty: Proxy, place: Places, name: str) -> None:
    here = place().then(page())
    before, mark = faults(faulty), faulty.log_lines
    answer = ask(faulty, here.url(COMPLETIONS), asked(), [*account(here.host), *broken(name)])
    assert answer.whole
    if answer.status == 200:
        assert answer.body == PAGE
    else:
        assert (answer.status, answer.header("retry-after")) == (503, "1")
    assert_said_once(faulty, before, mark, met=False)
    assert_free(faulty, here)


def assert_said_once(proxy: Proxy, before: dict[str, int], mark: int, *, met: bool) -> None:
    """Every kind is counted; one that was never met before is one line, any other none."""
    grown = {kind for kind, count in faults(proxy).items() if count != before.get(kind, 0)}
    assert grown or not met
    said = [line for line in proxy.log_since(mark).splitlines() if "traffic goes on unchanged" in line]
    assert len(said) == len(grown - set(before)), (said, grown)


def assert_free(proxy: Proxy, here: Place) -> None:
    """The next request is guarded as ever."""
    here.then(whole(openai_message()), page())
    assert answered(proxy, here, "sound").status == 200
    assert answered(proxy, here, "challenged").status == 503


def answered(proxy: Proxy, here: Place, text: str) -> Answer:
    return ask(proxy, here.url(COMPLETIONS), asked(text), account(here.host))


@pytest.mark.parametrize("name", [*ASKING[-2:], *HOLDING[:2], *HOLDING[-3:], *RUNNING[:2], *ENDING])
def test_a_probe_that_meets_a_fault_is_free_at_once(faulty: Proxy, place: Places, name: str) -> None:
    gate = Gate()
    frames = openai("a", "b")
    here = place().then(streamed([*frames[:3], gate, *frames[3:]]))
    half_open(faulty, here)
    with Connection(faulty, here.url(COMPLETIONS)) as client:
        client.send(asked("probe"), [*account(here.host), *broken(name)])
        answer = client.head()
        while len(answer.body) < sum(map(len, frames[:3])):
            assert client.piece(answer)
        if name in ENDING:
            gate.open()
            client.rest(answer)
        here.then(whole(openai_message()))
        assert answered(faulty, here, "next").status == 200
        if name not in ENDING:
            gate.open()
            client.rest(answer)
    assert answer.body == b"".join(frames)


def half_open(proxy: Proxy, here: Place) -> None:
    """Open this breaker by hand, and wait for the end of its window."""
    press(proxy, "open", upstream=here.host)
    until(lambda: breaker(proxy, here.host)["state"] != "open", "the window's end")
