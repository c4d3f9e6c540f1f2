"""The time that a struck run takes by the model, against cases that are reckoned by hand."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from drawn_training import exponential, useful_part
from test_decision_costs import Made, overhead_of, setup

from ckptbench.decide.model import Recovering, Saving
from ckptbench.decide.other_runs import Seen, run_spread
from ckptbench.decide.struck_run import Lost, finished_s
from ckptbench.decide.validate import validation

BLOCKING = Saving(stall_s=2.0, durable_s=2.0)
BEHIND = Saving(stall_s=1.0, durable_s=5.0, slowdown_s=1.0)
RESTART = Lost(down_s=np.array([7.0]), pause_s=np.array([0.0]), survived=np.array([False]))
ELASTIC = Lost(down_s=np.array([7.0]), pause_s=np.array([3.0]), survived=np.array([True]))


def finished(
    strikes: list[float],
    lost: Lost | list[Lost],
    saving: Saving = BLOCKING,
) -> float:
    """Of 100 s of work, with a checkpoint after every 20 s of it."""
    each = [lost] * len(strikes) if isinstance(lost, Lost) else lost
    return float(finished_s(strikes, each, np.array([100.0]), np.array([20.0]), saving)[0])


def test_undisturbed_it_takes_its_work_and_its_checkpoints() -> None:
    assert finished([], RESTART) == pytest.approx(110.0)
    assert finished([], RESTART, BEHIND) == pytest.approx(110.0)


@pytest.mark.parametrize(
    ("strike", "kept"),
    [(10.0, 0), (21.9, 0), (22.1, 1), (43.9, 1), (44.1, 2), (109.9, 4)],
)
def test_a_failure_takes_it_back_to_the_newest_durable_version(strike: float, kept: int) -> None:
    assert finished([strike], RESTART) == pytest.approx(strike + 7 + (5 - kept) * 22)


@pytest.mark.parametrize(("strike", "kept"), [(24.9, 0), (25.1, 1), (46.9, 1), (47.1, 2)])
def test_a_version_counts_only_from_when_it_is_durable(strike: float, kept: int) -> None:
    assert finished([strike], RESTART, BEHIND) == pytest.approx(strike + 7 + (5 - kept) * 22)


def test_a_failure_while_it_recovers_has_it_recover_anew() -> None:
    assert finished([30.0, 35.0], RESTART) == pytest.approx(35 + 7 + 4 * 22)


def test_a_failure_after_its_end_does_not_count() -> None:
    assert finished([110.1], RESTART) == pytest.approx(110.0)


def test_survivors_lose_only_the_pause() -> None:
    assert finished([30.0, 60.0], ELASTIC) == pytest.approx(116.0)


@pytest.mark.parametrize(("strike", "kept"), [(46.9, 1), (47.1, 2)])
def test_a_version_goes_on_being_written_while_survivors_pause(strike: float, kept: int) -> None:
    """The second one until 3 s after its period has ended at 44 s. Survivors pause from 44.5 to 47.5 s."""
    took = finished([44.5, strike], [ELASTIC, RESTART], BEHIND)
    assert took == pytest.approx(strike + 7 + (5 - kept) * 22)


def test_it_takes_as_long_as_the_simulation_of_the_decision_says() -> None:
    """Over a long time, in which the unfinished end hardly counts. Without slower steps, of which the simulation has some in each period, the first too."""
    saving = Saving(stall_s=1.0, durable_s=5.0)
    mean_s, interval_s, until_s = 400.0, 60.0, 200_000.0
    random = np.random.default_rng(3)
    times = exponential(random, replicas=20, gpus=1, mean_s=mean_s, until_s=until_s)
    useful = useful_part(times, until_s, interval_s, saving, Recovering(down_s=7.0), rng=random)
    for replica, part in zip(times, useful, strict=True):
        strikes = list(replica[np.isfinite(replica)])
        work_s = np.array([part * until_s])
        took = finished_s(strikes, [RESTART] * len(strikes), work_s, np.array([interval_s]), saving)
        assert took[0] == pytest.approx(until_s, rel=1e-3)


DOWN_S, STEP_S, STEPS = 4.5, 0.5, 80
STRIKES = {0: [12.3, 30.1], 1: [25.7]}
"""By repeat."""


def struck_study(
    *,
    slower: float = 1.0,
    off_s: float = 0.0,
    late_s: float = 0.0,
    history: str = "exponential mean_s=36",
) -> Made:
    """Two repeats that failures of `history` struck, and what other runs cost, as the model has it.

    Steps and recoveries of the struck runs are `slower`, and each of their walls is `off_s` off. The last step of each run takes `late_s` longer than others.
    """
    study = Made()
    study.rows["strategies"][0].update(slowdown_s=0.0, slowdown_s_lo=0.0, slowdown_s_hi=0.0)
    known = setup(history="listed name=costs")
    checked = setup(history=history)
    for repeat, strikes in STRIKES.items():
        baseline, costs, run = f"never{repeat}", f"costs{repeat}", f"struck{repeat}"
        study.run(setup(interval="never", format="none"), baseline)
        study.run(known, costs)
        study.failure(costs, detection_s=DOWN_S, import_s=0.0, launch_s=0.1)
        study.run(checked, run)
        for second in strikes:
            study.failure(run, second=second, detection_s=99.0, launch_s=0.1)
        work_s = np.array([STEPS * STEP_S * slower + late_s])
        lost = Lost(
            down_s=np.array([(DOWN_S + 0.1) * slower]),
            pause_s=np.zeros(1),
            survived=np.array([False]),
        )
        saving = Saving(stall_s=0.2, durable_s=0.3)
        wall_s = finished_s(strikes, [lost] * len(strikes), work_s, work_s / STEPS * 10, saving)[0]
        for name, took_s, own in ((baseline, STEPS * STEP_S + late_s, 1.0), (costs, 60.0, 1.0), (run, wall_s + off_s, slower)):  # fmt: skip
            row = next(each for each in study.rows["runs"] if each["run"] == name)
            row.update(wall_s=took_s, baseline=baseline, steps=STEPS, timing_valid=True)
            study.rows["steps"] = [each for each in study.rows["steps"] if each["run"] != name]
            study.rows["steps"] += [{"run": name, "rank": 0, "step": step, "duration_s": STEP_S * own + (late_s if step == STEPS - 1 else 0.0), "warmup": False} for step in range(STEPS)]  # fmt: skip
    study.rows["goodput"].append({**checked, "repeats": 2, "paired_repeats": 2, "failures": 1.5, "failures_per_hour": 100.0, "goodput": 0.7})  # fmt: skip
    return study


@pytest.mark.parametrize("slower", [1.0, 1.5])
def test_a_study_in_which_the_model_is_true_holds_at_any_speed_of_the_machine(slower: float) -> None:  # fmt: skip
    (row,) = validation(struck_study(slower=slower).tables()).to_dict("records")
    assert row["predicted"] == pytest.approx(row["measured"])
    assert row["predicted_lo"] < row["predicted"] < row["predicted_hi"]
    assert row["holds"]
    assert (row["failures"], row["repeats"], row["interval_steps"]) == (3, 2, 10)
    assert row["fine_from_steps"] < row["best_steps"] < row["fine_to_steps"]


def test_the_best_interval_has_fewer_of_steps_that_a_strategy_makes_longer() -> None:
    """The run is predicted at its own speed, which has them already."""
    study = struck_study()
    study.rows["overhead"].append(overhead_of((0.53, 0.5, 0.6), (0.02, 0.015, 0.05)))
    (usual,), (slower,) = (
        validation(each.tables()).to_dict("records") for each in (struck_study(), study)
    )
    assert slower["best_steps"] == pytest.approx(usual["best_steps"] / 1.5, rel=0.1)
    assert slower["predicted"] == usual["predicted"]


def test_steps_that_take_longer_than_most_are_work_too() -> None:
    (row,) = validation(struck_study(late_s=6.0).tables()).to_dict("records")
    assert row["predicted"] == pytest.approx(row["measured"])
    assert row["measured"] > 1.05 * validation(struck_study().tables())["measured"].item()


@pytest.mark.parametrize(
    ("history", "rows"),
    [
        ("exponential mean_s=36 of=node", 1),
        ("weibull", 1),
        ("exponential kind=hang lasts_s=9", 0),
        ("listed name=twice", 0),
    ],
)
def test_failures_are_predicted_that_cost_what_killed_ranks_do(history: str, rows: int) -> None:
    assert len(validation(struck_study(history=history).tables())) == rows


@pytest.mark.parametrize(("measured_at", "expected"), [("s10", 0.9), ("s80", 0.2)])
def test_a_checkpoint_costs_what_it_does_at_the_nearest_interval_that_was_measured(
    measured_at: str, expected: float
) -> None:
    study = struck_study()
    study.rows["strategies"][0]["interval"] = "s11"
    study.rows["strategies"].append({**study.rows["strategies"][0], "interval": measured_at, "stall_s": 0.9, "durable_s": 0.9})  # fmt: skip
    (row,) = validation(study.tables()).to_dict("records")
    other = struck_study()
    other.rows["strategies"][0].update(stall_s=expected, durable_s=max(0.3, expected))
    (wanted,) = validation(other.tables()).to_dict("records")
    assert row["predicted"] == pytest.approx(wanted["predicted"])


def test_runs_differ_by_more_than_from_the_mean_of_few() -> None:
    """Of n runs, the mean takes part of the difference with it."""
    random = np.random.default_rng(1)
    setups = [Seen(np.exp(random.normal(0.0, 0.1, 2)), np.ones(1)) for _ in range(2000)]
    assert run_spread(setups).std() == pytest.approx(0.1, rel=0.05)
    assert run_spread([Seen(np.array([3.0]), np.ones(1))]).tolist() == [0.0]


def test_events_are_held_against_the_mean_of_their_run() -> None:
    seen = Seen.of(pd.Series([1.0, 3.0, 10.0]), pd.Series(["a", "a", "b"]))
    assert seen.runs.tolist() == [2.0, 10.0]
    assert seen.events.tolist() == [0.5, 1.5, 1.0]
    assert seen.mean == 6


@pytest.mark.parametrize("blocking", [True, False])
def test_checkpoints_cost_what_they_did_in_other_runs_the_first_ones_too(blocking: bool) -> None:
    """A decision for a long training leaves the first ones out."""
    study, other = struck_study(), struck_study()
    durable_s = 0.2 if blocking else 0.6
    for own in (study, other):
        own.rows["strategies"][0].update(durable_s=durable_s, durable_s_lo=math.nan, durable_s_hi=math.nan)  # fmt: skip
    for run in ("costs0", "costs1"):
        for place, stall_s in enumerate((0.9, 0.3, 0.3)):
            study.rows["checkpoints"] += [{"run": run, "rank": rank, "step": 10 * place, "stall_s": stall_s - 0.1 * rank, "save_hold_s": 3.0} for rank in (0, 1)]  # fmt: skip
    other.rows["strategies"][0].update(stall_s=0.5, durable_s=0.5 if blocking else 0.6)
    (row,), (wanted,) = (validation(own.tables()).to_dict("records") for own in (study, other))
    assert row["predicted"] == pytest.approx(wanted["predicted"])


@pytest.mark.parametrize("longer_s", [0.0, 0.4])
def test_what_steps_beside_a_save_take_longer_is_no_work(longer_s: float) -> None:
    """Four of five steps after a checkpoint begin while it is still written. The slowdown that they have is a cost of it."""
    study = struck_study()
    for row in study.rows["steps"]:
        row["start_ns"] = row["step"] * 10**9
        beside = row["run"].startswith("struck") and 1 <= row["step"] % 10 <= 8
        row["duration_s"] += longer_s * beside
    for run in ("struck0", "struck1"):
        study.rows["checkpoints"] += [{"run": run, "rank": 0, "step": step, "stall_s": math.nan, "save_hold_s": 0.0, "start_ns": step * 10**9 + 1, "ended_s": 8.5} for step in range(0, 80, 10)]  # fmt: skip
    (row,) = validation(study.tables()).to_dict("records")
    assert row["predicted"] == pytest.approx(row["measured"])


def test_time_that_the_model_does_not_know_of_is_seen() -> None:
    (row,) = validation(struck_study(off_s=40.0).tables()).to_dict("records")
    assert row["measured"] < row["predicted_lo"]
    assert not row["holds"]


def test_runs_whose_costs_no_other_run_tells_are_not_predicted() -> None:
    study = struck_study()
    study.rows["failures"] = [row for row in study.rows["failures"] if "struck" in row["run"]]
    assert validation(study.tables()).empty


def test_a_loss_while_all_start_again_has_them_start_anew_though_survivors_could_go_on() -> None:
    """As in the model, the pause of survivors is no such time."""
    assert finished([30.0, 35.0], [RESTART, ELASTIC]) == pytest.approx(35 + 7 + 4 * 22)
    assert finished([30.0, 31.0], ELASTIC) == pytest.approx(116.0)


def test_a_pause_ends_where_all_start_again() -> None:
    """The pause of 60 s is cut short at 45 s: of training there were 30 s, with one version."""
    paused = Lost(down_s=np.array([7.0]), pause_s=np.array([60.0]), survived=np.array([True]))
    assert finished([30.0, 45.0, 60.0], [paused, RESTART, paused]) == pytest.approx(
        45 + 7 + 60 + 4 * 22
    )
    assert finished([30.0, 45.0, 60.0], [paused, RESTART, RESTART]) == pytest.approx(
        60 + 7 + 4 * 22
    )


@pytest.mark.parametrize(("replaces", "rows"), [(True, 1), (False, 0)])
def test_runs_of_survivors_are_predicted_if_they_do_not_stay_fewer(
    replaces: bool, rows: int
) -> None:
    """Else their median step is that of another number of ranks."""
    study = struck_study()
    if replaces:
        study.phase("costs0", attempt=2, launch=1.0)
    for table in ("strategies", "runs", "goodput"):
        for row in study.rows[table]:
            row.update(recovery="ulfm", recovery_name="ulfm")
    for row in study.rows["failures"]:
        row.update(launch_s=0.0, import_s=0.0, ranks_after=1)
    assert len(validation(study.tables())) == rows


def test_a_baseline_that_was_continued_is_no_work() -> None:
    study = struck_study()
    baseline = next(row for row in study.rows["runs"] if row["run"] == "never1")
    baseline.update(timing_valid=False, wall_s=3600.0)
    (row,) = validation(study.tables()).to_dict("records")
    assert row["failures"] == len(STRIKES[0])
    assert row["predicted"] == pytest.approx(row["measured"])


def test_one_measured_recovery_predicts_nothing() -> None:
    study = struck_study()
    study.rows["failures"] = [row for row in study.rows["failures"] if row["run"] != "costs1"]
    assert validation(study.tables()).empty
