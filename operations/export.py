"""Refusals that no row knows, as corpus lines that a person can send to the project.

What is kept is listed here, and everything else is left out: there is no pattern of what looks personal. Values come out of
closed lists (hosts, path words, media types, codes and phrases of our own tables), or are numbers of at most `DIGITS`
digits where a code or status stands; a key is kept where it is made of known words, since a key can be a person's name too.
Of headers the names are kept, where they consist of letters.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping
from functools import cache

from mitmproxy import http

from operations.flow_adapter import METADATA
from operations.held import pairs
from policies.answer import documents
from policies.answer.frames import frames
from policies.calls import Surface
from policies.kinds import Head, Kind
from policies.refusal import challenges, envelopes, error_kinds, overflow
from policies.request.surfaces import BUILT_IN
from policies.state import State

BODY_BYTES = 65536
DEPTH, KEYS, ITEMS, FRAMES = 6, 40, 2, 5
"""Of a body's skeleton: levels, keys of one object, items of one list, frames of a stream."""
DIGITS = 6
"""Of a code, a status, a wait in seconds."""
PHRASES = 20

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
HOSTS = frozenset(host for upstream in BUILT_IN for host in upstream.hosts if "*" not in host)
PATH_WORDS = frozenset(["api", "v1", "v2", "v3", "v4", "paas", "coding", "anthropic", "openai", "compatible-mode", "messages", "count_tokens", "chat", "chats", "completions", "responses", "models", "images", "videos", "generations", "edits", "new", "files", "parse", "getstsToken", "services", "aigc", "text-generation", "generation", "multimodal-generation", "image-synthesis", "image-generation", "text2image", "video-generation", "video-synthesis", "image2image", "embeddings", "tasks", "apps", "auths", "status", "async-result", "zcode-plan", "proxy", "task", "stop"])  # fmt: skip
VALUES: Mapping[str, frozenset[str]] = {
    "content-type": frozenset({
        "application/json", "application/problem+json", "application/x-ndjson", "text/event-stream", "text/html", "text/plain",
        "application/xml", "text/xml", "application/octet-stream",
    }),
    "server": frozenset({"tengine", "nginx", "openresty", "istio-envoy", "envoy", "cloudflare", "esa", "apisix", "kong", "caddy", "ilogtail"}),
    "x-should-retry": frozenset({"true", "false"}),
    "bxpunish": frozenset({"0", "1"}),
}  # fmt: skip
"""Values of headers that are kept, and a Retry-After of at most `DIGITS` digits; of every other header the name alone."""
CODE_KEYS = frozenset(
    (*envelopes.CODE_KEYS, *envelopes.TYPE_KEYS, *envelopes.STATUS_KEYS, "ret", "finish_reason", "stop_reason")
)
MARKERS = (
    *challenges.PUNISH,
    *challenges.VERDICTS,
    "x5secdata",
    "aliyun_waf",
    "block_message",
    "baxia",
    "awsc",
    "captcha",
    "nocaptcha",
    "slider",
)
KEY_WORDS = frozenset(["action", "address", "algo", "allow", "allowed", "api", "app", "args", "at", "base", "body", "category", "cause", "channel", "class", "client", "cluster", "code", "config", "count", "created", "data", "date", "debug", "description", "detail", "details", "dialog", "domain", "duration", "enable", "end", "err", "errcode", "errmsg", "errno", "error", "errors", "event", "expire", "expires", "ext", "extra", "field", "flag", "form", "host", "http", "id", "ids", "index", "info", "inner", "is", "items", "key", "kind", "lang", "level", "line", "link", "list", "location", "log", "max", "message", "meta", "metadata", "method", "min", "mode", "module", "msg", "name", "next", "no", "object", "ok", "open", "origin", "out", "page", "param", "params", "path", "payload", "pid", "pipeline", "platform", "point", "policy", "pos", "prev", "product", "provider", "raw", "ref", "region", "remaining", "req", "request", "reset", "resets", "resource", "response", "result", "results", "ret", "retry", "retryable", "return", "route", "rule", "scene", "scope", "seconds", "server", "service", "session", "should", "sign", "site", "slide", "source", "stack", "start", "state", "status", "step", "sub", "success", "suggest", "suggestion", "system", "tag", "target", "task", "template", "text", "time", "timestamp", "tip", "tips", "title", "to", "total", "trace", "traffic", "type", "unit", "until", "uri", "url", "user", "uuid", "v", "value", "verify", "version", "wait", "warn", "zone"])  # fmt: skip
STEMS = (
    "error", "exception", "invalid", "limit", "quota", "exceed", "denied", "forbid", "unauth", "fail", "block", "busy", "overload",
    "unavail", "timeout", "throttl", "arrear", "filter", "sensitive", "inspection", "risk", "captcha", "verif", "validate",
    "punish", "not_found", "notfound", "permission", "expired", "refus", "reject", "illegal", "missing", "unsupported",
)  # fmt: skip
"""What a code says that is none of ours: a name of one of these kinds, and nothing else, is kept."""

_NAME = re.compile(r"[A-Za-z]+(?:[_-][A-Za-z]+){0,7}")
_CODE = re.compile(r"[A-Za-z]{1,40}(?:[_.]{1,2}[A-Za-z]{1,40}){0,7}")
_HIGH = re.compile(r"(?:[A-Z][a-z]+){1,6}|[A-Z]+(?:_[A-Z]+)*|[a-z]+(?:_[a-z]+)+|[a-z]+")
_WORD = re.compile(r"[A-Za-z]+|[\u4e00-\u9fff]+|[^A-Za-z\u4e00-\u9fff]+")
_PART = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_TITLE = re.compile(r"<title[^<>]*>([^<]{0,200})", re.IGNORECASE)


def corpus_line(state: State, flow: http.HTTPFlow) -> str:
    """One JSON line of what is kept of a refusal, or of why there is nothing to export."""
    asked, response = flow.request, flow.response
    upstream = state.surfaces.at(asked.host, asked.port, flow.client_conn.sni)
    if upstream is None:
        return json.dumps({"error": "no configured upstream"})
    surface = state.surfaces.recognise(upstream, asked.method, asked.path, lambda _: "")
    noted = flow.metadata.get(METADATA, {})
    if response is None or noted.get("attempts") == 0:
        return json.dumps({"error": "answered here or not at all: nothing of an upstream's to export"})
    excerpt, status = noted.get("excerpt"), noted.get("upstream_status", response.status_code)
    if excerpt:  # what the client got is ours, or may be
        body, headers = str(excerpt), {"content-type": str(noted.get("upstream_type", ""))}
    else:
        body = (response.get_text(strict=False) or "")[:BODY_BYTES]
        headers = {name.lower(): value for name, value in pairs(response)}
    finding = state.recogniser.document(
        surface, Head(status, tuple(headers.items())), body.encode("utf8", "replace"), whole=True
    )
    if Kind.ANSWER in (finding.kind, noted.get("finding")):
        return json.dumps({"error": "this is an answer: what a model wrote is not exported"})
    line = {
        "id": "unknown",
        "wire": surface.wire.value,
        "family": surface.family.value,
        "kind": finding.kind.value,
        "code": _code(finding.code),
        "request": _request(asked, surface),
        "response": {"status": status, "headers": dict(_headers(headers)), "body": _body(body), "says": _says(body)},
    }
    return json.dumps(line, ensure_ascii=False)


def _request(asked: http.Request, surface: Surface) -> dict[str, str]:
    """A vendor's host, the words of known paths: a host, workspace or id of the user's own is left out."""
    path = "/".join(part if part in PATH_WORDS or not part else "X" for part in asked.path.partition("?")[0].split("/"))
    host = asked.host.lower()
    return {
        "method": asked.method if asked.method in METHODS else "X",
        "host": host if host in HOSTS else f"{surface.family.value}.invalid",
        "path": path,
    }


def _headers(headers: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name, value in headers.items():
        if _NAME.fullmatch(name) and len(name) <= 40:
            said = value.partition(";")[0].strip().lower()
            yield name, said if said in VALUES.get(name, ()) or (name == "retry-after" and _is_short(said)) else ""


def _body(body: str) -> object:
    """The skeleton of a JSON body or of a stream's frames, else what kind of text it is."""
    data = body.encode("utf8", "replace")
    if not data.strip():
        return "empty"
    if challenges.is_page(data):
        return "page"
    if documents.form_of(data, "") is documents.Form.STREAM:
        return {"frames": [_skeleton(documents.parse(frame.data)) for frame in itertools.islice(frames(data), FRAMES)]}
    return _skeleton(documents.parse(data))


def _skeleton(value: object, key: str = "", depth: int = 0) -> object:
    """Keys and types; codes and statuses as they are."""
    if value is documents.UNREADABLE or (isinstance(value, dict | list) and depth >= DEPTH):
        return "text" if value is documents.UNREADABLE else "deeper"
    if isinstance(value, dict):
        return {_key(name): _skeleton(below, str(name).lower(), depth + 1) for name, below in list(value.items())[:KEYS]}
    if isinstance(value, list):
        return [_skeleton(below, key, depth + 1) for below in value[:ITEMS]]
    if value is None or isinstance(value, bool):
        return value
    if key in CODE_KEYS and (code := _code(value)) is not None:
        return code
    return "string" if isinstance(value, str) else "number"


def _key(name: object) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        return name if name == challenges.FLAG else "X"
    known = KEY_WORDS | _vocabulary()[1]
    return name if all(part.lower() in known for part in _PART.findall(name)) else "X"


def _code(value: object) -> str | int | None:
    """A code of our tables, a name that says an error, or a short number; None for everything else."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value if abs(value) < 10**DIGITS else None
    if not isinstance(value, str):
        return None
    if value.lower() in _vocabulary()[0] or _is_short(value):
        return value
    named = _CODE.fullmatch(value) and any(stem in value.lower() for stem in STEMS)
    return value if named and all(_HIGH.fullmatch(part) for part in re.split(r"\.+", value)) else None


def _is_short(value: str) -> bool:
    return value.isascii() and value.isdigit() and len(value) <= DIGITS


def _says(body: str) -> list[str]:
    """Phrases of our own tables and markers that the text has, of two words and more, in their order."""
    _, words = _vocabulary()
    low = body.lower()
    title = _TITLE.search(body)
    text = title[1] if title else body if "<" not in body[:1] else ""
    phrases, run = [], ""
    for part in (*_WORD.findall(text), "\0"):
        if part.lower() in words and part.isascii():
            run += part
        elif run and part == " ":
            run += " "
        else:
            phrases += [run.strip()] if " " in run.strip() else []
            phrases += [word for word in words if not word.isascii() and word in part]
            run = ""
    return list(dict.fromkeys([*(mark for mark in MARKERS if mark in low), *phrases]))[:PHRASES]


@cache
def _vocabulary() -> tuple[frozenset[str], frozenset[str]]:
    """The codes of our tables, and the words of their phrases; both in lower case."""
    rows = [row for tables in error_kinds.TABLES.values() for _, table in tables for row in table]
    texts = " ".join([*(row.text for row in rows), *(row.text for row in overflow.ROWS)])
    plain = re.sub(r"\\[A-Za-z]|\(\?P?<?\w*>?|\{[nw]\}", " ", texts).lower()
    return frozenset(code for row in rows for code in row.codes.lower().split()), frozenset(
        re.findall(r"[a-z]{2,}|[\u4e00-\u9fff]{2,}", plain)
    )
