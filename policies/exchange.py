"""One exchange under way: what the rules have learnt of it so far. The only mutable value that they pass around."""

from __future__ import annotations

import msgspec

from policies.answer.head import Head
from policies.answer.reader import Reader
from policies.breaker import Breaker, Permit, Transition
from policies.calls import Call
from policies.findings import Finding
from policies.kinds import Role


class Exchange(msgspec.Struct):
    """A client's request and what became of it. Times are monotonic seconds."""

    flow_id: str
    call: Call
    started: float
    site: str = ""
    """Host name of the upstream, for words to the client."""
    gap: float | None = None
    """Seconds since the previous answer of the session ended; None where there was none."""
    account_gap: float | None = None
    replay: bool = False
    side: bool = False
    breaker: Breaker | None = None
    """The one that was asked; None where none was."""
    permit: Permit | None = None
    """Its pass; None where it gave none."""
    sends: int = 1
    refused_here: bool = False
    head: Head | None = None
    headers_at: float = 0.0
    held: float | None = None
    """Seconds that the headers waited, once they are out."""
    preamble_at: float | None = None
    reader: Reader | None = None
    finding: Finding | None = None
    first: Finding | None = None
    """What the first send found, where the request was sent again."""
    waiting: bool = False
    """The next send was decided and has brought nothing yet."""
    paced: float = 0.0
    """Seconds that the first send was delayed."""
    tapped: Finding | None = None
    """A refusal seen in the stream after the commit."""
    committed: bool = False
    answered: bool = False
    settled: bool = False
    reason: str = ""
    comment: str = ""
    told: int | None = None
    """Seconds of Retry-After told to the client."""
    kept_from_sending: str = ""
    """Why a replay was not sent again, a ``replays.Why``."""
    waits: list[float] = []
    """Seconds waited before each re-send."""
    breaker_before: str = ""
    breaker_after: str = ""
    transitions: list[Transition] = []
    """Breaker transitions that this exchange caused, not yet logged."""
    notes: list[str] = []
    """One line per re-send or window learnt, not yet logged."""
    new_connection: bool | None = None

    @property
    def generation(self) -> bool:
        return self.call.surface.role is Role.GENERATION

    @property
    def request_id(self) -> str:
        """An id of our own for bodies that carry one."""
        return "req_" + self.flow_id.replace("-", "")[:24]
