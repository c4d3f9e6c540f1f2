"""The ratio of two times that were measured in turn, with its interval. Needs NumPy alone: benchmarks use it in any environment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

RESAMPLES = 10_000


@dataclass(frozen=True, slots=True)
class Ratio:
    """The median of first / second over the pairs, and its bootstrap 95 % interval."""

    value: float
    lo: float
    hi: float
    medians: tuple[float, float]
    """Seconds of the first and of the second of a pair."""

    @classmethod
    def of(cls, pairs: Sequence[tuple[float, float]]) -> Ratio:
        seconds = np.asarray(pairs)
        ratios = seconds[:, 0] / seconds[:, 1]
        random = np.random.default_rng(0)
        drawn = ratios[random.integers(len(ratios), size=(RESAMPLES, len(ratios)))]
        lo, hi = np.quantile(np.median(drawn, axis=1), [0.025, 0.975])
        first, second = np.median(seconds, axis=0)
        return cls(float(np.median(ratios)), float(lo), float(hi), (float(first), float(second)))
