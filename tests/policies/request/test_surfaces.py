from typing import Any

import pytest

from policies.kinds import Family, Role, Wire
from policies.request.surfaces import BUILT_IN, HostPattern, Surfaces
from policies.settings import Upstream
from tests.rows import over

SURFACES = Surfaces(BUILT_IN)


def recognised(
    host: str, path: str, method: str = "POST", fetch_mode: str = "", surfaces: Surfaces = SURFACES, port: int = 443
) -> Any:
    upstream = surfaces.at(host, port)
    return upstream and surfaces.recognise(upstream, method, path, {"sec-fetch-mode": fetch_mode}.__getitem__)


GENERATION = [
    ("chat.qwen.ai", "/api/v2/chat/completions?chat_id=1", "qwen-chat", Wire.QWEN_WEB),
    ("chat.qwen.ai", "/api/v1/chat/completions", "qwen-chat", Wire.QWEN_WEB),
    ("chat.qwen.ai", "/api/chat/completions", "qwen-chat", Wire.QWEN_WEB),
    ("chat.qwen.ai", "//api//v2/chat/completions/", "qwen-chat", Wire.QWEN_WEB),
    ("CHAT.Qwen.ai.", "/api/v2/chat/completions", "qwen-chat", Wire.QWEN_WEB),
    ("chat.z.ai", "/api/v2/chat/completions?x=1", "zai-chat", Wire.ZAI_WEB),
    ("portal.qwen.ai", "/v1/chat/completions", "qwen-portal", Wire.OPENAI),
    ("dashscope.aliyuncs.com", "/compatible-mode/v1/chat/completions", "dashscope", Wire.OPENAI),
    ("dashscope-intl.aliyuncs.com", "/compatible-mode/v1/responses", "dashscope", Wire.RESPONSES),
    ("dashscope.aliyuncs.com", "/api/v2/apps/protocols/compatible-mode/v1/responses", "dashscope", Wire.RESPONSES),
    ("dashscope.aliyuncs.com", "/apps/anthropic/v1/messages", "dashscope", Wire.ANTHROPIC),
    (
        "dashscope.aliyuncs.com",
        "/api/v1/services/aigc/text-generation/generation",
        "dashscope",
        Wire.DASHSCOPE_NATIVE,
    ),
    ("token-plan.cn-beijing.maas.aliyuncs.com", "/apps/anthropic/v1/messages", "dashscope", Wire.ANTHROPIC),
    ("coding-intl.dashscope.aliyuncs.com", "/v1/chat/completions", "dashscope-coding", Wire.OPENAI),
    ("api.z.ai", "/api/anthropic/v1/messages?beta=true", "zai", Wire.ANTHROPIC),
    ("api.z.ai", "/api/coding/paas/v4/chat/completions", "zai", Wire.OPENAI),
    ("api.z.ai", "/api/paas/v4/images/generations", "zai", Wire.IMAGES),
    ("api.z.ai", "/api/paas/v4/videos/generations", "zai", Wire.VIDEOS),
    ("open.bigmodel.cn", "/api/paas/v4/responses", "bigmodel", Wire.RESPONSES),
    ("zcode.z.ai", "/api/v1/zcode-plan/anthropic/v1/messages", "zcode", Wire.ANTHROPIC),
]


@over(("host", "path", "upstream", "wire"), GENERATION)
def test_a_path_that_asks_a_model_is_a_generation(host: str, path: str, upstream: str, wire: Wire) -> None:
    surface = recognised(host, path)
    assert (surface.upstream, surface.wire, surface.role) == (upstream, wire, Role.GENERATION)


OTHER = [
    ("POST", "api.z.ai", "/api/anthropic/v1/messages/count_tokens?beta=true", Wire.ANTHROPIC),
    ("GET", "api.z.ai", "/api/paas/v4/models", Wire.OTHER),
    ("HEAD", "api.z.ai", "/", Wire.OTHER),
    ("GET", "api.z.ai", "/api/paas/v4/chat/completions", Wire.OTHER),
    ("GET", "api.z.ai", "/api/paas/v4/async-result/1", Wire.OTHER),
    ("POST", "api.z.ai", "/api/mcp/web_search_prime/v1/messages", Wire.OTHER),
    ("GET", "chat.qwen.ai", "/api/models", Wire.QWEN_WEB),
    ("POST", "chat.qwen.ai", "/api/v2/files/parse/status", Wire.QWEN_WEB),
    ("GET", "chat.qwen.ai", "/api/v1/tasks/status/1", Wire.QWEN_WEB),
    ("POST", "chat.z.ai", "/api/v1/chats/new", Wire.ZAI_WEB),
    ("POST", "chat.qwen.ai", "/api/v1/images/upload", Wire.QWEN_WEB),
    ("GET", "dashscope.aliyuncs.com", "/api/v1/tasks/1", Wire.DASHSCOPE_NATIVE),
    ("GET", "api.z.ai", "/v1/responses/resp_1", Wire.RESPONSES),
    ("GET", "zcode.z.ai", "/api/v1/zcode-plan/billing/current", Wire.OTHER),
    ("OPTIONS", "chat.qwen.ai", "/api/v2/chat/completions", Wire.QWEN_WEB),
]


@over(("method", "host", "path", "wire"), OTHER)
def test_everything_else_on_a_configured_host_passes_and_keeps_its_dialect(
    method: str, host: str, path: str, wire: Wire
) -> None:
    surface = recognised(host, path, method)
    assert (surface.role, surface.wire) == (Role.OTHER, wire)


@over("path", ["/api/v2/chats/new", "/api/v1/files/getstsToken", "/api/v2/files/getstsToken", "/api/v2/files/parse"])
def test_the_steps_before_a_web_chat_are_preparation(path: str) -> None:
    assert recognised("chat.qwen.ai", path).role is Role.PREPARATION


@pytest.mark.parametrize("fetch_mode", ["navigate", "Navigate "])
def test_a_page_navigation_is_a_person(fetch_mode: str) -> None:
    assert recognised("chat.qwen.ai", "/", "GET", fetch_mode).role is Role.PERSON


def test_a_fetch_of_a_page_script_is_no_person() -> None:
    surface = recognised("chat.qwen.ai", "/api/v2/chat/completions", fetch_mode="cors")
    assert surface.role is Role.GENERATION


def test_the_slider_is_a_person_wherever_it_hangs() -> None:
    path = "//api/v2/chat/completions/_____tmd_____/punish?x5secdata=x"
    assert recognised("chat.qwen.ai", path, "GET").role is Role.PERSON


def test_a_query_that_names_the_slider_is_no_person() -> None:
    assert recognised("chat.qwen.ai", "/api/v2/chat/completions?u=/_____tmd_____/").role is Role.GENERATION


@over("host", ["api.anthropic.com", "xchat.qwen.ai", "maas.aliyuncs.com", "xmaas.aliyuncs.com", ""])
def test_a_host_that_is_not_configured_is_not_ours(host: str) -> None:
    assert recognised(host, "/v1/messages") is None
    assert SURFACES.at(host, 443) is None


def test_a_users_row_goes_before_the_built_in_one() -> None:
    mine = Upstream("mine", ("a.b.maas.aliyuncs.com",), Family.ZAI)
    assert recognised("a.b.maas.aliyuncs.com", "/v1/messages", surfaces=Surfaces((*BUILT_IN, mine))).upstream == "mine"


def test_the_first_of_two_rows_of_the_user_wins() -> None:
    rows = (Upstream("one", ("*.x",), Family.ZAI), Upstream("two", ("a.x",), Family.ZAI))
    assert recognised("a.x", "/v1/messages", surfaces=Surfaces(rows)).upstream == "one"


@over(
    ("pattern", "host", "port", "matches"),
    [
        ("h.example", "h.example", 1, True),
        ("H.Example.", "h.example", 443, True),
        ("h.example:8000", "h.example", 8000, True),
        ("h.example:8000", "h.example", 443, False),
        ("*.example:8000", "a.b.example", 8000, True),
        ("*.example", "example", 443, False),
        ("10.1.2.3:8000", "10.1.2.3", 8000, True),
        ("[::1]:8000", "::1", 8000, True),
        ("[::1]:8000", "::1", 8001, False),
        ("::1", "0:0:0:0:0:0:0:1", 5, True),
        ("[::1]", "[::1]", 5, True),
    ],
)
def test_hosts_match_with_and_without_port(pattern: str, host: str, port: int, matches: bool) -> None:
    surfaces = Surfaces((Upstream("u", (pattern,), Family.ZAI),))
    assert (surfaces.at(host, port) is not None) is matches


def test_an_upstream_can_be_asked_for_by_name() -> None:
    assert SURFACES.upstream("zai") in BUILT_IN
    assert SURFACES.upstream("none") is None


def test_a_pattern_is_taken_apart_once() -> None:
    assert HostPattern.of("*.Example:80") == HostPattern(".example", 80, suffix=True)
