"""The benchmark that holds the decision against runs that were killed: cases that are reckoned by hand, and a study in which the model is true."""

from __future__ import annotations

from typing import Any

import pytest
from test_decision_costs import Made, setup

from benchmarks.decision_against_kills import finished_s, points
from ckptbench.decide.costs import Saving

BLOCKING = Saving(stall_s=2.0, durable_s=2.0)
BEHIND = Saving(stall_s=1.0, durable_s=5.0, slowdown_s=1.0)


def finished(failures: list[float], saving: Saving = BLOCKING) -> float:
    """Of 100 s of work, with a checkpoint after every 20 s of it."""
    return finished_s(failures, 100.0, 20.0, saving, down_s=7.0)


@pytest.mark.parametrize("saving", [BLOCKING, BEHIND])
def test_undisturbed_it_takes_its_work_and_its_checkpoints(saving: Saving) -> None:
    assert finished([], saving) == pytest.approx(110.0)
    assert finished([110.1], saving) == pytest.approx(110.0)  # after its end


@pytest.mark.parametrize(
    ("at_s", "kept", "saving"),
    [(10.0, 0, BLOCKING), (21.9, 0, BLOCKING), (22.1, 1, BLOCKING), (43.9, 1, BLOCKING), (44.1, 2, BLOCKING), (109.9, 4, BLOCKING),
     (24.9, 0, BEHIND), (25.1, 1, BEHIND), (46.9, 1, BEHIND), (47.1, 2, BEHIND)],
)  # fmt: skip
def test_a_failure_takes_it_back_to_the_newest_durable_version(
    at_s: float, kept: int, saving: Saving
) -> None:
    assert finished([at_s], saving) == pytest.approx(at_s + 7 + (5 - kept) * 22)


def test_a_failure_during_a_recovery_begins_another() -> None:
    assert finished([30.0, 35.0]) == pytest.approx(35 + 7 + 4 * 22)


DOWN_S, STEP_S, STEPS = 4.6, 0.5, 80
FAILURES = {0: [12.3, 30.1], 1: [25.7]}
"""By repeat."""


def killed_study(*, slower: float = 1.0, off_s: float = 0.0, **changes: Any) -> Made:
    """Two repeats that drawn failures killed, at `slower` steps, and what other runs cost, as the model has it. Each killed wall is `off_s` off."""
    study = Made()
    study.rows["strategies"][0].update(slowdown_s=0.0, slowdown_s_lo=0.0, slowdown_s_hi=0.0)
    checked = setup(**{"history": "exponential mean_s=36", **changes})
    for repeat, failures in FAILURES.items():
        baseline, costs, run = f"never{repeat}", f"costs{repeat}", f"killed{repeat}"
        study.run(setup(interval="never", format="none"), baseline)
        study.run(setup(history="listed name=costs"), costs)
        study.failure(costs, detection_s=DOWN_S)
        study.run(checked, run)
        for second in failures:
            study.failure(run, second=second, detection_s=99.0)
        work_s = STEPS * STEP_S * slower
        wall_s = finished_s(failures, work_s, work_s / STEPS * 10, Saving(stall_s=0.2, durable_s=0.3), DOWN_S)  # fmt: skip
        for name, took_s, own in ((baseline, STEPS * STEP_S, 1.0), (costs, 60.0, 1.0), (run, wall_s + off_s, slower)):  # fmt: skip
            row = next(each for each in study.rows["runs"] if each["run"] == name)
            row.update(wall_s=took_s, baseline=baseline, steps=STEPS, timing_valid=True, blocking=True)  # fmt: skip
            study.rows["steps"] = [each for each in study.rows["steps"] if each["run"] != name]
            study.rows["steps"] += [{"run": name, "rank": 0, "step": step, "duration_s": STEP_S * own, "warmup": False} for step in range(STEPS)]  # fmt: skip
    return study


@pytest.mark.parametrize("slower", [1.0, 1.5])
def test_where_the_model_is_true_predicted_and_measured_are_equal_at_any_speed(
    slower: float,
) -> None:
    (point,) = points(killed_study(slower=slower).tables())
    assert point.predicted == pytest.approx(point.measured)
    assert (point.failures, point.steps) == (3, 10)
    assert f"every 10 steps, 3 failures: predicted {100 * point.predicted:.1f} %" in str(point)


def test_time_that_the_model_does_not_know_of_is_seen() -> None:
    (point,) = points(killed_study(off_s=40.0).tables())
    assert point.predicted / point.measured > 1.5


def test_a_checkpoint_costs_what_it_does_at_the_nearest_interval() -> None:
    study = killed_study()
    study.rows["strategies"].append({**study.rows["strategies"][0], "interval": "s80", "stall_s": 9.0, "durable_s": 9.0})  # fmt: skip
    (point,) = points(study.tables())
    assert point.predicted == pytest.approx(point.measured)
    study.rows["strategies"][0]["interval"] = "s800"
    (point,) = points(study.tables())
    assert point.predicted < 0.8 * point.measured


@pytest.mark.parametrize("without", ["history", "costs"])
def test_runs_whose_costs_no_other_run_tells_are_left_out(without: str) -> None:
    study = killed_study(**({"history": "listed name=twice"} if without == "history" else {}))
    if without == "costs":
        study.rows["failures"] = [row for row in study.rows["failures"] if "killed" in row["run"]]
    assert not [*points(study.tables())]
