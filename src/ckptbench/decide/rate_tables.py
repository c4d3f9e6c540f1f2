"""The tables `failure_rates` and `failure_fits`: every rate in figures, and how well a log fits."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import CensoredData, ecdf, expon, weibull_min

from ckptbench.analysis.tables.schema import Column, Table
from ckptbench.decide.fits import LogFit
from ckptbench.decide.rates import FailureRate

OBSERVED, EXPONENTIAL, WEIBULL = "observed", "exponential", "weibull"
POINTS = 100
"""Points of each fitted curve."""
BEYOND = 2.0
"""The factor by which fitted curves go on beyond the shortest and the longest gap."""

# fmt: off
FAILURE_RATES = Table(
    "failure_rates",
    "One row a failure rate: a file of config/failures.",
    ("rate",),
    (
        Column("rate", "text", "", "name of its file"),
        Column("title", "text", "", "what readers see"),
        Column("source", "text", "", "who published it; `own`: the user's"),
        Column("counts", "text", "", "what counts as a failure"),
        Column("gpus", "count", "1", "at how many GPUs it was seen, or to how many it was projected; missing where not known"),
        Column("projected", "flag", "", "whether the source computed it for more GPUs than it had seen"),
        Column("approximate", "flag", "", "whether the source estimates its numbers, or says `at least`"),
        Column("failures", "count", "1", "that were counted; missing where the source gives a mean"),
        Column("mean_gpu_hours", "number", "GPU h", "mean GPU-hours between two failures: of the Weibull fit where there is one, else the GPU-hours for each failure"),
        Column("mean_gpu_hours_lo", "number", "GPU h", "lower end of its 95 % interval; missing where failures were not counted. Without a log it holds where they came at a constant rate"),
        Column("mean_gpu_hours_hi", "number", "GPU h", "upper end of it"),
        Column("shape", "number", "1", "k of the Weibull distribution of the gaps; 1, exponential, where none was fitted"),
        Column("shape_lo", "number", "1", "lower end of its 95 % interval; missing where none was fitted"),
        Column("shape_hi", "number", "1", "upper end of it"),
        Column("exponential_gpu_hours", "number", "GPU h", "of a log: mean of the exponential fit"),
        Column("exponential_gpu_hours_lo", "number", "GPU h", "lower end of its exact 95 % interval, which holds where the gaps are exponential"),
        Column("exponential_gpu_hours_hi", "number", "GPU h", "upper end of it"),
        Column("p_exponential", "number", "1", "p-value of the likelihood-ratio test of k = 1; missing where no Weibull distribution was fitted"),
    ),
)
FAILURE_FITS = Table(
    "failure_fits",
    "One row a log, curve and point: which part of the gaps between failures is at most this long.",
    ("rate", "curve", "gap_hours"),
    (
        Column("rate", "text", "", "name of its file"),
        Column("curve", "text", "", "`observed`: Kaplan-Meier estimate, 0 at the first point and a step at each other; `exponential` and `weibull`: the fits"),
        Column("gap_hours", "number", "h", "time between two failures of the whole system"),
        Column("part", "number", "1", "of the gaps that are at most this long"),
    ),
)
# fmt: on


def failure_rates(rates: Iterable[FailureRate]) -> pd.DataFrame:
    """A row for each rate."""
    return FAILURE_RATES.rows(
        {
            "rate": rate.name,
            "title": rate.title,
            "source": rate.source,
            "counts": rate.counts,
            "gpus": rate.gpus,
            "projected": rate.is_projected,
            "approximate": rate.is_approximate,
            "failures": rate.failures,
            "mean_gpu_hours": rate.mean_gpu_hours,
            "mean_gpu_hours_lo": rate.lo,
            "mean_gpu_hours_hi": rate.hi,
            "shape": rate.shape,
            "shape_lo": rate.shape_lo,
            "shape_hi": rate.shape_hi,
            **_exponential(rate),
        }
        for rate in rates
    )


def _exponential(rate: FailureRate) -> dict[str, float]:
    names = ("exponential_gpu_hours", "exponential_gpu_hours_lo", "exponential_gpu_hours_hi")
    if rate.fit is None or rate.gpus is None:
        return {**dict.fromkeys(names, math.nan), "p_exponential": math.nan}
    mean, weibull = rate.fit.mean_hours, rate.fit.weibull
    hours = (mean.value, mean.interval.lo, mean.interval.hi)
    return {
        **{name: value * rate.gpus for name, value in zip(names, hours, strict=True)},
        "p_exponential": math.nan if weibull is None else weibull.p_exponential,
    }


def failure_fits(rates: Iterable[FailureRate]) -> pd.DataFrame:
    """The curves of each log."""
    return FAILURE_FITS.rows(
        {"rate": rate.name, **point}
        for rate in rates
        if rate.fit is not None
        for point in _points(rate.fit)
    )


def _points(fit: LogFit) -> Iterator[dict[str, Any]]:
    gaps, weibull = fit.gaps, fit.weibull
    unended = [gaps.unended_hours] if gaps.unended_hours else []
    observed = ecdf(CensoredData(uncensored=gaps.hours, right=unended)).cdf
    ended = np.isin(observed.quantiles, gaps.hours)
    hours = np.geomspace(gaps.hours.min() / BEYOND, gaps.hours.max() * BEYOND, POINTS)
    yield from _curve(
        OBSERVED,
        [hours[0], *observed.quantiles[ended]],
        [0.0, *observed.probabilities[ended]],
    )
    yield from _curve(EXPONENTIAL, hours, expon(scale=fit.mean_hours.value).cdf(hours))
    if weibull is not None:
        fitted = weibull_min(weibull.shape.value, scale=weibull.scale_hours)
        yield from _curve(WEIBULL, hours, fitted.cdf(hours))


def _curve(name: str, hours: Any, parts: Any) -> Iterator[dict[str, Any]]:
    for hour, part in zip(hours, parts, strict=True):
        yield {"curve": name, "gap_hours": float(hour), "part": float(part)}
