"""Intervals of few repeats: against printed tables, by hand, and on repeats whose truth is known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ckptbench.analysis.cost.statistics import (
    UNKNOWN,
    Estimate,
    Interval,
    PerRepeat,
    Uncertainty,
    errors,
    student,
    with_intervals,
)


@pytest.mark.parametrize(
    ("freedom", "within"),
    [(1, 12.7062), (2, 4.3027), (3, 3.1824), (5, 2.5706), (12, 2.1788), (120, 1.9799)],
)
def test_student_agrees_with_the_printed_table(freedom: float, within: float) -> None:
    assert student(0.95, freedom) == pytest.approx(within, abs=1e-4)


def test_student_is_as_exact_as_its_floats() -> None:
    # With one degree of freedom it is Cauchy's distribution, and with two its quantile is known in closed form.
    assert student(0.95, 1) == pytest.approx(math.tan(0.95 * math.pi / 2), rel=1e-12)
    assert student(0.95, 2) == pytest.approx(0.95 * math.sqrt(2 / (1 - 0.95**2)), rel=1e-12)


def test_student_lies_between_those_of_whole_degrees_of_freedom() -> None:
    assert student(0.95, 2) < student(0.95, 1.6) < student(0.95, 1)
    assert student(0.99, 2) == pytest.approx(9.9248, abs=1e-3)


def test_a_ratio_is_of_sums_and_each_repeat_has_its_own() -> None:
    ratio = PerRepeat.ratio([1.0, 3.0], [2.0, 2.0])
    assert ratio.value == 1.0
    assert ratio.each.tolist() == [0.5, 1.5]
    assert math.isnan(PerRepeat.ratio([], []).value)


def test_a_setup_alone_has_the_interval_of_its_own_repeats() -> None:
    # Logarithms -1, 0 and 1: a variance of 1 with two degrees of freedom.
    (error,) = errors([np.exp([-1.0, 0.0, 1.0])])
    assert error == Uncertainty(pytest.approx(1 / 3), 2.0)
    lo, hi = error.around(10.0)
    assert math.log(hi / 10) == pytest.approx(4.3027 / math.sqrt(3), abs=1e-4)
    assert math.log(lo / 10) == pytest.approx(-math.log(hi / 10))


@pytest.mark.parametrize("others", [1, 9])
def test_all_other_setups_together_count_as_one_more_repeat(others: int) -> None:
    steady, shaky = np.exp([0.0, 0.0, 0.0]), np.exp([-1.0, 0.0, 1.0])
    # Variances of 0 and 1: its own has two degrees of freedom, that of the others one.
    error = errors([steady, *[shaky] * others])[0]
    assert error == Uncertainty(pytest.approx((2 * 0 + 1 * 1) / 3 / 3), 3.0)


def test_a_setup_that_ran_once_borrows_from_the_others() -> None:
    once, thrice = errors([np.array([2.0]), np.exp([-1.0, 0.0, 1.0])])
    assert once == Uncertainty(pytest.approx(1.0), 1.0)
    assert thrice.freedom == 2.0


def test_where_nothing_ran_twice_nothing_is_known() -> None:
    for error in errors([np.array([2.0]), np.array([3.0])]):
        assert error.freedom == 0
        assert np.isnan(error.around(2.0)).all()
    assert errors([]) == []


def test_ratios_to_one_baseline_count_for_fewer_degrees_of_freedom() -> None:
    rows = [np.array([1.0, 1.1])] * 2
    apart, together = errors(rows)[0], errors(rows, shared=["a", "a"])[0]
    assert apart.freedom == 2.0
    # Two sums of squares whose correlation is a quarter: 2^2 / (2 + 2 / 4).
    assert together.freedom == pytest.approx(1.6)
    assert together.variance == apart.variance


def test_the_error_of_a_quotient_is_as_large_as_both_and_as_little_known_as_the_worse() -> None:
    assert Uncertainty(1.0, 4.0).and_(Uncertainty(2.0, 3.0)) == Uncertainty(3.0, 3.0)


def test_a_cost_that_is_not_above_zero_has_an_interval_of_its_own_repeats() -> None:
    others = PerRepeat.mean(np.array([1.0, 1.1, 1.2]))
    cost = PerRepeat.mean(np.array([-0.1, 0.0, 0.1]))
    alone, beside = with_intervals([cost])[0], with_intervals([cost, others])[0]
    assert alone == beside
    assert alone.interval.hi == pytest.approx(4.3027 * 0.1 / math.sqrt(3), abs=1e-5)
    assert alone.interval.lo == pytest.approx(-alone.interval.hi)
    assert with_intervals([others])[0] == with_intervals([others, cost])[0]


def test_a_value_that_is_no_number_spoils_no_other_row() -> None:
    known = PerRepeat.mean(np.array([1.0, 1.1]))
    unknown = PerRepeat(math.nan, np.array([math.nan, 1.0]))
    found = with_intervals([known, unknown, PerRepeat.ratio([], [])])
    assert found[0] == with_intervals([known])[0]
    assert found[1].interval is found[2].interval is UNKNOWN


def test_the_ends_of_a_ratio_of_times_are_those_of_the_overhead_plus_one() -> None:
    assert Estimate(1.5, Interval(1.25, 2.0)).minus(1.0) == Estimate(0.5, Interval(0.25, 1.0))


def test_intervals_overlap_where_they_touch_and_are_unknown_where_one_is() -> None:
    assert Interval(0.0, 1.0).overlaps(Interval(1.0, 2.0)) is True
    assert Interval(0.0, 1.0).overlaps(Interval(1.1, 2.0)) is False
    assert Interval(0.0, 1.0).overlaps(UNKNOWN) is None
    assert UNKNOWN.overlaps(Interval(0.0, 1.0)) is None


@pytest.mark.parametrize("repeats", [2, 3, 5])
@pytest.mark.parametrize("spreads", [[0.05], [0.05] * 2, [0.05] * 6, [0.02, 0.02, 0.05, 0.05]])
def test_nominal_95_of_100_hold_the_truth(repeats: int, spreads: list[float]) -> None:
    random = np.random.default_rng(repeats)
    held = []
    for _ in range(1000):
        rows = [np.exp(spread * random.standard_normal(repeats)) for spread in spreads]
        intervals = [
            error.around(math.exp(np.log(row).mean()))
            for row, error in zip(rows, errors(rows), strict=True)
        ]
        held.append([interval.lo <= 1.0 <= interval.hi for interval in intervals])
    assert np.mean(held, axis=0).min() > 0.93
