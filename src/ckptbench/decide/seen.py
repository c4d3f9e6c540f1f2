"""What other runs tell of a cost: how long it lasts, how far runs differ, and how far one event differs from the next in a run."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Seen:
    """A cost that was measured several times in several runs. A run is one observation."""

    runs: Floats
    """The mean of each run, shape (runs,)."""
    events: Floats
    """Each event ÷ the mean of its run, shape (events,)."""

    @classmethod
    def of(cls, each: pd.Series[float], run: pd.Series[str]) -> Self:
        means = each.groupby(run.to_numpy()).mean()
        parts = each.to_numpy(float) / means.reindex(run).to_numpy(float)
        return cls(np.asarray(means, np.float64), parts[np.isfinite(parts)])

    @property
    def mean(self) -> float:
        return float(self.runs.mean())

    def event(self, random: np.random.Generator, draws: int) -> Floats:
        """By which factors one event differs from the mean of its run, (1 + draws,); first by none."""
        return np.concatenate([[1.0], random.choice(self.events, draws)])


def run_spread(seen: Iterable[Seen]) -> Floats:
    """By how much runs differ from the mean of their setup, as logarithms, of all setups that ran at least twice; 0 where none did.

    A mean of n runs is nearer to each of them than to another run: hence the factor.
    """
    found = []
    for own in seen:
        number = len(own.runs)
        if number > 1 and own.runs.min() > 0:
            logs = np.log(own.runs)
            found.append((logs - logs.mean()) * math.sqrt(number / (number - 1)))
    return np.concatenate(found) if found else np.zeros(1)


def resampled(differences: Floats, random: np.random.Generator, draws: int) -> Floats:
    """By which factors another run differs, (1 + draws,), from `run_spread`; first by none."""
    factors: Floats = np.exp(np.concatenate([[0.0], random.choice(differences, draws)]))
    return factors
