"""Codes of chat.z.ai, read before the z.ai table."""

from __future__ import annotations

from policies.kinds import Challenge, Kind
from policies.refusal.codes.rows import Row

SEEN = "OmniRoute#9991"

ROWS = (
    Row(
        "FRONTEND_CAPTCHA_REQUIRED",
        Kind.CHALLENGE,
        SEEN,
        ("FRONTEND_CAPTCHA_REQUIRED", "F003", "missing_param", "verify_failed"),
        challenge=Challenge.CAPTCHA,
    ),
)

TEXTS = (
    Row("text-captcha", Kind.CHALLENGE, SEEN, text=r"人机验证失败", challenge=Challenge.CAPTCHA),
    Row("text-security", Kind.FILTER, "ZyphrZero/z.ai2api_python#58", text=r"Content Security Warning"),
)
