"""What the upstreams say, as bytes: answers, challenges, overloads, and the requests that ask for them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tests.e2e.lab.script import Gate, Reply

MESSAGES = "/api/anthropic/v1/messages"
COMPLETIONS = "/api/coding/paas/v4/chat/completions"
QWEN_WEB = "/api/v2/chat/completions?chat_id=CHAT"
ZCODE = "/api/v1/zcode-plan/anthropic/v1/messages"

SSE = ("content-type", "text/event-stream")
JSON = ("content-type", "application/json")
HTML = ("content-type", "text/html; charset=utf-8")

MTOP: dict[str, Any] = {
    "ret": ["FAIL_SYS_USER_VALIDATE", "RGV587_ERROR::SM::哎哟喂,被挤爆啦,请稍后重试"],
    "data": {"url": "https://chat.qwen.ai:443//_____tmd_____/punish?x5secdata=xgTOKEN&x5step=2&action=captcha"},
}
PAGE = (
    b'<!doctypehtml><html><head><meta name="aliyun_waf_aa" content="0123"><meta name="aliyun_waf_bb" content="45">'
    b'<title>Verification</title></head><body><div id="captcha-element"></div><script>var _waf_is_mobile = false;'
    b"</script></body></html>"
)
CAPTCHA_3007 = {"code": 3007, "msg": "captcha verify failed"}
OVERLOAD_1305 = {"error": {"code": "1305", "message": "The service may be temporarily overloaded, please try again later"}}
RATE_LIMIT_1302 = {"error": {"code": "1302", "message": "Rate limit reached for requests"}}


def compact(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def event(value: dict[str, Any], *, named: bool = True) -> bytes:
    """One SSE frame, with an `event:` line where the value names its type."""
    name = b"event: %b\n" % value["type"].encode() if named and "type" in value else b""
    return b"%bdata: %b\n\n" % (name, compact(value))


def anthropic(*words: str) -> list[bytes]:
    """The frames of a streamed answer on the Anthropic wire."""
    usage = {"input_tokens": 10, "output_tokens": 1}
    message: dict[str, Any] = {"id": "msg_1", "type": "message", "role": "assistant", "content": [], "model": "glm-5.2"}
    message |= {"stop_reason": None, "stop_sequence": None, "usage": usage}
    block = {"type": "text", "text": ""}
    deltas = [{"type": "text_delta", "text": word} for word in words or ("Hello",)]
    return [
        event({"type": "message_start", "message": message}),
        event({"type": "content_block_start", "index": 0, "content_block": block}),
        *(event({"type": "content_block_delta", "index": 0, "delta": delta}) for delta in deltas),
        event({"type": "content_block_stop", "index": 0}),
        event({"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": usage}),
        event({"type": "message_stop"}),
    ]


def openai(*words: str) -> list[bytes]:
    """The frames of a streamed answer on the OpenAI wire."""
    base = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "glm-5.2"}
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": word} for word in words or ("Hello",)]
    frames = [event({**base, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}) for delta in deltas]
    end = event({**base, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    return [*frames, end, b"data: [DONE]\n\n"]


def qwen_web(*words: str) -> list[bytes]:
    """The frames of a streamed answer of chat.qwen.ai."""
    created = {"response.created": {"chat_id": "c", "parent_id": "p", "response_id": "r", "response_index": "0"}}
    deltas = [{"role": "assistant", "content": word, "phase": "answer", "status": "typing"} for word in words or ("hi",)]
    deltas.append({"role": "assistant", "content": "", "phase": "answer", "status": "finished"})
    return [event(created), *(event({"choices": [{"delta": delta}], "response_id": "r"}) for delta in deltas)]


def anthropic_message(text: str = "Hello") -> dict[str, Any]:
    """A whole answer on the Anthropic wire."""
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "glm-5.2",
        "content": [{"type": "text", "text": text}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 10, "output_tokens": 2},
    }


def openai_message(text: str = "Hello") -> dict[str, Any]:
    """A whole answer on the OpenAI wire."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "glm-5.2", "choices": [choice]}


def asked(text: str = "hi", /, *, stream: object = True, **more: object) -> bytes:
    """A main request: a budget and a tool, so that no rule takes it for a side request."""
    tool = {"name": "read", "description": "Reads.", "input_schema": {"type": "object", "properties": {}}}
    body = {"model": "glm-5.2", "max_tokens": 32000, "stream": stream, "tools": [tool]}
    return compact({**body, "messages": [{"role": "user", "content": text}], **more})


def account(name: str) -> list[tuple[str, str]]:
    """Headers of a client with a credential of its own."""
    return [("authorization", f"Bearer sk-{name}"), JSON]


def streamed(frames: Sequence[bytes | Gate], **more: Any) -> Reply:
    return Reply(headers=[SSE], chunks=frames, framing="chunked", **more)


def whole(value: object, status: int = 200, **more: Any) -> Reply:
    return Reply(status, headers=[JSON], chunks=[compact(value)], **more)


def page(status: int = 200, **more: Any) -> Reply:
    return Reply(status, headers=[HTML], chunks=[PAGE], **more)
