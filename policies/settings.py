"""The settings: the whole contract of config.yaml as frozen values, with their defaults and units."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from policies.kinds import Family


@dataclass(frozen=True, slots=True)
class BreakerSettings:
    strikes: int = 3
    open_seconds: float = 60
    scope: Literal["upstream", "account"] = "upstream"
    blocked_seconds: float = 1800


@dataclass(frozen=True, slots=True)
class RetryAfterSettings:
    challenge: int = 30
    overload: int = 30
    rate_limit: int = 5
    cap: int = 59
    enforce: bool = True


@dataclass(frozen=True, slots=True)
class HoldSettings:
    seconds: float = 2
    silence_seconds: float = 60
    bytes: int = 262144


@dataclass(frozen=True, slots=True)
class ReplaySettings:
    gap_seconds: float = 1.0
    max_attempts: int = 3
    base_seconds: float = 1.5
    min_gap_seconds: float = 0
    captcha: bool = True


@dataclass(frozen=True, slots=True)
class TraitRow:
    """A side request known by its text: where it stands, how it begins, who sends it."""

    name: str
    where: Literal["system", "user", "schema"]
    """system: a system block begins with ``text``; user: the only user text is exactly ``text``; schema: output_config asks for a schema with this property."""
    text: str
    source: str = "config"


@dataclass(frozen=True, slots=True)
class EstimateWeights:
    """Tokens per byte, by the class of the byte and of the one before it; see policies/request/tokens.py.

    Fitted to the Qwen 3.6 vocabulary; 0 to 1.98, kept in steps of 1/64. Where a detour through a third class is cheaper
    than a weight, the detour's price is used, so that more text never counts less.
    """

    word: float = 1.15625
    """A letter after punctuation, a digit or a non-ASCII character."""
    word_after_space: float = 0.28125
    """A letter after a blank or a line end; the blank has paid most of it."""
    letter: float = 0.03125
    """A further letter of a word."""
    hump: float = 1.15625
    """A capital after a small letter (camelCase)."""
    capital: float = 0.265625
    """A capital after a capital."""
    digit: float = 1.046875
    punctuation: float = 0.515625
    """ASCII punctuation after a letter, a digit or a non-ASCII character."""
    punctuation_after_space: float = 0.46875
    """The same after a blank or a line end."""
    punctuation_run: float = 0.03125
    """Punctuation after punctuation."""
    space: float = 0.875
    """A blank between words."""
    space_after_digit: float = 0.875
    indentation: float = 0.6875
    """The first blank of a line."""
    space_run: float = 0.03125
    """A blank after a blank."""
    newline: float = 0.875
    """A line end after text."""
    newline_run: float = 0.875
    """A line end after a line end or punctuation."""
    cjk: float = 0.578125
    """A Chinese character (UTF-8 lead bytes E4 to E9); the bytes that continue a character are free."""
    cyrillic: float = 0.15625
    """Lead bytes D0 to D3."""
    latin: float = 0.078125
    """Lead bytes C2 to CF: accented Latin, Greek."""
    hangul: float = 0.359375
    """Lead bytes EA to ED."""
    wide: float = 0.421875
    """Lead bytes E0 to E3, EE and EF: kana, Indic, general and full-width punctuation."""
    astral: float = 1.953125
    """Lead bytes F0 to F4: emoji, rare characters."""
    other: float = 0.171875
    """Lead bytes D4 to DF: Armenian, Hebrew, Arabic."""
    escaped_letter: float = 0.34375
    """The letter of an escape, in large bodies that are priced as they stand."""
    escaped_quote: float = 1.015625
    """The quote of an escape, likewise."""


@dataclass(frozen=True, slots=True)
class SideRequestSettings:
    enabled: bool = True
    max_output_tokens: int = 200
    margin: float = 1.25
    traits: tuple[TraitRow, ...] = ()
    weights: EstimateWeights = EstimateWeights()


@dataclass(frozen=True, slots=True)
class QwenWebSettings:
    body_limit_bytes: int = 131072


@dataclass(frozen=True, slots=True)
class SignatureRow:
    """A recogniser as data, with the power of a built-in row."""

    name: str
    family: Family | None
    """None: every family."""
    finding: str
    """A ``findings.Kind`` value, or ``challenge:busy``, ``challenge:captcha``, ``challenge:blocked``."""
    status: frozenset[int] | None = None
    """HTTP statuses it applies to; None: any."""
    field: str | None = None
    """Dotted path of an envelope field (``error.code``, ``code``, ``data.code``)."""
    equals: str | None = None
    """The field's whole value as text."""
    begins: str | None = None
    """Anchored text: the field's value begins with this."""
    wait: float | None = None


@dataclass(frozen=True, slots=True)
class Upstream:
    """One upstream: its hosts share one breaker."""

    name: str
    hosts: tuple[str, ...]
    """``host`` or ``host:port`` or ``*.suffix``; no port matches every port."""
    family: Family
    breaker: BreakerSettings | None = None
    replay: ReplaySettings | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    mode: Literal["enforce", "observe"] = "enforce"
    upstreams: tuple[Upstream, ...] = ()
    """All of them, built-in ones included."""
    browsers: Literal["tunnel", "guard"] = "tunnel"
    breaker: BreakerSettings = BreakerSettings()
    retry_after: RetryAfterSettings = RetryAfterSettings()
    hold: HoldSettings = HoldSettings()
    replay: ReplaySettings = ReplaySettings()
    side_requests: SideRequestSettings = SideRequestSettings()
    windows: Mapping[str, int] = field(default_factory=dict)
    """Additions to the catalogue: model or prefix (``my-model*``) to tokens."""
    qwen_web: QwenWebSettings = QwenWebSettings()
    signatures: tuple[SignatureRow, ...] = ()
    decrypt: Literal["guarded", "all"] = "guarded"
    evidence_path: str | None = None
    view_bytes: int = 262144
    state_path: str | None = None
