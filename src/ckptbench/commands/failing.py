"""How often the job fails, from the option that says it. What reads files is imported only where a file is to be read."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from ckptbench.answer.quantities import duration
from ckptbench.decide.units import SECONDS_PER_HOUR

if TYPE_CHECKING:
    from ckptbench.decide.rates import FailureRate

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failing:
    """How often the job fails."""

    per_s: Floats
    """Failures in a second: the estimate, and where it has a 95 % interval the ends of that. Interval and loss of an answer lie between those of the ends."""
    said: str
    """A sentence on it."""
    is_counted: bool
    """Whether failures of the reader's own machine were counted. Any other rate may well be off by a factor of three."""

    @classmethod
    def as_given(cls, mtbf_s: float) -> Self:
        """From a number of the reader."""
        said = f"Failures: one in {duration(mtbf_s)}, as given."
        return cls(per_s=np.array([1 / mtbf_s]), said=said, is_counted=False)

    @classmethod
    def of(cls, rate: FailureRate, gpus: int) -> Self:
        """From a rate, at so many GPUs."""
        hours = [rate.mean_gpu_hours]
        if 0 < rate.lo < rate.hi < math.inf:
            hours += [rate.lo, rate.hi]
        return cls(
            per_s=gpus / (np.array(hours) * SECONDS_PER_HOUR),
            said=_said(rate, gpus),
            is_counted=rate.failures is not None and not rate.is_published,
        )


def _said(rate: FailureRate, gpus: int) -> str:
    often = duration(rate.mean_hours(gpus) * SECONDS_PER_HOUR)
    whose = f"as published of {rate.title}" if rate.is_published else f"as in {rate.title}"
    sure = f" ({'; '.join(rate.said())})" if any(rate.said()) else ""
    if rate.is_bound:
        return f"Failures {whose}: at most one in {often} on {gpus:,} GPUs{sure}. So intervals may be longer, and less is lost."
    return f"Failures {whose}: one in {often} on {gpus:,} GPUs{sure}."


def failure_rate(
    gpus: int,
    *,
    mtbf_s: float | None,
    rate: str | None,
    log: Path | None,
    restart_s: float | None,
) -> FailureRate:
    """From that of `mtbf_s`, `rate` and `log` which is given. Failures of a log within one restart of another count as one.

    Raises ConfigError or DataError where a file cannot be read.
    """
    from ckptbench.decide.rates import rate_of_job, read_log, read_rate
    from ckptbench.decide.watched import RESTART_S, LogOptions

    if mtbf_s is not None:
        return rate_of_job(mtbf_s, gpus)
    if rate is not None:
        return read_rate(rate)
    assert log is not None
    if log.suffix == ".yaml":  # that describes a log
        return read_rate(log)
    return read_log(log, LogOptions(gpus=gpus, restart_s=restart_s or RESTART_S))
