"""What is known of the upstreams without asking them: their hosts, what a path is for, and the windows of their models."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from policies.calls import Surface
from policies.kinds import Family, Role, Wire
from policies.settings import Upstream

BUILT_IN: tuple[Upstream, ...] = (
    Upstream("qwen-chat", ("chat.qwen.ai",), Family.QWEN_WEB),
    Upstream("qwen-portal", ("portal.qwen.ai",), Family.DASHSCOPE),
    Upstream(
        "dashscope",
        (
            "dashscope.aliyuncs.com",
            "dashscope-intl.aliyuncs.com",
            "dashscope-us.aliyuncs.com",
            "cn-hongkong.dashscope.aliyuncs.com",
            "*.maas.aliyuncs.com",
        ),
        Family.DASHSCOPE,
    ),
    Upstream("dashscope-coding", ("coding.dashscope.aliyuncs.com", "coding-intl.dashscope.aliyuncs.com"), Family.DASHSCOPE),
    Upstream("zai", ("api.z.ai",), Family.ZAI),
    Upstream("bigmodel", ("open.bigmodel.cn",), Family.ZAI),
    Upstream("zai-chat", ("chat.z.ai",), Family.ZAI_WEB),
    Upstream("zcode", ("zcode.z.ai",), Family.ZCODE),
)
"""The upstreams that are known without a config. One breaker each."""


class PathRow(NamedTuple):
    """One kind of path: only POST asks a model or prepares it, so that polling GETs, model lists and pre-connects fall through."""

    pattern: str
    """Searched in the path without query, doubled and trailing slashes."""
    role: Role
    wire: Wire
    source: str
    families: frozenset[Family] = frozenset(Family)


_QWEN_WEB = frozenset({Family.QWEN_WEB})
_ZAI_WEB = frozenset({Family.ZAI_WEB})
_API = frozenset(Family) - _QWEN_WEB - _ZAI_WEB
_WEB_CHAT = r"/api(?:/v\d+)?/chat/completions$"
_PREPARATION = r"/api(?:/v\d+)?/(?:chats/new|files/getstsToken|files/parse)$"
_DIALECT = "everything else passes; the wire says in which dialect a challenge is told there"

ROWS: tuple[PathRow, ...] = (
    PathRow(r"/mcps?/", Role.OTHER, Wire.OTHER, "docs.z.ai MCP servers"),
    PathRow(_WEB_CHAT, Role.GENERATION, Wire.QWEN_WEB, "Rfym21/Qwen2API", _QWEN_WEB),
    PathRow(_WEB_CHAT, Role.GENERATION, Wire.ZAI_WEB, "diegosouzapw/OmniRoute#9991", _ZAI_WEB),
    PathRow(_PREPARATION, Role.PREPARATION, Wire.QWEN_WEB, "Rfym21/Qwen2API", _QWEN_WEB),
    PathRow(r"/v1/messages$", Role.GENERATION, Wire.ANTHROPIC, "docs.anthropic.com messages"),
    PathRow(r"/chat/completions$", Role.GENERATION, Wire.OPENAI, "platform.openai.com chat"),
    PathRow(r"/responses$", Role.GENERATION, Wire.RESPONSES, "platform.openai.com responses"),
    PathRow(r"/images/[^/]+$", Role.GENERATION, Wire.IMAGES, "docs.z.ai images", _API),
    PathRow(r"/videos(?:/[^/]+)*$", Role.GENERATION, Wire.VIDEOS, "docs.z.ai videos", _API),
    PathRow(r"/images/(?:generations|edits|variations)$", Role.GENERATION, Wire.IMAGES, "bridges of web chats"),
    PathRow(r"/videos(?:/generations)?$", Role.GENERATION, Wire.VIDEOS, "bridges of web chats"),
    PathRow(r"/api/v1/services/aigc/.", Role.GENERATION, Wire.DASHSCOPE_NATIVE, "help.aliyun.com native"),
    PathRow("", Role.OTHER, Wire.QWEN_WEB, _DIALECT, _QWEN_WEB),
    PathRow("", Role.OTHER, Wire.ZAI_WEB, _DIALECT, _ZAI_WEB),
    PathRow(r"/v1/messages(?:/|$)|/anthropic(?:/|$)", Role.OTHER, Wire.ANTHROPIC, "count_tokens, batches and model lists"),
    PathRow(r"/responses/", Role.OTHER, Wire.RESPONSES, _DIALECT),
    PathRow(
        r"^/api/v1/(?:tasks|services|uploads)(?:/|$)",
        Role.OTHER,
        Wire.DASHSCOPE_NATIVE,
        "help.aliyun.com task polling",
        frozenset({Family.DASHSCOPE}),
    ),
    PathRow("", Role.OTHER, Wire.OTHER, _DIALECT),
)
"""First match wins."""

PERSON_PATH = "/_____tmd_____"
"""Aliyun's slider pages live under it."""

_SLASHES = re.compile(r"/{2,}")


def plain_path(path: str) -> str:
    """Path without query and fragment, slashes single, none at the end (but for the root)."""
    bare = path.partition("?")[0].partition("#")[0]
    return (_SLASHES.sub("/", bare) if "//" in bare else bare).rstrip("/") or "/"


@lru_cache(maxsize=1024)
def _surface(name: str, family: Family, method: str, plain: str, *, person: bool) -> Surface:
    rows = (row for row in ROWS if family in row.families and (row.role is Role.OTHER or method == "POST"))
    row = next(row for row in rows if re.search(row.pattern, plain))
    return Surface(name, family, row.wire, Role.PERSON if person or PERSON_PATH in plain else row.role)


def address(host: str) -> str | None:
    """The short form of a bare IP address; None for a name."""
    try:
        return ipaddress.ip_address(host).compressed
    except ValueError:
        return None


def plain_host(host: str) -> str:
    """Lower case, no brackets, no trailing dot; an IPv6 address in its short form."""
    bare = host.strip().lower().removeprefix("[").removesuffix("]").rstrip(".")
    return address(bare) or bare


class HostPattern(NamedTuple):
    """``host``, ``host:port``, ``*.suffix``, ``[v6]:port``, taken apart."""

    host: str
    port: int | None
    suffix: bool

    @classmethod
    def of(cls, text: str) -> HostPattern:
        host, port = text.strip(), ""
        if host.startswith("["):
            host, _, port = host.partition("]")
        elif host.count(":") == 1:
            host, _, port = host.partition(":")
        port = port.removeprefix(":")
        return cls(plain_host(host.removeprefix("*")), int(port) if port.isdecimal() else None, host.startswith("*."))

    def matches(self, host: str, port: int) -> bool:
        if self.port is not None and self.port != port:
            return False
        return host.endswith(self.host) if self.suffix else host == self.host


class Surfaces:
    """The configured upstreams. Rows of a user's config go before the built-in ones, each in the order given."""

    def __init__(self, upstreams: tuple[Upstream, ...]) -> None:
        ordered = sorted(upstreams, key=lambda upstream: upstream in BUILT_IN)
        self._rows = tuple((HostPattern.of(host), upstream) for upstream in ordered for host in upstream.hosts)
        self._names = {upstream.name: upstream for upstream in reversed(ordered)}
        self._find = lru_cache(maxsize=1024)(self._search)

    def _search(self, host: str, port: int) -> Upstream | None:
        plain = plain_host(host)
        return next((upstream for pattern, upstream in self._rows if pattern.matches(plain, port)), None)

    def at(self, host: str, port: int, sni: str | None = None) -> Upstream | None:
        """The upstream that a connection or a request goes to: the one place that decides it.

        ``host`` is the CONNECT, SOCKS or reverse target, or the request's own; where it is a bare address (transparent
        and local modes, SOCKS by address), the client's ``sni`` says what it wants there. Never the Host header.
        """
        return self._find(host, port) or (self._find(sni, port) if sni and address(plain_host(host)) else None)

    def upstream(self, name: str) -> Upstream | None:
        return self._names.get(name)

    def recognise(self, upstream: Upstream, method: str, path: str, header: Callable[[str], str]) -> Surface:
        """The surface that a request calls. ``header`` gives a header's value, empty where it is absent."""
        person = header("sec-fetch-mode").strip().lower() == "navigate"
        return _surface(upstream.name, upstream.family, method.upper(), plain_path(path), person=person)


# -- windows of the models there: what a vendor or a measurement states, per place where it differs ----------------------


class ModelWindow(NamedTuple):
    """The window of a model, or of every model whose name begins with ``model`` where that ends in ``*``."""

    model: str
    tokens: int
    """Largest input where it is published apart from the window, else the window."""
    source: str
    thinking: int | None = None
    """Largest input with thinking on, where it differs."""
    place: str | None = None
    """A family or an upstream's name, where the row holds only there."""


_MODELS_DEV = "models.dev 2026-07-02"
_PROBE = "measured 2026-09-13, help.aliyun.com qwen3-8-max"


def _rows(tokens: int, source: str, *models: str, thinking: int | None = None, place: str | None = None) -> list[ModelWindow]:
    """One row a model, for models of one window."""
    return [ModelWindow(model, tokens, source, thinking, place) for model in models]


MODEL_WINDOWS: tuple[ModelWindow, ...] = (
    *_rows(10_000_000, _MODELS_DEV, "qwen-long*"),
    *_rows(1_048_576, _MODELS_DEV, "qwen3-coder-plus*"),
    *_rows(1_048_576, "OpenRouter; docs.z.ai says 1M", "glm-5.3*"),
    *_rows(1_000_000, "models.dev 2026-07-02, coding plan", "qwen3-coder-plus*", place="dashscope-coding"),
    *_rows(1_000_000, _MODELS_DEV, "qwen3.6-plus*", "qwen3.6-flash*", "qwen3.5-plus*", "qwen3.5-flash*", "qwen3-coder-flash*"),
    *_rows(1_000_000, _MODELS_DEV, "qwen-plus*", "qwen-flash*", "qwen-turbo*", "glm-5.2*"),
    *_rows(1_000_000, "docs.z.ai", "glm-5.3-flash*"),
    *_rows(991_808, _PROBE, "qwen3.8-max*", thinking=983_616),
    *_rows(991_808, "help.aliyun.com Model Studio", "qwen3.8-flash*", thinking=983_616),
    *_rows(991_808, _MODELS_DEV, "qwen3.7-max*", "qwen3.7-plus*", thinking=983_616),
    *_rows(262_144, _MODELS_DEV, "qwen3.6-max-preview*", "qwen3-max*", "qwen3-coder-next*", "qwen3-coder-480b*"),
    *_rows(262_144, _MODELS_DEV, "qwen3-coder-30b*", "qwen3.5-27b*", "qwen3.5-35b-a3b*", "qwen3.5-122b*", "qwen3.5-397b*"),
    *_rows(262_144, _MODELS_DEV, "qwen3.6-27b*", "qwen3.6-35b-a3b*"),
    *_rows(204_800, _MODELS_DEV, "glm-5", "glm-4.7*", "glm-4.6*"),
    *_rows(202_752, "models.dev 2026-07-02, coding plan", "glm-5", place="dashscope"),
    *_rows(202_752, _MODELS_DEV, "glm-5.1*", "glm-5-turbo*", "glm-5v-turbo*", place="dashscope"),
    *_rows(200_000, _MODELS_DEV, "glm-5.1*", "glm-5-turbo*", "glm-5v-turbo*", "glm-4.7-flash*"),
    # 32,768 on the international hosts, which are the same upstream here: the larger one never refuses by mistake.
    *_rows(131_072, "models.dev 2026-07-02, cn", "qwen-max*"),
    *_rows(131_072, _MODELS_DEV, "qwen3-235b*", "qwen3-32b*", "qwen3-14b*", "qwen3-8b*", "glm-4.5*"),
    *_rows(128_000, _MODELS_DEV, "glm-4.6v*"),
    *_rows(64_000, _MODELS_DEV, "glm-4.5v*"),
)
"""The longest name wins, whatever the order."""

UNPUBLISHED = frozenset({Family.QWEN_WEB, Family.ZAI_WEB})
"""Families whose windows nobody states: on chat.qwen.ai the size of the body is met first (Qwen2API#147)."""


def fits(pattern: str, model: str) -> bool:
    """True where a name or a prefix with a trailing ``*`` means this model; both in lower case."""
    return model.startswith(pattern[:-1]) if pattern.endswith("*") else model == pattern


def model_window(upstream: str, family: Family, model: str) -> ModelWindow | None:
    """The row for a model there: the longest name wins, among equals the one of this place."""
    if family in UNPUBLISHED:
        return None
    model = model.lower()
    for name in dict.fromkeys((model, model.rpartition("/")[2])):
        rows = [row for row in MODEL_WINDOWS if row.place in {None, family.value, upstream} and fits(row.model, name)]
        if rows:
            return max(rows, key=lambda row: (len(row.model), row.place is not None, row.place == upstream))
    return None
