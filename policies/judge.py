"""Judge of one answer as it comes: held until it is decided over, then watched while it passes.

held       feed … finish, tick and due where time passes, unsent where a re-send fails     -> a decision
running    tap                                                                              -> chunks, and the end
looked on  look_on: an answer that nobody can hold any more, live or out of a recording     -> both
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from policies.answer.reader import Reader
from policies.decide import Ruling
from policies.decisions import Commit, Decision, End, Queue, Resend
from policies.exchange import Exchange
from policies.kinds import Finding, Head, Kind, Role

Ruled = TypeVar("Ruled", Commit, Decision, End)

LONGEST_LENGTH = 18
"""Digits of a content-length that are read; more are no shorter body."""
FIRST_LOOK_SECONDS = 1.0
"""After headers that came later than that, in which their first bytes are still judged."""
BODILESS = frozenset({101, 204, 304})
DOCUMENTS = frozenset({"", "application/json", "text/html", "text/json", "text/plain"})
"""Media types that are looked at off the generation paths."""
SAYS_BETTER = frozenset({Kind.ANSWER, Kind.CHALLENGE, Kind.QUOTA, Kind.OVERFLOW})
"""In a body, against the sign of a captcha in its headers: what no wait cures is not told as if one did."""


def reads(ex: Exchange, head: Head) -> bool:
    """Tell whether the body of this answer is looked at at all."""
    role = ex.call.surface.role
    if role is Role.PERSON or ex.call.method == "HEAD" or head.status in BODILESS:
        return False
    if role is Role.GENERATION:
        return True
    length = head.get("content-length")
    long = length.isdecimal() and int(length[:LONGEST_LENGTH]) > ex.state.settings.hold.bytes
    return head.media_type in DOCUMENTS and not long


class Judge:
    """Judge of one answer, from its headers on. Every ``now`` is monotonic seconds, every ``wall`` Unix seconds."""

    def __init__(self, ex: Exchange, head: Head, now: float) -> None:
        self.ex = ex
        endless = not ex.generation and not head.get("content-length")
        held = ex.state.settings.hold.bytes
        self.reader = Reader(ex.call.surface, head, ex.state.recogniser, held, first_only=endless)
        self._headers_at = now
        self._preamble_at: float | None = None
        self._ruled: Decision | End | None = None
        self._passed: list[bytes] = []
        """Of an answer that is looked on: what came before the decision; the reader gives one at ``hold.bytes`` at the latest."""
        ex.head, ex.reader, ex.waiting = head, self.reader, False
        ex.heard(now)

    def deadline(self) -> float:
        """Monotonic seconds at which held headers go out at the latest."""
        hold = self.ex.state.settings.hold
        first = self._headers_at + hold.silence_seconds
        if self._preamble_at is not None:
            first = self._preamble_at + hold.seconds
        return min(first, max(self.ex.started + self.ex.patience.headers, self._headers_at + FIRST_LOOK_SECONDS))

    # -- while it is held -------------------------------------------------------------------------------------

    def feed(self, data: bytes, now: float, wall: float) -> Decision | None:
        """Judge the next bytes; None: go on holding."""
        finding = self.reader.feed(data)
        self.ex.heard(now)
        if self._preamble_at is None and self.reader.preamble:
            self._preamble_at = now
        return None if finding is None else self.decide(finding, now, wall)

    def finish(self, *, cut: bool, now: float, wall: float) -> Decision:
        """Judge what has come at its end; ``cut``: the upstream broke off."""
        return self.decide(self.reader.finish(cut=cut), now, wall)

    def tick(self, now: float, wall: float) -> Decision | None:
        """Look at the clock: at the deadline the headers go out, unless what has come is a refusal for certain."""
        if now < self.deadline():
            return None
        finding = self.reader.cap()
        if finding.kind in (Kind.ANSWER, Kind.NOTHING):
            return self._keep(Commit(attempts=self.ex.sends), now)
        return self.decide(finding, now, wall)

    def decide(self, finding: Finding, now: float, wall: float) -> Decision:
        """Decide over a finding; what the headers alone say goes before it, unless the body is an answer or says it better."""
        early = self.reader.early
        if early is not None and (finding.kind not in SAYS_BETTER or self._is_filler(finding)):
            finding = early
        return self._keep(Ruling(self.ex, finding, now, wall).held(), now)

    def _is_filler(self, finding: Finding) -> bool:
        """Tell a server's own filler: off the generation paths every page passes as an answer, also beside a captcha's headers."""
        redirects = self.ex.head is not None and 300 <= self.ex.head.status < 400
        return finding.kind is Kind.ANSWER and (finding.row == "html" or redirects)

    def due(self, now: float, wall: float) -> Decision | None:
        """End the wait before a re-send; where the breaker has left closed meanwhile, the refusal before it stands."""
        self.ex.waiting = False
        if self.ex.state.breaker(self.ex.call).closed:
            return None
        self.ex.resends.pop()
        return self.unsent(now, wall)

    def unsent(self, now: float, wall: float) -> Decision | None:
        """Let the refusal before a re-send stand that could not reach the upstream; the sends that there were are told."""
        if not isinstance(self._ruled, Resend) or self._ruled.finding is None:
            return None
        return self._keep(Ruling(self.ex, self._ruled.finding, now, wall).unsent(), now)

    # -- while it passes --------------------------------------------------------------------------------------

    def tap(self, data: bytes, now: float, wall: float) -> tuple[tuple[bytes, ...], End | None]:
        """Chunks that go on, and the end where a refusal is in the bytes; ``b""`` is the end of the body."""
        tapped = self.reader.tap(data) if data else self.reader.tap_finish()
        self.streams(now)
        if tapped.finding is None:
            return tapped.passed, None
        ruling = Ruling(self.ex, tapped.finding, now, wall)
        return tapped.passed, self._keep(ruling.running(withheld=tapped.withheld), now)

    def streams(self, now: float) -> None:
        """Note that an answer runs: the lease goes on, and the first answer frame may have come after the commit."""
        self.ex.heard(now)
        if not self.ex.answered and self.ex.generation and self.reader.answered:
            self.ex.answer_began(now)

    @property
    def passes(self) -> Callable[[bytes], bool] | None:
        """The short way of a chunk with nothing in it to be looked at; None before the answer began, and of a probe."""
        ex = self.ex
        return None if not ex.answered or ex.probes else self.reader.passes

    # -- where nothing can be held ----------------------------------------------------------------------------

    def look_on(self, data: bytes, now: float, wall: float) -> list[Decision | End]:
        """Judge bytes that pass as they come, ``b""`` at their end; what would be decided over them."""
        decided: list[Decision | End] = []
        if self._ruled is None:
            self._passed.append(data)
            decision = self.feed(data, now, wall) if data else self.finish(cut=False, now=now, wall=wall)
            if decision is None:
                return []
            decided.append(decision)
            data, self._passed = b"".join(self._passed), []  # the tap reads from the first byte on
        if data:  # of a refused answer the reader says no more
            _, end = self.tap(data, now, wall)
            decided += [end] if end else []
        return decided

    def _keep(self, decision: Ruled, now: float) -> Ruled:
        self.ex.decision = self._ruled = decision
        if isinstance(decision, Resend):
            self.ex.resends.append(decision)
            self.ex.waiting = True
        elif not isinstance(decision, End | Queue):
            self.ex.held = now - self._headers_at
        return decision
