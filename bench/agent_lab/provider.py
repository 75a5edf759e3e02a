"""The scripted upstream of the agents: refuses for a while, by chance, or above so many calls at a time, then answers."""

from __future__ import annotations

import asyncio
import random
import threading
from dataclasses import dataclass
from typing import NamedTuple

from bench.agent_lab import tools, wires
from bench.agent_lab.wires import Form, Wire
from tests.e2e.lab import wires as lab
from tests.e2e.lab.certificates import Authority
from tests.e2e.lab.script import Gate, Hit, Place, Reply
from tests.e2e.lab.upstream import Upstream


@dataclass(frozen=True)
class Behaviour:
    """What the upstream does. Times in seconds."""

    form: Form = "crowded"
    challenge_seconds: float = 0
    """From the first request that it would challenge."""
    chance: float = 1
    """How probable a challenge is within that time."""
    answer_seconds: float = 3
    """From a request to the first byte of its answer; nothing is sent before."""
    plan: int | None = None
    """How many calls at a time it takes; None: any number."""
    tool_turn: bool = False
    """The first request of a turn is answered at once by a tool call; only what follows meets the rest."""


class Send(NamedTuple):
    """One generation request that reached the upstream."""

    at: float
    """Monotonic seconds."""
    refused: bool


class Provider(Upstream):
    """Every host name is this one upstream; what is no generation request gets a quiet answer."""

    def __init__(self, authority: Authority, behaviour: Behaviour, seed: int = 1) -> None:
        super().__init__(authority)
        self._behaviour = behaviour
        self._chance = random.Random(seed)
        self._place = Place("everywhere", threading.Condition())
        self._until: float | None = None
        self._under_way: list[Hit] = []
        self.sends: list[Send] = []
        self.folder = "."
        """Where the agents' note lies, for a tool turn."""

    def received(self, hit: Hit) -> tuple[Place, Reply]:
        wire = wires.wire_of(hit.path)
        if hit.method != "POST" or wire is None:
            return self._place, _quiet(hit)
        reply, refused = self._generate(hit, wire)
        self.sends.append(Send(hit.at, refused))
        hit.body = b""
        return self._place, reply

    def _generate(self, hit: Hit, wire: Wire) -> tuple[Reply, bool]:
        """The reply, and whether it is a refusal."""
        asked = tools.parsed(hit.body)
        stream = asked.get("stream") is True
        if self._behaviour.tool_turn and not tools.has_result(hit.body):
            return wires.answered(wire, stream=stream, tool=tools.choose(asked, self.folder)), False
        if self._is_challenged(hit.at):
            return wires.challenged(self._behaviour.form, wire, stream=stream), True
        self._under_way = [each for each in self._under_way if each.finished_at is None and each.left_at is None]
        if self._behaviour.plan is not None and len(self._under_way) >= self._behaviour.plan:
            return wires.limited(wire), True
        self._under_way.append(hit)
        gate = Gate()
        asyncio.get_running_loop().call_later(self._behaviour.answer_seconds, gate.open)
        return wires.answered(wire, stream=stream, before=gate), False

    def _is_challenged(self, now: float) -> bool:
        if self._until is None:
            self._until = now + self._behaviour.challenge_seconds
        return now < self._until and self._chance.random() < self._behaviour.chance


def _quiet(hit: Hit) -> Reply:
    if hit.path.partition("?")[0].endswith("/count_tokens"):
        return lab.whole({"input_tokens": 900})
    if hit.method == "HEAD":
        return Reply(framing="none")
    return lab.whole({"error": {"message": "not here", "type": "not_found_error"}}, 404)
