"""How often the job fails, from the option that says it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ckptbench.answer.quantities import SECONDS_PER_HOUR, duration
from ckptbench.decide.failure_log import LogOptions
from ckptbench.decide.rates import FailureRate, rate_of_job, read_log, read_rate

Floats = NDArray[np.float64]

OTHERS = 41
"""Rates from one end of an interval to the other at which an answer is computed too."""


def failure_rate(
    gpus: int,
    *,
    mtbf_s: float | None = None,
    gpu_mtbf_s: float | None = None,
    rate: str | None = None,
    log: Path | None = None,
    restart_s: float | None = None,
) -> FailureRate:
    """From the one that is given. Failures of a log within one restart of another count as one. Raises ConfigError or DataError."""
    if mtbf_s is not None:
        return rate_of_job(mtbf_s, gpus)
    if gpu_mtbf_s is not None:
        return rate_of_job(gpu_mtbf_s / gpus, gpus)
    if rate is not None:
        return read_rate(rate)
    assert log is not None
    known = LogOptions(gpus=gpus)
    return read_log(log, known if restart_s is None else LogOptions(gpus=gpus, restart_s=restart_s))


def failures_per_s(rate: FailureRate, gpus: int) -> Floats:
    """Of the whole job, shape (1,), or (1 + OTHERS,): the estimate, and rates from one end of its interval to the other."""
    hours = [rate.mean_gpu_hours]
    if 0 < rate.lo < rate.hi < math.inf:
        hours += list(np.geomspace(rate.lo, rate.hi, OTHERS))
    return gpus / (np.array(hours) * SECONDS_PER_HOUR)


def is_of_own_data(rate: FailureRate) -> bool:
    """Whether failures of the reader's own machine were counted."""
    return rate.failures is not None and not rate.is_published


def in_words(rate: FailureRate, gpus: int) -> Iterator[str]:
    """Sentences on the rate."""
    often = duration(rate.mean_hours(gpus) * SECONDS_PER_HOUR)
    if not rate.is_published and rate.failures is None:
        yield f"Failures: one in {often}, as given."
        return
    whose = f"as published of {rate.title}" if rate.is_published else f"as in {rate.title}"
    yield f"Failures {whose}: {'at most ' if rate.is_bound else ''}one in {often} on {gpus:,} GPUs."
    for each in rate.said():
        yield f"{each[0].upper()}{each[1:]}."
