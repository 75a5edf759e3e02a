"""Which upstream a host is, and what a path of it is for."""

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
