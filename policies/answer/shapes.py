"""The shape of a JSON object of an upstream: an answer, part of one, preamble, or a word of failure.

Only keys and the types of their values are looked at, never what a model wrote in them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from policies.answer.frames import Frame
from policies.kinds import ANSWER, Finding, Kind

SUCCESS_CODES = frozenset({"", "0", "200", "20000", "ok", "success", "null", "none", "successful"})
PREAMBLE_TYPES = frozenset({
    "ping", "message_start", "response.created", "response.in_progress", "response.queued", "keepalive", "keep_alive", "heartbeat",
})  # fmt: skip
PREAMBLE_KEYS = ("response.created", "response.info", "response.in_progress")
ANSWER_TYPES = ("message", "content_block_", "message_delta", "message_stop", "response.", "completion")
ANSWER_KEYS = ("choices", "output", "candidates", "images", "task_id", "task_status", "video_result", "embedding", "content")
WORD_KEYS = ("msg", "message", "detail", "details", "reason")
QUIET_KEYS = frozenset({"role", "phase", "status", "name"})
"""Of a delta: say nothing, whatever their values."""
IDENTITY_KEYS = frozenset({
    "id", "object", "created", "created_at", "model", "system_fingerprint", "service_tier", "request_id", "usage",
})  # fmt: skip
"""Of an answer: say whose it is and what it cost, but nothing of it."""
FAILED_TYPES = frozenset({"response.failed", "response.error"})
FAILED_EVENTS = FAILED_TYPES | {"error"}
"""Names of an SSE event that say it failed, whatever its data holds."""
ANSWER_OBJECTS = ("chat.completion", "text_completion", "response", "list", "video", "image", "message", "model", "embedding")
FINISH_REASONS = {
    "sensitive": Kind.FILTER,
    "content_filter": Kind.FILTER,
    "network_error": Kind.UPSTREAM_ERROR,
    "error_finish": Kind.UPSTREAM_ERROR,
    "model_context_window_exceeded": Kind.OVERFLOW,
}
"""How an answer ended (docs.z.ai, Anthropic, DashScope gateways): counted as what it means, never changed."""


def lowered(body: Mapping[str, object]) -> dict[str, object]:
    """The object with its keys in lower case; of two spellings of a key the exact lower-case one stays."""
    if all(map(str.islower, body)):
        return dict(body)
    low = {key.lower(): value for key, value in body.items()}
    return low | {key: value for key, value in body.items() if key.islower()}


def text_of(value: object) -> str:
    """A scalar as text: digits for whole numbers, nothing for other values."""
    if isinstance(value, str):
        return value.strip()[:200]
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return ""
    return str(int(value)) if abs(value) < 1e15 and value == int(value) else ""


def hollow(value: object) -> bool:
    """True for what says nothing: null, "", 0, false, and lists and objects of nothing else (zai-org/GLM-5#91)."""
    parts = [value]
    while parts:
        part = parts.pop()
        if isinstance(part, dict):
            parts.extend(part.values())
        elif isinstance(part, list):
            parts.extend(part)
        elif part:
            return False
    return True


def typed(body: dict[str, object], event: str) -> dict[str, object]:
    """The data of an event, keys in lower case, with the event's name as its type where it has none of its own.

    Some relays write events so (ding113/claude-code-hub#1304, 7836246/cursor2api#116).
    """
    if body.get("type") or not (event in PREAMBLE_TYPES or (event.startswith(ANSWER_TYPES) and event != "message")):
        return body
    return {**body, "type": event}


def failed(body: Mapping[str, object]) -> bool:
    """A responses event or object that says it failed."""
    kind = body.get("type")
    whole = body.get("object") == "response" and body.get("status") == "failed"
    return whole or (isinstance(kind, str) and kind in FAILED_TYPES)


def is_part(body: Mapping[str, object]) -> bool:
    """A message or an event of an answer by its type, whose other fields a model may have written."""
    kind = body.get("type")
    return isinstance(kind, str) and kind.startswith(ANSWER_TYPES) and kind not in FAILED_TYPES


def plainly_answers(body: Mapping[str, object]) -> bool:
    """True for the usual answer, or part of one, with nothing beside it that an error could be read from."""
    if failed(body) or any((error := body.get(key)) and not hollow(error) for key in ("error", "errors")):
        return False
    choices = body.get("choices")
    return (isinstance(choices, list) and bool(choices)) or is_part(body)


def is_answer(body: Mapping[str, object]) -> bool:
    """True for an object that carries an answer, or an accepted task; an ``error`` beside it is asked for first."""
    if any(_filled(body.get(key)) for key in ("choices", "output", "candidates")) or is_part(body):
        return True
    if isinstance(body.get("content"), (list, str)) and ("role" in body or "stop_reason" in body or "finish_reason" in body):
        return True
    return not says_failure(body) and (any(_filled(body.get(key)) for key in ANSWER_KEYS) or _carries(body))


def _carries(body: Mapping[str, object]) -> bool:
    data, name, message = body.get("data"), body.get("object"), body.get("message")
    if (isinstance(message, dict) and "role" in message) or (isinstance(name, str) and name.startswith(ANSWER_OBJECTS)):
        return True
    if isinstance(data, dict) and data:
        return body.get("success") is True or not _holds_error(data, 3)
    return isinstance(data, list) and bool(data)


def _holds_error(value: Mapping[str, object], depth: int) -> bool:
    low = lowered(value)
    below = low.get("data")
    if not hollow(low.get("error")) or says_failure(low):
        return True
    return isinstance(below, dict) and depth > 0 and _holds_error(below, depth - 1)


def _filled(value: object) -> bool:
    return isinstance(value, (list, dict, str)) and bool(value)


def says_failure(body: Mapping[str, object]) -> bool:
    """True where the object itself says that it is an error, whatever the status line said."""
    if body.get("type") == "error" or body.get("object") == "error" or body.get("success") is False:
        return True
    if is_failure(body.get("ret")) or body.get("captcha_error_type"):
        return True
    if text_of(body.get("code")).lower() in SUCCESS_CODES or body.get("success") is True:
        return False
    return len(body) <= 3 or any(isinstance(body.get(key), (str, dict)) for key in WORD_KEYS)


def joined(ret: object) -> str:
    """The ``ret`` of Aliyun mtop, an array or a string, as ``CODE::text``."""
    parts = [part for part in (ret if isinstance(ret, list) else [ret])[:16] if isinstance(part, str)]
    return "::".join(parts)[:2000]


def is_failure(ret: object) -> bool:
    """True for a ``ret`` that is not ``["SUCCESS::…"]``."""
    words = joined(ret)
    return bool(words) and not words.upper().startswith("SUCCESS")


def is_preamble(body: Mapping[str, object]) -> bool:
    """True for an event that comes before an answer: pings, created, keep-alive, a role without content, usage alone."""
    kind = body.get("type")
    if isinstance(kind, str) and kind in PREAMBLE_TYPES:
        return True
    if kind == "message":
        return hollow(body.get("content")) and not body.get("stop_reason")
    choices = body.get("choices")
    if isinstance(choices, list) and choices:
        return all(_quiet(choice) for choice in choices)
    output = body.get("output")
    if isinstance(output, dict):
        return _quiet_output(output)
    named = any(key in body for key in PREAMBLE_KEYS)
    return named or all(key in IDENTITY_KEYS or hollow(value) for key, value in body.items())


def _quiet(choice: object) -> bool:
    if not isinstance(choice, dict):
        return False
    delta = choice.get("delta") or choice.get("message")
    delta = {} if delta is None else delta
    if not isinstance(delta, dict) or _finished(choice) or delta.get("status") == "finished":
        return False
    return not any(value for key, value in delta.items() if key not in QUIET_KEYS)


def _quiet_output(output: Mapping[str, object]) -> bool:
    """DashScope's native stream: a message so far empty, with the word "null" for no finish_reason."""
    choices = output.get("choices")
    if isinstance(choices, list) and choices:
        return all(_quiet(choice) for choice in choices)
    return output.get("text") == "" and not choices and "finish_reason" in output and not _finished(output)


def _finished(choice: Mapping[str, object]) -> bool:
    return choice.get("finish_reason") not in (None, "", "null")


def ended(body: Mapping[str, object]) -> Finding | None:
    """What a finish_reason or stop_reason says, where it says more than that the answer is over."""
    places = [body, *map(body.get, ("delta", "message", "output", "data"))]
    for holder in (body, body.get("output")):
        choices = holder.get("choices") if isinstance(holder, dict) else None
        places += choices[:8] if isinstance(choices, list) else []
    given = (place.get(key) for place in places if isinstance(place, dict) for key in ("finish_reason", "stop_reason"))
    for reason in (value.lower() for value in given if isinstance(value, str)):
        if reason in FINISH_REASONS:
            return Finding(FINISH_REASONS[reason], row=f"finish:{reason}", code=reason, ends_answer=True)
    return None


def kind_of(value: object) -> Finding | None:
    """None for preamble, else an answer or how it ended."""
    if not isinstance(value, dict):
        return None if hollow(value) else ANSWER
    return part_of(lowered(value))


def part_of(low: Mapping[str, object]) -> Finding | None:
    """The part that an object with its keys in lower case is: None for preamble, else an answer or how it ended."""
    return ended(low) or (None if is_preamble(low) else ANSWER)


def named_status(frame: Frame) -> int | None:
    """The status in the comment ``:HTTP_STATUS/429`` of a DashScope stream."""
    for comment in frame.comments:
        found = re.match(rb"\s*HTTP_STATUS/(\d{3})\b", comment)
        if found:
            return int(found[1])
    return None
