"""Times of failures, drawn: of a whole job, of many replicas at once."""

from __future__ import annotations

from dataclasses import dataclass
from math import gamma

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainc, gammaincinv

Times = NDArray[np.float64]
"""Failures of each replica in ascending order, (replicas, most failures of any), in seconds. Behind the last one: infinity."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bursts:
    """Failures that others follow: of the next node of a rack, of the same node again."""

    followed: float
    """The part of the failures that another one follows. That one may be followed too."""
    within_s: float
    """Mean time to the one that follows, exponential."""


def exponential(
    rng: np.random.Generator, *, replicas: int, gpus: int, mean_s: float, until_s: float
) -> Times:
    """Of GPUs that each fail after `mean_s` on average, whatever their age. Together they are one Poisson process."""
    return _within(rng, np.full(replicas, gpus * until_s / mean_s), until_s)


def weibull(
    rng: np.random.Generator,
    *,
    replicas: int,
    gpus: int,
    mean_s: float,
    shape: float,
    until_s: float,
) -> Times:
    """Of GPUs whose lives are Weibull's, each replaced by a new one when it fails.

    They have been in use for long, so that the rate is gpus / mean_s from the start: the time to the first failure has the
    density S(t) / mean, with S the probability of living longer than t. New GPUs with a shape below 1 would fail several
    times as often at first. Only those that fail before `until_s` are drawn.
    """
    scale = mean_s / gamma(1 + 1 / shape)
    # P(1/k, (t/scale)^k), the regularized incomplete gamma function, is the distribution of the time to the first failure.
    begun = float(gammainc(1 / shape, (until_s / scale) ** shape))
    numbers = rng.binomial(gpus, begun, replicas)
    of = np.repeat(np.arange(replicas), numbers)
    at = scale * gammaincinv(1 / shape, begun * rng.random(len(of))) ** (1 / shape)
    owners, times = [of], [at]
    while len(of):
        at = at + scale * rng.weibull(shape, len(at))
        of, at = of[at < until_s], at[at < until_s]
        owners.append(of)
        times.append(at)
    return _rows(np.concatenate(owners), np.concatenate(times), replicas)


def with_bursts(rng: np.random.Generator, times: Times, bursts: Bursts, until_s: float) -> Times:
    """The same mean number of failures, of which some follow others. So `times` loses a part of its own."""
    kept = np.isfinite(times) & (rng.random(times.shape) >= bursts.followed)
    of, at = np.nonzero(kept)[0], times[kept]
    owners, all_times = [of], [at]
    while len(of):
        followed = rng.random(len(of)) < bursts.followed
        of, at = of[followed], at[followed] + rng.exponential(bursts.within_s, int(followed.sum()))
        of, at = of[at < until_s], at[at < until_s]
        owners.append(of)
        all_times.append(at)
    return _rows(np.concatenate(owners), np.concatenate(all_times), len(times))


def _within(rng: np.random.Generator, means: NDArray[np.float64], until_s: float) -> Times:
    """Poisson processes with these mean numbers of failures: their times are uniform."""
    numbers = rng.poisson(means)
    times = rng.random((len(means), max(1, int(numbers.max(initial=0))))) * until_s
    times[np.arange(times.shape[1]) >= numbers[:, None]] = np.inf
    times.sort(axis=1)
    return times


def _rows(owners: NDArray[np.int64], times: NDArray[np.float64], replicas: int) -> Times:
    """The times of each owner in a row of its own."""
    order = np.lexsort((times, owners))
    numbers = np.bincount(owners, minlength=replicas)
    rows = np.full((replicas, max(1, int(numbers.max(initial=0)))), np.inf)
    columns = np.arange(len(times)) - np.repeat(np.cumsum(numbers) - numbers, numbers)
    rows[owners[order], columns] = times[order]
    return rows
