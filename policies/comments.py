"""Comments: one sentence on what was decided, kept as a value, and told in English or in Chinese by whoever shows it.

Log, flow and status.json tell English; the status page tells the language that it is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from policies.kinds import Finding, Reason


class Text(NamedTuple):
    """Text in both languages, maybe with blanks in braces."""

    english: str
    chinese: str

    def told(self, language: str) -> str:
        return self.chinese if language == "zh" else self.english


NOTHING = Text("", "")


@dataclass(frozen=True, slots=True)
class Comment:
    """One sentence, and what fills its blanks."""

    text: Text
    values: Mapping[str, str | float | Text]

    def told(self, language: str = "en") -> str:
        """The sentence in English ("en") or Chinese ("zh")."""
        values = {name: each.told(language) if isinstance(each, Text) else each for name, each in self.values.items()}
        said = self.text.told(language).format_map(values)
        return said if language == "zh" else said[:1].upper() + said[1:]

    def __str__(self) -> str:
        return self.told()


def say(text: Text, **values: str | float | Text) -> Comment:
    return Comment(text, values)


@dataclass(frozen=True, slots=True)
class Deed:
    """Sentence on what is done to a request or to its answer; its blank ``did`` tells done from what would be where it is only observed."""

    text: Text
    done: Text = NOTHING
    would: Text = NOTHING

    def say(self, enforces: bool, **values: str | float | Text) -> Comment:
        if enforces:
            return Comment(self.text, {**values, "did": self.done})
        observed = Text(f"Only observed: {self.text.english}", f"仅观察：{self.text.chinese}")
        return Comment(observed, {**values, "did": self.would})


_REFUSED = Text("refused here", "本地拒绝"), Text("it would have been refused here", "本应在本地拒绝")
_BECAME = Text("became", "已改写为"), Text("would have become", "本应改写为")
_ENDED = Text("was ended", "已在此结束"), Text("would have been ended", "本应在此结束")

WAITED = Text("Waited here unsent for {waited:.1f} s.", "在此排队等待 {waited:.1f} 秒后才发送。")
ANSWERED_AGAIN = Text("{what} was sent again in place and answered{tries}.", "{what}：就地重发后得到了回答{tries}。")
SENT_AGAIN = Text(
    "{what}: sent again in {after:g} s, attempt {number} of {most}",
    "{what}：{after:g} 秒后重发，第 {number} 次，最多 {most} 次",
)
PASSED = Text("{what}: passed on{tries}.", "{what}：已原样转交{tries}。")
TOLD = Deed(Text("{did}: {why}; told to wait {wait} s.", "{did}：{why}；告知等待 {wait} 秒。"), *_REFUSED)
OVERSIZE = Deed(
    Text(
        "{did}: a side request of about {estimate} tokens against a window of {window} ({model}).",
        "{did}：辅助请求约 {estimate} 个词元，{model} 的窗口为 {window}。",
    ),
    *_REFUSED,
)
HOPELESS = Deed(
    Text(
        "{did}: the upstream refused the same request minutes ago, and it cannot pass.",
        "{did}：上游几分钟前刚拒绝过同一请求，再发也不会通过。",
    ),
    *_REFUSED,
)
ENDED = Deed(Text("The stream {did} at {what}; told to wait {wait} s.", "{what}：流{did}；告知等待 {wait} 秒。"), *_ENDED)
BODY_SIZE = Deed(
    Text(
        "A challenge for a body of {size} bytes: from {limit} on it comes each time, so a retry is hopeless.",
        "请求体 {size} 字节时遇到质询：达到 {limit} 字节后每次都会如此，重试无用。",
    )
)
OVERLOADED = Deed(
    Text(
        "{what} inside a {inside} {did} a {status}: wait {wait} s{tries}.",
        "{inside} 中的{what} {did} {status}：等待 {wait} 秒{tries}。",
    ),
    *_BECAME,
)
HIDDEN = Deed(
    Text("{what} inside a {inside} {did} a {status}{tries}.", "{inside} 中的{what} {did} {status}{tries}。"), *_BECAME
)
CUT = Deed(
    Text("The upstream broke off before it had answered: it {did} a real 502.", "上游未回答就断开：{did}真实的 502。"), *_BECAME
)

WHY: Mapping[Reason, Text] = MappingProxyType(
    {
        Reason.ACCOUNT_BLOCKED: Text("this account is blocked upstream", "该账号已被上游限制"),
        Reason.REMEMBERED_WAIT: Text("the same request was refused and its wait is not over", "同一请求刚被拒绝，等待未满"),
        Reason.BREAKER_OPEN: Text("the breaker is open", "熔断器已打开"),
        Reason.PROBE_OUT: Text("one probe is finding out whether the upstream answers again", "正由一个请求试探上游是否恢复"),
        Reason.STATED_WAIT: Text("the upstream has asked for a wait", "上游要求等待"),
        Reason.NO_SLOT: Text("the account's calls at a time are all under way", "该账号的并发名额已满"),
        Reason.SLOW_START: Text(
            "after a refusal one request goes first, and it has no answer yet", "被拒后先放行一个请求，它尚未得到回答"
        ),
        Reason.QUEUE_FULL: Text("as many requests wait here as may", "排队已满"),
        Reason.CLOSING: Text("this proxy is ending", "代理正在退出"),
    }
)
"""Why a request that need only wait is refused here."""

CHINESE = MappingProxyType(
    {
        "challenge": "质询",
        "challenge_busy": "质询：繁忙",
        "challenge_captcha": "质询：需人机验证",
        "challenge_blocked": "质询：账号受限",
        "challenge_body_size": "质询：请求体过大",
        "overload": "过载",
        "rate_limit": "限流",
        "quota": "额度用尽",
        "account": "账号问题",
        "filter": "内容过滤",
        "overflow": "超出窗口",
        "caller_error": "请求有误",
        "upstream_error": "上游出错",
        "upstream_cut": "上游中断",
        "answer": "正常回答",
        "nothing": "没有回答",
        "breaker_open": "熔断中",
        "breaker_probing": "试探中",
        "remembered_wait": "等待未满",
        "stated_wait": "上游要求等待",
        "no_slot": "并发名额已满",
        "slow_start": "逐个恢复",
        "queue_full": "排队已满",
        "closing": "代理正在退出",
        "account_blocked": "账号受限",
        "remembered_overflow": "刚因超出窗口被拒",
        "remembered_body_size": "刚因请求体过大被拒",
        "side_request_over_window": "辅助请求超出窗口",
        "wait": "等待",
        "blocked": "账号受限",
        "body_size": "请求体过大",
    }
)
"""Kinds of findings and refusals and reason codes in Chinese; in English a code speaks for itself."""


def described(finding: Finding) -> Text:
    """What an upstream's answer was, with the row that recognised it."""
    name, chinese = finding.kind.value.replace("_", " "), CHINESE[finding.kind.value]
    if finding.challenge is not None:
        name, chinese = (
            f"challenge ({finding.challenge.value})",
            CHINESE[f"challenge_{finding.challenge.value}".replace("-", "_")],
        )
    article, row = "an" if name[0] in "aeiou" else "a", f" [{finding.row}]" if finding.row else ""
    return Text(f"{article} {name}{row}", f"{chinese}{row}")


def tries(sends: int) -> Text:
    """After how many sends, where there was more than one."""
    return Text(f" after {sends} attempts", f"（共尝试 {sends} 次）") if sends > 1 else NOTHING
