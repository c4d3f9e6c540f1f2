"""A failure that is announced in time loses no work: the formula is held against a walk through random failures."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest

from ckptbench.decide.costs import GlobalTier, Recovering, Saving
from ckptbench.decide.losses import Losses
from ckptbench.decide.model import best, goodput

HOUR = 3600.0
BLOCKING = Saving(stall_s=60.0, durable_s=60.0)
ASYNC = Saving(stall_s=3.0, durable_s=93.0)
SLOW = Saving(stall_s=5.0, durable_s=900.0)
LONG_NOTICE_S = 2 * HOUR


class Job(NamedTuple):
    """How it saves and fails."""

    saving: Saving
    interval_s: float
    down_s: float
    mtbf_s: float
    announced: float

    @property
    def recovering(self) -> Recovering:
        return Recovering(
            down_s=self.down_s, announced=self.announced, notice_s=float(self.saving.durable_s)
        )

    @property
    def told(self) -> float:
        return float(goodput(self.interval_s, self.saving, self.recovering, 1 / self.mtbf_s))


def walked(job: Job, failures: int, seed: int) -> tuple[float, float]:
    """Goodput and its standard error: training stands at a place of its schedule, and goes back to the newest place that is saved."""
    rng = np.random.default_rng(seed)
    saving, interval_s, down_s, mtbf_s, announced = job
    period_s, durable_s = float(saving.period_s(interval_s)), float(saving.durable_s)
    parts = []
    for _ in range(40):
        saved = clock_s = 0.0
        for _ in range(failures // 40):
            runs_s = rng.exponential(mtbf_s)
            stands = saved + runs_s
            clock_s += runs_s
            # The version of the k-th period is begun when its interval has passed.
            begun = np.floor((stands - durable_s - interval_s) / period_s) + 1
            kept = max(saved, begun * period_s)
            if rng.random() < announced:
                sudden_s = rng.exponential(mtbf_s / (1 - announced)) if announced < 1 else np.inf
                clock_s += min(sudden_s, durable_s)
                kept = stands if sudden_s > durable_s else kept
            saved = kept
            while (fails_s := rng.exponential(mtbf_s)) < down_s:
                clock_s += fails_s
            clock_s += down_s
        parts.append(saved / period_s * interval_s / clock_s)
    return float(np.mean(parts)), float(np.std(parts, ddof=1) / np.sqrt(len(parts)))


JOBS = (
    Job(BLOCKING, 2400.0, 480.0, 14 * HOUR, 0.8),
    Job(BLOCKING, 2 * HOUR, 480.0, 3 * HOUR, 0.5),
    Job(ASYNC, 550.0, 480.0, 3 * HOUR, 0.8),
    Job(SLOW, 1800.0, 300.0, 2 * HOUR, 0.6),
    Job(SLOW, 900.0, 1800.0, HOUR, 0.9),
    Job(BLOCKING, 10 * HOUR, 480.0, 2 * HOUR, 0.95),
    Job(BLOCKING, 2400.0, 480.0, 14 * HOUR, 0.0),
    Job(ASYNC, 2400.0, 480.0, HOUR, 1.0),
)


@pytest.mark.parametrize("job", JOBS)
def test_the_formula_is_what_a_walk_through_failures_gives(job: Job) -> None:
    mean, error = walked(job, failures=24_000, seed=7)
    assert error < 0.004
    assert job.told == pytest.approx(mean, abs=4 * error)


@pytest.mark.parametrize("job", JOBS[:-1])
def test_the_best_and_the_fine_steps_are_those_of_all_whole_numbers(job: Job) -> None:
    rate, step_s = 1 / job.mtbf_s, 20.0
    found = best(job.saving, job.recovering, rate, step_s=step_s)
    steps = np.arange(1.0, found.steps * 6)
    useful = goodput(steps * step_s, job.saving, job.recovering, rate)
    assert found.goodput == pytest.approx(useful.max(), rel=1e-12)
    fine = steps[useful >= found.goodput - 0.01]
    assert fine.min() <= found.fine_from_steps <= found.steps <= found.fine_to_steps


def test_the_more_is_announced_the_rarer_saves_are_best_and_the_less_is_lost() -> None:
    parts = np.array([0.0, 0.5, 0.8, 0.95])
    warned = Recovering(down_s=480.0, announced=parts, notice_s=120.0)
    found = best(BLOCKING, warned, 1 / (3 * HOUR), step_s=2.5)
    assert (np.diff(found.steps) > 0).all()
    assert (np.diff(found.goodput) > 0).all()


def test_a_warning_that_is_shorter_than_a_save_changes_nothing() -> None:
    rate, late = 1 / (3 * HOUR), Recovering(down_s=480.0, announced=0.8, notice_s=92.9)
    sudden = Recovering(down_s=480.0)
    for saving, is_late in ((ASYNC, True), (BLOCKING, False)):
        told = goodput(600.0, saving, late, rate)
        assert (told == goodput(600.0, saving, sudden, rate)) == is_late
        found = Losses.of(600.0, saving, late, rate)
        assert 1 - float(told) == pytest.approx(found.saves + found.lost_work + found.restarts)


def test_where_all_failures_are_announced_only_saves_and_restarts_are_lost() -> None:
    """Each failure takes the save and the restart, and no work."""
    warned = Recovering(down_s=480.0, announced=1.0, notice_s=LONG_NOTICE_S)
    per_failure = np.exp(480 / HOUR) + 60 / HOUR
    told = goodput(600.0, BLOCKING, warned, 1 / HOUR)
    assert told == pytest.approx(600 / 660 / per_failure)
    lost = Losses.of(600.0, BLOCKING, warned, 1 / HOUR)
    assert lost.lost_work == pytest.approx(0.0, abs=1e-12)
    assert lost.restarts == pytest.approx(1 - 1 / per_failure)


def test_a_second_level_that_all_failures_need_is_one_level_with_a_longer_interval() -> None:
    warned = Recovering(down_s=480.0, announced=0.7, notice_s=LONG_NOTICE_S)
    free = Saving(stall_s=0.0, durable_s=0.0)
    tier = GlobalTier(saving=BLOCKING, every=4, needed=1.0, down_s=480.0)
    two = goodput(600.0, free, warned, 1 / HOUR, tier)
    assert two == pytest.approx(goodput(2400.0, BLOCKING, warned, 1 / HOUR), rel=1e-3)
    unneeded = replace(tier, needed=0.0, saving=replace(free, stall_s=15.0, durable_s=15.0), every=1)  # fmt: skip
    one = Saving(stall_s=15.0, durable_s=15.0)
    assert goodput(600.0, free, warned, 1 / HOUR, unneeded) == pytest.approx(goodput(600.0, one, warned, 1 / HOUR), rel=1e-3)  # fmt: skip


def test_survivors_that_never_go_on_change_nothing() -> None:
    warned = Recovering(down_s=480.0, announced=0.7, notice_s=LONG_NOTICE_S)
    told = goodput(600.0, BLOCKING, replace(warned, survived=1e-12, pause_s=60.0), 1 / HOUR)
    assert told == pytest.approx(goodput(600.0, BLOCKING, warned, 1 / HOUR), rel=1e-6)
