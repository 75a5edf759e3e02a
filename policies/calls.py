"""Call of a client: the surface it calls, and what the rules read of one request."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import msgspec

from policies.kinds import Family, Role, Wire
from policies.request.body import NOTHING, MessageList, RequestBody, asked


@dataclass(frozen=True, slots=True)
class Surface:
    """Surface: one configured host and path, recognised."""

    upstream: str
    """Name of the upstream, the key of its breaker."""
    family: Family
    wire: Wire
    role: Role


class Call(msgspec.Struct, frozen=True, dict=True):
    """Request of a client, as far as a rule may know it. Never logged: it holds the body."""

    surface: Surface
    method: str
    path: str
    """Without the query: some carry keys."""
    account: str
    """Keyed hash of the credential, or of the client's address where there is none."""
    model: str = ""
    output_budget: int | None = None
    """Output tokens asked for; None where absent or no positive whole number."""
    stream: bool = False
    tools: bool = False
    """True where a non-empty ``tools`` array is present."""
    thinking: bool = False
    long_context: bool = False
    """``anthropic-beta: context-1m…`` or a ``[1m]`` model suffix."""
    trait: str | None = None
    """Name of the side-request trait row that matched (facts of real clients), or None."""
    session_id: str | None = None
    """The client's own session id, where it sends one."""
    one_time_token: str | None = None
    """Keyed hash of a one-time captcha token in the request, or None."""
    size: int = 0
    """Bytes of the body as sent."""
    body: bytes = b""
    """The body, decoded for reading; empty where it could not be read."""
    fields: RequestBody | None = None
    """Slices of the body; None where it is no JSON object."""
    history: MessageList = MessageList(Wire.OTHER, NOTHING)
    """The messages of the body."""
    hashed: Callable[[str], str] = str
    """Keyed hash of a text: a plain one of what was asked could be guessed from its rows."""
    session: str = ""
    """Upstream + account + model + the client's session id, else the digest of the system prompt."""

    def __repr__(self) -> str:
        return f"Call({self.surface}, {self.path!r}, {self.size} bytes)"

    @cached_property
    def digest(self) -> str:
        """Keyed digest of what is asked: model, system, messages or input, tools."""
        return self.hashed(asked(self.surface.wire, self.body, self.fields, self.history))
