"""The settings: the whole contract of config.yaml as frozen values. Default, range and unit of a key stand here alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from msgspec import Meta

from policies.kinds import Challenge, Family, Kind

DAY = 86400
MIB = 1 << 20
FINDINGS = (*Kind, *(f"{Kind.CHALLENGE}:{which}" for which in Challenge if which is not Challenge.BODY_SIZE))
"""What a signature may mean."""


def between(low: float, high: float, unit: str = "") -> Meta:
    """A number of ``unit`` from ``low`` to ``high``, both included."""
    return Meta(ge=low, le=high, extra={"unit": unit})


def words(description: str, pattern: str = r"\S", **extra: object) -> Meta:
    """Text in which the pattern is found; a mistake says that it must be what ``description`` says.

    ``spelled``: turns a value as people write it into what is meant. ``secret``: a mistake does not show the value.
    """
    return Meta(pattern=pattern, description=description, extra=extra)


def _number_as_text(value: Any) -> Any:
    """Upstreams' codes look like numbers (``equals: 1302``)."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _small_letters(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


def _false_as_off(value: Any) -> Any:
    """YAML reads a bare ``off`` as false."""
    return "off" if value is False else value


_NAME = r"[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?"
_PORT = r"(?:[1-9]\d{0,3}|[1-5]\d{4}|6[0-4]\d{3}|65[0-4]\d{2}|655[0-2]\d|6553[0-5])"
_HOST = rf"\A(?:(?:\*\.)?{_NAME}(?:\.{_NAME})*|\[[0-9a-f:.]+\])(?::{_PORT})?\Z".replace(r"\d", "[0-9]")
_ONE_LINE = r"\A(?=.*\S)[^\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+\Z"
_ONE_WORD = r"\A[^\s\x00-\x1f\x7f-\x9f\ud800-\udfff]+\Z"
_NO_CONTROLS = r"\A(?=[\s\S]*\S)[^\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]+\Z"

Text = Annotated[str, words("text")]
Code = Annotated[str, words("text", spelled=_number_as_text)]
FilePath = Annotated[str, words("a file's path or null", _ONE_LINE)]
Host = Annotated[str, words("a host such as llm.example.com, 10.1.2.3:8000 or *.example.com", _HOST, spelled=_small_letters)]
Finding = Annotated[str, words(f"{', '.join(FINDINGS[:-1])} or {FINDINGS[-1]}", rf"\A(?:{'|'.join(FINDINGS)})\Z")]
Tokens = Annotated[int, between(1, 1_000_000_000, "tokens")]
Weight = Annotated[float, between(0, 1.98, "tokens")]
Concurrency = Annotated[
    Annotated[int, between(1, 10_000, "calls")] | Literal["learn", "off"],
    Meta(description="learn, off or a whole number of calls from 1 to 10000", extra={"spelled": _false_as_off}),
]
"""Calls at a time of one account and model."""
SharedUrl = Annotated[str, words("a URL such as redis://127.0.0.1:6379/0 or null", _ONE_WORD, secret=True)]
CommandLine = Annotated[str, words("a command line or null", _NO_CONTROLS, secret=True)]


@dataclass(frozen=True, slots=True)
class QueueSettings:
    seconds: Annotated[float, between(0, 3600, "seconds")] = 280
    size: Annotated[int, between(1, 100_000, "requests")] = 1000
    clients: Mapping[Text, Annotated[float, between(0, DAY, "seconds")]] = field(default_factory=dict)
    """Seconds that a client bears without headers, by the beginning of its User-Agent."""


@dataclass(frozen=True, slots=True)
class BreakerSettings:
    strikes: Annotated[int, between(1, 1000)] = 3
    open_seconds: Annotated[float, between(0, DAY, "seconds")] = 60
    scope: Literal["upstream", "account"] = "upstream"
    blocked_seconds: Annotated[float, between(0, 7 * DAY, "seconds")] = 1800


@dataclass(frozen=True, slots=True)
class RetryAfterSettings:
    challenge: Annotated[int, between(1, 59, "seconds")] = 30
    overload: Annotated[int, between(1, 59, "seconds")] = 30
    rate_limit: Annotated[int, between(1, 59, "seconds")] = 5
    cap: Annotated[int, between(1, 59, "seconds")] = 59
    enforce: bool = True


@dataclass(frozen=True, slots=True)
class HoldSettings:
    seconds: Annotated[float, between(0, 100, "seconds")] = 2
    silence_seconds: Annotated[float, between(0, 100, "seconds")] = 30
    bytes: Annotated[int, between(1, 16 * MIB, "bytes")] = 262144


@dataclass(frozen=True, slots=True)
class ReplaySettings:
    gap_seconds: Annotated[float, between(0, 60, "seconds")] = 1.0
    max_attempts: Annotated[int, between(1, 10)] = 3
    base_seconds: Annotated[float, between(0, 10, "seconds")] = 1.5
    min_gap_seconds: Annotated[float, between(0, 60, "seconds")] = 0
    captcha: bool = True


@dataclass(frozen=True, slots=True)
class TraitRow:
    """A side request known by its text: where it stands, how it begins, who sends it."""

    name: Text
    where: Literal["system", "user", "schema"]
    """system: a system block begins with ``text``; user: the only user text is exactly ``text``; schema: output_config asks for a schema with this property."""
    text: Text
    source: Text = "config"


@dataclass(frozen=True, slots=True)
class EstimateWeights:
    """Tokens per byte, by the class of the byte and of the one before it; see policies/request/tokens.py.

    Fitted to the Qwen 3.6 vocabulary; 0 to 1.98, kept in steps of 1/64. Where a detour through a third class is cheaper
    than a weight, the detour's price is used, so that more text never counts less.
    """

    word: Weight = 1.15625
    """A letter after punctuation, a digit or a non-ASCII character."""
    word_after_space: Weight = 0.28125
    """A letter after a blank or a line end; the blank has paid most of it."""
    letter: Weight = 0.03125
    """A further letter of a word."""
    hump: Weight = 1.15625
    """A capital after a small letter (camelCase)."""
    capital: Weight = 0.265625
    """A capital after a capital."""
    digit: Weight = 1.046875
    punctuation: Weight = 0.515625
    """ASCII punctuation after a letter, a digit or a non-ASCII character."""
    punctuation_after_space: Weight = 0.46875
    """ASCII punctuation after a blank or a line end."""
    punctuation_run: Weight = 0.03125
    """Punctuation after punctuation."""
    space: Weight = 0.875
    """A blank between words."""
    space_after_digit: Weight = 0.875
    indentation: Weight = 0.6875
    """The first blank of a line."""
    space_run: Weight = 0.03125
    """A blank after a blank."""
    newline: Weight = 0.875
    """A line end after text."""
    newline_run: Weight = 0.875
    """A line end after a line end or punctuation."""
    cjk: Weight = 0.578125
    """A Chinese character (UTF-8 lead bytes E4 to E9); the bytes that continue a character are free."""
    cyrillic: Weight = 0.15625
    """Lead bytes D0 to D3."""
    latin: Weight = 0.078125
    """Lead bytes C2 to CF: accented Latin, Greek."""
    hangul: Weight = 0.359375
    """Lead bytes EA to ED."""
    wide: Weight = 0.421875
    """Lead bytes E0 to E3, EE and EF: kana, Indic, general and full-width punctuation."""
    astral: Weight = 1.953125
    """Lead bytes F0 to F4: emoji, rare characters."""
    other: Weight = 0.171875
    """Lead bytes D4 to DF: Armenian, Hebrew, Arabic."""
    escaped_letter: Weight = 0.34375
    """The letter of an escape, in large bodies that are priced as they stand."""
    escaped_quote: Weight = 1.015625
    """The quote of an escape, in large bodies that are priced as they stand."""


@dataclass(frozen=True, slots=True)
class SideRequestSettings:
    enabled: bool = True
    max_output_tokens: Annotated[int, between(1, 1_000_000, "tokens")] = 200
    margin: Annotated[float, between(1, 10)] = 1.25
    traits: tuple[TraitRow, ...] = ()
    weights: EstimateWeights = EstimateWeights()


@dataclass(frozen=True, slots=True)
class QwenWebSettings:
    body_limit_bytes: Annotated[int, between(1, 1024 * MIB, "bytes")] = 131072


@dataclass(frozen=True, slots=True)
class SignatureRow:
    """A recogniser as data, with the power of a built-in row."""

    name: Text
    family: Family | None
    """None: every family."""
    finding: Finding
    """A ``kinds.Kind`` value, or ``challenge:busy``, ``challenge:captcha``, ``challenge:blocked``."""
    status: frozenset[Annotated[int, between(100, 599)]] | None = None
    """HTTP statuses it applies to; None: any."""
    field: Text | None = None
    """Dotted path of an envelope field (``error.code``, ``code``, ``data.code``)."""
    equals: Code | None = None
    """The field's whole value as text."""
    begins: Code | None = None
    """Anchored text: the field's value begins with this."""
    wait: Annotated[float, between(0, 7 * DAY, "seconds")] | None = None


@dataclass(frozen=True, slots=True)
class Upstream:
    """One upstream: its hosts share one breaker."""

    name: str
    hosts: tuple[Host, ...]
    """``host`` or ``host:port`` or ``*.suffix``; no port matches every port."""
    family: Family
    breaker: BreakerSettings | None = None
    replay: ReplaySettings | None = None
    concurrency: Concurrency | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    mode: Literal["enforce", "observe"] = "enforce"
    upstreams: tuple[Upstream, ...] = ()
    """All of them, built-in ones included."""
    browsers: Literal["tunnel", "guard"] = "tunnel"
    queue: QueueSettings = QueueSettings()
    concurrency: Concurrency = "learn"
    breaker: BreakerSettings = BreakerSettings()
    retry_after: RetryAfterSettings = RetryAfterSettings()
    hold: HoldSettings = HoldSettings()
    replay: ReplaySettings = ReplaySettings()
    side_requests: SideRequestSettings = SideRequestSettings()
    windows: Mapping[Text, Tokens] = field(default_factory=dict)
    """Additions to the catalogue: model or prefix (``my-model*``) to tokens."""
    qwen_web: QwenWebSettings = QwenWebSettings()
    signatures: tuple[SignatureRow, ...] = ()
    decrypt: Literal["guarded", "all"] = "guarded"
    shared: SharedUrl | None = field(default=None, repr=False)
    """The URL of a Redis server; may hold a password, so it stands in no representation of the settings."""
    notify: CommandLine | None = field(default=None, repr=False)
    """A command line, as a shell would split it into words; may hold a credential."""
    evidence: bool = False
    evidence_path: FilePath | None = None
    view_bytes: Annotated[int, between(0, 64 * MIB, "bytes")] = 262144
    state_path: FilePath | None = None

    @property
    def keeps_evidence(self) -> bool:
        """Whether evidence is kept at all: asked for by ``evidence``, or by a path that it is to be written to."""
        return self.evidence or self.evidence_path is not None

    def concurrency_of(self, upstream: Upstream) -> Concurrency:
        """The calls at a time that hold at this upstream: its own where it carries some."""
        return self.concurrency if upstream.concurrency is None else upstream.concurrency
