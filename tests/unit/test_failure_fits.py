"""Distributions fitted to logs of failures: known ones are found again, and their intervals hold the truth."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from scipy.stats import CensoredData, kstest, weibull_min

from benchmarks.failure_fits import MEAN_HOURS, coverage, drawn
from ckptbench.decide import fits
from ckptbench.decide.failure_log import Gaps
from ckptbench.decide.fits import FEWEST_FOR_SHAPE, exact_interval, fit


def gaps(hours: Sequence[float], unended_hours: float = 0.0) -> Gaps:
    return Gaps(np.array(hours, float), unended_hours)


@pytest.mark.parametrize("shape", [0.5, 1.0, 2.0])
def test_a_known_weibull_distribution_is_found_again(shape: float) -> None:
    found = fit(drawn(shape, 300, np.random.default_rng(5)))
    assert found.weibull is not None
    lo, hi = found.weibull.shape.interval
    assert lo < shape < hi < 1.3 * lo
    lo, hi = found.weibull.mean_hours.interval
    assert lo < MEAN_HOURS < hi < 1.6 * lo
    assert (found.weibull.p_exponential < 0.001) == (shape != 1)


def test_intervals_hold_the_truth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fits, "RESAMPLES", 200)
    shares = coverage(0.7, 15, 80, np.random.default_rng(2))
    assert min(shares["mean"], shares["shape"]) >= 0.9
    assert shares["exponential mean"] < 0.9, "it is right only where the gaps are exponential"


@pytest.mark.parametrize(
    ("failures", "limits"),
    [(1, (0.0253178, 5.571643)), (10, (4.795389, 18.390356)), (419, (379.8395, 461.1154))],
)
def test_the_interval_of_a_count_is_garwoods(failures: int, limits: tuple[float, float]) -> None:
    lo, hi = exact_interval(failures, 100.0)
    assert (100 / hi, 100 / lo) == pytest.approx(limits, rel=2e-3)


def test_the_unended_gap_makes_the_mean_longer() -> None:
    short, long = (fit(gaps([1.0, 2.0, 3.0], unended)) for unended in (0.0, 6.0))
    assert (short.mean_hours.value, long.mean_hours.value) == (2, 4)


def test_a_log_that_ends_with_a_failure_is_fitted() -> None:
    assert fit(gaps(np.random.default_rng(1).exponential(3.0, 40).tolist())).weibull is not None


@pytest.mark.parametrize("unit", [1e-5, 1e5])
def test_the_shape_does_not_depend_on_the_unit_of_the_gaps(unit: float) -> None:
    log = drawn(4.9, 40, np.random.default_rng(1))
    other = fit(Gaps(log.hours * unit, log.unended_hours * unit)).weibull
    own = fit(log).weibull
    assert own is not None
    assert other is not None
    assert other.shape.value == pytest.approx(own.shape.value)
    assert other.mean_hours.interval == pytest.approx(
        [unit * end for end in own.mean_hours.interval]
    )


def test_fewer_failures_than_ten_get_no_weibull_distribution() -> None:
    some = np.random.default_rng(1).exponential(3.0, FEWEST_FOR_SHAPE).tolist()
    assert fit(gaps(some, 1.0)).weibull is not None
    assert fit(gaps(some[1:], 1.0)).weibull is None


def test_gaps_that_are_all_equal_get_no_weibull_distribution() -> None:
    found = fit(gaps([24.0] * 30, 2.0))
    assert found.weibull is None
    assert found.mean_hours.value == pytest.approx(24, rel=0.01)


def test_gaps_of_all_sizes_get_no_weibull_distribution() -> None:
    assert fit(gaps([10.0 ** -(2 * place) for place in range(100)], 1.0)).weibull is None


def test_the_resamples_are_fitted_as_scipy_fits() -> None:
    random = np.random.default_rng(3)
    hours, ended = fits._drawn(0.7, 5.0, 150.0, 3, random)
    shapes, means = fits._fitted(hours, ended)
    for row in range(3):
        last = hours[row][~ended[row]][0]
        data = CensoredData(uncensored=hours[row][ended[row]], right=[last])
        shape, _, scale = weibull_min.fit(data, floc=0)
        assert shapes[row] == pytest.approx(shape, rel=1e-3)
        assert means[row] == pytest.approx(scale * math.gamma(1 + 1 / shape), rel=1e-3)


def test_resampled_logs_are_as_long_as_the_log() -> None:
    hours, ended = fits._drawn(0.7, 5.0, 150.0, 200, np.random.default_rng(3))
    assert hours.sum(axis=1) == pytest.approx(150)
    assert (hours[~ended] > 0).sum() == 200, "the gap that had not ended, of each"
    first = hours[:, 0][ended[:, 0]]
    assert kstest(first, weibull_min(0.7, scale=5.0).cdf).pvalue > 0.01


def test_a_long_log_is_resampled_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    log = drawn(0.8, 60, np.random.default_rng(4))
    whole = fit(log).weibull
    monkeypatch.setattr(fits, "AT_ONCE", 600)
    parts = fit(log).weibull
    assert whole is not None
    assert parts is not None
    assert parts.shape.interval == pytest.approx(whole.shape.interval, rel=0.1)
    assert len(parts.mean_draws_hours) >= 2 * fits.RESAMPLES
