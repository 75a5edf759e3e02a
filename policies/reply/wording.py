"""What an answer of our own says, in Chinese and English in one text.

Clients match words. A passing cause never says quota, exceeded or "reset at" (Qwen Code fails at once on the three),
nor context, "too long" or "too large" (clients turn to compaction). No text has a URL: sites are named by host.
"""

from __future__ import annotations

import math
import re

from policies.findings import Finding
from policies.kinds import Challenge, Kind

CAP = 59
"""Seconds of the longest Retry-After that every client keeps."""

_CODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:\- ]{0,63}")


def _told(chinese: str, english: str) -> str:
    return f"{chinese} / {english}"


def plain_code(code: str | None) -> str:
    """The upstream's code, if it is a code and not something that a page put in its place; else empty."""
    return code if code and _CODE.fullmatch(code) else ""


def _tail(code: str | None, attempts: int, wait: float | None) -> str:
    """The upstream's code, how often it was tried, and a wait that a Retry-After cannot say."""
    parts: list[str] = []
    if attempts > 1:
        parts.append(_told(f"共尝试 {attempts} 次", f"after {attempts} attempts"))
    if wait is not None and wait > CAP:
        seconds = math.ceil(wait)
        parts.append(
            _told(f"上游要求共等待约 {seconds} 秒", f"the upstream asks for a wait of about {seconds} s in all")
        )
    if known := plain_code(code):
        parts.append(_told(f"上游代码 {known}", f"upstream code {known}"))
    return "".join(f" [{part}]" for part in parts)


def challenge(
    finding: Finding, *, site: str, attempts: int = 1, wait: float | None = None, token_spent: bool = False
) -> str:
    """A challenge in place of an answer. ``site`` is a host name; ``wait`` the true one in seconds."""
    if finding.challenge is Challenge.BLOCKED:
        text = blocked(site)
    elif finding.challenge is Challenge.CAPTCHA:
        text = _told(
            f"上游要求人机验证:请在浏览器中打开 {site} 并完成验证,然后重试。",
            f"The upstream asks for a captcha: open {site} in a browser, pass the check, then try again.",
        )
    else:
        text = _told(
            f"上游 {site} 繁忙,返回了验证页而不是回答,请稍后重试。",
            f"{site} is busy and sent a challenge instead of an answer; please try again later.",
        )
    if token_spent:
        text += " " + one_time_token()
    return text + _tail(finding.code, attempts, wait)


def one_time_token() -> str:
    return _told(
        "请求中的一次性验证码令牌可能已被使用,需要由客户端获取新的令牌。",
        "The one-time captcha token of this request may be spent: the client has to get a new one.",
    )


def blocked(site: str, *, wait: float | None = None) -> str:
    """Risk control refuses (zcode 3012): further sends make it last longer. ``wait``: seconds that nothing is sent here."""
    paused = "" if wait is None else " [" + _told(f"本地还将暂停约 {math.ceil(wait)} 秒", f"paused here for about {math.ceil(wait)} s more") + "]"
    return _told(
        f"上游 {site} 的风控暂时拒绝请求;继续发送会延长限制,本地已暂停转发。",
        f"Risk control at {site} refuses requests for now; each further send may make it last longer, "
        "so nothing is sent there for a while.",
    ) + paused


def body_size(*, size: int, limit: int, site: str, code: str | None = None) -> str:
    """chat.qwen.ai challenges every body from about 128 KiB on, however often it comes. Sizes in bytes."""
    return _told(
        f"{site} 会对 {limit} 字节及以上的请求体一律要求验证;本次请求体为 {size} 字节,重试不会成功,请缩小请求体。",
        f"{site} answers every request body of {limit} bytes or more with a challenge; this one has {size} bytes. "
        "A retry cannot succeed: send a smaller body.",
    ) + _tail(code, 1, None)


def overload(finding: Finding, *, site: str, attempts: int = 1, wait: float | None = None) -> str:
    return _told(
        f"上游 {site} 暂时过载,请稍后重试。", f"{site} is temporarily overloaded; please try again later."
    ) + _tail(finding.code, attempts, wait)


def breaker_open(site: str, *, wait: float | None = None) -> str:
    return _told(
        f"{site} 连续返回验证后已暂停转发,稍后会自动恢复。",
        f"Requests to {site} are paused after repeated challenges; they resume by themselves.",
    ) + _tail(None, 1, wait)


def remembered_wait(site: str, *, wait: float | None = None) -> str:
    return _told(
        f"同一请求刚被 {site} 拒绝,等待时间未到,本次未转发。",
        f"The same request was refused by {site} a moment ago and its wait is not over; it was not sent again.",
    ) + _tail(None, 1, wait)


def stated_wait(site: str, *, wait: float | None = None) -> str:
    return _told(
        f"{site} 要求等待,时间未到,本次未转发。",
        f"{site} has asked for a wait that is not over; the request was not sent.",
    ) + _tail(None, 1, wait)


def no_slot(site: str, *, wait: float | None = None) -> str:
    return _told(
        f"{site} 上该账户的并发名额已满,请求在此排队,未等到名额。",
        f"All calls at a time that {site} gives this account are under way; the request waited here for a place in vain.",
    ) + _tail(None, 1, wait)


def closing(site: str, *, wait: float | None = None) -> str:
    return _told(
        f"代理正在退出,发往 {site} 的请求未转发。",
        f"This proxy is ending; the request for {site} was not sent.",
    ) + _tail(None, 1, wait)


def side_request(*, estimate: int, window: int, model: str) -> str:
    """Tokens. The words ``request_too_large`` would make clients cut the main conversation."""
    return _told(
        f"辅助请求约 {estimate} 个 token,超过模型 {model} 的 {window} 个 token 窗口,未转发;主对话不受影响。",
        f"This side request has about {estimate} tokens, over the window of {window} tokens of {model}; it was not "
        "sent. The main conversation is not concerned.",
    )


def remembered_overflow(*, model: str) -> str:
    return _told(
        f"模型 {model} 的上游刚以超出窗口为由拒绝了同一辅助请求,未再次转发;主对话不受影响。",
        f"The upstream of {model} has just refused the same side request as over its window; it was not sent again. "
        "The main conversation is not concerned.",
    )


def hidden(finding: Finding, *, attempts: int = 1, wait: float | None = None) -> str:
    """An error out of a 200: the upstream's own words first, since clients know them."""
    words = finding.text or _told("上游在成功状态中返回了错误", "the upstream sent an error with a success status")
    code = plain_code(finding.code)
    text = f"[{code}] {words}" if code and code not in words else words
    if finding.reset and finding.kind in (Kind.QUOTA, Kind.ACCOUNT):
        zoned = re.search(r"(?:Z|[+-]\d{2}:?\d{2}|UTC|GMT)\)?$", finding.reset.strip(), re.IGNORECASE)
        zone = "" if zoned else " UTC+8"
        text += (
            " (" + _told(f"上游给出的恢复时间 {finding.reset}{zone}", f"upstream's time: {finding.reset}{zone}") + ")"
        )
    return text + _tail(None, attempts, wait)


def bad_gateway(site: str, *, attempts: int = 1) -> str:
    return _told(
        f"上游 {site} 在给出回答之前断开了连接,请重试。",
        f"{site} closed the connection before any answer came; please try again.",
    ) + _tail(None, attempts, None)
