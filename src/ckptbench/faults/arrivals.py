"""When units fail that fail again and again: seeded renewal processes, and the traces of failures drawn from them."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray


def intervals(
    random: np.random.Generator, count: int, *, mean_s: float, shape: float = 1.0
) -> NDArray[np.float64]:
    """Times between failures in seconds, `count` of them: Weibull-distributed with this mean and `shape`.

    Shape 1 is the exponential distribution; below 1 failures cluster. The scale is mean / Γ(1 + 1/shape).
    """
    scale = mean_s / math.gamma(1 + 1 / shape)
    return scale * random.weibull(shape, count)


def first_failures(
    random: np.random.Generator, units: int, most: int, *, mean_s: float, shape: float = 1.0
) -> list[tuple[float, int]]:
    """The first `most` failures of `units` units that are new at time 0: each its second and its unit, in their order.

    Every unit is as new after a failure. Its draws do not depend on the number of units after it.
    """
    times = [intervals(random, most, mean_s=mean_s, shape=shape).cumsum() for _ in range(units)]
    failures = [(float(second), unit) for unit, own in enumerate(times) for second in own]
    return sorted(failures)[:most]
