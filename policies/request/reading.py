"""The facts of one request, read from a typed head without building its message tree.

Odd values (a budget that is no positive whole number, a model that is no text) read as absent, and a ``tools`` that is no
array as present: what cannot be read is a main request and passes. A model is kept without its ``[1m]`` suffix, so that
windows are looked up and learnt under one name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from urllib.parse import parse_qs

import msgspec
from msgspec import Raw

from policies.calls import Call, Surface
from policies.kinds import Wire
from policies.request import digests
from policies.request import side_request_rows as trait_rows
from policies.request.body import NOTHING, RequestBody, decoded, read_body
from policies.request.message_list import MessageList
from policies.settings import TraitRow

_ABSENT = frozenset({b"", b"null"})
_LONGEST_BUDGET = 15
"""Digits; a longer number is no output budget of any model."""
_BLANKS = 4096
"""Bytes of an array that are looked at for a first item."""
_LONGEST_NAME = 200
"""Characters kept of a model's name."""
_LONGEST_SESSION_ID = 200
"""Characters; a longer id is kept as its digest."""

SESSION_HEADERS: tuple[tuple[str, str], ...] = (
    ("x-claude-code-session-id", "Claude Code 2.1.112 and 2.1.332, recorded"),
    ("x-session-id", "opencode 1.18.33, recorded"),
    ("x-session-affinity", "opencode 1.18.33, recorded"),
    ("x-dashscope-sdk-session-id", "dashscope 2.0.2, recorded"),
)
"""Header and source, the first that is present wins; the body's ids come after them."""

LONG_CONTEXT_BETA = "context-1m"
"""Start of an ``anthropic-beta`` value, docs.anthropic.com context-windows."""
LONG_CONTEXT_SUFFIX = "[1m]"
"""Claude Code's spelling of the wish for a long context, in the model name."""
TOKEN_HEADER = "x-aliyun-captcha-verify-param"  # noqa: S105  a header's name
"""TriDefender/zcode-api#1."""

BUDGETS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
"""Spellings of the output budget, at the top of the body and inside ``parameters`` (DashScope native)."""


class Parameters(msgspec.Struct):
    """``parameters`` of the DashScope native wire."""

    max_tokens: Raw = Raw()
    max_completion_tokens: Raw = Raw()
    max_output_tokens: Raw = Raw()
    tools: Raw = Raw()
    enable_thinking: Raw = Raw()


Header = Callable[[str], str]
"""Gives the value of a header, empty where it is absent."""
_PARAMETERS = msgspec.json.Decoder(Parameters)
_TEXT = msgspec.json.Decoder(str)
_FIELDS = msgspec.json.Decoder(dict[str, Raw])


_NO_PARAMETERS = Parameters()


def read(  # noqa: PLR0913, PLR0917  what a request is made of
    surface: Surface,
    method: str,
    path: str,
    header: Header,
    query: str,
    body: bytes,
    *,
    size: int,
    account: str,
    hashed: Callable[[str], str],
    traits: tuple[TraitRow, ...] = (),
) -> Call:
    """Read a request; never raises. ``body`` is decoded, ``size`` its bytes as sent, ``hashed`` the keyed hash."""
    head = (fields := read_body(body)) or NOTHING
    parameters: Parameters = decoded(_PARAMETERS, head.parameters, _NO_PARAMETERS)
    model, suffixed = _model(head.model)
    history, session_id = MessageList(surface.wire, head), _session_id(head, header, query)
    tools = _present(head.tools) or _present(head.functions) or _present(parameters.tools)
    return Call(
        surface=surface,
        method=method,
        path=path,
        account=account,
        model=model,
        output_budget=_budget(head, parameters),
        stream=_stream(head, header, surface.wire),
        tools=tools,
        thinking=_thinking(head, parameters),
        long_context=suffixed or _long_context(header("anthropic-beta")),
        trait=None if tools or fields is None else _trait(head, traits),
        session_id=session_id,
        one_time_token=_one_time_token(head, header, hashed),
        size=size,
        body=body,
        fields=fields,
        history=history,
        hashed=hashed,
        session="\x1f".join((surface.upstream, account, model, session_id or digests.system_prompt(surface.wire, head, history))),
    )


def _trait(head: RequestBody, additions: tuple[TraitRow, ...]) -> str | None:
    system = head.system if len(head.system) else head.instructions
    messages = head.messages if len(head.messages) else head.input
    if len(messages) and bytes(memoryview(messages)[:1]) == b"{":  # DashScope native
        messages = _fields(messages).get("messages", Raw())
    return trait_rows.match(system, messages, head.output_config, (*trait_rows.BUILT_IN, *additions))


def _text(raw: Raw) -> str:
    """The JSON string in a slice, empty where it is absent or anything else."""
    return str(decoded(_TEXT, raw, ""))


def _fields(raw: Raw | str) -> dict[str, Raw]:
    found: dict[str, Raw] = decoded(_FIELDS, raw, {})
    return found


def _model(raw: Raw) -> tuple[str, bool]:
    model = _text(raw)[:_LONGEST_NAME]
    if not model.isprintable():  # it goes into logs and messages
        model = "".join(character for character in model if character.isprintable())
    if model.lower().endswith(LONG_CONTEXT_SUFFIX):
        return model[: -len(LONG_CONTEXT_SUFFIX)].rstrip(), True
    return model, False


def _budget(head: RequestBody, parameters: Parameters) -> int | None:
    """The largest of the budgets given; None where none is, or one of them is odd."""
    places = (head,) if parameters is _NO_PARAMETERS else (head, parameters)
    given = [bytes(raw) for place in places for name in BUDGETS if len(raw := getattr(place, name))]
    values = [value for value in given if value not in _ABSENT]
    if not values or not all(value.isdigit() and len(value) <= _LONGEST_BUDGET for value in values):
        return None
    smallest = min(map(int, values))
    return max(map(int, values)) if smallest > 0 else None


def _present(raw: Raw) -> bool:
    """True for tools that are there: a non-empty array, or a value that cannot be understood as an empty one."""
    if not len(raw):
        return False
    view = memoryview(raw)
    if bytes(view[:5]) in _ABSENT:
        return False
    return not (view[0] == ord("[") and not bytes(view[1:_BLANKS]).strip(b" \t\r\n]"))


def _stream(head: RequestBody, header: Header, wire: Wire) -> bool:
    """``stream: true``, or on DashScope's native wire one of two headers (help.aliyun.com, DashScope API reference)."""
    if bytes(head.stream) == b"true":
        return True
    return wire is Wire.DASHSCOPE_NATIVE and (
        header("x-dashscope-sse").strip().lower() == "enable" or "text/event-stream" in header("accept").lower()
    )


def _thinking(head: RequestBody, parameters: Parameters) -> bool:
    """True where a request asks for thinking in one of its spellings; the first one present decides."""
    kind = _fields(head.thinking).get("type", Raw())
    if len(kind):
        return _text(kind) in {"enabled", "adaptive"}  # Anthropic; docs.z.ai thinking mode
    for flag in (head.thinking, head.enable_thinking, parameters.enable_thinking):  # help.aliyun.com deep thinking
        if len(flag) and (said := bytes(flag)) in {b"true", b"false"}:
            return said == b"true"
    effort = _text(head.reasoning_effort) or _text(_fields(head.reasoning).get("effort", Raw()))
    return effort not in {"", "none"}


def _long_context(beta: str) -> bool:
    return bool(beta) and any(value.strip().lower().startswith(LONG_CONTEXT_BETA) for value in beta.split(","))


def _session_id(head: RequestBody, header: Header, query: str) -> str | None:
    for name, _source in SESSION_HEADERS:
        if value := header(name).strip():
            return _bounded(value)
    value = _session_of_user(_text(_fields(head.metadata).get("user_id", Raw())))  # Claude Code, recorded
    value = value or _text(head.prompt_cache_key)  # Codex 0.171.0, recorded
    if not value and ("chat_id" in query or "%" in query):  # chat.qwen.ai
        value = next(iter(parse_qs(query).get("chat_id", ())), "")
    value = value or _text(head.chat_id)  # chat.qwen.ai, chat.z.ai
    return _bounded(value) if value else None


def _session_of_user(user: str) -> str:
    """Claude Code 2.1 sends a JSON object with ``session_id`` as text, 2.0 ``user_…_account_…_session_…``."""
    return (_text(_fields(user).get("session_id", Raw())) if user.startswith("{") else "") or user


def _bounded(value: str) -> str:
    if len(value) <= _LONGEST_SESSION_ID:
        return value
    return hashlib.blake2b(value.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _one_time_token(head: RequestBody, header: Header, hashed: Callable[[str], str]) -> str | None:
    token = header(TOKEN_HEADER).strip() or _text(head.captcha_verify_param)
    return hashed(token) if token else None
