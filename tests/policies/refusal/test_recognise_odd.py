from __future__ import annotations

import json
import time

from hypothesis import given
from hypothesis import strategies as st

from policies.answer.frames import parse
from policies.kinds import ANSWER, Family, Finding, Head, Kind
from tests.policies.refusal.envelope_forms import dump
from tests.policies.refusal.judged import MTOP, RECOGNISER, document, frame
from tests.policies.refusal.replies import surface
from tests.rows import over

# -- odd input


JSON_LIKE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(
        [
            "error",
            "1302",
            "3007",
            "[1302][x][y]",
            '{"error":{"code":3007}}',
            "FAIL_SYS_USER_VALIDATE",
            "\ud800",
            "data:{",
        ]
    ),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                [
                    "error",
                    "code",
                    "type",
                    "message",
                    "msg",
                    "data",
                    "ret",
                    "success",
                    "choices",
                    "detail",
                    "details",
                    "response",
                    "status",
                    "retry-after",
                    "num",
                    "url",
                    "output",
                    "delta",
                    "finish_reason",
                    "metadata",
                    "object",
                    "Error",
                    "n_ctx",
                ]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=20,
)


def bounded(finding: object) -> None:
    """A finding whose texts fit a log line and an annotation."""
    assert isinstance(finding, Finding)
    assert len(finding.text) <= 500
    assert len(finding.code or "") <= 500
    assert len(finding.excerpt) <= 2048
    assert finding.wait is None or finding.wait > 0
    assert finding.status is None or 100 <= finding.status <= 599
    finding.text.encode()


@given(JSON_LIKE, st.sampled_from([200, 204, 302, 400, 429, 500, 529]), st.sampled_from(list(Family)), st.booleans())
def test_no_document_raises(value: object, status: int, family: Family, whole: bool) -> None:
    body = json.dumps(value).encode("utf-8", "replace")
    bounded(document(body, status, family, whole=whole))
    bounded(document(body[: len(body) // 2], status, family, whole=False))
    for event in ("event: error\n", ""):
        found = frame(f"{event}data: {body.decode('ascii')}\n\n", status, family)
        bounded(found or ANSWER)


@given(st.binary(max_size=300), st.sampled_from([200, 400, 503]), st.sampled_from(list(Family)))
def test_no_bytes_raise(data: bytes, status: int, family: Family) -> None:
    for start in (b"", b"{", b'{"error":', b"data: ", b"<", b'{"ret":["'):
        for whole in (True, False):
            bounded(RECOGNISER.document(surface(family), Head(status), start + data, whole=whole))
    bounded(RECOGNISER.frame(surface(family), Head(status), parse(b"data: " + data + b"\n\n")) or ANSWER)
    assert RECOGNISER.suspicion(surface(family))(data) in {True, False}


@over(
    "body",
    [
        b"[" * 100_000,
        b'{"a":' * 50_000,
        b'{"error":' * 50_000 + b"1" + b"}" * 50_000,
        b'{"error":{"code":' + b"9" * 5000 + b"}}",
        b'{"error":{"code":1e999,"message":NaN}}',
        b'{"error":{"code":"\\ud800","message":"\\udfff"}}',
        b'{"error":null,"error":{"code":"1302"}}',
        b'{"error":{"message":"' + b"x" * 300_000 + b'"}}',
        b'{"error":{"message":"' + b"{" * 100_000 + b'"}}',
        b'{"error":{"message":"' + b"[1302]" * 50_000 + b'"}}',
        b'{"error":{"message":"error: ' + b"error - " * 30_000 + b'"}}',
        b'"' * 200_000,
        b'\\"' * 130_000,
        b'{"a":"' + b'\\"' * 130_000,
        b'{"a":' * 150 + b'"x",' * 50_000,
        b'{"error":{"message":"' + b"error" * 50_000 + b'"}}',
        b'{"error":{"message":"' + b"/" * 200_000 + b'"}}',
        b"data: " * 40_000,
        b"data: {}\n\n" * 20_000,
        b'{"code":"\xff\xfe","msg":"\xc3"}',
    ],
)
def test_hostile_bodies_are_read_in_time(body: bytes) -> None:
    started = time.process_time()
    assert isinstance(document(body, 200, whole=True), Finding)
    assert isinstance(document(body, 400, whole=False), Finding)
    assert time.process_time() - started < 10


def test_invalid_utf8_hides_no_code() -> None:
    assert document(b'{"error":{"code":"1305","message":"\xff\xfe"}}', 429).kind is Kind.OVERLOAD
    assert document(b'{"ret":["FAIL_SYS_USER_VALIDATE","\xb0\xae"]}').kind is Kind.CHALLENGE
    assert document("﻿".encode() + dump(MTOP)).kind is Kind.CHALLENGE


def test_what_follows_the_first_value_changes_nothing() -> None:
    assert document(dump(MTOP) + b"\n\n\x00trailing").kind is Kind.CHALLENGE


def test_secrets_are_cut_from_what_is_kept() -> None:
    words = "Invalid key sk-abcdefghij123 and Bearer abcdefghijkl, see https://x/_____tmd_____/punish?x5secdata=SECRETDATA"
    finding = document({"error": {"code": "9999", "message": words}, "captcha_verify_param": "SECRETPARAM"}, 400)
    for kept in (finding.text, finding.excerpt.decode()):
        assert "SECRET" not in kept
        assert "abcdefghij" not in kept
