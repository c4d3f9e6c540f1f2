"""A job that ends at a time limit loses what the formula says: held against a walk through its schedule, save by save."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

import numpy as np
import pytest

from ckptbench.decide.costs import GlobalTier, Recovering, Saving
from ckptbench.decide.limit import Limit
from ckptbench.decide.losses import Losses
from ckptbench.decide.model import best, by_phase, goodput

HOUR = 3600.0
DAY = 24 * HOUR


def durable_versions(interval_s: float, saving: Saving, down_s: float) -> Iterator[tuple[float, float]]:  # fmt: skip
    """When each is durable, and the work in it: the schedule of one job, walked save by save."""
    at_s, work_s, free_s = down_s, 0.0, 0.0
    while True:
        at_s, work_s = at_s + interval_s, work_s + interval_s
        begin_s = max(at_s, free_s)
        free_s = begin_s + float(saving.durable_s)
        yield free_s, work_s
        at_s = begin_s + float(saving.stall_s) + float(saving.slowdown_s)


class Job(NamedTuple):
    """How it saves, and how long all takes in seconds."""

    saving: Saving
    interval_s: float
    down_s: float
    mtbf_s: float
    limit_s: float


ANYWHERE = (np.arange(60) + 0.5) / 60 - 0.5


def walked(job: Job, *, at_signal: bool = False, phases: Iterable[float] = ANYWHERE) -> float:
    """Goodput over jobs that end in each of these parts of a period as often, and that fail at times of equal chance."""
    saving, interval_s, down_s, mtbf_s, limit_s = job
    period_s = float(saving.period_s(interval_s))
    kept, lasted = [], []
    for phase in phases:
        end_s = limit_s + phase * period_s
        reached = math.exp(-end_s / mtbf_s)
        fails_s = [-mtbf_s * math.log1p(-u * (1 - reached)) for u in (np.arange(400) + 0.5) / 400]
        versions = []
        for free_s, work_s in durable_versions(interval_s, saving, down_s):
            versions.append((free_s, work_s))
            if free_s > end_s:
                break

        def counts(at_s: float, versions: list[tuple[float, float]] = versions) -> float:
            return max((work for free_s, work in versions if free_s <= at_s), default=0.0)

        last = counts(end_s)
        if at_signal:
            last = max(last, worked(end_s - float(saving.durable_s), interval_s, saving, down_s))
        kept.append((1 - reached) * np.mean([*map(counts, fails_s)]) + reached * last)
        lasted.append(mtbf_s * (1 - reached))
    return float(np.sum(kept) / np.sum(lasted))


def worked(until_s: float, interval_s: float, saving: Saving, down_s: float) -> float:
    """Work that is done until then, step by step, saved or not."""
    left_s, period_s = max(until_s - down_s, 0.0), float(saving.period_s(interval_s))
    return left_s // period_s * interval_s + min(left_s % period_s, interval_s)


BLOCKING = Saving(stall_s=60.0, durable_s=60.0)
ASYNC = Saving(stall_s=3.0, durable_s=93.0)
SLOW = Saving(stall_s=5.0, durable_s=1500.0, slowdown_s=20.0)


JOBS = (
    Job(BLOCKING, 2400.0, 480.0, 14 * HOUR, DAY),
    Job(BLOCKING, 2 * HOUR, 480.0, 14 * HOUR, DAY),
    Job(ASYNC, 550.0, 480.0, 14 * HOUR, DAY),
    Job(ASYNC, 60.0, 480.0, 14 * HOUR, DAY),
    Job(SLOW, 1800.0, 300.0, 40 * HOUR, 6 * HOUR),
    Job(BLOCKING, 2400.0, 2 * HOUR, 100 * DAY, DAY),
    Job(BLOCKING, 6 * HOUR, 480.0, 1000 * DAY, DAY),
    Job(BLOCKING, 1200.0, 480.0, 3 * HOUR, 4 * HOUR),
)


@pytest.mark.parametrize("at_signal", [False, True])
@pytest.mark.parametrize("job", JOBS)
def test_the_formula_is_what_a_walk_through_jobs_gives(job: Job, at_signal: bool) -> None:
    limit = Limit(seconds=job.limit_s, at_signal=at_signal)
    recovering = Recovering(down_s=job.down_s)
    told = float(goodput(job.interval_s, job.saving, recovering, 1 / job.mtbf_s, limit=limit))
    assert told == pytest.approx(walked(job, at_signal=at_signal), abs=5e-4)


@pytest.mark.parametrize("at_signal", [False, True])
@pytest.mark.parametrize("job", JOBS)
def test_the_best_interval_is_that_of_all_whole_steps(job: Job, at_signal: bool) -> None:
    limit, step_s = Limit(seconds=job.limit_s, at_signal=at_signal), 20.0
    recovering, rate = Recovering(down_s=job.down_s), 1 / job.mtbf_s
    steps = np.arange(1.0, 3 * job.limit_s / step_s)
    useful = goodput(steps * step_s, job.saving, recovering, rate, limit=limit)
    found = best(job.saving, recovering, rate, step_s=step_s, limit=limit)
    assert found.goodput == pytest.approx(useful.max(), rel=1e-9)
    if not at_signal:
        assert found.fine_to_steps * step_s < job.limit_s
    fine = steps[useful >= found.goodput - 0.01]
    assert fine.min() <= found.fine_from_steps <= found.steps <= found.fine_to_steps


def test_a_save_at_a_signal_leaves_the_best_interval_nearly_as_it_is() -> None:
    """What is lost more by the interval without a limit is under a thousandth of the time; without the signal it can be more than a tenth."""
    lost = {True: 0.0, False: 0.0}
    for job in JOBS:
        recovering, rate = Recovering(down_s=job.down_s), 1 / job.mtbf_s
        free = best(job.saving, recovering, rate, step_s=2.5)
        for at_signal, most in lost.items():
            limit = Limit(seconds=job.limit_s, at_signal=at_signal)
            highest = best(job.saving, recovering, rate, step_s=2.5, limit=limit).goodput
            at_free = goodput(free.interval_s, job.saving, recovering, rate, limit=limit)
            lost[at_signal] = max(most, float(highest - at_free))
    assert lost[True] < 0.001, lost
    assert lost[False] > 0.1, lost


def test_after_the_limit_only_versions_of_the_second_level_are_left() -> None:
    """One version of four is written there too: the same as a fourth as many versions that cost what all four do."""
    local, shared = Saving(stall_s=2.0, durable_s=2.0), Saving(stall_s=30.0, durable_s=60.0)
    tier = GlobalTier(saving=shared, every=4, needed=0.0, down_s=480.0)
    recovering, limit = Recovering(down_s=480.0), Limit(seconds=DAY)
    rate = 1e-12
    told = goodput(600.0, local, recovering, rate, tier, limit=limit)
    one = Saving(stall_s=4 * 2.0 + 30.0, durable_s=3 * 2.0 + 60.0)
    assert told == pytest.approx(goodput(2400.0, one, recovering, rate, limit=limit), rel=1e-6)


FEW_SAVES = (
    Job(BLOCKING, 12 * HOUR, 480.0, 1000 * DAY, DAY),
    Job(BLOCKING, 12 * HOUR, 480.0, 14 * HOUR, DAY),
    Job(BLOCKING, 6 * HOUR, 480.0, 3 * DAY, DAY),
    Job(ASYNC, 2 * HOUR, 480.0, 3 * DAY, 8 * HOUR),
    Job(SLOW, 1200.0, 300.0, 40 * HOUR, 3 * HOUR),
)


@pytest.mark.parametrize("job", FEW_SAVES)
def test_with_few_saves_in_a_job_it_counts_where_the_last_one_falls(job: Job) -> None:
    """Exactly as a walk has it, and between its ends wherever in a period the limit falls."""
    limit, recovering = Limit(seconds=job.limit_s), Recovering(down_s=job.down_s)
    rate = 1 / job.mtbf_s
    exact = Losses.of(job.interval_s, job.saving, recovering, rate, limit=limit).exactly
    assert exact == pytest.approx(1 - walked(job, phases=(0.0,)), abs=5e-4)
    average, least, most = (1 - float(each) for each in by_phase(job.interval_s, job.saving, recovering, rate, limit=limit))  # fmt: skip
    period_s = float(job.saving.period_s(job.interval_s))
    last_s = max(free_s for free_s, _ in islice(durable_versions(job.interval_s, job.saving, job.down_s), 20) if free_s <= job.limit_s)  # fmt: skip
    for end_s, end in ((last_s, 1), (last_s + period_s - 1e-6, 2)):
        # The limit itself moves least: jobs of nearly the same length.
        moved = Limit(seconds=end_s)
        at_end = by_phase(job.interval_s, job.saving, recovering, rate, limit=moved)
        told = Losses.of(job.interval_s, job.saving, recovering, rate, limit=moved).exactly
        assert told == pytest.approx(1 - float(at_end[end]), abs=1e-6)
    assert least <= exact <= most
    assert least < average < most
    often = job.interval_s / 40
    assert Losses.of(often, BLOCKING, recovering, rate, limit=limit).exactly is None
    assert len({*map(float, by_phase(often, BLOCKING, recovering, rate, limit=limit))}) == 1, "of many saves the last one may fall anywhere"  # fmt: skip
