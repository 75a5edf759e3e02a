"""The facts of one request, read from slices of its body without building its message tree.

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
from policies.request import body as bodies
from policies.request.body import NOTHING, MessageList, RequestBody, decoded, read_body, text_of
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

TRAITS: tuple[TraitRow, ...] = (
    TraitRow("claude-code title 2.1.332", "system", "You are naming a coding session", "Claude Code 2.1.332, recorded"),
    TraitRow("claude-code title 2.1.112", "system", "Generate a concise, sentence-case title", "Claude Code 2.1.112, recorded"),
    TraitRow(
        "claude-code topic", "system", "Analyze if this message indicates a new conversation topic", "Claude Code 2.0.76 cli.js"
    ),
    TraitRow("opencode title", "system", "You are a title generator", "opencode 1.18.33, recorded"),
    TraitRow("claude-code title schema", "schema", "title", "Claude Code 2.1.112 and 2.1.332, recorded"),
    TraitRow("claude-code warm-up", "user", "Warmup", "Claude Code 2.0.76, recorded"),
    TraitRow("claude-code quota probe", "user", "quota", "Claude Code 2.1.112 cli.js"),
)
"""Side requests known by their text: title generators and warm-ups that ask for a large output and bring no tools.

The probes with ``max_tokens: 1`` (``test``, ``Hi``, ``.``, ``count``) need no row: their budget tells them.
"""
SCHEMA_PROPERTIES = 2
"""A schema with more properties than this extracts data: a main request that happens to want a title too."""
LONG = 65_536
"""Bytes of messages above which only their beginning is looked at."""


class _Block(msgspec.Struct):
    text: str = ""
    type: str = "text"


class _Message(msgspec.Struct):
    role: str = ""
    content: str | list[_Block] | None = None


Header = Callable[[str], str]
"""Gives the value of a header, empty where it is absent."""
_FIELDS = msgspec.json.Decoder(dict[str, Raw])
_CONTENT = msgspec.json.Decoder(str | list[_Block])
_MESSAGE = msgspec.json.Decoder(_Message)


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
    parameters = read_body(head.parameters) or NOTHING
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
        trait=None if tools or fields is None else _trait(head, history.raw, (*TRAITS, *traits)),
        session_id=session_id,
        one_time_token=hashed(token) if (token := _token(head, header)) else None,
        size=size,
        body=body,
        fields=fields,
        history=history,
        hashed=hashed,
        session=_session(surface, account, model, session_id or bodies.system_prompt(surface.wire, head, history)),
    )


def _session(surface: Surface, account: str, model: str, own: str) -> str:
    return f"{surface.upstream}\x1f{account}\x1f{model}\x1f{own}"


def _member(raw: Raw | str, *names: str) -> Raw | str:
    """Slice of a member of an object, or of one within it; empty where it is absent."""
    for name in names:
        fields: dict[str, Raw] = decoded(_FIELDS, raw, {})
        raw = fields.get(name, "")
    return raw


def _model(raw: Raw) -> tuple[str, bool]:
    model = text_of(raw)[:_LONGEST_NAME]
    if not model.isprintable():  # it goes into logs and messages
        model = "".join(filter(str.isprintable, model))
    if model.lower().endswith(LONG_CONTEXT_SUFFIX):
        return model[: -len(LONG_CONTEXT_SUFFIX)].rstrip(), True
    return model, False


def _budget(head: RequestBody, parameters: RequestBody) -> int | None:
    """The largest of the budgets given; None where none is, or one of them is odd."""
    places = (head,) if parameters is NOTHING else (head, parameters)
    given = [bytes(raw) for place in places for name in BUDGETS if len(raw := getattr(place, name))]
    values = [value for value in given if value not in _ABSENT]
    if not values or not all(value.isdigit() and len(value) <= _LONGEST_BUDGET for value in values):
        return None
    budgets = [int(value) for value in values]
    return max(budgets) if min(budgets) > 0 else None


def _present(raw: Raw) -> bool:
    """True for tools that are there: a non-empty array, or a value that cannot be understood as an empty one."""
    view = memoryview(raw)
    return (
        len(raw) > 0
        and bytes(view[:5]) not in _ABSENT
        and not (view[0] == ord("[") and not bytes(view[1:_BLANKS]).strip(b" \t\r\n]"))
    )


def _stream(head: RequestBody, header: Header, wire: Wire) -> bool:
    """``stream: true``, or on DashScope's native wire one of two headers (help.aliyun.com, DashScope API reference)."""
    if wire is not Wire.DASHSCOPE_NATIVE or bytes(head.stream) == b"true":
        return bytes(head.stream) == b"true"
    return header("x-dashscope-sse").strip().lower() == "enable" or "text/event-stream" in header("accept").lower()


def _thinking(head: RequestBody, parameters: RequestBody) -> bool:
    """True where a request asks for thinking in one of its spellings; the first one present decides."""
    kind = _member(head.thinking, "type")
    if len(kind):
        return text_of(kind) in {"enabled", "adaptive"}  # Anthropic; docs.z.ai thinking mode
    for flag in (head.thinking, head.enable_thinking, parameters.enable_thinking):  # help.aliyun.com deep thinking
        if len(flag) and (said := bytes(flag)) in {b"true", b"false"}:
            return said == b"true"
    effort = text_of(head.reasoning_effort) or text_of(_member(head.reasoning, "effort"))
    return effort not in {"", "none"}


def _long_context(beta: str) -> bool:
    return bool(beta) and any(value.strip().lower().startswith(LONG_CONTEXT_BETA) for value in beta.split(","))


def _session_id(head: RequestBody, header: Header, query: str) -> str | None:
    for name, _source in SESSION_HEADERS:
        if value := header(name).strip():
            return _bounded(value)
    value = _session_of_user(text_of(_member(head.metadata, "user_id")))  # Claude Code, recorded
    value = value or text_of(head.prompt_cache_key)  # Codex 0.171.0, recorded
    if not value and ("chat_id" in query or "%" in query):  # chat.qwen.ai
        value = next(iter(parse_qs(query).get("chat_id", ())), "")
    value = value or text_of(head.chat_id)  # chat.qwen.ai, chat.z.ai
    return _bounded(value) if value else None


def _bounded(value: str) -> str:
    if len(value) <= _LONGEST_SESSION_ID:
        return value
    return hashlib.blake2b(value.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _session_of_user(user: str) -> str:
    """Claude Code 2.1 sends a JSON object with ``session_id`` as text, 2.0 ``user_…_account_…_session_…``."""
    return (text_of(_member(user, "session_id")) if user.startswith("{") else "") or user


def _token(head: RequestBody, header: Header) -> str:
    return header(TOKEN_HEADER).strip() or text_of(head.captcha_verify_param)


def _trait(head: RequestBody, messages: Raw, rows: tuple[TraitRow, ...]) -> str | None:
    """Name of the first row that fits; ask only where ``tools`` is absent or empty."""
    blocks, users = _texts(head.system if len(head.system) else head.instructions, messages)
    properties = _properties(head.output_config)
    fits: dict[str, Callable[[str], bool]] = {
        "system": lambda text: any(block.lstrip().startswith(text) for block in blocks),
        "user": lambda text: [user.strip() for user in users] == [text],
        "schema": lambda text: text in properties,
    }
    return next((row.name for row in rows if fits[row.where](row.text)), None)


def _texts(system: Raw, messages: Raw) -> tuple[list[str], list[str]]:
    """Texts of the system blocks (leading system messages of the openai wire included) and of the one user message.

    A user with more to say than one message is no warm-up, and neither is a talk of more than ``LONG`` bytes.
    """
    blocks, users = _said(decoded(_CONTENT, system, None)), list[str]()
    long = len(messages) > LONG
    for item in bodies.first_items(Raw(bytes(memoryview(messages)[:LONG])) if long else messages):
        message: _Message = decoded(_MESSAGE, item, _Message())
        if users or message.role not in {*bodies.SYSTEM_ROLES, "user"}:
            return blocks, []
        (users if message.role == "user" else blocks).extend(_said(message.content))
    return blocks, [] if long else users


def _said(content: str | list[_Block] | None) -> list[str]:
    return [content] if isinstance(content, str) else [block.text for block in content or ()]


def _properties(output_config: Raw) -> frozenset[str]:
    if text_of(_member(output_config, "format", "type")) != "json_schema":
        return frozenset()
    names = frozenset(decoded(_FIELDS, _member(output_config, "format", "schema", "properties"), {}))
    return names if len(names) <= SCHEMA_PROPERTIES else frozenset()
