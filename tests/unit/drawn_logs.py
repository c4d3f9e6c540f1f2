"""Failure logs drawn at random, to count how often the 95 % interval of their rate holds the truth.

They are drawn at random from processes whose rate is known: constant; bursts, in which a failure brings others after it; gaps with a Weibull distribution, of
which k below 1 clusters; and good and bad periods. Short bursts are over within one restart, so that each counts as one failure.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ckptbench.decide.exposure import RESTART_S, Exposure, FailureCount
from ckptbench.decide.rates import clustered_interval

Floats = NDArray[np.float64]
Draw = Callable[[np.random.Generator, float], Floats]
"""Times of the failures of a log of this length. The unit is the mean time between two failures."""

MEAN_HOURS = 5.0


def constant(random: np.random.Generator, length: float) -> Floats:
    return random.uniform(0, length, random.poisson(length))


def bursts(random: np.random.Generator, length: float, *, more: float, within: float, merged: bool = False) -> Floats:  # fmt: skip
    """Each failure brings a geometric number of others, `more` on average, after exponential times of mean `within`. `merged`: the rate is of bursts."""
    before = 20 * within
    firsts = random.poisson((length + before) / (1 if merged else 1 + more))
    first = random.uniform(-before, length, firsts)
    number = random.geometric(1 / (1 + more), firsts) - 1
    others = np.repeat(first, number) + random.exponential(within, number.sum())
    return np.concatenate([first, others])


def weibull(random: np.random.Generator, length: float, *, shape: float) -> Floats:
    """From a time long after the first failure."""
    before = 30.0
    scale = 1 / math.gamma(1 + 1 / shape)
    gaps = scale * random.weibull(shape, int(4 * (length + before)) + 100)
    return np.cumsum(gaps) - before


def periods(random: np.random.Generator, length: float, *, lasts: float, differ: float) -> Floats:
    """The rate is another in each period: gamma distributed, `differ` is its standard deviation ÷ its mean."""
    begins = np.arange(-random.uniform(0, lasts), length, lasts)
    rates = random.gamma(differ**-2, differ**2, len(begins))
    number = random.poisson(rates * lasts)
    return np.repeat(begins, number) + random.uniform(0, lasts, number.sum())


SHAPES: dict[str, tuple[Draw, float]] = {
    "constant": (constant, RESTART_S),
    "bursts within one restart": (partial(bursts, more=3, within=0.002, merged=True), RESTART_S),
    "bursts of 2 over half a gap": (partial(bursts, more=1, within=0.5), 0.0),
    "bursts of 3 over half a gap": (partial(bursts, more=2, within=0.5), 0.0),
    "bursts of 3 over three gaps": (partial(bursts, more=2, within=3), 0.0),
    "Weibull gaps, k = 0.5": (partial(weibull, shape=0.5), 0.0),
    "Weibull gaps, k = 0.7": (partial(weibull, shape=0.7), 0.0),
    "Weibull gaps, k = 1.5": (partial(weibull, shape=1.5), 0.0),
    "periods of 3 gaps that differ by 70 %": (partial(periods, lasts=3, differ=0.7), 0.0),
    "periods of 10 gaps that differ by 50 %": (partial(periods, lasts=10, differ=0.5), 0.0),
}
"""How failures come, and the restart within which they count as one: 0 where the rate is of all failures."""


def drawn(name: str, failures: float, random: np.random.Generator) -> FailureCount:
    """A log over the time in which this many failures are expected; at least one of them has come."""
    draw, restart_s = SHAPES[name]
    clock_s = np.array([0.0, failures * MEAN_HOURS * 3600])
    while True:
        at_s = draw(random, failures) * MEAN_HOURS * 3600
        at_s = at_s[(at_s > 0) & (at_s <= clock_s[1])]
        if len(at_s):
            return Exposure(at_s, clock_s, clock_s / 3600).counted(restart_s)


def coverage(name: str, failures: float, logs: int, random: np.random.Generator) -> float:
    """The part of the logs whose interval holds the true mean."""
    intervals = (clustered_interval(drawn(name, failures, random)) for _ in range(logs))
    return float(np.mean([lo <= MEAN_HOURS <= hi for lo, hi in intervals]))
