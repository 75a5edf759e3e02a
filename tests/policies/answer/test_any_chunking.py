"""However an answer is cut, it is what it is: its finding, what passes of it, and what is noted."""

from __future__ import annotations

import gzip
import zlib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from policies.answer.reader import Reader
from policies.kinds import Head
from policies.refusal.recogniser import Recogniser
from tests.growth.shapes import DOCUMENTS, MESSAGES, PAGES, STREAMS
from tests.policies.answer.test_encodings import compress_brotli, zstd
from tests.policies.refusal.few_forms import HELLO, JSON, PAGE, RET, SSE, WEB, held, tapped
from tests.rows import over

PIECES = (
    HELLO,
    b"data: " + RET + b"\n\n",
    RET,
    RET + b"\n",
    PAGE,
    b'{"choices":[{"delta":{"content":"a"}}]}\n',
    b'{"type":"ping"}\n',
    b": ping\n",
    b":a\r",
    b"event: ping\r\ndata: {}\r\n\r\n",
    b'event: error\ndata: {"error":{"code":"1302"}}\n\n',
    b'data: {"choices":[],"usage":{"prompt_tokens":3}}\n\n',
    b"\n",
    b"\r",
    b" ",
    b"\xef\xbb\xbf",
    b"data: ",
    b"da",
    b"{",
    b"<p>\n\n",
)
BODIES = st.lists(st.sampled_from(PIECES), max_size=8).map(b"".join)
PACKS: Any = {"": bytes, "gzip": gzip.compress, "deflate": zlib.compress, "br": compress_brotli, "zstd": zstd}


def outcome(headers: Any, body: bytes, size: int) -> Any:
    own = Reader(WEB, Head(200, headers), Recogniser())
    found = held(own, body, size) or own.finish(cut=False)
    passed, later, results = tapped(own, body, size)
    withheld = any(result.withheld for result in results)
    return found, own.answered, own.usage_input, later, withheld, b"" if withheld else passed


@given(BODIES, st.sampled_from([SSE, JSON, ()]), st.sampled_from(list(PACKS)), st.integers(1, 9))
def test_no_cut_changes_an_outcome(body: bytes, headers: Any, coding: str, size: int) -> None:
    fields = (*headers, ("content-encoding", coding)) if coding else headers
    packed = PACKS[coding](body)
    assert outcome(fields, packed, size) == outcome(fields, packed, 1 << 20)


@over("shapes", [STREAMS, DOCUMENTS, MESSAGES, PAGES], ids=["streams", "documents", "messages", "pages"])
def test_no_cut_changes_what_a_growing_input_is(shapes: Any) -> None:
    for name, shape in shapes.items():
        body = shape(300)
        assert outcome(SSE, body, 1) == outcome(SSE, body, 1 << 20), name
