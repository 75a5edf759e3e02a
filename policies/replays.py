"""Replays: requests that come within a second of the previous answer, and how they are repeated, more slowly.

A round is the set of sends of one request: the client's own and at most ``max_attempts - 1`` re-sends in place, while the
response's headers are still held. Every step is one question, ``Replays.next``, answered by seconds or a ``Why``:

    refused ── is it one that a slower try may cure? ── may this request be sent again at all? ── when?
               CURABLE, zcode 3007                      ``forbidden``, one round a minute          tenacity: wait, stop

Nothing here is a way round a captcha: of all challenges only zcode's 3007 is repeated, and never with a one-time token.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any

from tenacity.stop import stop_after_attempt, stop_before_delay
from tenacity.wait import wait_exponential

from policies.kinds import Finding, Kind
from policies.settings import ReplaySettings

LONGEST_WAIT_SECONDS = 10.0
"""A longer wait goes to the client, who can do something else meanwhile."""
LATEST_START_SECONDS = 40.0
"""After the request. Some clients give up at 120 s, and the answer needs its own time."""
ROUND_SECONDS = 60.0
"""Between two rounds of one account and digest, counted from the decision for its last re-send."""
ZCODE_CAPTCHA_CODE = "3007"
"""The only challenge that a slower try has cured (ranxianglei/billion-context#189: five replays refused, each next human-paced turn passed)."""
CURABLE = frozenset({Kind.RATE_LIMIT, Kind.OVERLOAD, Kind.UPSTREAM_ERROR, Kind.CALLER_ERROR})


class Why(StrEnum):
    """Reason why a request is not sent again."""

    NOT_TRANSIENT = "not_transient"
    CHALLENGE = "challenge"
    CAPTCHA_OFF = "captcha_off"
    CUT = "cut"
    BREAKER = "breaker_not_closed"
    ONE_TIME_TOKEN = "one_time_token"  # noqa: S105
    SECOND_ROUND = "second_round"
    ATTEMPTS = "attempts_spent"
    LONG_WAIT = "wait_too_long"
    LATE = "too_late"


@dataclass(frozen=True, slots=True)
class Attempt:
    """Replay that an upstream refused, at the moment of the decision."""

    sends: int
    """Sends so far, the client's own included: 1 and up."""
    started: float
    """When the client's request was complete, on the clock of ``now``."""
    account: str
    digest: str
    one_time_token: bool
    breaker_closed: bool
    settings: ReplaySettings


Step = float | Why
"""Seconds from now after which the request is sent once more, or why its client gets this refusal."""


class Recent:
    """Times at which each key last happened: of the latest ``limit`` keys, none older than ``ttl`` seconds."""

    def __init__(self, limit: int, ttl: float) -> None:
        self._limit = limit
        self._ttl = ttl
        self._times: OrderedDict[Hashable, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._times)

    def happened(self, key: Hashable, now: float) -> None:
        self._times[key] = now
        self._times.move_to_end(key)
        while self._times and (len(self._times) > self._limit or now - next(iter(self._times.values())) > self._ttl):
            self._times.popitem(last=False)

    def since(self, key: Hashable, now: float) -> float | None:
        """Seconds since it happened, None where that is unknown, too long ago, or (in a recording) still to come."""
        time = self._times.get(key)
        return None if time is None or not 0 <= now - time <= self._ttl else now - time


class Sessions:
    """Ends of the previous answers, by session and by account: their last byte to the client.

    Side requests and refusals are no answers of a session and are never told here.
    """

    def __init__(self, limit: int = 10_000, ttl: float = 3600) -> None:
        self._sessions = Recent(limit, ttl)
        self._accounts = Recent(limit, ttl)

    def __len__(self) -> int:
        return len(self._sessions)

    def finished(self, session: str, now: float, account: str = "") -> None:
        self._sessions.happened(session, now)
        if account:
            self._accounts.happened(account, now)

    def place(
        self, session: str, account: str, now: float, settings: ReplaySettings
    ) -> tuple[float | None, float | None, bool]:
        """Seconds since the previous answer of this session, and of this account, ended; and whether this is a replay.

        None where there was no such answer within the last hour.
        """
        gap = self._sessions.since(session, now)
        return gap, self._accounts.since(account, now), is_replay(gap, settings)


@dataclass(slots=True)
class Sent:
    """The sends so far, as far as tenacity's wait and stop strategies ask for them."""

    attempt_number: int
    seconds_since_start: float
    upcoming_sleep: float = 0.0


def incurable(finding: Finding, settings: ReplaySettings) -> Why | None:
    """Reason why a slower try cannot cure a finding, or None where it may."""
    if finding.kind is Kind.CHALLENGE:
        if finding.code != ZCODE_CAPTCHA_CODE or not finding.transient:
            return Why.CHALLENGE
        return None if settings.captcha else Why.CAPTCHA_OFF
    if finding.cut:
        return Why.CUT
    return None if finding.transient and finding.kind in CURABLE else Why.NOT_TRANSIENT


def forbidden(attempt: Attempt) -> Why | None:
    """Reason why a request may not be sent again whatever its refusal was, or None."""
    if not attempt.breaker_closed:
        return Why.BREAKER
    return Why.ONE_TIME_TOKEN if attempt.one_time_token else None


def is_replay(gap: float | None, settings: ReplaySettings) -> bool:
    return gap is not None and gap < settings.gap_seconds


def pace(gap: float | None, settings: ReplaySettings) -> float:
    """Seconds to hold a replay back until ``min_gap_seconds`` have passed; 0 for anything that is no replay."""
    if gap is None or not is_replay(gap, settings):
        return 0.0
    return min(max(0.0, settings.min_gap_seconds - gap), settings.min_gap_seconds)


class Replays:
    """Decides, one step at a time, whether a refused replay is sent again. Remembers rounds, and nothing else."""

    def __init__(self, limit: int = 10_000) -> None:
        self._rounds = Recent(limit, ROUND_SECONDS)

    def next(self, attempt: Attempt, finding: Finding, now: float) -> Step:
        key = (attempt.account, attempt.digest)
        if why := forbidden(attempt) or incurable(finding, attempt.settings):
            return why
        if attempt.sends == 1 and self._rounds.since(key, now) is not None:
            return Why.SECOND_ROUND
        wait, stops = _strategies(attempt.settings)
        sent = Sent(attempt.sends, now - attempt.started)
        sent.upcoming_sleep = max(float(wait(sent)), finding.wait or 0.0)
        if why := next((why for why, stop in stops if stop(sent)), None):
            return why
        self._rounds.happened(key, now)
        return sent.upcoming_sleep


Strategy = Callable[[Any], Any]


@lru_cache(maxsize=64)
def _strategies(settings: ReplaySettings) -> tuple[Strategy, tuple[tuple[Why, Strategy], ...]]:
    """The wait, and what stops a round once that is known, in the order in which it is asked."""
    stops: tuple[tuple[Why, Strategy], ...] = (
        (Why.ATTEMPTS, stop_after_attempt(settings.max_attempts)),
        (Why.LONG_WAIT, lambda sent: sent.upcoming_sleep > LONGEST_WAIT_SECONDS),
        (Why.LATE, stop_before_delay(LATEST_START_SECONDS)),
    )
    return wait_exponential(multiplier=settings.base_seconds), stops
