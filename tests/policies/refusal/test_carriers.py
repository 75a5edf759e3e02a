"""Every refusal of the corpus again in other carriers and wrappers: what it is stays what it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from policies.answer import documents, frames
from policies.answer.reader import Reader
from policies.answer.tap import STOPPING
from policies.kinds import Finding, Head, Kind
from tests.policies.refusal.envelope_forms import dump
from tests.policies.refusal.judged import RECOGNISER
from tests.policies.refusal.replies import Reply, corpus, read
from tests.rows import over

JSON = Head(200, (("content-type", "application/json"),))
SSE = Head(200, (("content-type", "text/event-stream"),))
ROLE = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}\n\n'
HELLO = b'data: {"choices":[{"index":0,"delta":{"content":"hi"}}]}\n\n'


def text(value: object) -> str:
    return dump(value).decode()


def error_of(value: dict[str, Any]) -> object:
    return value.get("error", value)


def upper(value: object, depth: int = 2) -> object:
    if isinstance(value, dict) and depth:
        return {key.capitalize(): upper(part, depth - 1) for key, part in value.items()}
    return value


WRAPPED: dict[str, Callable[[dict[str, Any]], object]] = {
    "as it is": lambda value: value,
    "upper case keys": upper,
    "an array": lambda value: [value],
    "detail": lambda value: {"detail": value},
    "detail as text": lambda value: {"detail": text(value)},
    "error": lambda value: {"error": value},
    "error as text": lambda value: {"error": text(value)},
    "message as text": lambda value: {"error": {"message": text(value)}},
    "data": lambda value: {"success": False, "data": value},
    "data.error": lambda value: {"success": False, "data": {"error": value}},
    "litellm": lambda value: {"error": {"message": f"litellm.APIError: OpenAIException - {text(value)}. Received", "code": "500"}},
    "printed by Python": lambda value: {"detail": f"Error code: 429 - {value!r}"},
    "a gateway": lambda value: {"error": {"message": f"Provider returned error: {text(value)}", "code": 502}},
    "claude-code-router": lambda value: {"error": {"message": f"Error from provider(zai,glm-5.3: 429): {text(value)}", "code": "provider_response_error"}},
    "a status before": lambda value: {"error": {"message": f"429 429 {text(value)}"}},
    "a status and a colon": lambda value: {"error": {"message": f"429: {text(value)}"}},
    "new-api": lambda value: {"error": {"message": f"bad response status code 429, message: no, body: {text(value)}", "code": "bad_response_status_code"}},
    "a relay": lambda value: {"error": {"message": f"upstream error: {text(value)}", "type": "upstream_error", "code": ""}},
    "litellm, bytes": lambda value: {"error": {"message": f"litellm.APIError: AnthropicException - b'{text(value)}'. Handle with", "code": "500"}},
    "a name and a message": lambda value: {"status": 429, "error": "Too Many Requests", "message": text(value)},
    "metadata.raw as an object": lambda value: {"error": {"message": "Provider returned error", "code": 429, "metadata": {"raw": value}}},
    "metadata.raw": lambda value: {"error": {"message": "Provider returned error", "metadata": {"raw": text(value)}}},
}  # fmt: skip
FRAMED: dict[str, Callable[[dict[str, Any]], bytes]] = {
    "data": lambda value: b"data: " + dump(value) + b"\n\n",
    "data without a space, CRLF": lambda value: b"data:" + dump(value) + b"\r\n\r\n",
    "error": lambda value: b"event: error\ndata: " + dump(value) + b"\n\n",
    "error, CRLF": lambda value: b"event:error\r\ndata: " + dump(value) + b"\r\n\r\n",
    "failed by its name": lambda value: b"event: response.failed\ndata: " + dump(value) + b"\n\n",
    "failed by name, in a response": lambda value: (
        b"event: response.failed\ndata: " + dump({"response": {"id": "r", "error": error_of(value)}}) + b"\n\n"
    ),
    "failed by its type": lambda value: (
        b"data: " + dump({"type": "response.failed", "response": {"status": "failed", "error": error_of(value)}}) + b"\n\n"
    ),
    "a bare document": lambda value: dump(value) + b"\n\n",
    "z.ai web": lambda value: b"data: " + dump({"type": "chat:completion", "data": {"error": error_of(value)}}) + b"\n\n",
}


def first_refusal(findings: list[Finding]) -> Finding:
    return next((finding for finding in findings if finding.kind is not Kind.ANSWER), findings[0])


def value_of(reply: Reply) -> dict[str, Any] | None:
    """The JSON of a refusal that a row knows by more than its status; None for pages, answers and bare words."""
    value = documents.parse(reply.body)
    if documents.form_of(reply.body[:64], "") is documents.Form.STREAM:
        found = (documents.parse(frame.data) for frame in frames.frames(reply.body) if frame.data)
        value = next((each for each in found if isinstance(each, dict) and says(reply, each)), None)
    return value if isinstance(value, dict) and says(reply, value) else None


def says(reply: Reply, value: dict[str, Any]) -> bool:
    own = read(RECOGNISER, reply.surface, reply.head, reply.body, whole=not reply.cut)
    framed = read(RECOGNISER, reply.surface, SSE, b"data: " + dump(value) + b"\n\n")[0]
    known = framed.row.partition(":")[0] not in ("unknown", "status", "common")
    told = known and not framed.ends_answer
    return told and framed.kind not in (Kind.ANSWER, Kind.NOTHING) and framed.kind is first_refusal(own).kind


CARRIED = [(reply, value, first_refusal(read(RECOGNISER, reply.surface, reply.head, reply.body)).kind)
           for reply in corpus() if reply.body and (value := value_of(reply))]  # fmt: skip
IDS = [reply.id for reply, _, _ in CARRIED]


def test_most_refusals_of_the_corpus_are_carried() -> None:
    assert len(CARRIED) > 70
    assert {kind for _, _, kind in CARRIED} >= {Kind.CHALLENGE, Kind.OVERLOAD, Kind.RATE_LIMIT, Kind.QUOTA, Kind.FILTER}


@over(("reply", "value", "kind"), CARRIED, ids=IDS)
def test_a_wrapper_hides_no_refusal(reply: Reply, value: dict[str, Any], kind: Kind) -> None:
    """Wrappers and statuses take turns: each refusal comes in every third wrapper, and each wrapper under each status."""
    statuses, row = (200, 400, 200, 429, 500), IDS.index(reply.id)
    for number, (name, wrap) in enumerate(list(WRAPPED.items())[row % 3 :: 3], row // 3):
        status = statuses[number % 5]
        head = Head(status, JSON.headers)
        found = first_refusal(read(RECOGNISER, reply.surface, head, dump(wrap(value))))
        assert found.kind is kind, (name, status, found)


@over(("reply", "value", "kind"), CARRIED, ids=IDS)
def test_a_frame_hides_no_refusal_first_or_later(reply: Reply, value: dict[str, Any], kind: Kind) -> None:
    """What leads takes turns: each frame comes behind each of them."""
    leads = (b"", b": hi\n\n", ROLE)
    for number, (name, framed) in enumerate(FRAMED.items(), IDS.index(reply.id)):
        lead = leads[number % 3]
        found = first_refusal(read(RECOGNISER, reply.surface, SSE, lead + framed(value)))
        assert found.kind is kind, (name, lead, found)


@over(("reply", "value", "kind"), CARRIED, ids=IDS)
def test_a_refusal_after_the_first_words_ends_the_stream(reply: Reply, value: dict[str, Any], kind: Kind) -> None:
    """Frames take turns: each refusal comes in every third."""
    for name, framed in list(FRAMED.items())[IDS.index(reply.id) % 3 :: 3]:
        own = Reader(reply.surface, SSE, RECOGNISER)
        assert own.feed(HELLO) is not None
        assert own.tap(HELLO).passed == (HELLO,)
        tapped = own.tap(framed(value))
        found = tapped.finding or own.tap_finish().finding
        assert (found.kind if found else None) == (kind if kind in STOPPING else None), name
