"""The model in formulas: goodput as a function of the interval between checkpoints, where failures are exponential.

This file is also the source of the page's JavaScript, which is generated from it. So it is written in a small part of Python: functions
of positional arguments with assignments and a `return`; arithmetic, comparisons, calls of one another and of a few functions of NumPy.
There is no loop. Every number may be an array; they are broadcast. Times are in seconds, rates in failures of the whole job in a second.

**One level.** Training goes through periods. A period has the interval I of useful time, the stall of a checkpoint, and what slower steps cost
while that is written; it is at least as long as the version of the period before takes until it is durable, as a save waits for the one before. Let L be
its length. A version is the state at the start of its save, and counts from when it is durable, D later. Its lag behind the end of its
period is g = I + D - L. After a failure no save is under way, so that the first version is durable after I + D = L + g.

Failures of the rate λf end training: all ranks go on from a version. Those of the rate λv only pause it for P, as survivors go on. Pauses
stop the clock of periods, but a version goes on being written. A failure of either kind while ranks recover has them recover anew, so that a
recovery that takes D₀ where nothing fails takes R = (e^(μD₀) - 1) / μ on average, with μ = λf + λv.

A pause may be prolonged by others. Let B be the probability that no failure of the rate λf comes until training goes on. Such a failure or another
pause may come within P, so

    B = exp(-(λf + λv (1 - B)) P).

So training is ended at the rate θ = λf + λv (1 - B) of the time in which it is not paused: a period passes with the probability e^(-θL). From the
end of a recovery to the next failure of the rate λf there are 1 / λf on average. The k-th version counts if none comes until the end of its
period and within its lag: with the probability e^(-θLk) e^(-λf g). Their sum over all k, times the useful time of each, by the time from failure to
failure, is

    goodput = I e^(-λf g) / ((e^(θL) - 1) (1 / λf + R)).

Without survivors, and without a lag, this is the complete model of Daly 2006, "A higher order estimate of the optimum checkpoint
interval for restart dumps", equation 20. It is written here so that no part overflows or loses its digits: with the segment s = θ / λf,

    goodput = I / (s L) · (λf s L) / (1 - e^(-λf s L)) · e^(-λf (s L + g)) / (1 + λf R),        s L + g = (s - 1) L + I + D > 0.

**Two levels.** Of `every` versions one also goes to a second level, which alone is left after the part `needed` of the failures. The periods are taken to
be of the same, mean length, and what the lag of the second level adds to a failure as the same wherever in the cycle it strikes: it should be short
beside the time between failures. `two_levels` has the derivation.

**Announced failures** come at the rate α, each long enough after a warning. At the warning training stops and saves, which takes D, and goes on from there after a recovery.
Where a failure without a warning strikes in that save, work is lost all the same. So in the time that training runs, it loses work at the rate
σ = λf + α (1 - e^(-λf D)) and is saved at the rate β = α e^(-λf D), with μ = σ + β. With recoveries and with saves at warnings, a second of that time takes
K = 1 + μR + α (1 - e^(-λf D)) / λf seconds. Let v(x) be the time from a save at x of a period until the version at its end is durable, at L + g. A failure before that leads back to x, or
by a save at p to v(p). Weighed by when it comes,

    v(x) = K ∫ e^(-μ(p-x)) dp + σ v(x) ∫ e^(-μ(p-x)) dp + β ∫ e^(-μ(p-x)) v(p) dp + c e^(-μ(L+g-x)),    p from x to L + g.

Multiplied by e^(-μx) and derived, v'(x) = -μ K e^(-μx) / (β e^(-μx) + σ e^(-μ(L+g))). A period takes v(0) - v(L), so that

    goodput = I β / (K ln((β e^(μ(L+g)) + σ) / (β e^(μg) + σ))).

For β = 0 this is the formula of one level above, and for σ = 0 it is I / (K L). With survivors or two levels, goodput is taken to be as many times that of sudden failures as here.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64] | float

FINE = 0.2
"""An interval is fine if it loses at most this part more than the best one, of what an interval can avoid: all but the restarts."""
MOST_FINE = 0.01
"""Nor does it lose more than the best one by more than this part of the time."""
LEAST_FINE = 0.5
"""No other interval is fine where the best one has less goodput than this."""
MANY_SAVES = 30.0
"""In a job: only where times vary by a thirtieth does the last of them fall anywhere in a period."""
LIKE = 1.1
"""Jobs whose GPUs differ by less than this factor are alike."""
LARGEST = 300.0
"""Powers of e are cut here: what is left of the goodput is none, and products of two of them are still numbers."""


def fine_goodput(highest: Floats, restarts: Floats) -> Floats:
    """The lowest goodput of an interval that is fine. `restarts` is the goodput that they alone leave."""
    avoidable = np.maximum(restarts - highest, 0.0)
    return highest - np.minimum(FINE * avoidable, MOST_FINE)


def period_s(interval_s: Floats, stall_s: Floats, durable_s: Floats, slowdown_s: Floats) -> Floats:
    """From the start of a save to the start of the next one. That waits where this one is not durable yet."""
    return np.maximum(interval_s + stall_s + slowdown_s, durable_s)


def decay(x: Floats) -> Floats:
    """(1 - e^-x) / x, and 1 for 0, of an x that is not below 0."""
    above = np.where(x > 0, x, 1.0)
    return np.where(x > 0, -np.expm1(-above) / above, 1.0)


def log_part(x: Floats) -> Floats:
    """ln(1 + x) / x, and 1 for 0, of an x that is not below 0."""
    above = np.where(x > 0, x, 1.0)
    return np.where(x > 0, np.log1p(above) / above, 1.0)


def in_time(announced: Floats, notice_s: Floats, needs_s: Floats) -> Floats:
    """The part of all failures whose warning comes long enough before them for a save that takes so long."""
    return np.where(needs_s <= notice_s, announced, 0.0)


def kept_by_limit(seconds: Floats, striking: Floats, limit_s: Floats) -> Floats:
    """What the versions of so many seconds of a job are of those of a job without a time limit: `limit` derives it."""
    return seconds * decay(striking * seconds) / (limit_s * decay(striking * limit_s))


def limited(
    useful: Floats,
    interval_s: Floats,
    striking: Floats,
    stall_s: Floats,
    durable_s: Floats,
    slowdown_s: Floats,
    down_s: Floats,
    limit_s: Floats,
    since: Floats,
) -> Floats:
    """The goodput that a time limit leaves of `useful`, which is that without it. No version counts that is not durable before it.

    `since`: the part of a period that has passed at the limit since the last version: ½ on average, 0 at best and 1 at worst. Of `MANY_SAVES` it is the average.
    """
    last_s = period_s(interval_s, stall_s, durable_s, slowdown_s)
    rest_s = limit_s - down_s - interval_s - durable_s + last_s
    parts = np.where(rest_s < MANY_SAVES * last_s, since, 0.5)
    counts_s = np.maximum(rest_s - parts * last_s, 0.0)
    has_version = interval_s + durable_s <= limit_s - down_s
    return np.where(has_version, useful * kept_by_limit(counts_s, striking, limit_s), 0.0)


def segment(striking: Floats, surviving: Floats, pause_s: Floats) -> Floats:
    """By how much pauses segment the time in which a failure may end training: s = θ / λf, from λf, λv and P.

    z = λf P s solves z = x + a (1 - e^-z) with x = λf P and a = λv P. As 1 - e^-z ≤ z / (1 + z/2), the first z is not below the solution, and Newton's
    steps fall towards it: four of them reach the precision of the numbers.
    """
    x = np.maximum(striking * pause_s, 1e-250)
    a = surviving * pause_s
    b = a - 1 + x / 2
    root = np.sqrt(b * b + 2 * x)
    first = np.where(b > 0, b + root, 2 * x / (root + np.abs(b)))
    z = nearer(nearer(nearer(nearer(first, a, x), a, x), a, x), a, x)
    return z / x


def nearer(z: Floats, a: Floats, x: Floats) -> Floats:
    """One step of Newton's method for z = x + a (1 - e^-z)."""
    slope = np.where(z < 1, 1 - a - a * np.expm1(-z), 1 - a * np.exp(-z))
    return z - (z * (1 - a * decay(z)) - x) / slope


def recovering(failures_per_s: Floats, survived: Floats, down_s: Floats) -> Floats:
    """1 + λf R: by how much recoveries lengthen the time from failure to failure."""
    return 1 + (1 - survived) * np.expm1(np.minimum(failures_per_s * down_s, LARGEST))


def kept_by_warnings(striking: Floats, announced_per_s: Floats, save_s: Floats) -> Floats:
    """β: how often a warning comes whose save no failure strikes."""
    return announced_per_s * np.exp(np.minimum(-striking * save_s, 0.0))


def running_s(losing: Floats, saved: Floats, period_s: Floats, lag_s: Floats) -> Floats:
    """How long training runs for each period of work that stays: ln(...) / β, from σ, β, L and g."""
    some = np.maximum(losing, 1e-300)
    every = some + saved
    lag = np.maximum(np.minimum(every * lag_s, LARGEST), -LARGEST)
    grown = np.expm1(np.minimum(every * period_s, LARGEST)) / (saved + some * np.exp(-lag))
    beyond = np.maximum(every * period_s - LARGEST, 0.0)
    grows = saved * grown > 1  # by 1 / β for each of them
    return grown * log_part(saved * grown) + np.where(grows, beyond, 0.0) / np.where(grows, saved, 1.0)  # fmt: skip


def with_warnings(
    striking: Floats, surviving: Floats, announced_per_s: Floats, down_s: Floats, save_s: Floats
) -> Floats:
    """K: by how much saves at warnings, and recoveries, lengthen the time that training runs. `surviving` failures lengthen recoveries."""
    restarting = striking + announced_per_s
    every = np.maximum(restarting + surviving, 1e-300)
    recoveries = restarting / every * np.expm1(np.minimum(every * down_s, LARGEST))
    return 1 + recoveries + announced_per_s * save_s * decay(striking * save_s)


def goodput(
    interval_s: Floats,
    failures_per_s: Floats,
    stall_s: Floats,
    durable_s: Floats,
    slowdown_s: Floats,
    down_s: Floats,
    survived: Floats,
    pause_s: Floats,
    every: Floats,
    needed: Floats,
    global_stall_s: Floats,
    global_durable_s: Floats,
    global_slowdown_s: Floats,
    global_down_s: Floats,
    announced: Floats,
) -> Floats:
    """The useful part of the time, from 0 to 1. `announced` is the part of all failures that lose no work, as a save is durable before them, and `survived` the part of the others that only pause training.

    With one level `every` is 1 and all that follows it up to `global_down_s` 0. A save to both levels pays for both.
    """
    sudden = failures_per_s * (1 - announced)
    striking = sudden * (1 - survived)
    local_period_s = period_s(interval_s, stall_s, durable_s, slowdown_s)
    both_stall_s = stall_s + global_stall_s
    both_durable_s = np.maximum(durable_s, global_durable_s)
    both_period_s = period_s(
        interval_s, both_stall_s, both_durable_s, slowdown_s + global_slowdown_s
    )
    mean_s = local_period_s + (both_period_s - local_period_s) / every
    stretched_s = segment(striking, sudden * survived, pause_s) * mean_s
    local_s = stretched_s - local_period_s + interval_s + durable_s
    global_s = stretched_s - both_period_s + interval_s + both_durable_s
    from_local = recovering(sudden, survived, down_s)
    from_global = recovering(sudden, survived, global_down_s)
    back = two_levels(
        striking, stretched_s, every, needed, local_s, from_local, global_s, from_global
    )
    useful = interval_s / stretched_s / decay(striking * stretched_s) * back
    warned = failures_per_s * announced
    saved = kept_by_warnings(striking, warned, both_durable_s)
    losing = striking * stretched_s / mean_s
    still_losing = losing + warned - saved
    local_lag_s = local_s - stretched_s
    global_lag_s = global_s - stretched_s
    cycle_s = every * mean_s
    near = with_warnings(striking, sudden * survived, warned, down_s, both_durable_s)
    far = with_warnings(striking, sudden * survived, warned, global_down_s, both_durable_s)
    most = np.maximum(near, far)
    without_s = (1 - needed) * every * (from_local / most) * running_s(
        losing, 0.0, mean_s, local_lag_s
    ) + needed * (from_global / most) * running_s(losing, 0.0, cycle_s, global_lag_s)
    with_s = (1 - needed) * every * (near / most) * running_s(
        still_losing, saved, mean_s, local_lag_s
    ) + needed * (far / most) * running_s(still_losing, saved, cycle_s, global_lag_s)
    part = np.where(announced > 0, without_s / with_s, 1.0)
    return np.minimum(useful * part, 1.0)  # rounding may make it more


def restarts_alone(
    failures_per_s: Floats,
    down_s: Floats,
    survived: Floats,
    pause_s: Floats,
    needed: Floats,
    global_down_s: Floats,
    announced: Floats,
    save_s: Floats,
) -> Floats:
    """The goodput of which only failures take something, with saves at their warnings, and no other save or lost work: the limit of short intervals and free saves."""
    sudden = failures_per_s * (1 - announced)
    striking = sudden * (1 - survived)
    surviving = sudden * survived
    warned = failures_per_s * announced
    stretched = segment(striking, surviving, pause_s)
    from_local = (1 - needed) * with_warnings(striking, surviving, warned, down_s, save_s)
    from_global = needed * with_warnings(striking, surviving, warned, global_down_s, save_s)
    return 1 / (stretched * (from_local + from_global))


def two_levels(
    striking: Floats,
    period_s: Floats,
    every: Floats,
    needed: Floats,
    local_s: Floats,
    from_local: Floats,
    global_s: Floats,
    from_global: Floats,
) -> Floats:
    """What failures leave of the goodput, from 0 to 1, where some lose all periods since the last version of the second level.

    `local_s` and `global_s` are s L + g of either level, `from_local` and `from_global` are 1 + λf R. Let V(j) be the expected time from the j-th version after
    one of the second level to the next one of that, p the part `needed`, e = e^(-λf s L) the probability of a period without a failure, K = e^(λf g) (1 + λf R) of either level. Then

        V(j) = (1 - e) / λf + e V(j+1) + (1 - e) ((1 - p) ((Kₙ - 1) / λf + V(j)) + p ((K_f - 1) / λf + V(0))),    V(every) = 0,

    which is V(j) = c + b V(j+1) + (1 - b) V(0) with b = e / (p + (1 - p) e), so that V(0) is c (1 + 1/b + ... + 1/b^(every - 1)) / b. What
    is returned is every (1 - e) / (λf V(0)).
    """
    passes = np.exp(-striking * period_s)
    fails = -np.expm1(-striking * period_s)
    lasts = np.maximum(needed + (1 - needed) * passes, 1e-300)
    falls_back = np.minimum(fails * needed / lasts, 1 - 1e-16)
    going_on = striking * period_s + np.log(lasts)
    logarithm = np.where(falls_back < 0.5, -np.log1p(-falls_back), going_on)  # -ln b
    others = (every - 1) * logarithm
    local = (1 - needed) * np.exp(np.minimum(striking * local_s + others, LARGEST)) * from_local
    shared = needed * np.exp(np.minimum(striking * global_s + others, LARGEST)) * from_global
    return decay(logarithm) / decay(every * logarithm) / (local + shared)


def young_s(stall_s: Floats, failures_per_s: Floats) -> Floats:
    """Useful time between checkpoints: sqrt(2 C M), for a checkpoint of C seconds and M seconds between failures.

    Young 1974, "A first order approximation to the optimum checkpoint interval".
    """
    return np.sqrt(2 * stall_s / failures_per_s)


def daly_s(stall_s: Floats, failures_per_s: Floats) -> Floats:
    """Useful time between checkpoints, by the perturbation solution of Daly 2006, equation 37.

    sqrt(2 C M) (1 + sqrt(C / 2M) / 3 + (C / 2M) / 9) - C for a checkpoint of C < 2M seconds, else M.
    """
    between_s = 1 / failures_per_s
    ratio = stall_s / (2 * between_s)
    series = np.sqrt(2 * stall_s * between_s) * (1 + np.sqrt(ratio) / 3 + ratio / 9)
    return np.where(ratio < 1, series - stall_s, between_s)


def saxena_s(stall_s: Floats, down_s: Floats, failures_per_s: Floats) -> Floats:
    """Useful time between checkpoints at which availability is best: sqrt(2 (M + R) C + C²).

    Saxena et al. 2024, arXiv:2410.18124, whose interval from save to save is this and C.
    """
    return np.sqrt(2 * (1 / failures_per_s + down_s) * stall_s + stall_s * stall_s)


def fitted_s(gpus: Floats, constant: Floats, parted: Floats, growing: Floats) -> Floats:
    """A time as it was fitted to several numbers of GPUs: one part is shared by them, and one is of each."""
    return constant + parted / gpus + growing * gpus


def of_jobs(gpus: Floats, of_gpus: Floats, number: Floats, of: Floats) -> Floats:
    """The factor of the mean GPU-hours between two ends of jobs of so many GPUs, where a log has `of` ends of jobs of `of_gpus`.

    A preemption or a time limit ends a whole job, as often if it has more GPUs: these are `number` of the ends. All others come from a GPU, and so more often with
    more of them. In a time T jobs of g GPUs then end number / T + (of - number) g / (T G) times in a second, with G = `of_gpus`: as `of` would in the GPU-hours of
    T G, times this factor.
    """
    grown = gpus / of_gpus
    factor = of * grown / (number + (of - number) * grown)
    return np.where(np.maximum(grown, 1 / grown) < LIKE, 1.0, factor)


def times_as_much(before: Floats, after: Floats) -> Floats:
    """`after` ÷ `before`; 1 where there is nothing that could grow."""
    return np.where(before > 0, after / np.where(before > 0, before, 1.0), 1.0)
