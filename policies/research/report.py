"""Report: refused of all with and without each suspected trigger, and whether one of them may be named as the cause.

A trigger is named where three things hold: there is enough to count, the two 95 % intervals do not overlap, and the difference
stays while each other trigger that comes along with it is held equal, alone and together. Otherwise the report says why not.
It counts the first sends of requests that were answered or refused in passing, and apart from that what re-sends in place cured.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from enum import Enum
from math import erfc, sqrt
from typing import NamedTuple

from policies.kinds import Kind
from policies.research.evidence import Record
from policies.research.proportions import Share, Table, evidence_of_difference

ENOUGH_EXCHANGES = 10
"""On each side of a comparison."""
ENOUGH_REFUSALS = 5
"""In a comparison, both sides together."""
CLEAR = 4.0
"""Normal deviate that a difference must reach: by chance about once in 30,000 comparisons."""
GAP_SECONDS = 1.0


class Suspect(NamedTuple):
    """Something that may cause a refusal, or may only come along with what does."""

    letter: str
    name: str
    chinese: str
    present: Callable[[Record], Hashable]
    """True, False, or None where a record does not say."""
    accused: bool = True
    """False: held equal, never named."""


def _shrunk(record: Record) -> bool | None:
    return None if record.shrunk is None else record.shrunk or bool(record.prefix_changed)


def _new_kinds(record: Record) -> bool | None:
    return None if record.new_markers is None else bool(record.new_markers or record.new_roles)


SUSPECTS = (
    Suspect("A", "gap under 1 s", "间隔小于 1 秒", lambda r: r.gap_session is not None and r.gap_session < GAP_SECONDS),
    Suspect("B", "shrink or changed prefix", "正文变短或前缀改变", _shrunk),
    Suspect("C", "new content kinds", "出现新的内容类型", _new_kinds),
    Suspect("D", "fresh TLS connection", "新的 TLS 连接", lambda r: r.new_connection),
    Suspect("E", "captcha token seen before", "验证码令牌已用过", lambda r: r.token_seen_before),
    Suspect("F", "same body", "正文相同", lambda r: r.same_digest),
    Suspect("previous refused", "a refusal just before", "前一次被拒绝", lambda r: r.previous_refused, accused=False),
    Suspect("upstream", "the upstream", "上游", lambda r: r.upstream, accused=False),
)
UPSTREAM = len(SUSPECTS) - 1


class Verdict(Enum):
    """What is said of a suspect, in English and Chinese."""

    TOO_FEW = (
        "Too few: at least 10 exchanges on each side and 5 refusals are needed.",
        "样本太少：两边各需至少 10 次请求，并有 5 次拒绝。",
    )
    NO_DIFFERENCE = "No clear difference.", "没有明显差别。"
    FEWER = "Refused less often with it: no trigger.", "有它时反而更少被拒绝：不是诱因。"
    EXPLAINED = (
        "Refused more often with it, but not while {others} is held equal, which explains it.",
        "有它时更常被拒绝，但在{others}相同时没有差别，后者足以解释。",
    )
    INSEPARABLE = (
        "Refused more often with it, but it cannot be told apart from {others}.",
        "有它时更常被拒绝，但无法与{others}区分。",
    )
    CAUSE = (
        "Refused more often with it, also where the other triggers are the same: the likely cause.",
        "有它时更常被拒绝，其他诱因相同时也是如此：很可能是原因。",
    )


@dataclass(frozen=True, slots=True)
class Comparison:
    suspect: Suspect
    table: Table
    p: float | None
    """Probability of at least this difference by chance, upstreams held equal; None where there is nothing to compare."""
    unknown: int
    """Exchanges whose record does not say."""
    verdict: Verdict
    others: tuple[Suspect, ...] = ()

    @property
    def sentences(self) -> tuple[str, str]:
        """English, Chinese."""
        (english, chinese), (names, chinese_names) = self.verdict.value, _named(self.others)
        return english.format(others=names), chinese.format(others=chinese_names)


@dataclass(frozen=True, slots=True)
class Report:
    exchanges: int
    """Records read."""
    counted: Share
    """First sends of those that were answered or refused in passing."""
    resent: Share
    """Exchanges that were sent again in place: what was not refused at last was cured by a wait alone."""
    comparisons: tuple[Comparison, ...]

    @property
    def causes(self) -> tuple[str, ...]:
        return tuple(one.suspect.letter for one in self.comparisons if one.verdict is Verdict.CAUSE)

    @property
    def ranked(self) -> tuple[Comparison, ...]:
        """The comparisons, with what is named as the cause first."""
        return tuple(sorted(self.comparisons, key=lambda one: one.verdict is not Verdict.CAUSE))

    @property
    def sentences(self) -> tuple[str, str]:
        """English, Chinese."""
        named = [one.suspect for one in self.comparisons if one.verdict is Verdict.CAUSE]
        if named:
            english, chinese = _named(named)
            return (
                f"Refusals go with {english}: the likely cause, to be confirmed by the experiment.",
                f"拒绝与{chinese}相关：很可能是原因，请用实验确认。",
            )
        if all(one.verdict is Verdict.TOO_FEW for one in self.comparisons):
            return "Too few exchanges to say anything.", "样本太少，无法判断。"
        if any(one.verdict is Verdict.INSEPARABLE for one in self.comparisons):
            return "No cause can be named: what differs comes together.", "无法确定原因：有差别的诱因总是一起出现。"
        return "No suspected trigger stands out.", "没有哪个可疑诱因突出。"


def _named(suspects: Iterable[Suspect]) -> tuple[str, str]:
    """Names in a row, in English and Chinese."""
    english = " and ".join(f"{one.letter} ({one.name})" if one.accused else one.name for one in suspects)
    return english, "、".join(one.chinese for one in suspects)


def report(records: Iterable[Record]) -> Report:
    records = tuple(records)
    judged = [record for record in records if record.refused or record.finding == Kind.ANSWER]
    resent = [record.refused_at_last for record in judged if record.refused and record.attempt > 1]
    cells = _Cells(judged)
    return Report(
        exchanges=len(records),
        counted=Share(sum(record.refused for record in judged), len(judged)),
        resent=Share(sum(resent), len(resent)),
        comparisons=tuple(cells.judge(index) for index, suspect in enumerate(SUSPECTS) if suspect.accused),
    )


class _Cells:
    """The exchanges, counted by everything that the suspects say of them."""

    def __init__(self, records: Iterable[Record]) -> None:
        counts: defaultdict[tuple[Hashable, ...], Share] = defaultdict(Share)
        for record in records:
            counts[tuple(suspect.present(record) for suspect in SUSPECTS)] += Share(int(record.refused), 1)
        self._counts = dict(counts)
        tables = {index: self._table(index) for index, suspect in enumerate(SUSPECTS) if suspect.accused}
        self._clear = {index for index, table in tables.items() if _enough(table) and table.apart and table.more}

    def judge(self, index: int) -> Comparison:
        table = self._table(index)
        unknown = sum(share.all for values, share in self._counts.items() if values[index] is None)
        verdict, others = Verdict.FEWER if table.apart else Verdict.NO_DIFFERENCE, tuple[int, ...]()
        if not _enough(table):
            verdict = Verdict.TOO_FEW
        elif table.apart and table.more:
            verdict, others = self._reason(index)
        strata = [stratum for stratum in self._strata(index, (UPSTREAM,)).values() if stratum.compares]
        p = erfc(abs(evidence_of_difference(strata)) / sqrt(2)) if strata else None
        return Comparison(SUSPECTS[index], table, p, unknown, verdict, tuple(SUSPECTS[other] for other in others))

    def _reason(self, index: int) -> tuple[Verdict, tuple[int, ...]]:
        """Verdict on a clear surplus of refusals: this trigger, others, or no telling which."""
        if not self._stands(index, UPSTREAM):
            several = len({values[UPSTREAM] for values in self._counts}) > 1
            return (Verdict.INSEPARABLE, (UPSTREAM,)) if several else (Verdict.NO_DIFFERENCE, ())
        rivals = [other for other in range(UPSTREAM) if other != index and self._come_together(index, other)]
        failing = tuple(rival for rival in rivals if not self._stands(index, rival))
        if failing:
            explaining = tuple(rival for rival in failing if self._stands(rival, index))
            return (Verdict.EXPLAINED, explaining) if explaining else (Verdict.INSEPARABLE, failing)
        together = tuple(rival for rival in rivals if rival in self._clear)
        return (Verdict.CAUSE, ()) if self._stands(index, *together) else (Verdict.INSEPARABLE, together)

    def _table(self, index: int) -> Table:
        return sum(self._strata(index, ()).values(), Table())

    def _strata(self, index: int, given: tuple[int, ...]) -> dict[tuple[Hashable, ...], Table]:
        strata: defaultdict[tuple[Hashable, ...], Table] = defaultdict(Table)
        for values, share in self._counts.items():
            if values[index] is not None:
                one = Table(having=share) if values[index] else Table(lacking=share)
                strata[tuple(values[other] for other in given)] += one
        return strata

    def _stands(self, index: int, *given: int) -> bool:
        """True where refusals are clearly more with it while ``given`` and the upstream are held equal."""
        strata = [table for table in self._strata(index, (*given, UPSTREAM)).values() if table.compares]
        pairs = sum(min(table.having.all, table.lacking.all) for table in strata)
        return (
            pairs >= ENOUGH_EXCHANGES
            and sum(table.refused for table in strata) >= ENOUGH_REFUSALS
            and evidence_of_difference(strata) >= CLEAR
        )

    def _come_together(self, index: int, other: int) -> bool:
        """True where the other is there more often with this one than without it, so that it could be mistaken for it."""
        table = Table()
        for values, share in self._counts.items():
            if values[index] is not None and values[other] is not None:
                there = Share(share.all if values[other] else 0, share.all)
                table += Table(having=there) if values[index] else Table(lacking=there)
        return table.more


def _enough(table: Table) -> bool:
    return min(table.having.all, table.lacking.all) >= ENOUGH_EXCHANGES and table.refused >= ENOUGH_REFUSALS


def as_text(report: Report) -> str:
    """Lines for a terminal: for every trigger its counts, and one sentence in each language."""
    lines = [
        f"{report.exchanges} exchanges; {report.counted.refused} of {report.counted.all} that count were refused at first.",
        f"Sent again in place: {report.resent.all}, of which {report.resent.refused} were refused again.",
        *report.sentences,
    ]
    for one in report.comparisons:
        lines += ["", f"{one.suspect.letter}  {one.suspect.name} / {one.suspect.chinese}", f"   {_counts(one)}"]
        lines += [f"   {sentence}" for sentence in one.sentences]
    return "\n".join(lines)


def _counts(one: Comparison) -> str:
    parts = [f"with: {_percent(one.table.having)}", f"without: {_percent(one.table.lacking)}"]
    if difference := one.table.difference:
        parts.append("difference {:+.0%} ({:+.0%} to {:+.0%})".format(*difference))
    if one.p is not None:
        parts.append(f"p {probability(one.p)}")
    if one.unknown:
        parts.append(f"not known: {one.unknown}")
    return "; ".join(parts)


def probability(p: float) -> str:
    """Two figures, of which a small one is only said to be small."""
    return f"{p:.2g}" if p >= 0.001 else "< 0.001"


def _percent(share: Share) -> str:
    if share.rate is None:
        return "0/0"
    low, high = share.interval
    return f"{share.refused}/{share.all} = {share.rate:.0%} ({low:.0%} to {high:.0%})"
