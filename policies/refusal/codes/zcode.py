"""Codes of the zcode plan. Read before the z.ai table: 1005 and 1113 mean something else here."""

from __future__ import annotations

from policies.kinds import Challenge, Crowd, Kind
from policies.refusal.codes.rows import Row

PUBLIC = "TriDefender/zcode-api#1, #2"

ROWS = (
    Row(
        "3012",
        Kind.CHALLENGE,
        "zai-org/feedback#349: an account penalty that grows",
        ("3012",),
        challenge=Challenge.BLOCKED,
    ),
    Row(
        "3007",
        Kind.CHALLENGE,
        "billion-context#189: the next human-paced turn passed",
        ("3007",),
        challenge=Challenge.CAPTCHA,
        transient=True,
    ),
    Row("3009", Kind.RATE_LIMIT, PUBLIC, ("3009",), crowd=Crowd.ALWAYS),
    Row("1005", Kind.QUOTA, PUBLIC, ("1005", "1113")),
    Row("3001", Kind.CALLER_ERROR, PUBLIC, ("3001",)),
)

TEXTS = (
    Row("text-1005", Kind.QUOTA, PUBLIC, text=r"exceed quota limit"),
    Row("text-3009", Kind.RATE_LIMIT, PUBLIC, text=r"model concurrency limit exceeded", crowd=Crowd.ALWAYS),
)
