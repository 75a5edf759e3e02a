from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.answer.frames import parse
from policies.kinds import Family, Head, Kind
from policies.refusal import overflow
from policies.refusal.recogniser import Recogniser
from tests.policies.refusal.envelope_forms import dump
from tests.policies.refusal.replies import surface
from tests.rows import over

STATED = [
    ("Range of input length should be [1, 983616]", 983616),
    ("<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 30,720]", 30720),
    ("\\u003c400\\u003e InternalError.Algo.InvalidParameter: Range of input length should be [1, 6000]", 6000),
    ("Total message token length exceed model limit (10000000 tokens).", 10000000),
    ("Prompt exceeds max length", None),
    ("Prompt too long", None),
    ("Prompt 超长", None),
    ("request (13392 tokens) exceeds the available context size (8192 tokens), try increasing it", 8192),
    ("the request exceeds the available context size, try increasing it", None),
    ("exceed_context_size_error (198,277 / 198,661 > 150,528)", 150528),
    (
        "This model's maximum context length is 65536 tokens. However, you requested 86046 tokens (77854 in the messages).",
        65536,
    ),
    ("This model’s maximum context length is 65,536 tokens. However", 65536),
    (
        (
            "You passed 3073 input tokens and requested 128000 output tokens. However, the model's context length is only 131072 "
            "tokens, resulting in a maximum input length of 3072 tokens. (parameter=input_tokens, value=3073)"
        ),
        131072,
    ),
    ("The decoder prompt (length 5000) is longer than the maximum model length of 4096. Make sure", 4096),
    ("The input (265330 tokens) is longer than the model's context length (262144 tokens).", 262144),
    (
        "Requested token count exceeds the model's maximum context length of 64000 tokens. You requested a total of 71897",
        64000,
    ),
    ("Your input exceeds the context window of this model. Please adjust your input and try again.", None),
    ("Input of 150000 tokens exceeds the model's maximum context size of 128000 tokens", 128000),
    ("prompt is too long: 213462 tokens > 200000 maximum", 200000),
    ("input length and `max_tokens` exceed context limit: 188059 + 20000 > 200000, decrease input length", 200000),
    ("Input is too long for requested model.", None),
    ("The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).", 1048575),
    ("Prompt contains 300000 tokens, too large for model with 131072 maximum context length", 131072),
    (
        "Prompt contains 300000 tokens and 0 draft tokens, too large for model with 131072 maximum context length",
        131072,
    ),
    ("This model's maximum prompt length is 131072 but the request contains 537812 tokens.", 131072),
    ("Please reduce the length of the messages or completion.", None),
    ("This endpoint's maximum context length is 131072 tokens. However, you requested about 135349 tokens", 131072),
    ("Input length 265330 exceeds the maximum allowed input length of 262144 tokens.", 262144),
    ("Invalid request: Your request exceeded model token limit: 262144 (requested: 558009)", 262144),
    ("invalid params, context window exceeds limit (2013)", None),
    ("prompt token count of 145000 exceeds the limit of 128000", 128000),
    (
        (
            "Trying to keep the first 5650 tokens when context the overflows. However, the model is loaded with context length of "
            "only 4096 tokens, which is not enough."
        ),
        4096,
    ),
    ("Context size has been exceeded.", None),
    ("The number of tokens to keep from the initial prompt is greater than the context length", None),
    ("prompt too long; exceeded max context length by 4096 tokens", None),
    ("Prompt has 300,000 tokens, but the configured context size is 131,072 tokens", 131072),
    ("Prompt too long: 32799 tokens exceeds max context window of 32768 tokens", 32768),
    ("Request too long: 61234 input tokens over the limit of 32768", 32768),
    ("Context limit is 8192 tokens; prompt=8190 leaves 0 output tokens", 8192),
    (
        (
            "litellm.ContextWindowExceededError: litellm.BadRequestError: ContextWindowExceededError: OpenAIException - "
            "This model's maximum context length is 128000 tokens."
        ),
        128000,
    ),
    ("Error code: 400 - {'error': {'message': \"This model's maximum context length is 65536 tokens. However", 65536),
    ("API Error: 400 prompt is too long: 213462 tokens > 200000 maximum", 200000),
    ("Prompt too long (request id: 20260606)", None),
    ("上游请求失败：prompt is too long: 213462 tokens > 200000 maximum", 200000),
    ("400 Bad Request: This model's maximum context length is 65536 tokens.", 65536),
]
LOOK_ALIKES = [
    "Too many tokens, please wait before trying again.",
    "Too many tokens per day, please wait before trying again.",
    "Tokens per minute limit exceeded - too many tokens processed.",
    "Request too large for m in organization org-x on tokens per min (TPM): Limit 30000, Requested 47361. The input must be reduced",
    "Rate limit reached for model in organization on tokens per minute (TPM): Limit 6000, Used 5000, Requested 2000.",
    "Extra usage is required for long context requests.",
    "max_tokens: 100000 > 64000, which is the maximum allowed number of output tokens for m",
    "max_tokens is too large: 100000. This model supports at most 32768 completion tokens",
    "Range of max_tokens should be [1, 65536]",
    "Range of seed should be [0, 9223372036854775807]",
    "<400> InternalError.Algo.InvalidParameter: Range of max_tokens should be [1, 65536]",
    "thinking_budget must be a positive integer and not greater than 81920",
    "max_tokens参数非法：限制数值范围[1,98304]",
    "Invalid max_tokens value, the valid range of max_tokens is [1, 8192]",
    "max_tokens=140000 cannot be greater than max_model_len=max_total_tokens=131072.",
    "Request exceeds the maximum size",
    "Exceeded limit on max bytes to request body : 6291456",
    "String value length (28049408) exceeds the maximum allowed (28000000, from `StreamReadConstraints`)",
    "messages.3.content: prompt is too long: 213462 tokens > 200000 maximum",
    "Invalid tool result: This model's maximum context length is 65536 tokens",
    "工具输出超长已被截断",
    "side request is larger than the context window",
]


@over(("words", "window"), STATED)
def test_an_overflow_states_its_window_or_none(words: str, window: int | None) -> None:
    found = overflow.row_of(words)
    assert found is not None
    assert found[1] == window


@over("words", LOOK_ALIKES)
@over("status", [200, 400, 413, 429])
def test_what_reads_alike_teaches_nothing(words: str, status: int) -> None:
    assert overflow.row_of(words) is None
    body = json.dumps({"error": {"message": words, "type": "x", "code": None}}).encode()
    finding = Recogniser().document(surface(Family.DASHSCOPE), Head(status), body, whole=True)
    assert finding.kind is not Kind.OVERFLOW
    assert finding.window is None


def test_a_window_is_read_behind_a_chain_of_wrappers() -> None:
    words = (
        "litellm.ContextWindowExceededError: litellm.BadRequestError: ContextWindowExceededError: OpenAIException - "
        "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 202745]\nmodel=x"
    )
    body = json.dumps({"error": {"message": words, "code": "400"}}).encode()
    found = Recogniser().document(surface(Family.ZAI), Head(400), body, whole=True)
    assert (found.kind, found.window) == (Kind.OVERFLOW, 202745)


def test_every_row_has_an_example() -> None:
    found = {row[0].name for words, _ in STATED if (row := overflow.row_of(words))}
    assert found == {row.name for row in overflow.ROWS}


ENVELOPES = [
    lambda words: {"error": {"message": words, "type": "invalid_request_error", "code": 400}},
    lambda words: {"type": "error", "error": {"type": "invalid_request_error", "message": words}},
    lambda words: {"object": "error", "message": words, "type": "BadRequestError", "code": 400},
    lambda words: {"code": "InvalidParameter", "message": words, "request_id": "R"},
    lambda words: {"code": "some words", "error": words},
    lambda words: {"error": words},
    lambda words: {"detail": words},
    lambda words: {"detail": json.dumps({"error": {"message": words, "code": 400}})},
    lambda words: {
        "error": {
            "message": "litellm.BadRequestError: OpenAIException - " + json.dumps({"error": {"message": words}}) + ". Received"
        }
    },
    lambda words: {
        "error": {
            "message": "Provider returned error",
            "code": 400,
            "metadata": {"raw": json.dumps({"error": {"message": words}})},
        }
    },
    lambda words: {"success": False, "data": {"code": "Bad_Request", "details": words}},
]


@over("envelope", ENVELOPES)
def test_the_window_is_read_in_every_envelope_and_under_every_status(envelope: object) -> None:
    """The statuses take turns; so do the families, which know overflows alike."""
    assert callable(envelope)
    families, statuses = list(Family), (200, 400, 404, 413, 500)
    for number, (words, window) in enumerate(STATED, ENVELOPES.index(envelope)):
        body = json.dumps(envelope(words)).encode()
        family, status = families[number % len(families)], statuses[number % len(statuses)]
        finding = Recogniser().document(surface(family), Head(status), body, whole=True)
        assert (finding.kind, finding.window, finding.transient) == (Kind.OVERFLOW, window, False), (body, finding)
        assert finding.status == (400 if status == 200 else None)


def test_every_family_knows_every_overflow() -> None:
    for (words, window), family in itertools.product(STATED, Family):
        finding = Recogniser().document(surface(family), Head(400), dump({"error": {"message": words}}), whole=True)
        assert (finding.kind, finding.window) == (Kind.OVERFLOW, window), (family, words)


def test_an_overflow_is_read_in_a_frame() -> None:
    for words, window in STATED:
        raw = b"data: " + json.dumps({"error": {"message": words}}).encode() + b"\n\n"
        finding = Recogniser().frame(surface(Family.ZAI), Head(200), parse(raw))
        assert finding is not None
        assert (finding.kind, finding.window) == (Kind.OVERFLOW, window)


@pytest.mark.parametrize("tokens", ["8192", 8192, 8192.0])
def test_a_structured_field_comes_before_the_text(tokens: object) -> None:
    error = {
        "code": 400,
        "type": "exceed_context_size_error",
        "message": "request (9 tokens) exceeds the available context size (4096 tokens)",
    }
    body = json.dumps({"error": error | {"n_ctx": tokens, "n_prompt_tokens": 13392}}).encode()
    assert Recogniser().document(surface(Family.DASHSCOPE), Head(400), body, whole=True).window == 8192


def test_a_number_below_a_thousand_is_no_window() -> None:
    for words in ("Range of input length should be [1, 512]", "prompt is too long: 700 tokens > 600 maximum"):
        found = overflow.row_of(words)
        assert found is not None
        assert found[1] is None


def test_words_in_an_answer_are_not_read() -> None:
    for words, _ in STATED:
        body = json.dumps(
            {"id": "m", "type": "message", "role": "assistant", "content": [{"type": "text", "text": words}]}
        ).encode()
        assert Recogniser().document(surface(Family.ZAI), Head(200), body, whole=True).kind is Kind.ANSWER


@given(st.text(max_size=300))
def test_no_text_raises_and_none_is_below_the_smallest(words: str) -> None:
    found = overflow.row_of(words)
    assert found is None or found[1] is None or found[1] >= overflow.SMALLEST
