"""How often failures come: published rates, the user's own number, and the user's own log, all in GPU-hours.

A rate is given as the mean number of **GPU-hours between two failures**: the hours between failures of a system, times its GPUs. It is taken
to be the same at any number of GPUs, so N of them fail N times as often as one. Not all published numbers follow that; a rate says at how many
GPUs it was seen.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ckptbench.analysis.cost.statistics import UNKNOWN, Estimate
from ckptbench.decide.failure_file import NO_FILE, FailureFile, named_log, read_failure_file
from ckptbench.decide.failure_log import Gaps, read_gaps
from ckptbench.decide.fits import LogFit, exact_interval, fit
from ckptbench.errors import ConfigError, all_of

Floats = NDArray[np.float64]

HOURS_PER_DAY = 24
EXPONENTIAL = Estimate(1.0, UNKNOWN)
"""The shape of a Weibull distribution that is exponential."""
OWN = "own"
"""The source of a rate that nobody has published."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FailureRate:
    """How often failures come.

    Of a log with enough failures, mean and shape are those of the Weibull distribution. Of any other rate the distribution is taken to be
    exponential, and its shape is 1.
    """

    name: str
    """The name of its file, without the ending."""
    title: str
    source: str
    """Who published it, or OWN."""
    counts: str
    """What counts as a failure."""
    mean_gpu_hours: float
    lo: float = math.nan
    """Lower end of the 95 % interval of the mean; NaN where the source counts no failures, or only estimates their number."""
    hi: float = math.nan
    shape: float = 1.0
    """k of the times between failures of the whole system, not of the life of one GPU."""
    shape_lo: float = math.nan
    shape_hi: float = math.nan
    is_projected: bool
    """Whether the source has computed it for more GPUs than it had seen."""
    is_approximate: bool
    """Whether the source estimates its numbers."""
    failures: int | None
    """That were counted; None where only a mean is known."""
    gpus: int | None
    """At how many GPUs it was seen, or to how many it was projected; None where that is not known."""
    fit: LogFit | None = None
    """Of a log, in hours of the whole system."""

    def mean_hours(self, gpus: int) -> float:
        """Mean hours between failures of this many GPUs."""
        return self.mean_gpu_hours / gpus


def read_rates(folder: Path) -> list[FailureRate]:
    """The rates of all files `*.yaml` in the folder, by name.

    Raises ConfigError or DataError with the faults of all files: the place of each, and what to do.
    """
    paths = sorted(folder.glob("*.yaml"))
    if not paths:
        raise ConfigError(f"{folder}: {NO_FILE}")
    return all_of(partial(read_rate, path) for path in paths)


def read_rate(path: Path) -> FailureRate:
    """The rate of one file. Raises ConfigError or DataError with the file, the place in it and what to do."""
    file, gaps = _read_both(path)
    rate = FailureRate(
        name=path.stem,
        title=file.title,
        source=file.source.short if file.source else OWN,
        counts=file.counts,
        is_projected=file.projected,
        is_approximate=file.approximate,
        mean_gpu_hours=math.nan,
        failures=file.failures,
        gpus=file.gpus,
    )
    if gaps is not None and file.gpus is not None:
        return _of_log(rate, fit(gaps), file.gpus)
    match file:
        case FailureFile(failures=int(failures), days=float(days), gpus=int(gpus)):
            exposure = days * HOURS_PER_DAY * gpus
            interval = UNKNOWN if file.approximate else exact_interval(failures, exposure)
            return replace(rate, mean_gpu_hours=exposure / failures, lo=interval.lo, hi=interval.hi)
        case FailureFile(mean_hours=float(hours), gpus=int(gpus)):
            return replace(rate, mean_gpu_hours=hours * gpus)
        case FailureFile(mean_gpu_hours=float(hours)):
            return replace(rate, mean_gpu_hours=hours)
    raise AssertionError(f"{path}: its fields were checked")


def _read_both(path: Path) -> tuple[FailureFile, Gaps | None]:
    """The file, and the gaps of the log that it names. Raises ConfigError or DataError with the faults of both."""
    gaps: list[Gaps] = []

    def log() -> None:
        if (named := named_log(path)) is not None:
            gaps.append(read_gaps(*named))

    files = all_of((partial(read_failure_file, path), log))
    (file,) = (each for each in files if each is not None)
    return file, gaps[0] if gaps else None


def _of_log(rate: FailureRate, fitted: LogFit, gpus: int) -> FailureRate:
    weibull = fitted.weibull
    mean = fitted.mean_hours if weibull is None else weibull.mean_hours
    shape = EXPONENTIAL if weibull is None else weibull.shape
    return replace(
        rate,
        mean_gpu_hours=mean.value * gpus,
        lo=mean.interval.lo * gpus,
        hi=mean.interval.hi * gpus,
        shape=shape.value,
        shape_lo=shape.interval.lo,
        shape_hi=shape.interval.hi,
        failures=fitted.gaps.failures,
        fit=fitted,
    )


def draws(rate: FailureRate, random: np.random.Generator, size: int) -> Floats:
    """Means in GPU-hours, shape (size,), that differ as much as the mean of the rate is uncertain.

    Of a log with a Weibull fit they are its bootstrap's. Where failures were counted, the exposure is divided by draws of a gamma
    distribution with shape n + 1/2: the posterior of a Poisson rate after Jeffreys, which lies within the exact interval (Brown, Cai & DasGupta,
    *Interval estimation in exponential families*, Statistica Sinica 13, 2003). Where the source has no interval, all draws are its mean.
    """
    if rate.fit is not None and rate.fit.weibull is not None:
        scale = rate.mean_gpu_hours / rate.fit.weibull.mean_hours.value
        return random.choice(rate.fit.weibull.mean_draws_hours, size) * scale
    if rate.failures is None or math.isnan(rate.lo):
        return np.full(size, rate.mean_gpu_hours)
    drawn: Floats = random.gamma(rate.failures + 0.5, size=size)
    return rate.mean_gpu_hours * rate.failures / drawn
