"""The costs of one row of `decision_costs` as arrays: the estimate first, then draws that differ as much as it is uncertain.

The estimate is the median, and the ends of each 95 % interval are taken for those of a lognormal distribution, above the estimate and below it each for
itself. Where an end is not above 0, that side is drawn from a normal distribution, and nothing below 0 is
used. A cost without interval is the same in all draws.

The same cost has the same draws in every row, as the seed is made from what the cost is of. So two recoveries are compared under the
same stalls, and two strategies under the same failures. Where an estimate stands in for others that were not measured, as the start of
runs does for restarts from every strategy, all these rows have its draws.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from statistics import NormalDist
from zlib import crc32

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ckptbench.analysis.cost.statistics import HALF_NORMAL, Estimate, Interval
from ckptbench.analysis.tables.columns import SYSTEM
from ckptbench.analysis.tables.schema import Row
from ckptbench.config.decision import DecisionSection
from ckptbench.decide.costs import GlobalTier, Recovering, Saving
from ckptbench.decide.inputs import STARTS
from ckptbench.decide.rates import FailureRate
from ckptbench.decide.units import SECONDS_PER_HOUR

Floats = NDArray[np.float64]

SEED = 12
DRAWS = 400
"""The ends of an interval are the tenth-lowest and the tenth-highest of them."""
LOWEST, HIGHEST = 2.5, 97.5
SURVIVABLE = 0.77
"""The part of the failures that hit one node alone. Of Llama 3's 419 interruptions 96 were software, network switches and cables, or timeouts (Grattafiori et al.
2024, "The Llama 3 Herd of Models", table 5)."""
REPLACEMENT_S = 3600.0
"""Until a lost node is replaced, where survivors go on with fewer ranks: an assumption."""
SAVED = (*SYSTEM, "strategy", "format", "interval")
"""Columns that seed the draws of what a checkpoint costs: rows that are equal in them share draws."""
RECOVERED = (*SYSTEM, "recovery")
"""The same, of a failure that survivors go on from."""


def step_s(row: Row) -> Floats:
    """Seconds of a step. This and all arrays of this module have shape (1 + DRAWS,)."""
    return _lognormal(row, "step_s", _random(row, SYSTEM, "step_s"))


def slower(row: Row) -> Floats:
    """By how much a step takes longer with this recovery and this strategy, where nothing fails and nothing is written. Goodput is of the time that training
    without failures and checkpoints takes."""
    return slower_by_recovery(row) * slower_by_strategy(row)


def slower_by_recovery(row: Row) -> Floats:
    # Recoveries that differ in their options share the baseline.
    return _longer(row, "slower", (*SYSTEM, "slower", "slower_lo", "slower_hi"))


def slower_by_strategy(row: Row) -> Floats:
    return _longer(row, "slower_everywhere", SAVED)


def _longer(row: Row, name: str, of: Sequence[str]) -> Floats:
    """A step ÷ a usual one. A faster one counts as equal."""
    return np.maximum(_lognormal(row, name, _random(row, of, name)), 1.0)


def saving(row: Row) -> Saving:
    """What a checkpoint of this row costs."""
    durable, apart = _random(row, SAVED, "durable_s"), _random(row, SAVED, "stall_s")
    # The stall is the first part of the durable time: so much of how far they differ they share. Where training waits for the write it is all.
    part = min(row["stall_s"] / row["durable_s"], 1.0) if row["durable_s"] > 0 else 1.0
    stall_s = _lognormal(
        row, "stall_s", _in_order_of(part * durable + math.sqrt(1 - part**2) * apart)
    )
    durable_s = _lognormal(row, "durable_s", durable)
    return Saving(
        stall_s=stall_s,
        durable_s=np.maximum(durable_s, stall_s),
        slowdown_s=_lognormal(row, "slowdown_s", _random(row, SAVED, "slowdown_s")),
    )


def global_tier(row: Row, gpus: int) -> GlobalTier | None:
    """The versions at the level `shared`, where not all go there.

    They alone are left after the failure of a node, unless other nodes have copies. `saving` has the slower steps of all checkpoints. Its stall is that of most of
    them: one that goes to `shared` too is taken to block training no longer. A version of either level is taken to be loaded in the same time.
    """
    every = int(row["shared_every"])
    if every == 1:
        return None
    return GlobalTier(
        saving=Saving(
            stall_s=0.0,
            durable_s=_lognormal(row, "shared_durable_s", _random(row, SAVED, "shared_durable_s")),
        ),
        every=every,
        needed=needs_global(row, gpus),
        down_s=down_s(row),
    )


def needs_global(row: Row, gpus: int) -> Floats:
    """Of the failures after which all go back to a version, the part that leaves only those at `shared`: of a node that survivors do not go on from."""
    survived = survived_of_all(row, gpus)
    if row["copied"]:
        return np.zeros_like(survived)
    left = 1 - survived
    return np.where(left > 0, (SURVIVABLE - survived) / np.where(left > 0, left, 1.0), 0.0)


def survived(row: Row) -> Floats:
    """Of the failures that leave some ranks, the part that survivors go on from. A count is drawn as Jeffreys has it: beta distributed, with half a failure more of
    either kind (Brown, Cai and DasGupta 2001, "Interval estimation for a binomial proportion")."""
    number = row["survived_of"]
    if pd.isna(number) or number == 0:
        return np.full(1 + DRAWS, float(row["survived"]))
    from scipy.special import betaincinv

    went_on = row["survived"] * number
    drawn = betaincinv(went_on + 0.5, number - went_on + 0.5, _parts(row, RECOVERED, "survived"))
    return np.concatenate([[row["survived"]], drawn])


def survived_of_all(row: Row, gpus: int) -> Floats:
    """The part of all failures that survivors go on from. Of a single GPU there are none."""
    return survived(row) * SURVIVABLE if gpus > 1 else np.zeros(1 + DRAWS)


def down_s(row: Row) -> Floats:
    """Seeded by the estimate, so that rows that share a stand-in share draws. A start, to which each row adds its own load, is seeded by the system alone."""
    estimate = () if row["down_from"] == STARTS else ("down_s", "down_s_lo", "down_s_hi")
    return _lognormal(row, "down_s", _random(row, (*SYSTEM, *estimate), "down_s"))


def pause_s(row: Row) -> Floats:
    return _lognormal(row, "pause_s", _random(row, RECOVERED, "pause_s"))


def recovering(row: Row, gpus: int, choices: DecisionSection) -> Recovering:
    """What a failure of so many GPUs costs, if one recovery takes as long as it did at the number of ranks that were measured."""
    # The share of what is lost is not done until it has been replaced: of a node, or where there is only one, of a GPU.
    lost = choices.gpus_per_node if gpus > choices.gpus_per_node else 1
    missing_s = 0.0 if row["replaces"] else REPLACEMENT_S * lost / gpus
    return Recovering(
        down_s=down_s(row),
        survived=survived_of_all(row, gpus),
        pause_s=pause_s(row) + missing_s,
    )


def failures_per_s(rate: FailureRate, gpus: int) -> Floats:
    """Of the whole job. The same draws for any number of GPUs."""
    rate = rate.at(gpus)
    row = {
        "rate": rate.name,
        "hours": rate.mean_gpu_hours,
        "hours_lo": rate.lo,
        "hours_hi": rate.hi,
    }
    hours = _lognormal(row, "hours", _random(row, ("rate",), "failures"))
    return gpus / (hours * SECONDS_PER_HOUR)


def estimate(
    values: Floats, lowest: Floats | None = None, highest: Floats | None = None
) -> Estimate:
    """The estimate, which is the first of the values, and the 95 % interval of the draws behind it: of those of `lowest` and `highest` where these say how low and how
    high each may lie."""
    below, above = (values if end is None else end for end in (lowest, highest))
    if below is above:
        lo, hi = np.percentile(below[1:], (LOWEST, HIGHEST))  # both take less time than one alone
    else:
        lo, hi = np.percentile(below[1:], LOWEST), np.percentile(above[1:], HIGHEST)
    return Estimate(float(values[0]), Interval(float(lo), float(hi)))


def _random(row: Row, names: Sequence[str], cost: str) -> Floats:
    """Standard normal numbers of this cost, shape (1 + DRAWS,); 0 first."""
    return np.concatenate([[0.0], _normal()[_order(row, names, cost)]])


def _parts(row: Row, names: Sequence[str], cost: str) -> Floats:
    """Numbers between 0 and 1 of this cost, shape (DRAWS,): one from the middle of each of DRAWS equal parts, in an order of its own (McKay et al. 1979, Latin hypercube
    sampling). So each cost has its own interval in its draws exactly, and not by luck."""
    return (_order(row, names, cost) + 0.5) / DRAWS


def _order(row: Row, names: Sequence[str], cost: str) -> NDArray[np.int64]:
    of = "/".join([cost, *(str(row[name]) for name in names)])
    return np.random.default_rng([SEED, crc32(of.encode())]).permutation(DRAWS)


@cache
def _normal() -> Floats:
    """Standard normal numbers from the middle of each of DRAWS equal parts. By the standard library: scipy takes longer to load than all else takes."""
    return np.array([NormalDist().inv_cdf((place + 0.5) / DRAWS) for place in range(DRAWS)])


def _in_order_of(normal: Floats) -> Floats:
    """Standard normal numbers from the middle of equal parts, in the order of these ones; 0 first."""
    places = normal[1:].argsort().argsort()
    return np.concatenate([[0.0], _normal()[places]])


def _lognormal(row: Row, name: str, normal: Floats) -> Floats:
    """What is not known is 0, and so is what is below it: a slowdown, or a pause where fewer ranks are faster."""
    value, lo, hi = (float(row[f"{name}{end}"]) for end in ("", "_lo", "_hi"))
    if not lo < hi < math.inf:
        return np.full(len(normal), 0.0 if math.isnan(value) else max(value, 0.0))
    return np.where(normal < 0, _towards(value, lo, -normal), _towards(value, hi, normal))


def _towards(value: float, end: float, normal: Floats) -> Floats:
    """Where `normal` is 0 the value, and where it is HALF_NORMAL the end, or 0 if that is lower."""
    if value > 0 and end > 0:
        return value * (end / value) ** (normal / HALF_NORMAL)
    return np.maximum(value + (end - value) * normal / HALF_NORMAL, 0.0)
