"""Distributions of the time between failures, fitted to a log, with 95 % intervals.

Two are fitted. **Exponential**: a failure is as likely at any time, whenever the last one was. **Weibull**: with a shape k below 1 a
failure is likelier soon after another one (they cluster), with k above 1 it is less likely; k = 1 is the exponential distribution.

A log ends at a fixed time, not at a failure. So its last gap is censored: it is only known to be longer than what was seen.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import elementwise
from scipy.special import gamma, gammaincinv
from scipy.stats import CensoredData, chi2, expon, weibull_min

from ckptbench.analysis.cost.statistics import LEVEL, Estimate, Interval
from ckptbench.decide.failure_log import Gaps

Floats = NDArray[np.float64]

FEWEST_FOR_SHAPE = 10
"""Failures from which on a Weibull distribution is fitted. Fewer say next to nothing about k: its interval would go from 0.4 to 1.5."""
RESAMPLES = 1000
SEED = 12
AT_ONCE = 2_000_000
"""Gaps that are drawn at once: more would take much memory with a long log."""
SHAPES = (0.2, 20.0)
"""Shapes that are looked at. Where gaps are as equal as with a larger k, something regular causes them. With a smaller one the mean is more than
100 times the scale, and hangs on gaps that no log has seen."""
TAIL = (1 - LEVEL) / 2


@dataclass(frozen=True, slots=True, eq=False)
class WeibullFit:
    """The Weibull distribution that a log fits best."""

    mean_hours: Estimate
    shape: Estimate
    p_exponential: float
    """How likely gaps that differ this much from an exponential distribution are where they come from one: the p-value of the likelihood-ratio
    test of k = 1 (Wilks, *The large-sample distribution of the likelihood ratio*, 1938)."""
    mean_draws_hours: Floats
    """Shape (draws,): means by the bootstrap, whose quantiles are the interval."""

    @property
    def scale_hours(self) -> float:
        return self.mean_hours.value / float(_mean(self.shape.value))


@dataclass(frozen=True, slots=True, eq=False)
class LogFit:
    """Both distributions of one log."""

    gaps: Gaps
    mean_hours: Estimate
    """Of the exponential distribution."""
    weibull: WeibullFit | None
    """None with fewer than FEWEST_FOR_SHAPE failures, and where the best shape is outside of SHAPES."""


def fit(gaps: Gaps) -> LogFit:
    """Both distributions. The resampling is seeded: the same gaps always give the same intervals."""
    hours, failures = gaps.observed_hours, gaps.failures
    exponential = Estimate(hours / failures, exact_interval(failures, hours))
    return LogFit(gaps, exponential, _weibull(gaps))


def exact_interval(failures: int, exposure: float) -> Interval:
    """The interval of the mean time between failures, in the unit of `exposure`, where `failures` came at a constant rate.

    Their number follows Poisson's distribution. Its exact interval, by quantiles of chi-square with 2n and 2n + 2 degrees of freedom: Garwood,
    *Fiducial limits for the Poisson distribution*, Biometrika 28, 1936. It holds for few failures too: one is enough.
    """
    return Interval(
        exposure / float(gammaincinv(failures + 1, 1 - TAIL)),
        exposure / float(gammaincinv(failures, TAIL)),
    )


def _mean(shape: float | Floats) -> Floats:
    """Mean of a Weibull distribution with this shape and scale 1."""
    mean: Floats = gamma(1 + 1 / np.asarray(shape))
    return mean


def _weibull(gaps: Gaps) -> WeibullFit | None:
    """By maximum likelihood; intervals by a parametric bootstrap.

    The log is drawn anew from the fitted distribution, as long as it was, and fitted again. The ratio of the new estimate to the one that it
    was drawn from is taken to be distributed as that of the estimate to the truth: for the shape this holds for whole samples of any size
    (Thoman, Bain & Antle, *Inferences on the parameters of the Weibull distribution*, Technometrics 11, 1969). So the interval of the
    shape is that of the basic bootstrap of logarithms (Davison & Hinkley, *Bootstrap Methods and their Application*, 1997, chapter 5).
    That of the mean is made symmetric on logarithms (Hall, *On symmetric bootstrap confidence intervals*, Journal of the Royal Statistical
    Society B 50, 1988): of few failures it holds the truth more often. `benchmarks/failure_fits.py` counts how often both do.
    """
    if gaps.failures < FEWEST_FOR_SHAPE or not _has_shape(gaps):
        return None
    shape, scale = _by_scipy(gaps)
    mean = scale * float(_mean(shape))
    shapes, means = _refitted(shape, scale, gaps.observed_hours)
    mean_draws = np.concatenate([means, mean**2 / means])
    return WeibullFit(
        Estimate(mean, _ends(mean_draws)),
        Estimate(shape, _ends(shape**2 / shapes)),
        _p_exponential(gaps, shape, scale),
        mean_draws,
    )


def _by_scipy(gaps: Gaps) -> tuple[float, float]:
    """Shape and scale. SciPy does not find those of gaps that are very short or long numbers, so they are brought to a mean of about 1."""
    unit = gaps.observed_hours / gaps.failures
    unended = [gaps.unended_hours / unit] if gaps.unended_hours else []
    data = CensoredData(uncensored=gaps.hours / unit, right=unended)
    shape, _, scale = weibull_min.fit(data, floc=0)
    return float(shape), float(scale) * unit


def _ends(draws: Floats) -> Interval:
    lo, hi = np.quantile(draws, [TAIL, 1 - TAIL])
    return Interval(float(lo), float(hi))


def _p_exponential(gaps: Gaps, shape: float, scale: float) -> float:
    likelihoods = [
        float(one.logpdf(gaps.hours).sum() + one.logsf(gaps.unended_hours))
        for one in (
            weibull_min(shape, scale=scale),
            expon(scale=gaps.observed_hours / gaps.failures),
        )
    ]
    return float(chi2.sf(max(0.0, 2 * (likelihoods[0] - likelihoods[1])), 1))


def _refitted(shape: float, scale: float, window_hours: float) -> tuple[Floats, Floats]:
    """Shapes and means that are fitted to logs drawn from this distribution, each of shape (resamples,)."""
    random = np.random.default_rng(SEED)
    expected = window_hours / (scale * float(_mean(shape)))
    number = max(1, min(RESAMPLES, int(AT_ONCE / expected)))
    shapes, means = zip(
        *(
            _fitted(*_drawn(shape, scale, window_hours, number, random))
            for _ in range(0, RESAMPLES, number)
        ),
        strict=True,
    )
    return np.concatenate(shapes), np.concatenate(means)


def _drawn(
    shape: float, scale: float, window_hours: float, number: int, random: np.random.Generator
) -> tuple[Floats, NDArray[np.bool_]]:
    """Gaps of `number` logs, of shape (number, most gaps), and which of them ended in a failure. Those after the end of a log are 0."""
    gaps = np.zeros((number, 0))
    while not gaps.size or gaps.sum(axis=1).min() <= window_hours:
        width = gaps.shape[1] // 2 or 8 + int(1.2 * window_hours / (scale * float(_mean(shape))))
        gaps = np.hstack([gaps, scale * random.weibull(shape, (number, width))])
    times = np.cumsum(gaps, axis=1)
    ended = times <= window_hours
    return np.where(ended, gaps, np.maximum(window_hours - (times - gaps), 0)), ended


def _fitted(gaps: Floats, ended: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """Shape and mean by maximum likelihood of each row, where its shape is one of SHAPES.

    `weibull_min.fit` gives the same, in 50 ms for each.
    """
    enough = ended.sum(axis=1) > 1
    logs = _Logarithms.of(gaps[enough], ended[enough])
    found = elementwise.find_root(logs.slope, SHAPES, args=(np.arange(len(logs.largest)),))
    shapes = found.x[found.success]
    rows = np.flatnonzero(found.success)
    return shapes, logs.scale(shapes, rows) * _mean(shapes)


def _has_shape(gaps: Gaps) -> bool:
    """Whether the most likely shape is one of SHAPES."""
    row = np.append(gaps.hours, gaps.unended_hours)[np.newaxis]
    ended = np.arange(row.size)[np.newaxis] < gaps.failures
    logs = _Logarithms.of(row, ended)
    low, high = (float(logs.slope(np.array([shape]), np.array([0]))[0]) for shape in SHAPES)
    return low < 0 < high


@dataclass(frozen=True, slots=True, eq=False)
class _Logarithms:
    """Logarithms of the gaps of several logs, a row each, beside the largest of the row."""

    relative: Floats
    """0 where there is no gap."""
    present: NDArray[np.bool_]
    ended: NDArray[np.bool_]
    largest: Floats

    @classmethod
    def of(cls, gaps: Floats, ended: NDArray[np.bool_]) -> _Logarithms:
        present = gaps > 0
        logs = np.log(gaps, where=present, out=np.full(gaps.shape, -np.inf))
        largest = logs.max(axis=1, initial=-np.inf)
        relative = np.where(present, logs - largest[:, np.newaxis], 0.0)
        return cls(relative, present, ended, largest)

    def slope(self, shapes: Floats, rows: NDArray[np.intp]) -> Floats:
        """What is 0 at the most likely shape, and rises with it: of the likelihood by k, the scale being the best one for each k.

        Cohen, *Maximum likelihood estimation in the Weibull distribution based on complete and on censored samples*, Technometrics 7, 1965.
        """
        own, ended = self.relative[rows], self.ended[rows]
        powers = self._powers(shapes, rows)
        mean_of_ended = (own * ended).sum(axis=-1) / ended.sum(axis=-1)
        mean_of_all = (powers * own).sum(axis=-1) / powers.sum(axis=-1)
        slope: Floats = mean_of_all - mean_of_ended - 1 / shapes
        return slope

    def scale(self, shapes: Floats, rows: NDArray[np.intp]) -> Floats:
        """The most likely scale for each shape."""
        failures = self.ended[rows].sum(axis=-1)
        relative = (self._powers(shapes, rows).sum(axis=-1) / failures) ** (1 / shapes)
        scale: Floats = np.exp(self.largest[rows]) * relative
        return scale

    def _powers(self, shapes: Floats, rows: NDArray[np.intp]) -> Floats:
        powers: Floats = np.exp(shapes[..., np.newaxis] * self.relative[rows])
        powers[~self.present[rows]] = 0
        return powers
