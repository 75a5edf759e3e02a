"""The envelopes in which the upstreams wrap a code and a message, and the places where a model may write the same."""

from __future__ import annotations

import json
from collections.abc import Callable

from policies.kinds import Family

Form = Callable[[str, str], bytes]


def dump(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


def number(code: str) -> object:
    return int(code) if code.isdigit() else code


GENERAL: dict[str, Form] = {
    "error.code": lambda code, words: dump({"error": {"code": code, "message": words}}),
    "error.code as a number": lambda code, words: dump({"error": {"code": number(code), "message": words}}),
    "typed error": lambda code, words: dump(
        {"type": "error", "error": {"type": "api_error", "code": code, "message": words}, "request_id": "R"}
    ),
    "error.type": lambda code, words: dump({"type": "error", "error": {"type": code, "message": words}}),
    "top level msg": lambda code, words: dump({"code": number(code), "msg": words, "success": False}),
    "top level message": lambda code, words: dump({"code": code, "message": words, "request_id": "R"}),
    "upper case keys": lambda code, words: dump({"Code": code, "Message": words, "RequestId": "R"}),
    "data.code": lambda code, words: dump({"success": False, "request_id": "R", "data": {"code": code, "details": words}}),
    "error.details": lambda code, words: dump({"error": {"code": code, "details": words}, "response_id": "R"}),
    "nested text": lambda code, words: dump({"error": {"message": dump({"error": {"code": code, "message": words}}).decode()}}),
    "litellm": lambda code, words: dump(
        {
            "error": {
                "message": "litellm.APIError: OpenAIException - "
                + dump({"error": {"code": code, "message": words}}).decode()
                + ". Received",
                "type": None,
                "code": None,
            }
        }
    ),
    "detail text": lambda code, words: dump({"detail": dump({"code": code, "message": words}).decode()}),
    "detail object": lambda code, words: dump({"detail": {"code": code, "message": words}}),
    "data: line": lambda code, words: b"data: " + dump({"error": {"code": code, "message": words}}) + b"\n\n",
    "native event": lambda code, words: (
        b"id:1\nevent:error\n:HTTP_STATUS/429\ndata:" + dump({"code": code, "message": words}) + b"\n\n"
    ),
    "event": lambda code, words: (
        b"event: error\ndata: " + dump({"type": "error", "error": {"code": code, "message": words}}) + b"\n\n"
    ),
    "failed response": lambda code, words: (
        b"event: response.failed\ndata: "
        + dump(
            {
                "type": "response.failed",
                "response": {
                    "id": "r",
                    "object": "response",
                    "status": "failed",
                    "error": {"code": code, "message": words},
                },
            }
        )
        + b"\n\n"
    ),
}
BRACKETS: dict[str, Form] = {
    "brackets": lambda code, words: dump(
        {"type": "error", "error": {"type": "rate_limit_error", "message": f"[{code}][{words}][202606102042010000]"}}
    ),
    "brackets without id": lambda code, words: dump({"error": {"message": f"[{code}][{words}]"}}),
}
CHAT: dict[str, Form] = {
    "chat completion": lambda code, words: (
        b"data: "
        + dump(
            {
                "type": "chat:completion",
                "data": {"data": {"done": True, "error": {"code": code, "detail": words}}, "done": True},
            }
        )
        + b"\n\n"
    ),
}
FORMS: dict[Family, dict[str, Form]] = {
    Family.ZAI: GENERAL | BRACKETS,
    Family.ZCODE: GENERAL | BRACKETS,
    Family.ZAI_WEB: GENERAL | CHAT,
    Family.DASHSCOPE: GENERAL,
    Family.QWEN_WEB: GENERAL,
}


def answers(text: str) -> dict[str, bytes]:
    """Answers in which a model wrote ``text``, whole and as frames."""
    return {name: made() for name, made in answering(text).items()}


def answering(text: str) -> dict[str, Callable[[], bytes]]:
    """Makers of answers in which a model wrote ``text``, whole and as frames."""
    quoted = json.dumps({"quoted": text}, ensure_ascii=False)
    choice = {
        "id": "c",
        "object": "chat.completion",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
    }
    return {
        "message.content": lambda: dump(choice),
        "content block": lambda: dump(
            {
                "id": "m",
                "type": "message",
                "role": "assistant",
                "content": [{"type": "text", "text": text}],
                "stop_reason": "end_turn",
            }
        ),
        "tool input": lambda: dump(
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "tool_use", "name": "Write", "input": {"error": text}}],
            }
        ),
        "tool call": lambda: dump(
            {
                "choices": [
                    {
                        "message": {"tool_calls": [{"function": {"name": "w", "arguments": text}}]},
                        "finish_reason": "tool_calls",
                    }
                ]
            }
        ),
        "output": lambda: dump(
            {
                "object": "response",
                "error": None,
                "output": [{"type": "message", "content": [{"type": "output_text", "text": text}]}],
            }
        ),
        "native output": lambda: dump({"output": {"text": text, "finish_reason": "stop"}, "usage": {}, "request_id": "r"}),
        "delta.content": lambda: (
            b"data: "
            + dump({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}], "error": None})
            + b"\n\n"
        ),
        "reasoning": lambda: (
            b"data: " + dump({"choices": [{"index": 0, "delta": {"content": "", "reasoning_content": text}}]}) + b"\n\n"
        ),
        "text delta": lambda: (
            b"event: content_block_delta\ndata: "
            + dump({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}})
            + b"\n\n"
        ),
        "partial json": lambda: (
            b"event: content_block_delta\ndata: "
            + dump({"type": "content_block_delta", "delta": {"type": "input_json_delta", "partial_json": quoted}})
            + b"\n\n"
        ),
        "output text delta": lambda: b"data: " + dump({"type": "response.output_text.delta", "delta": text}) + b"\n\n",
        "native delta": lambda: (
            b"id:1\nevent:result\n:HTTP_STATUS/200\ndata:"
            + dump({"output": {"choices": [{"message": {"content": text}}]}})
            + b"\n\n"
        ),
        "qwen delta": lambda: (
            b"data: "
            + dump({"choices": [{"delta": {"role": "assistant", "content": text, "phase": "answer", "status": "typing"}}]})
            + b"\n\n"
        ),
        "z.ai delta": lambda: (
            b"data: " + dump({"type": "chat:completion", "data": {"delta_content": text, "phase": "answer"}}) + b"\n\n"
        ),
    }
