"""What an answer of our own says, in Chinese and English in one text: first the fact, then what to do.

Clients match words. A passing cause never says quota, exceeded or "reset at" (Qwen Code fails at once on the three),
nor context, "too long" or "too large" (clients turn to compaction). No text has a URL: sites are named by host.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable

from policies.kinds import Challenge, Finding, Kind

CAP = 59
"""Seconds of the longest Retry-After that every client keeps."""

_CODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:\- ]{0,63}")
_ZONE = re.compile(r"(?:Z|[+-]\d{2}:?\d{2}|UTC|GMT)\)?$", re.IGNORECASE)


def _both(chinese: str, english: str) -> str:
    return f"{chinese} / {english}"


CHALLENGES = {
    Challenge.BUSY: _both(
        "{site} 繁忙,没有给出回答。请稍候再试。", "{site} is busy and gave a challenge, not an answer. Wait, then try again."
    ),
    Challenge.CAPTCHA: _both(
        "{site} 要求人机验证。请用浏览器打开 {site} 完成验证,再重试。",
        "{site} asks for a captcha. Open {site} in a browser, pass the check, then try again.",
    ),
    Challenge.BLOCKED: _both(
        "{site} 的风控暂时拒绝请求。请等待:再发送只会延长限制,本地已暂停转发。",
        "Risk control at {site} refuses requests for now. Wait: each further send may prolong it, so nothing is sent.",
    ),
}
TOKEN_SPENT = _both(
    "一次性验证令牌可能已用掉,客户端需获取新的。", "Its one-time captcha token may be spent: the client has to get a new one."
)


def plain_code(code: str | None) -> str:
    """The upstream's code, if it is a code and not something that a page put in its place; else empty."""
    return code if code and _CODE.fullmatch(code) else ""


def _tail(code: str | None, attempts: int, wait: float | None) -> str:
    """The upstream's code, how often it was tried, and a wait that a Retry-After cannot say."""
    parts: list[str] = []
    if attempts > 1:
        parts.append(_both(f"共尝试 {attempts} 次", f"after {attempts} attempts"))
    if wait is not None and wait > CAP:
        seconds = math.ceil(wait)
        parts.append(_both(f"上游要求共等待约 {seconds} 秒", f"the upstream asks for a wait of about {seconds} s in all"))
    if known := plain_code(code):
        parts.append(_both(f"上游代码 {known}", f"upstream code {known}"))
    return "".join(f" [{part}]" for part in parts)


def challenge(finding: Finding, *, site: str, attempts: int = 1, wait: float | None = None, token_spent: bool = False) -> str:
    """A challenge in place of an answer. ``site`` is a host name; ``wait`` the true one in seconds."""
    text = CHALLENGES.get(finding.challenge or Challenge.BUSY, CHALLENGES[Challenge.BUSY]).format(site=site)
    return (f"{text} {TOKEN_SPENT}" if token_spent else text) + _tail(finding.code, attempts, wait)


def overload(finding: Finding, *, site: str, attempts: int = 1, wait: float | None = None) -> str:
    text = _both(f"{site} 暂时过载。请稍候再试。", f"{site} is overloaded for now. Wait, then try again.")
    return text + _tail(finding.code, attempts, wait)


def blocked(site: str, *, wait: float) -> str:
    """Risk control has refused (zcode 3012): further sends make it last longer. ``wait``: seconds that nothing is sent here."""
    seconds = math.ceil(wait)
    paused = _both(f"本地还将暂停约 {seconds} 秒", f"paused here for about {seconds} s more")
    return f"{CHALLENGES[Challenge.BLOCKED].format(site=site)} [{paused}]"


def _unsent(chinese: str, english: str) -> Callable[..., str]:
    """Words for a request that is not sent: of its ``site``, a host name, and of its ``wait`` in seconds."""

    def said(site: str, *, wait: float) -> str:
        return _both(chinese, english).format(site=site) + _tail(None, 1, wait)

    return said


breaker_open = _unsent(
    "{site} 多次要求验证,已暂停转发。请稍候,会自动恢复。",
    "Requests to {site} are paused after repeated challenges. Wait: they resume by themselves.",
)
queued = _unsent(
    "发往 {site} 的请求正在逐个恢复,尚未轮到本次。请稍候再试。",
    "Requests to {site} are sent one after the other for now, and others are first. Wait, then try again.",
)
"""Others go first: after a pause one is sent at a time, or as many wait here as may."""
remembered_wait = _unsent(
    "{site} 刚拒绝过同一请求,等待未满,本次未发送。请稍候再试。",
    "{site} has just refused this request and its wait is not over, so it was not sent. Wait, then try again.",
)
stated_wait = _unsent(
    "{site} 要求的等待未满,本次未发送。请稍候再试。",
    "{site} has asked for a wait that is not over, so this was not sent. Wait, then try again.",
)
no_slot = _unsent(
    "{site} 的并发名额已满,本次未等到名额。请稍候再试。",
    "All the calls at a time that {site} allows are under way, so this was not sent. Wait, then try again.",
)
closing = _unsent(
    "代理正在退出,发往 {site} 的请求未发送。请在其重启后再试。",
    "This proxy is ending and did not send the request to {site}. Try again when it is back.",
)


def body_size(*, size: int, limit: int, site: str, code: str | None = None) -> str:
    """chat.qwen.ai challenges every body from about 128 KiB on, however often it comes. Sizes in bytes."""
    return _both(
        f"{site} 拒绝 {limit} 字节及以上的请求体,本次为 {size} 字节。重试无用,请缩小请求体。",
        f"{site} challenges every body of {limit} bytes or more; this one has {size}. A retry cannot succeed: send a smaller body.",
    ) + _tail(code, 1, None)


def side_request(*, estimate: int, window: int, model: str) -> str:
    """Tokens. The words ``request_too_large`` would make clients cut the main conversation."""
    return _both(
        f"此辅助请求约 {estimate} 个 token,超出 {model} 的窗口({window}),未发送。主对话不受影响,无需处理。",
        f"This side request of about {estimate} tokens is over the window of {model} ({window}) and was not sent. "
        "The main conversation is not concerned: nothing to do.",
    )


def remembered_overflow(*, model: str) -> str:
    return _both(
        f"此辅助请求刚因超出 {model} 的窗口被拒绝,未再发送。主对话不受影响,无需处理。",
        f"This side request was just refused as over the window of {model} and was not sent again. "
        "The main conversation is not concerned: nothing to do.",
    )


def hidden(finding: Finding, *, attempts: int = 1, wait: float | None = None) -> str:
    """An error out of a 200: the upstream's own words first, since clients know them."""
    words = finding.text or _both("上游以成功状态返回了错误", "the upstream sent an error with a success status")
    code = plain_code(finding.code)
    text = f"[{code}] {words}" if code and code not in words else words
    if finding.reset and finding.kind in (Kind.QUOTA, Kind.ACCOUNT):
        reset = finding.reset if _ZONE.search(finding.reset.strip()) else f"{finding.reset} UTC+8"
        text += " (" + _both(f"上游给出的恢复时间 {reset}", f"upstream's time: {reset}") + ")"
    return text + _tail(None, attempts, wait)


def bad_gateway(site: str, *, attempts: int = 1) -> str:
    text = _both(f"{site} 未给出回答就断开了连接。请重试。", f"{site} closed the connection before any answer came. Try again.")
    return text + _tail(None, attempts, None)
