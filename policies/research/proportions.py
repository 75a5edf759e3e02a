"""Refused of all, with and without something: intervals of a share, of a difference, and a test over strata."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import copysign, sqrt

Z95 = 1.959964
"""Normal quantile of a two-sided 95 % interval."""


@dataclass(frozen=True, slots=True)
class Share:
    refused: int = 0
    all: int = 0

    def __add__(self, other: Share) -> Share:
        return Share(self.refused + other.refused, self.all + other.all)

    @property
    def rate(self) -> float | None:
        """0 to 1; None of nothing."""
        return self.refused / self.all if self.all else None

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95 % interval: stays within 0 and 1 and is honest at few cases (Wilson 1927)."""
        if self.rate is None:
            return 0.0, 1.0
        share, spread = self.rate, Z95 * Z95 / self.all
        middle = (share + spread / 2) / (1 + spread)
        half = Z95 * sqrt(share * (1 - share) / self.all + spread / (4 * self.all)) / (1 + spread)
        return max(0.0, middle - half) if self.refused else 0.0, min(1.0, middle + half) if share < 1 else 1.0


@dataclass(frozen=True, slots=True)
class Table:
    """Cases that differ in one thing, with it and without it."""

    having: Share = Share()
    lacking: Share = Share()

    def __add__(self, other: Table) -> Table:
        return Table(self.having + other.having, self.lacking + other.lacking)

    @property
    def refused(self) -> int:
        return self.having.refused + self.lacking.refused

    @property
    def compares(self) -> bool:
        """True where both sides have a case: only such a stratum says anything."""
        return bool(self.having.all and self.lacking.all)

    @property
    def apart(self) -> bool:
        """True where the two intervals do not overlap."""
        (low, high), (other_low, other_high) = self.having.interval, self.lacking.interval
        return low > other_high or other_low > high

    @property
    def more(self) -> bool:
        """True where the rate with it is the higher one."""
        return (self.having.rate or 0.0) > (self.lacking.rate or 0.0)

    @property
    def difference(self) -> tuple[float, float, float] | None:
        """Rate with it less rate without it, and its 95 % interval (Newcombe 1998, method 10)."""
        one, other = self.having.rate, self.lacking.rate
        if one is None or other is None:
            return None
        (low, high), (other_low, other_high) = self.having.interval, self.lacking.interval
        down, up = sqrt((one - low) ** 2 + (other_high - other) ** 2), sqrt((high - one) ** 2 + (other - other_low) ** 2)
        return one - other, one - other - down, one - other + up


def evidence_of_difference(strata: Iterable[Table]) -> float:
    """Normal deviate of the refusals with it against chance, over all strata (Cochran, Mantel and Haenszel); above 0: more."""
    surplus = variance = 0.0
    for table in strata:
        total = table.having.all + table.lacking.all
        if not table.compares or total < 2:
            continue
        surplus += table.having.refused - table.having.all * table.refused / total
        odds = table.having.all * table.lacking.all * table.refused * (total - table.refused)
        variance += odds / (total * total * (total - 1))
    return copysign(max(0.0, abs(surplus) - 0.5), surplus) / sqrt(variance) if variance else 0.0
