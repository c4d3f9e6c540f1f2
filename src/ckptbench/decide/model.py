"""Expected goodput as a function of the interval between checkpoints, where failures are exponential.

Times are in seconds, and rates are failures of the whole job in a second. Every number may be an array: draws of an
uncertain one, or a grid. They are broadcast, and so are the results.

Training goes through periods. A period has `interval` of useful time, the stall of a checkpoint, and what slower steps cost
while that is written. A version is the state at the start of its save, and counts from when it is durable. Let L be the
length of a period, λ the rate of failures after which all ranks go on from a version, and R the expected time from such a
failure until they do. From one durable version to the next training needs L without a failure. After a failure it needs R, and
then the interval and the whole time until a version is durable, as no save is under way; let that be L + g. The expected
time T from one to the next, and B from a failure to the next, follow from

    T = (1 - e^(-λL)) (1 / λ + B),    B = R + (1 - e^(-λ(L + g))) (1 / λ + B),

so that

    T = e^(λg) (1 + λR) (e^(λL) - 1) / λ,

and goodput is interval / T. If a recovery takes D where nothing fails meanwhile, and every failure of the rate μ has it begin
anew, R = (e^(μD) - 1) / μ. With μ = λ and without a lag this is the complete model of Daly 2006, "A higher order estimate of
the optimum checkpoint interval for restart dumps", equation 20. A lag costs as much as a longer recovery.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64] | float


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """What one checkpoint costs."""

    stall_s: Floats
    """Training is blocked."""
    durable_s: Floats
    """From the start of the save until its version can be gone on from. At least the stall."""
    slowdown_s: Floats = 0.0
    """What all steps together lose that are slower while it is written."""

    def lag_s(self, interval_s: Floats) -> Floats:
        """How much longer than a period the first version after a failure takes, from the start of training until it is durable.

        Below 0 where steps are slower after a version is durable.
        """
        return interval_s + self.durable_s - self.period_s(interval_s)

    def period_s(self, interval_s: Floats) -> Floats:
        """From the start of a save to the start of the next one. That waits where this one is not durable yet."""
        return np.maximum(self.stall_s + interval_s + self.slowdown_s, self.durable_s)

    def and_to(self, other: Saving) -> Saving:
        """A save to two levels pays for both."""
        return Saving(
            stall_s=self.stall_s + other.stall_s,
            slowdown_s=self.slowdown_s + other.slowdown_s,
            durable_s=np.maximum(self.durable_s, other.durable_s),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovering:
    """What one failure costs, apart from the work that is lost with it."""

    down_s: Floats
    """From a failure until training goes on from a version: detection, ending, launch, import, build and load."""
    survived: Floats = 0.0
    """The part of all failures that survivors go on from by themselves, without a version."""
    pause_s: Floats = 0.0
    """What such a failure costs: regrouping, steps done again, slower steps until a new rank has come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Far:
    """Versions that are also written to a second level, which some failures leave alone."""

    saving: Saving
    every: int
    """Of so many versions of the first level, one goes to the second too."""
    needed: Floats
    """The part of the failures after which only the second level has versions."""
    down_s: Floats
    """As `Recovering.down_s`, where the version comes from the second level."""


def goodput(
    interval_s: Floats,
    saving: Saving,
    recovering: Recovering,
    failures_per_s: Floats,
    far: Far | None = None,
) -> Floats:
    """The useful part of the time, between 0 and 1: time that training without checkpoints and failures would take too.

    A failure while ranks recover has them recover anew. Failures that survivors go on from stretch the time in which others, of
    that kind too, may strike: nothing is useful where their pauses take all of it. With a second level the periods are taken to be of the same, mean length, and what the lag of the second level
    adds to a failure as the same wherever in the cycle it strikes: it should be short beside the time between failures.
    """
    rate = np.asarray(failures_per_s, np.float64)
    paused = np.minimum(rate * recovering.survived * recovering.pause_s, 1.0)
    going = paused < 1
    stretch = 1 / np.where(going, 1 - paused, 1.0)
    striking = rate * (1 - np.asarray(recovering.survived))
    with np.errstate(
        over="ignore", divide="ignore", invalid="ignore"
    ):  # of a rate at which training never comes to its next version, or no recovery to its end
        near_s = _recovery_s(rate, striking, recovering.down_s, saving.lag_s(interval_s))
        if far is None:
            period_s = stretch * saving.period_s(interval_s)
            growth = _relative_growth(striking * period_s)
            period_s = period_s * growth * (1 + np.where(striking > 0, striking * near_s, 0.0))
            return np.where(going, interval_s / period_s, 0.0)
        period_s = stretch * _mean_period_s(interval_s, saving, far)
        far_lag_s = saving.and_to(far.saving).lag_s(interval_s)
        far_s = _recovery_s(rate, striking, far.down_s, far_lag_s)
        return np.where(
            going, interval_s / _two_levels_s(period_s, striking, far, near_s, far_s), 0.0
        )


def _relative_growth(x: Floats) -> Floats:
    """(e^x - 1) / x, and 1 for 0."""
    x = np.asarray(x, np.float64)
    return np.where(x == 0, 1.0, np.expm1(x) / np.where(x == 0, 1.0, x))


def _recovery_s(rate: Floats, striking: Floats, down_s: Floats, lag_s: Floats) -> Floats:
    """Expected time of a recovery and of the lag: e^(λg) (1 + λR) is 1 + λ times it."""
    down = down_s * _relative_growth(rate * down_s)
    lag = lag_s * _relative_growth(striking * lag_s)
    return down * (1 + striking * lag) + lag


def _mean_period_s(interval_s: Floats, saving: Saving, far: Far) -> Floats:
    alone_s, both_s = saving.period_s(interval_s), saving.and_to(far.saving).period_s(interval_s)
    return ((far.every - 1) * alone_s + both_s) / far.every


def _two_levels_s(period_s: Floats, rate: Floats, far: Far, near_s: Floats, far_s: Floats) -> Floats:  # fmt: skip
    """Expected time of a period, where some failures lose all periods since the last version of the second level.

    Let V(j) be the expected time from the j-th version after one of the second level to the next one of that, q the
    probability of a period without a failure and p that of a failure which needs the second level. Then

        V(j) = (1 - q) / rate + q V(j+1) + (1 - q) ((1 - p) (near + V(j)) + p (far + V(0))),    V(every) = 0,

    which is a V(j) = a + b V(j+1) + (1 - b) V(0), so that V(0) = a (1 - b^every) / ((1 - b) b^every). The parts are written so that
    nothing is lost where a failure in a period is unlikely, and 1 - b is small.
    """
    fails = -np.expm1(-rate * period_s)
    lasting = 1 - fails * (1 - far.needed)
    until_s = period_s * _relative_growth(-rate * period_s)
    from_far_s = far.needed * np.where(np.asarray(far.needed) > 0, far_s, 0.0)
    from_near_s = (1 - far.needed) * np.where(np.asarray(far.needed) < 1, near_s, 0.0)
    back_s = np.where(fails > 0, fails * (from_near_s + from_far_s), 0.0)
    alone = (until_s + back_s) / lasting
    # 1 - b. None falls back, where no failure needs the second level and each period has one. Rounding may make it more than 1.
    falls_back = np.minimum(fails * far.needed / np.where(lasting > 0, lasting, 1.0), 1.0)
    grown = np.expm1(-far.every * np.log1p(-falls_back))  # b^-every - 1
    periods = np.where(falls_back == 0, far.every, grown / np.where(falls_back == 0, 1.0, falls_back))  # fmt: skip
    return alone * periods / far.every


def young_s(saving: Saving, failures_per_s: Floats) -> Floats:
    """Useful time between checkpoints: sqrt(2 C M), for a checkpoint of C seconds and M seconds between failures.

    Young 1974, "A first order approximation to the optimum checkpoint interval".
    """
    return np.sqrt(2 * saving.stall_s / np.asarray(failures_per_s))


def daly_s(saving: Saving, failures_per_s: Floats) -> Floats:
    """Useful time between checkpoints, by the perturbation solution of Daly 2006, equation 37.

    sqrt(2 C M) (1 + sqrt(C / 2M) / 3 + (C / 2M) / 9) - C for a checkpoint of C < 2M seconds, else M.
    """
    between_s = 1 / np.asarray(failures_per_s)
    ratio = saving.stall_s / (2 * between_s)
    series = np.sqrt(2 * saving.stall_s * between_s) * (1 + np.sqrt(ratio) / 3 + ratio / 9)
    return np.where(ratio < 1, series - saving.stall_s, between_s)


def saxena_s(saving: Saving, recovering: Recovering, failures_per_s: Floats) -> Floats:
    """Useful time between checkpoints at which availability is best: sqrt(2 (M + R) C + C²).

    Saxena et al. 2024, arXiv:2410.18124, whose interval from save to save is this and C.
    """
    between_s = 1 / np.asarray(failures_per_s)
    cost_s = np.asarray(saving.stall_s)
    return np.asarray(np.sqrt(2 * (between_s + recovering.down_s) * cost_s + cost_s**2))


@dataclass(frozen=True, slots=True, kw_only=True)
class Best:
    """The interval with the best goodput, and how little it matters."""

    interval_s: NDArray[np.float64]
    goodput: NDArray[np.float64]
    shortest_s: NDArray[np.float64]
    """The shortest interval with a goodput within `WITHIN` of the best."""
    longest_s: NDArray[np.float64]


WITHIN = 0.01
LONGEST = 50.0
"""The longest interval that is tried, in times between failures."""
GRID = 60
"""So many intervals are tried before the best of them is refined."""
ROUNDS = 20
"""How often the neighbourhood of the best one is tried again, each time with `FINE` intervals."""
FINE = 10
HALVINGS = 45
"""An end of the flat range is found to a part in 10¹² of the range that is searched."""


def best(
    saving: Saving,
    recovering: Recovering,
    failures_per_s: Floats,
    *,
    least_s: Floats,
    far: Far | None = None,
    flat: bool = True,
) -> Best:
    """The best interval of at least `least_s` (a step), found numerically. All inputs are broadcast to one shape.

    Every rate is above 0. Goodput rises with the interval up to the best one, and falls after it. Without `flat` the ends of the
    range that is as good are left out: they are NaN.
    """
    rates = np.asarray(failures_per_s, np.float64)

    def of(logarithm: Floats) -> NDArray[np.float64]:
        return np.asarray(goodput(np.exp(logarithm), saving, recovering, rates, far))

    shape = np.broadcast_shapes(of(np.log(least_s)).shape, np.shape(least_s))
    first = np.broadcast_to(np.log(least_s), shape)
    last = np.maximum(first, np.log(LONGEST / rates))
    left, right = _around_the_highest(of, first, last, GRID)
    for _ in range(ROUNDS):
        left, right = _around_the_highest(of, left, right, FINE)
    found = (left + right) / 2
    top = of(found)
    enough = (1 - WITHIN) * top
    unknown = np.full(shape, np.nan)
    return Best(
        interval_s=np.exp(found),
        goodput=top,
        shortest_s=np.exp(_crossing(of, enough, first, found)) if flat else unknown,
        longest_s=np.exp(_crossing(of, enough, last, found)) if flat else unknown,
    )


Function = Callable[[NDArray[np.float64]], NDArray[np.float64]]


def _around_the_highest(
    of: Function, left: NDArray[np.float64], right: NDArray[np.float64], number: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The neighbours of that one of so many points at which the function is highest, for arrays of which each element has its own bounds."""
    tried = np.linspace(left, right, number)
    at = of(tried).argmax(axis=0)
    before, after = (np.clip(at + side, 0, number - 1)[None] for side in (-1, 1))
    return (
        np.take_along_axis(tried, before, axis=0)[0],
        np.take_along_axis(tried, after, axis=0)[0],
    )


def _crossing(
    of: Function,
    limit: NDArray[np.float64],
    outside: NDArray[np.float64],
    inside: NDArray[np.float64],
) -> NDArray[np.float64]:
    """The point nearest to `outside` at which the function is at least `limit`, by bisection."""
    nearest = outside
    for _ in range(HALVINGS):
        enough = of(nearest) >= limit
        inside = np.where(enough, nearest, inside)
        outside = np.where(enough, outside, nearest)
        nearest = (inside + outside) / 2
    return inside
