from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.research.proportions import Share, Table, evidence_of_difference
from tests.rows import over

shares = st.integers(0, 500).flatmap(lambda n: st.builds(Share, st.integers(0, n), st.just(n)))


@over(
    ("share", "low", "high"),
    [
        (Share(0, 10), 0.0, 0.2775),
        (Share(10, 10), 0.7225, 1.0),
        (Share(5, 10), 0.2366, 0.7634),
        (Share(81, 263), 0.2553, 0.3662),
        (Share(), 0.0, 1.0),
    ],
)
def test_the_interval_is_wilsons(share: Share, low: float, high: float) -> None:
    assert share.interval == pytest.approx((low, high), abs=5e-5)


def test_the_interval_of_a_difference_is_newcombes() -> None:
    """The worked example of Newcombe 1998: 56/70 against 48/80 gives 0.2, 0.0524 to 0.3339."""
    table = Table(Share(56, 70), Share(48, 80))
    assert table.difference == pytest.approx((0.2, 0.0524, 0.3339), abs=5e-5)


def test_nothing_to_compare_gives_no_difference() -> None:
    assert Table(Share(1, 2), Share()).difference is None
    assert Table(Share(1, 2), Share()).apart is False
    assert evidence_of_difference([Table(Share(1, 2), Share()), Table()]) == 0


def test_intervals_are_apart_where_they_do_not_overlap_either_way() -> None:
    assert Table(Share(18, 20), Share(2, 20)).apart
    assert Table(Share(2, 20), Share(18, 20)).apart
    assert not Table(Share(9, 20), Share(11, 20)).apart


def test_a_difference_that_is_the_strata_s_own_is_no_evidence() -> None:
    """Simpson: refused 9 of 10 in one stratum and 1 of 10 in the other, the same with it and without it."""
    strata = [Table(Share(90, 100), Share(9, 10)), Table(Share(1, 10), Share(10, 100))]
    assert sum(strata, Table()).apart
    assert abs(evidence_of_difference(strata)) < 0.5


def test_a_difference_within_every_stratum_is_evidence() -> None:
    strata = [Table(Share(9, 10), Share(2, 10)), Table(Share(8, 10), Share(1, 10))]
    assert evidence_of_difference(strata) > 4
    assert evidence_of_difference(Table(table.lacking, table.having) for table in strata) < -4


@given(share=shares)
def test_an_interval_lies_within_0_and_1_and_holds_the_rate(share: Share) -> None:
    low, high = share.interval
    assert 0 <= low <= high <= 1
    if share.rate is not None:
        assert low <= share.rate <= high


@given(one=shares, other=shares)
def test_the_evidence_points_where_the_rates_do(one: Share, other: Share) -> None:
    table = Table(one, other)
    evidence = evidence_of_difference([table])
    if evidence > 0:
        assert table.more
    assert evidence == pytest.approx(-evidence_of_difference([Table(other, one)]))
