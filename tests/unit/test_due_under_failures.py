"""`ckptbench_probe.Interval`, which knows no costs beforehand, beside the best fixed interval, which follows from them."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean

import numpy as np
import pytest
from due_under_failures import Machine, best_every, loses

from ckptbench.decide.costs import Recovering, Saving
from ckptbench.decide.model import best
from ckptbench_probe.due.target import Target, best_useful_s
from tests.study.selection import FULL

WORSE = 1.05
"""What is promised: the loss, by that of the best fixed interval."""
FAILURES = 20
"""Of a job, on average. Each job learns the costs anew."""
JOBS = 100 if FULL else 30
MACHINES = [
    pytest.param(Machine(stall_s=0.5), 300.0, id="short stalls"),
    pytest.param(Machine(stall_s=5.0), 300.0, id="long stalls"),
    pytest.param(Machine(stall_s=30.0), 300.0, id="stalls of a tenth of the time between failures"),
    pytest.param(Machine(stall_s=2.0, spread=0.5), 400.0, id="steps that vary"),
    pytest.param(Machine(stall_s=0.7, spread=0.95), 400.0, id="stalls shorter than steps vary"),
    pytest.param(Machine(stall_s=2.0, evaluation_every=50, evaluation_s=8.0, compiling_s=20.0), 400.0, id="evaluations"),
    pytest.param(Machine(stall_s=0.3, background_s=10.0, slower=0.3), 400.0, id="in the background"),
    pytest.param(Machine(stall_s=0.3, background_s=10.0, slower=0.3, names_its_saves=True), 400.0, id="in the background, named"),
    pytest.param(Machine(stall_s=0.3, background_s=10.0, slower=0.3, spread=0.3), 400.0, id="in the background, beside steps that vary"),
    pytest.param(Machine(stall_s=0.2, background_s=30.0), 400.0, id="longer than the interval"),
    pytest.param(Machine(stall_s=0.2, background_s=30.0, names_its_saves=True), 400.0, id="longer than the interval, named"),
]  # fmt: skip


@pytest.mark.parametrize(("machine", "mtbf_s"), MACHINES)
def test_it_loses_as_little_as_the_best_fixed_interval(machine: Machine, mtbf_s: float) -> None:
    """Both under the same failures, drawn from an exponential distribution."""
    steps = int(FAILURES * mtbf_s / machine.step_s)

    def mean(every: int | None) -> float:
        return fmean(loses(replace(machine), mtbf_s, steps, seed, every) for seed in range(JOBS))

    assert mean(None) <= WORSE * mean(best_every(machine, mtbf_s))


@pytest.mark.parametrize("cost", [1e-6, 1e-4, 0.01, 0.1, 1.0, 5.0])
@pytest.mark.parametrize("durable", [0.0, 0.1, 0.9])
def test_its_interval_is_that_of_the_decision(cost: float, durable: float) -> None:
    """Whole steps, of costs as a part of the time between failures; a save in the background takes `durable` of that."""
    mtbf_s, step_s = 3600.0, 0.05
    stall_s, durable_s = 0.4 * cost * mtbf_s, (cost + durable) * mtbf_s
    saving = Saving(stall_s=stall_s, durable_s=durable_s, slowdown_s=0.6 * cost * mtbf_s)
    found = best(saving, Recovering(down_s=60.0), 1 / mtbf_s, step_s=step_s, fine=False)
    steps = Target.read(mtbf_s, None, None, None).steps(cost * mtbf_s, durable_s, step_s)
    assert abs(steps - int(found.steps)) <= max(1, 1e-4 * steps)


def test_youngs_interval_is_its_limit_for_cheap_saves() -> None:
    for cost in (1e-12, 1e-8, 1e-5):
        assert best_useful_s(cost, 1.0) == pytest.approx(np.sqrt(2 * cost), rel=2 * np.sqrt(cost))
