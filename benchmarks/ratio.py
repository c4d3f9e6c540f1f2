"""How benchmarks report their result: the ratio of two times that were measured in turn, with its interval."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 5_000


def report(
    pairs: Sequence[tuple[float, float]] | NDArray[np.float64],
    first: str,
    second: str,
    *,
    promise: float,
) -> None:
    """Print the median of first / second over the pairs, its interval, and the promise."""
    seconds = np.asarray(pairs)
    ratios = seconds[:, 0] / seconds[:, 1]
    low, high = median_interval(ratios)
    one, other = np.median(seconds, axis=0)
    print(f"  {first}: median {one:.6g} s; {second}: median {other:.6g} s")
    print(
        f"  {first} / {second} = {np.median(ratios):.4f}, 95 % interval {low:.4f} to {high:.4f}, "
        f"{len(pairs)} pairs; promised: at most {promise}"
    )


def median_interval(values: NDArray[np.float64]) -> tuple[float, float]:
    """Bootstrap 95 % interval of the median."""
    drawn = np.random.default_rng(0).choice(values, (RESAMPLES, len(values)))
    low, high = np.quantile(np.median(drawn, axis=1), [0.025, 0.975])
    return float(low), float(high)
