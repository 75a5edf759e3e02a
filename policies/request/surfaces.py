"""Which upstream a host is, and what a path of it is for."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

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


@dataclass(frozen=True, slots=True)
class PathRow:
    """One kind of path. ``pattern`` is searched in the path without query, doubled and trailing slashes."""

    pattern: re.Pattern[str]
    role: Role
    wire: Wire
    families: frozenset[Family] = frozenset(Family)
    methods: frozenset[str] | None = frozenset({"POST"})
    """None: any method."""
    source: str = ""


_QWEN_WEB = frozenset({Family.QWEN_WEB})
_ZAI_WEB = frozenset({Family.ZAI_WEB})
_API = frozenset(Family) - _QWEN_WEB - _ZAI_WEB
_WEB_CHAT = re.compile(r"/api(?:/v\d+)?/chat/completions$")

ROWS: tuple[PathRow, ...] = (
    PathRow(re.compile(r"/mcps?/"), Role.OTHER, Wire.OTHER, methods=None, source="docs.z.ai MCP servers"),
    PathRow(_WEB_CHAT, Role.GENERATION, Wire.QWEN_WEB, _QWEN_WEB, source="Rfym21/Qwen2API"),
    PathRow(_WEB_CHAT, Role.GENERATION, Wire.ZAI_WEB, _ZAI_WEB, source="diegosouzapw/OmniRoute#9991"),
    PathRow(
        re.compile(r"/api(?:/v\d+)?/(?:chats/new|files/getstsToken|files/parse)$"),
        Role.PREPARATION,
        Wire.QWEN_WEB,
        _QWEN_WEB,
        source="Rfym21/Qwen2API",
    ),
    PathRow(re.compile(r"/v1/messages$"), Role.GENERATION, Wire.ANTHROPIC, source="docs.anthropic.com messages"),
    PathRow(re.compile(r"/chat/completions$"), Role.GENERATION, Wire.OPENAI, source="platform.openai.com chat"),
    PathRow(re.compile(r"/responses$"), Role.GENERATION, Wire.RESPONSES, source="platform.openai.com responses"),
    PathRow(re.compile(r"/images/[^/]+$"), Role.GENERATION, Wire.IMAGES, _API, source="docs.z.ai images"),
    PathRow(re.compile(r"/videos(?:/[^/]+)*$"), Role.GENERATION, Wire.VIDEOS, _API, source="docs.z.ai videos"),
    PathRow(
        re.compile(r"/images/(?:generations|edits|variations)$"), Role.GENERATION, Wire.IMAGES, source="bridges of web chats"
    ),
    PathRow(re.compile(r"/videos(?:/generations)?$"), Role.GENERATION, Wire.VIDEOS, source="bridges of web chats"),
    PathRow(re.compile(r"/api/v1/services/aigc/."), Role.GENERATION, Wire.DASHSCOPE_NATIVE, source="help.aliyun.com native"),
    # Everything else passes; the wire says in which dialect a challenge is told there.
    PathRow(re.compile(r""), Role.OTHER, Wire.QWEN_WEB, _QWEN_WEB, methods=None),
    PathRow(re.compile(r""), Role.OTHER, Wire.ZAI_WEB, _ZAI_WEB, methods=None),
    PathRow(
        re.compile(r"/v1/messages(?:/|$)|/anthropic(?:/|$)"),
        Role.OTHER,
        Wire.ANTHROPIC,
        methods=None,
        source="count_tokens, batches and model lists of anthropic bases",
    ),
    PathRow(re.compile(r"/responses/"), Role.OTHER, Wire.RESPONSES, methods=None),
    PathRow(
        re.compile(r"^/api/v1/(?:tasks|services|uploads)(?:/|$)"),
        Role.OTHER,
        Wire.DASHSCOPE_NATIVE,
        frozenset({Family.DASHSCOPE}),
        methods=None,
        source="help.aliyun.com task polling",
    ),
    PathRow(re.compile(r""), Role.OTHER, Wire.OTHER, methods=None),
)
"""First match wins. Only POST asks a model: polling GETs, model lists and HEAD pre-connects fall through."""

PERSON_PATH = "/_____tmd_____"
"""Aliyun's slider pages live under it."""

_SLASHES = re.compile(r"/{2,}")


def plain_path(path: str) -> str:
    """Path without query and fragment, slashes single, none at the end (but for the root)."""
    bare = path.partition("?")[0].partition("#")[0]
    return (_SLASHES.sub("/", bare) if "//" in bare else bare).rstrip("/") or "/"


def _row(family: Family, method: str, path: str) -> PathRow:
    for row in ROWS:
        if family in row.families and (row.methods is None or method in row.methods) and row.pattern.search(path):
            return row
    raise AssertionError(path)  # pragma: no cover - the last row matches everything


@lru_cache(maxsize=1024)
def _surface(name: str, family: Family, method: str, plain: str, *, person: bool) -> Surface:
    row = _row(family, method, plain)
    return Surface(name, family, row.wire, Role.PERSON if person or PERSON_PATH in plain else row.role)


def plain_host(host: str) -> str:
    """Lower case, no brackets, no trailing dot; an IPv6 address in its short form."""
    bare = host.strip().lower().removeprefix("[").removesuffix("]").rstrip(".")
    if ":" in bare:
        try:
            return ipaddress.ip_address(bare).compressed
        except ValueError:
            return bare
    return bare


def is_address(host: str) -> bool:
    """Tell a bare IP address from a name."""
    try:
        ipaddress.ip_address(plain_host(host))
    except ValueError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class HostPattern:
    """``host``, ``host:port``, ``*.suffix``, ``[v6]:port``, taken apart."""

    host: str
    port: int | None
    suffix: bool

    @classmethod
    def of(cls, text: str) -> HostPattern:
        text = text.strip()
        head, port = text, ""
        if text.startswith("["):
            head, _, rest = text.partition("]")
            port = rest.removeprefix(":")
        elif text.count(":") == 1:
            head, _, port = text.partition(":")
        suffix = head.startswith("*.")
        return cls(plain_host(head.removeprefix("*")), int(port) if port.isdecimal() else None, suffix)

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
        return self._find(host, port) or (self._find(sni, port) if sni and is_address(host) else None)

    def upstream(self, name: str) -> Upstream | None:
        return self._names.get(name)

    def recognise(self, upstream: Upstream, method: str, path: str, header: Callable[[str], str]) -> Surface:
        """The surface that a request calls. ``header`` gives a header's value, empty where it is absent."""
        person = header("sec-fetch-mode").strip().lower() == "navigate"
        return _surface(upstream.name, upstream.family, method.upper(), plain_path(path), person=person)
