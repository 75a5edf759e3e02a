"""Evidence: what can be known of each exchange about why it was refused, without keeping anything that was said.

A record compares a request with the previous one of its session. It holds sizes, counts, names of content kinds and keyed hashes:
no prompt, no credential, no token.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Collection
from functools import lru_cache
from hashlib import blake2b
from typing import Any, TypeVar

import msgspec

from policies.kinds import Challenge, Finding, Kind

TEXT_LIMIT = 100
"""Characters of a name that a client chose (its model) in a record."""
Value = TypeVar("Value")


class _Exchange(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What is known of an exchange, and stands in its record too."""

    wall: float
    """Seconds since the epoch, when the request was complete."""
    upstream: str
    wire: str
    model: str
    session: str
    account: str
    size: int
    """Bytes of the body."""
    digest: str
    """Of what is asked: a re-send has an equal one."""
    roles: tuple[str, ...] = ()
    """One for each message, in their order; of a record each once."""
    gap_session: float | None = None
    """Seconds since the previous answer of the session ended."""
    gap_account: float | None = None
    new_connection: bool | None = None
    """True where the upstream connection was made for this request, None where that is unknown."""
    attempt: int = 1
    """Sends in all: 1, and more where it was sent again in place."""
    side: bool = False
    """A side request: neither compared with the conversation nor taken for its previous request."""


class Facts(_Exchange, frozen=True, kw_only=True, gc=False):
    """Exchange with an upstream, as the caller saw it. Digests and hashes are hashed again before they are kept."""

    prefix: Callable[[int], str] | None = None
    """Gives the digest of all messages but the last so many; called at once and not kept."""
    markers: Collection[str] = frozenset()
    """Kinds of content in the body."""
    token: str | None = None
    """Hash of the one-time captcha token in the request."""
    first: Finding | None = None
    """What the first send found, where there were more; without it that is taken for a passing refusal."""


class Record(_Exchange, frozen=True, kw_only=True, gc=False):
    """Record of an exchange, ready to be counted or written down. A comparison is None where there is nothing to compare with."""

    size_change: int | None = None
    """Bytes against the previous request of the session."""
    same_digest: bool | None = None
    prefix_changed: bool | None = None
    shrunk: bool | None = None
    new_roles: tuple[str, ...] | None = None
    new_markers: tuple[str, ...] | None = None
    """Kinds of content that the previous body lacked."""
    previous_refused: bool | None = None
    token_seen_before: bool | None
    """None where the request carries no one-time token."""
    finding: str
    """A ``Kind`` value: of the last send."""
    row: str
    refused: bool
    """The client's own send was refused in passing, by a challenge, rate limit or overload; see ``refused``."""
    refused_at_last: bool
    """The last send was; False where a re-send in place was not refused again."""


def refused(finding: Finding) -> bool:
    """True for what a trigger may explain: not for quota, account, overflow, a plain caller error, or a body that is too large."""
    if finding.kind is Kind.CALLER_ERROR:
        return finding.transient
    return finding.kind in (Kind.RATE_LIMIT, Kind.OVERLOAD, Kind.CHALLENGE) and finding.challenge is not Challenge.BODY_SIZE


class _Previous(msgspec.Struct, frozen=True, gc=False):
    size: int
    digest: str
    whole: str
    """Digest of all its messages."""
    messages: int
    roles: frozenset[str]
    markers: frozenset[str]
    refused: bool


class Evidence:
    """The latest records, and as much of each session's previous request as the next comparison needs."""

    def __init__(self, limit: int = 5000, *, key: bytes = b"", sessions: int = 10_000, tokens: int = 10_000) -> None:
        """``key``: at most 64 bytes, for the hashes; a random one makes records of two runs incomparable."""
        self._key = key
        self._records: deque[Record] = deque(maxlen=limit)
        self._previous: OrderedDict[str, _Previous] = OrderedDict()
        self._tokens: OrderedDict[str, None] = OrderedDict()
        self._limits = (sessions, tokens)
        self._name = lru_cache(maxsize=1024)(self._hashed)
        """Of what comes again and again: sessions and accounts."""

    def note(self, facts: Facts, finding: Finding) -> Record:
        """Keep one exchange and what came of it. For those that reached an upstream, in the order in which they ended."""
        session, last = self._name(facts.session), refused(finding)
        first = last if facts.attempt == 1 else facts.first is None or refused(facts.first)
        known = {name: getattr(facts, name) for name in _Exchange.__struct_fields__}
        known |= {"session": session, "account": self._name(facts.account), "digest": self._hashed(facts.digest)}
        known |= {
            "model": facts.model[:TEXT_LIMIT].encode("utf-8", "replace").decode(),
            "roles": tuple(sorted(set(facts.roles))),
        }
        known |= {"finding": finding.kind.value, "row": finding.row, "refused": first, "refused_at_last": last}
        record = Record(**known, **self._compare(session, facts), token_seen_before=self._seen(facts.token))
        if not facts.side:
            self._remember(session, facts, refused=last)
        self._records.append(record)
        return record

    def records(self) -> tuple[Record, ...]:
        """Oldest first."""
        return tuple(self._records)

    def _compare(self, session: str, facts: Facts) -> dict[str, Any]:
        """Differences from the previous request of the session, as members of a record; none where there is no such."""
        previous = self._previous.get(session)
        if previous is None or facts.side:
            return {}
        return {
            "size_change": facts.size - previous.size,
            "same_digest": facts.digest == previous.digest,
            "prefix_changed": _prefix_changed(facts, previous),
            "shrunk": facts.size < previous.size,
            "new_roles": tuple(sorted(set(facts.roles) - previous.roles)),
            "new_markers": tuple(sorted(set(facts.markers) - previous.markers)),
            "previous_refused": previous.refused,
        }

    def _seen(self, token: str | None) -> bool | None:
        if token is None:
            return None
        hashed = self._hashed(token)
        seen = hashed in self._tokens
        _keep(self._tokens, hashed, None, self._limits[1])
        return seen

    def _remember(self, session: str, facts: Facts, *, refused: bool) -> None:
        whole, roles = facts.prefix(0) if facts.prefix else "", frozenset(facts.roles)
        said = (facts.size, facts.digest, whole, len(facts.roles), roles, frozenset(facts.markers))
        _keep(self._previous, session, _Previous(*said, refused), self._limits[0])

    def _hashed(self, text: str) -> str:
        return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8, key=self._key).hexdigest() if text else ""


def _keep(kept: OrderedDict[str, Value], key: str, value: Value, most: int) -> None:
    """Keep a value as the newest of at most so many."""
    kept[key] = value
    kept.move_to_end(key)
    if len(kept) > most:
        kept.popitem(last=False)


def _prefix_changed(facts: Facts, previous: _Previous) -> bool | None:
    """False where the conversation only grew: what the previous request held still stands at its beginning."""
    if facts.digest == previous.digest:
        return False
    added = len(facts.roles) - previous.messages
    if added < 0:
        return True
    return facts.prefix(added) != previous.whole if facts.prefix and previous.whole else None
