"""The enums that everything speaks in, the finding that is made of them, and an answer's head. Imports nothing of ours."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal


class Family(StrEnum):
    """Which vendor's codes and envelopes an upstream speaks."""

    QWEN_WEB = "qwen-web"
    DASHSCOPE = "dashscope"
    ZAI = "zai"
    ZAI_WEB = "zai-web"
    ZCODE = "zcode"


class Wire(StrEnum):
    """The dialect in which a client of this path expects its answer and its errors."""

    ANTHROPIC = "anthropic"
    OPENAI = "openai"
    RESPONSES = "responses"
    IMAGES = "images"
    VIDEOS = "videos"
    QWEN_WEB = "qwen-web"
    ZAI_WEB = "zai-web"
    DASHSCOPE_NATIVE = "dashscope-native"
    OTHER = "other"


class Role(StrEnum):
    """What a path is for, which says how much the rules may do to it."""

    GENERATION = "generation"
    """A model is asked: held, gated, counted."""
    PREPARATION = "preparation"
    """A step before a generation on chat.qwen.ai (chats/new, files/getstsToken, files/parse)."""
    OTHER = "other"
    """Anything else on a configured host: passes; a challenge in a small JSON or HTML answer is still told truthfully."""
    PERSON = "person"
    """A page navigation or a ``_____tmd_____`` path: a person solving the slider. Never touched, never counted."""


class Kind(StrEnum):
    """The kinds of answer that the rules tell apart."""

    ANSWER = "answer"
    CHALLENGE = "challenge"
    OVERLOAD = "overload"
    RATE_LIMIT = "rate_limit"
    QUOTA = "quota"
    ACCOUNT = "account"
    FILTER = "filter"
    OVERFLOW = "overflow"
    CALLER_ERROR = "caller_error"
    UPSTREAM_ERROR = "upstream_error"
    NOTHING = "nothing"


class Challenge(StrEnum):
    """Which challenge it is, which decides the words and the memory of it."""

    BUSY = "busy"
    CAPTCHA = "captcha"
    BLOCKED = "blocked"
    BODY_SIZE = "body-size"


class Crowd(StrEnum):
    """When a refusal means "too many calls at a time"."""

    ALWAYS = "always"
    """Said so (z.ai 1302, zcode 3009, concurrency texts)."""
    WITH_OTHERS = "with_others"
    """Where other calls of that account are under way (z.ai 1305); alone it means what its kind says."""


class Reason(StrEnum):
    """Why an answer is ours, or what an upstream's answer was: one code for log, comment, header, metric and test.

    The members of ``Kind`` stand here too, with the challenges told apart.
    """

    BUSY = "challenge_busy"
    CAPTCHA = "challenge_captcha"
    BLOCKED = "challenge_blocked"
    BODY_SIZE = "challenge_body_size"
    OVERLOAD = "overload"
    RATE_LIMIT = "rate_limit"
    QUOTA = "quota"
    ACCOUNT = "account"
    FILTER = "filter"
    OVERFLOW = "overflow"
    CALLER_ERROR = "caller_error"
    UPSTREAM_ERROR = "upstream_error"
    CUT = "upstream_cut"
    ANSWER = "answer"
    NOTHING = "nothing"
    BREAKER_OPEN = "breaker_open"
    PROBE_OUT = "breaker_probing"
    REMEMBERED_WAIT = "remembered_wait"
    STATED_WAIT = "stated_wait"
    NO_SLOT = "no_slot"
    SLOW_START = "slow_start"
    QUEUE_FULL = "queue_full"
    CLOSING = "closing"
    ACCOUNT_BLOCKED = "account_blocked"
    REMEMBERED_OVERFLOW = "remembered_overflow"
    REMEMBERED_BODY_SIZE = "remembered_body_size"
    SIDE_REQUEST = "side_request_over_window"


@dataclass(frozen=True, slots=True)
class Finding:
    """Finding over an upstream's answer, read from the envelope and never from what a model wrote."""

    kind: Kind
    row: str = ""
    """Id of the table row or rule that recognised it, for log, metadata and tests."""
    code: str | None = None
    """The upstream's own code as text."""
    text: str = ""
    """The upstream's own message, at most 500 characters, without captcha URL or token."""
    challenge: Challenge | None = None
    wait: float | None = None
    """Seconds that the upstream itself asks for; may exceed any cap."""
    wait_source: Literal["header", "body", "text"] | None = None
    reset: str | None = None
    """A reset time as the upstream wrote it (UTC+8 where it names no zone)."""
    status: int | None = None
    """The status this answer should have had, where it hides in another one (a 200)."""
    window: int | None = None
    """Tokens of the context window that an overflow text states."""
    transient: bool = False
    """A second, slower try may cure it (a rate limit, an overload, a 5xx, zcode 3007, a 4xx with a marker row)."""
    honest: bool = False
    """Already told truthfully: 529/503 with a Retry-After of 1 to 59 and no challenge in it, or another Breakwater's
    429, 503 or 529 with a Retry-After of 1 to 59."""
    crowd: Crowd | None = None
    """Too many calls at a time; None where it says something else."""
    ends_answer: bool = False
    """Named by a finish_reason or stop_reason: it ends an answer, is counted as its kind and passes unchanged."""
    cut: bool = False
    """The upstream's connection ended before the body did."""
    excerpt: bytes = field(default=b"", repr=False)
    """At most 2 KiB of the upstream's body, captcha token cut out, kept on the flow for mitmweb."""


ANSWER = Finding(Kind.ANSWER, row="answer")


class Head:
    """Status line and headers of an upstream's answer, as plain values."""

    __slots__ = ("_first", "headers", "media_type", "received", "status")

    def __init__(self, status: int, headers: tuple[tuple[str, str], ...] = (), received: float | None = None) -> None:
        """``headers``: pairs in wire order, names in any case."""
        self.status = status
        self.headers = headers
        self.received = received
        """Unix seconds, for a wait that is told as a date by an upstream that sends no Date."""
        self._first = {name.lower(): value for name, value in reversed(headers)}
        self.media_type = self.get("content-type").partition(";")[0].strip().lower()
        """Content-type without parameters, lower case."""

    def get(self, name: str) -> str:
        """The first value of a header, name in lower case; empty where absent."""
        return self._first.get(name, "")
