"""The body of one request as slices of its bytes: decoded once, and read by everything that asks about it."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from msgspec import Raw

UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError)
"""What reading a slice may raise."""


class RequestBody(msgspec.Struct, gc=False):
    """The members of a request that any rule reads; every other one is skipped over, and no message tree is built."""

    model: Raw = Raw()
    max_tokens: Raw = Raw()
    max_completion_tokens: Raw = Raw()
    max_output_tokens: Raw = Raw()
    tools: Raw = Raw()
    functions: Raw = Raw()
    stream: Raw = Raw()
    thinking: Raw = Raw()
    enable_thinking: Raw = Raw()
    reasoning_effort: Raw = Raw()
    reasoning: Raw = Raw()
    parameters: Raw = Raw()
    metadata: Raw = Raw()
    prompt_cache_key: Raw = Raw()
    chat_id: Raw = Raw()
    captcha_verify_param: Raw = Raw()
    output_config: Raw = Raw()
    system: Raw = Raw()
    instructions: Raw = Raw()
    messages: Raw = Raw()
    input: Raw = Raw()
    prompt: Raw = Raw()
    previous_response_id: Raw = Raw()
    """Stands for the history on the responses wire."""
    conversation: Raw = Raw()
    """Stands for the history there too."""


NOTHING = RequestBody()
Read = TypeVar("Read")
_DECODER = msgspec.json.Decoder(RequestBody)


def read_body(body: bytes) -> RequestBody | None:
    """Members of a body; None for one that is no JSON object."""
    return decoded(_DECODER, body, None)


def decoded(decoder: msgspec.json.Decoder[Any], raw: Raw | bytes | str, otherwise: Read) -> Any | Read:
    """What a decoder makes of a slice; ``otherwise`` for one that is absent or something else."""
    try:
        return decoder.decode(raw) if len(raw) else otherwise
    except UNREADABLE:
        return otherwise
