"""Means and medians with 95 % intervals, of few values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev

_T_975 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042)  # fmt: skip
"""Quantile 0.975 of Student's t by degrees of freedom from 1 on (NIST/SEMATECH e-Handbook of Statistical Methods, table 1.3.6.7.2)."""
_NORMAL_975 = 1.960
SMALLEST_S = 1e-6
APART = 10.0
"""Values that differ by this factor are about zero: their logarithms say nothing. As in `ckptbench.analysis.cost.statistics`, which the probe cannot import."""


@dataclass(frozen=True)
class Seconds:
    """A time and its spread over checkpoints."""

    mean: float
    median: float
    lo: float
    """Ends of the 95 % interval of the mean; NaN where it was measured once."""
    hi: float
    least: float
    most: float
    number: int


def seconds(values: Sequence[float]) -> Seconds | None:
    """None without values. The interval is Student's t on the logarithm, so that it stays above 0; where a value does not, as of a slowdown, that of the values themselves."""
    if not values:
        return None
    mean = fmean(values)
    lo = hi = math.nan
    if len(values) > 1 and min(values) < 0:
        half = student(len(values) - 1) * stdev(values) / math.sqrt(len(values))
        lo, hi = mean - half, mean + half
    elif len(values) > 1 and mean > SMALLEST_S:
        spread = stdev([math.log(max(value, SMALLEST_S)) for value in values])
        factor = math.exp(min(student(len(values) - 1) * spread / math.sqrt(len(values)), 20.0))
        lo, hi = mean / factor, mean * factor
    return Seconds(mean, median(values), lo, hi, min(values), max(values), len(values))


def student(freedom: int) -> float:
    """Quantile 0.975 of Student's t."""
    return _T_975[freedom - 1] if freedom <= len(_T_975) else _NORMAL_975


@dataclass(frozen=True)
class Estimate:
    mean: float
    lo: float
    """Ends of the 95 % interval; NaN of one value."""
    hi: float
    number: int

    def scaled(self, factor: float, minus: float = 0.0) -> Estimate:
        mean, lo, hi = (factor * (one - minus) for one in (self.mean, self.lo, self.hi))
        return Estimate(mean, lo, hi, self.number)

    def plus(self, addend: float) -> Estimate:
        return Estimate(self.mean + addend, self.lo + addend, self.hi + addend, self.number)

    def is_apart_from(self, other: Estimate) -> bool:
        """False where an interval is not known."""
        return self.lo > other.hi or other.lo > self.hi


def estimate(above: Sequence[float], below: Sequence[float] | None = None) -> Estimate | None:
    """Sum over sum, one value a block; None without values. The interval is Student's t: on logarithms where the values are positive and of one size."""
    if not above:
        return None
    under = below or [1.0] * len(above)
    value = sum(above) / sum(under)
    each = [one / other for one, other in zip(above, under)]
    number = len(each)
    if number < 2:
        return Estimate(value, math.nan, math.nan, number)
    wide = student(number - 1) / math.sqrt(number)
    if min(each) > 0 and min(each) * APART > max(each):
        factor = math.exp(wide * stdev(map(math.log, each)))
        return Estimate(value, value / factor, value * factor, number)
    half = wide * stdev(each)
    return Estimate(value, value - half, value + half, number)
