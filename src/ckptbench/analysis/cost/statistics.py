"""95 % intervals from few repeats: Student's t on logarithms, with a variance that borrows from the other setups.

**A run is one observation.** Whatever makes one run slower than the next does so in all of its steps and checkpoints, so
these say nothing about how far runs differ. What each repeat gives is one number: a ratio of times, a rate, a stall. Such
numbers vary by factors, so the mean of their logarithms is estimated, and the ends are taken back by the exponential
(Hedges, Gurevitch & Curtis, *The meta-analysis of response ratios*, Ecology 80, 1999; for benchmarks Kalibera & Jones,
*Rigorous benchmarking in reasonable time*, ISMM 2013). Its interval is Student's (1908). The noise within runs needs no
part of its own: it is in every repeat's number, and so in the spread of these numbers.

**Two repeats say little about their spread**: with one degree of freedom the interval is 13 standard errors wide to either
side. The other setups of a study ran on the same machine, so their spread tells too. The two are averaged by degrees of
freedom (Smyth, *Linear models and empirical Bayes methods*, Statistical Applications in Genetics and Molecular Biology
3(1), 2004, section 3): the setup's own count as they are, and those of all others together as PRIOR_FREEDOM.
Smyth estimates this number from thousands of genes. A study has too few setups for that, so it is fixed.

`tests/unit/test_coverage.py` simulates how often the intervals of all tables hold the truth; docs/method.md has the result.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

LEVEL = 0.95
HALF_NORMAL = 1.959963984540054
"""Standard deviations of a normal distribution from its middle to an end of the 95 % interval."""
PRIOR_FREEDOM = 1.0
"""Weight of the other setups' spread, in degrees of freedom: as much as one more repeat.

More would make narrower intervals, which hold the truth where all setups vary alike. Where the runs of one setup differ three
times as much as those of the others, they would miss it too often: with three repeats, 4 instead of 1 let 86 instead of
93 % of simulated intervals hold it.
"""
APART = 10.0
"""Repeats that differ by this factor are costs of about zero. Their logarithms would say nothing of other setups. `ckptbench_probe.comparing.estimates` has the same."""
SHARED_CORRELATION = 0.5
"""Correlation of two ratios of the same repeat to one baseline, where run and baseline vary alike."""
ROUNDING = 1e-9
"""Ends of intervals that are nearer to one another than this count as equal."""


class Interval(NamedTuple):
    """Lower and upper end; NaN where nothing is known."""

    lo: float
    hi: float

    def overlaps(self, other: Interval) -> bool | None:
        """None where either is unknown."""
        if math.isnan(self.lo) or math.isnan(other.lo):
            return None
        return self.lo <= other.hi + ROUNDING and other.lo <= self.hi + ROUNDING


UNKNOWN = Interval(math.nan, math.nan)


@dataclass(frozen=True, slots=True)
class PerRepeat:
    """A quantity over all repeats, and in each of them."""

    value: float
    each: Floats
    """Shape (repeats,)."""

    @classmethod
    def ratio(cls, above: ArrayLike, below: ArrayLike) -> PerRepeat:
        """Sum over sum, and each repeat's own ratio; NaN of no repeats."""
        numerators, denominators = np.array(above, float), np.array(below, float)
        with np.errstate(divide="ignore", invalid="ignore"):
            return cls(
                float(numerators.sum() / denominators.sum()), np.asarray(numerators / denominators)
            )

    @classmethod
    def mean(cls, each: Floats) -> PerRepeat:
        return cls(float(each.mean()), each)

    @property
    def has_logarithms(self) -> bool:
        """Whether the repeats are positive numbers of about the same size."""
        if not len(self.each) or not np.isfinite(self.each).all():
            return False
        return bool(self.each.min() > 0 and self.each.min() * APART > self.each.max())


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value and its interval. Of a ratio, 0.05 is 5 %."""

    value: float
    interval: Interval

    def minus(self, subtrahend: float) -> Estimate:
        lo, hi = self.interval
        return Estimate(self.value - subtrahend, Interval(lo - subtrahend, hi - subtrahend))

    def columns(self, name: str) -> dict[str, float]:
        """Its columns in a table: those that `with_ends` makes of this name."""
        return {name: self.value, f"{name}_lo": self.interval.lo, f"{name}_hi": self.interval.hi}


def note_of_one_repeat(*of_a_row: Estimate) -> str:
    """What to know of the intervals of a row that has a single repeat."""
    if all(math.isnan(estimate.interval.lo) for estimate in of_a_row):
        return "one repeat: no interval, as nothing shows how far its runs would differ"
    return "one repeat: the intervals take its runs to differ as much as those of the other setups"


@dataclass(frozen=True, slots=True)
class Uncertainty:
    """What is not known of an estimate: its variance, with the degrees of freedom that this is known with."""

    variance: float
    freedom: float

    def and_(self, other: Uncertainty) -> Uncertainty:
        """Of the sum or difference of two independent estimates. The fewer degrees of freedom are the safe side."""
        return Uncertainty(self.variance + other.variance, min(self.freedom, other.freedom))

    @property
    def half_width(self) -> float:
        """NaN where no repeat shows how far runs differ."""
        if not self.freedom:
            return math.nan
        return student(LEVEL, self.freedom) * math.sqrt(self.variance)

    def around(self, value: float) -> Interval:
        """The interval of a value of whose logarithm this is the error."""
        return Interval(value * math.exp(-self.half_width), value * math.exp(self.half_width))


def with_intervals(
    rows: Sequence[PerRepeat], shared: Sequence[Hashable] | None = None
) -> list[Estimate]:
    """The value of each row of a table, with its interval.

    `shared`: a name for each row; rows with equal names have the same baselines.

    A cost may be about zero, or below it, in one of the repeats. The interval of such a row comes from its own repeats
    alone, without logarithms.
    """
    known = errors([row.each if row.has_logarithms else np.zeros(0) for row in rows], shared)
    return [
        Estimate(row.value, error.around(row.value) if row.has_logarithms else _alone(row))
        for row, error in zip(rows, known, strict=True)
    ]


def of_differences(each: Floats) -> Estimate:
    """Their mean, with an interval that comes from these repeats alone: differences have no logarithms.

    `each` has shape (repeats,). NaN of no repeats.
    """
    row = PerRepeat(float(each.mean()) if len(each) else math.nan, each)
    return Estimate(row.value, _alone(row))


def _alone(row: PerRepeat) -> Interval:
    number = len(row.each)
    if number < 2 or not np.isfinite(row.each).all():
        return UNKNOWN
    half = Uncertainty(float(row.each.var(ddof=1)) / number, number - 1).half_width
    return Interval(row.value - half, row.value + half)


def errors(rows: Sequence[Floats], shared: Sequence[Hashable] | None = None) -> list[Uncertainty]:
    """The error of the mean logarithm of each row, which has a positive number for each repeat.

    All rows are of one study. `shared` is that of `with_intervals`.
    """
    freedom = np.array([max(len(row) - 1, 0) for row in rows], float)
    squares = np.array([_squares(np.log(row)) for row in rows])
    together = _joint_freedom(freedom, range(len(rows)) if shared is None else shared)
    other_freedom = freedom.sum() - freedom
    prior_freedom = np.minimum(PRIOR_FREEDOM, other_freedom)
    with np.errstate(divide="ignore", invalid="ignore"):
        other_squares = np.maximum(squares.sum() - squares, 0.0)  # not below zero by rounding
        others = np.where(other_freedom > 0, other_squares / other_freedom, 0.0)
        variance = (squares + prior_freedom * others) / (freedom + prior_freedom)
        of_mean = variance / [len(row) for row in rows]
    known = np.minimum(freedom + prior_freedom, together)
    return [Uncertainty(float(one), float(two)) for one, two in zip(of_mean, known, strict=True)]


def _squares(values: Floats) -> float:
    """Sum of the squared distances from the mean."""
    return float(((values - values.mean()) ** 2).sum()) if len(values) else 0.0


def _joint_freedom(freedom: Floats, shared: Sequence[Hashable]) -> float:
    """Degrees of freedom of all rows together: fewer than their sum where rows share their baselines.

    Satterthwaite, *An approximate distribution of estimates of variance components*, Biometrics Bulletin 2, 1946: the
    squared mean of a sum of squares over half its variance.
    """
    numbers: dict[Hashable, int] = {}
    place = np.array([numbers.setdefault(name, len(numbers)) for name in shared])
    correlation = np.where(place[:, None] == place, SHARED_CORRELATION, 0.0)
    np.fill_diagonal(correlation, 1.0)
    variance = float((correlation**2 * np.minimum.outer(freedom, freedom)).sum())
    return float(freedom.sum()) ** 2 / variance if variance else 0.0


def student(level: float, freedom: float) -> float:
    """What a variable of Student's distribution stays within, on either side of zero, with probability `level`.

    `freedom` is at least 1, and need not be whole.
    """
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + level) / 2))
