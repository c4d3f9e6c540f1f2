"""The best interval between checkpoints, in whole steps, by the formulas of `formulas`, which say what is taken to happen.

Times are in seconds, and rates are failures of the whole job in a second. Every number may be an array: draws of an
uncertain one, or a grid. They are broadcast, and so are the results.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ckptbench.decide import formulas
from ckptbench.decide.costs import ONE_LEVEL, GlobalTier, Recovering, Saving
from ckptbench.decide.formulas import Floats
from ckptbench.decide.limit import Limit

Steps = NDArray[np.float64]
"""Whole numbers. They are floats, as some are beyond all integers where nothing fails."""


Function = Callable[[Floats], NDArray[np.float64]]


def goodput(
    interval_s: Floats,
    saving: Saving,
    recovering: Recovering,
    failures_per_s: Floats,
    global_tier: GlobalTier | None = None,
    *,
    limit: Limit | None = None,
) -> NDArray[np.float64]:
    """The useful part of the time, between 0 and 1: time that training without checkpoints and failures would take too."""
    return by_interval(saving, recovering, failures_per_s, global_tier, limit=limit)(interval_s)


def by_interval(
    saving: Saving,
    recovering: Recovering,
    failures_per_s: Floats,
    global_tier: GlobalTier | None = None,
    *,
    limit: Limit | None = None,
) -> Function:
    """`goodput` as a function of the interval. What is the same at every interval is computed once."""
    announced = recovering.in_time(needs_s(saving, global_tier))
    of = (
        _of_one_level(saving, recovering, failures_per_s)
        if global_tier is None and not np.any(announced)
        else _of_two_levels(saving, recovering, failures_per_s, global_tier or ONE_LEVEL, announced)
    )
    if limit is None:
        return of
    left = saving if global_tier is None else global_tier.as_one(saving)
    every = 1 if global_tier is None else global_tier.every
    return lambda interval_s: limit.leaves(of(interval_s), every * interval_s, left, recovering, failures_per_s)  # fmt: skip


def _of_one_level(saving: Saving, recovering: Recovering, failures_per_s: Floats) -> Function:
    """`formulas.goodput` where nothing announces failures, to the last digit, in a tenth of the operations."""
    survived = recovering.survived
    striking = failures_per_s * (1 - survived)
    segment = formulas.segment(striking, failures_per_s * survived, recovering.pause_s)
    recoveries = formulas.recovering(failures_per_s, survived, recovering.down_s)

    def of(interval_s: Floats) -> NDArray[np.float64]:
        period_s = saving.period_s(interval_s)
        stretched_s = segment * period_s
        until_durable_s = stretched_s - period_s + interval_s + saving.durable_s
        lost = np.exp(np.minimum(striking * until_durable_s, formulas.LARGEST)) * recoveries
        useful = interval_s / stretched_s / formulas.decay(striking * stretched_s) * (1 / lost)
        return np.asarray(np.minimum(useful, 1.0))

    return of


def _of_two_levels(
    saving: Saving,
    recovering: Recovering,
    failures_per_s: Floats,
    second: GlobalTier,
    announced: Floats,
) -> Function:
    return lambda interval_s: np.asarray(
        formulas.goodput(
            interval_s, failures_per_s, saving.stall_s, saving.durable_s, saving.slowdown_s,
            recovering.down_s, recovering.survived, recovering.pause_s,
            second.every, second.needed, second.saving.stall_s, second.saving.durable_s, second.saving.slowdown_s, second.down_s,
            announced,
        )
    )  # fmt: skip


class Useful(NamedTuple):
    """Goodput, and how much it is by where a time limit falls between two versions. Without one, and with many versions in a job, all are the same."""

    average: NDArray[np.float64]
    most: NDArray[np.float64]
    """Where it falls just after a version is durable."""
    least: NDArray[np.float64]
    """Just before."""

    def more_than(self, now: Useful) -> tuple[NDArray[np.float64], ...]:
        """By how much it is more on average, at least and at most: the limit falls elsewhere in the periods of each."""
        return self.average - now.average, self.least - now.most, self.most - now.least


def by_phase(
    interval_s: Floats,
    saving: Saving,
    recovering: Recovering,
    failures_per_s: Floats,
    global_tier: GlobalTier | None = None,
    *,
    slower: Floats = 1.0,
    limit: Limit | None = None,
) -> Useful:
    """`goodput` at this interval, on average and at both ends."""

    def of(limit: Limit | None) -> NDArray[np.float64]:
        useful = goodput(interval_s, saving, recovering, failures_per_s, global_tier, limit=limit)
        return np.asarray(useful / slower)

    average = of(limit)
    most, least = (average, average) if limit is None else map(of, limit.ends)
    return Useful(average, most, least)


def restarts_alone(
    saving: Saving,
    recovering: Recovering,
    failures_per_s: Floats,
    global_tier: GlobalTier | None = None,
) -> NDArray[np.float64]:
    """The useful part of the time if nothing but recoveries, and saves at the warnings before failures, took any."""
    second = ONE_LEVEL if global_tier is None else global_tier
    save_s = needs_s(saving, global_tier)
    return np.asarray(
        formulas.restarts_alone(
            failures_per_s, recovering.down_s, recovering.survived, recovering.pause_s, second.needed, second.down_s,
            recovering.in_time(save_s), save_s,
        )
    )  # fmt: skip


def needs_s(saving: Saving, global_tier: GlobalTier | None = None) -> Floats:
    """How long a save at a warning takes until it is durable at all levels."""
    second = ONE_LEVEL if global_tier is None else global_tier
    return np.maximum(saving.durable_s, second.saving.durable_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Best:
    """The interval with the best goodput, and how little it matters."""

    steps: Steps
    interval_s: NDArray[np.float64]
    """These steps in useful time."""
    goodput: NDArray[np.float64]
    fine_from_steps: Steps
    """The shortest interval that is fine, as `formulas.fine_goodput` has it. NaN where the best one loses more than half."""
    fine_to_steps: Steps
    """The longest one, up to that of `LONGEST`."""


LEAST_USEFUL = 0.01
"""Where even the best interval has less goodput than this, none is recommended."""
LONGEST = 50.0
"""The longest interval that is tried, in mean times between the failures that end training: the best one is shorter than one of them."""
MOST_STEPS = 1e12
"""No interval of more steps is tried."""
TRIED = 16
"""So many intervals are tried, and again so many between the neighbours of the best one, until these are all."""


def best(
    saving: Saving,
    recovering: Recovering,
    failures_per_s: Floats,
    *,
    step_s: Floats,
    global_tier: GlobalTier | None = None,
    fine: bool = True,
    slower: Floats = 1.0,
    limit: Limit | None = None,
) -> Best:
    """The best number of steps between two checkpoints, found numerically. All inputs are broadcast to one shape.

    Every rate is above 0. Goodput rises with the interval up to the best one, and falls after it. `slower` is by how much a step takes longer than what is
    useful of it, 1 / `slower`. Without `fine` the ends of the fine range are left out: they are NaN.
    """
    step_s = np.asarray(step_s, np.float64)
    useful = by_interval(saving, recovering, failures_per_s, global_tier, limit=limit)

    def of(steps: Floats) -> NDArray[np.float64]:
        return np.asarray(useful(steps * step_s) / slower)

    losing = recovering.losing(needs_s(saving, global_tier))
    last = np.asarray(_last(losing, failures_per_s, step_s))
    last = np.broadcast_to(last, of(last).shape)
    steps = _highest(of, last)
    highest = of(steps)
    restarts = restarts_alone(saving, recovering, failures_per_s, global_tier) / slower
    if limit is not None:
        restarts = limit.restarts_alone(restarts, recovering, failures_per_s)
    enough = np.broadcast_to(formulas.fine_goodput(highest, restarts), last.shape)
    has_fine = np.asarray(highest >= formulas.LEAST_FINE)
    unknown = np.full(last.shape, np.nan)

    def end_of(end: Steps) -> Steps:
        return np.where(has_fine, _farthest(of, enough, steps, end), np.nan) if fine else unknown

    return Best(
        steps=steps,
        interval_s=steps * step_s,
        goodput=highest,
        fine_from_steps=end_of(np.ones_like(last)),
        fine_to_steps=end_of(last),
    )


ROUND = 0.1
"""A number is rounded by no more than this part of it."""


def rounded(steps: int, fine: tuple[float, float], multiple_of: int | None = None) -> int:
    """A round number of steps that is fine: a multiple of what the program asks for if one is, else as few digits as may be; else `steps` itself."""
    tried = [] if multiple_of is None else [max(1, (2 * steps + multiple_of) // (2 * multiple_of)) * multiple_of]  # fmt: skip
    for digits in (1, 2):
        unit = 10 ** max(len(str(steps)) - digits, 0)
        near = (2 * steps + unit) // (2 * unit) * unit
        if abs(near - steps) <= ROUND * steps:
            tried.append(near)
    return next((each for each in tried if fine[0] <= each <= fine[1]), steps)


def _last(losing: Floats, failures_per_s: Floats, step_s: Floats) -> Steps:
    """Steps of the longest interval that is tried. Where no failure loses work, the longer the better: all failures count. `losing` is the part that does."""
    ending = np.where(np.asarray(losing) > 0, np.asarray(losing), 1.0)
    steps = np.floor(LONGEST / (failures_per_s * ending) / step_s)
    return np.asarray(np.clip(steps, 1.0, MOST_STEPS))


def _highest(of: Function, last: Steps) -> Steps:
    """The whole number from 1 to `last` at which the function is highest, for arrays of which each element has its own."""
    left, right = np.ones_like(last), last
    while True:
        tried = np.round(np.geomspace(left, right, TRIED))
        at = of(tried).argmax(axis=0)[None]
        steps: Steps = np.take_along_axis(tried, at, axis=0)[0]
        if (right - left < 3).all():
            return steps
        before, after = (
            np.take_along_axis(tried, np.clip(at + side, 0, TRIED - 1), axis=0)[0]
            for side in (-1, 1)
        )
        left = np.maximum(np.minimum(before, steps - 1), 1.0)
        right = np.minimum(np.maximum(after, steps + 1), last)


def _farthest(of: Function, enough: NDArray[np.float64], inside: Steps, end: Steps) -> Steps:
    """The whole number farthest from `inside` towards `end` at which the function is at least `enough`, by bisection."""
    inside = np.where(of(end) >= enough, end, inside)
    outside = end
    while (np.abs(outside - inside) > 1).any():
        middle = np.floor((inside + outside) / 2)
        reaches = of(middle) >= enough
        inside, outside = np.where(reaches, middle, inside), np.where(reaches, outside, middle)
    return inside
