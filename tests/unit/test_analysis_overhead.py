"""Overhead: runs whose cost is known in closed form give exactly that cost, by both estimates."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from run_folders import HOST, ByRankAndStep, FakeRun, cell

from ckptbench.analysis.collect.runs import collect
from ckptbench.analysis.cost.estimates import estimate_to_quote
from ckptbench.analysis.cost.overhead import overhead
from ckptbench.analysis.cost.scaling import scaling
from ckptbench.analysis.cost.statistics import Estimate, Interval
from ckptbench.matrix.plugin_spec import PluginSpec

ESTIMATES = ["paired", "paired_lo", "paired_hi", "in_run", "in_run_lo", "in_run_hi"]


def table(folder: Path, *runs: FakeRun) -> pd.DataFrame:
    return overhead(collect([run.write(folder) for run in runs]))


def only_row(folder: Path, *runs: FakeRun) -> pd.Series[Any]:
    rows = table(folder, *runs)
    assert len(rows) == 1
    return rows.iloc[0]


def with_baseline(interval: str = "e1", repeat: int = 0, **fields: Any) -> list[FakeRun]:
    """A run and its baseline, otherwise alike."""
    sizes = {name: fields.pop(name) for name in ("ranks", "epochs") if name in fields}
    return [
        FakeRun(cell=cell(which, repeat=repeat, **sizes), **fields) for which in (interval, "never")
    ]


def test_half_a_second_in_every_epoch_of_ten_steps_of_a_tenth_costs_half(tmp_path: Path) -> None:
    row = only_row(tmp_path, *with_baseline(), *with_baseline(repeat=1))

    assert row[ESTIMATES].tolist() == pytest.approx([0.5] * 6)
    assert (row["repeats"], row["paired_repeats"], row["checkpoints"]) == (2, 2, 4)
    assert row[["time_s", "baseline_s"]].tolist() == pytest.approx([3.0, 2.0])
    assert row["agree"]
    assert row["note"] == ""


def test_the_wait_of_the_next_save_counts_as_overhead_though_not_as_stall(tmp_path: Path) -> None:
    row = only_row(tmp_path, *with_baseline(hold_s={"save": 0.25}))
    assert row["in_run"] == pytest.approx(0.75)


def test_the_slowest_rank_counts(tmp_path: Path) -> None:
    def stall_s(rank: int, step: int) -> float:
        return (0.5, 0.7)[rank]

    row = only_row(tmp_path, *with_baseline(ranks=2, stall_s=stall_s))
    assert row[["paired", "in_run"]].tolist() == pytest.approx([0.7, 0.7])


def test_warm_up_steps_and_their_checkpoints_are_left_out(tmp_path: Path) -> None:
    def step_s(rank: int, step: int) -> float:
        return 100.0 if step < 4 else 0.1

    row = only_row(tmp_path, *with_baseline("s2", step_s=step_s, warmup_steps=4))

    # 16 steps of 0.1 s are left, and the 9 checkpoints after steps 4, 6, ... 20.
    assert row["checkpoints"] == 9
    assert row["baseline_s"] == pytest.approx(1.6)
    assert row[["paired", "in_run"]].tolist() == pytest.approx([4.5 / 1.6] * 2)


def test_slower_steps_during_a_background_save_are_its_cost(tmp_path: Path) -> None:
    def step_s(rank: int, step: int) -> float:
        return 0.3 if step in {10, 11} else 0.1

    # The save after step 10 stalls for 0.1 s, and goes on until 0.65 s: steps 10 and 11 begin before that.
    run, baseline = (
        FakeRun(cell=cell(which, epochs=3), evaluates=False, **fields)
        for which, fields in (
            ("s10", {"step_s": step_s, "stall_s": lambda rank, step: 0.1, "durable_s": 0.65}),
            ("never", {}),
        )
    )
    row = only_row(tmp_path, run, baseline)

    # After step 20 six steps of 0.1 s begin during the save, none of them slower; after 30 there are none.
    assert row[["paired", "in_run"]].tolist() == pytest.approx([0.7 / 3.0] * 2)


def test_the_wait_of_the_update_for_the_capture_counts_once(tmp_path: Path) -> None:
    """It is a part of the stall, and lies in a step beside the save."""
    fields: dict[str, Any] = {"stall_s": lambda rank, step: 0.1, "durable_s": 0.65}
    run, baseline = (
        FakeRun(cell=cell(which, epochs=3), evaluates=False, hold_s={"update": 0.05}, **fields)
        for which in ("s8", "never")
    )
    row = only_row(tmp_path, run, baseline)
    assert row[["paired", "in_run"]].tolist() == pytest.approx([3 * 0.15 / 3.0] * 2)


def test_slower_steps_during_a_removal_of_old_versions_are_a_cost_of_checkpoints(
    tmp_path: Path,
) -> None:
    def step_s(rank: int, step: int) -> float:
        return 0.3 if step == 10 else 0.1

    run = FakeRun(
        cell=cell("s10", epochs=3),
        step_s=step_s,
        stall_s=lambda rank, step: 0.1,
        removal_s=0.05,
        evaluates=False,
    )
    row = only_row(tmp_path, run)
    # After step 20 a step of 0.1 s begins during the removal, and is not slower; after 30 there is none.
    assert row["in_run"] == pytest.approx(0.5 / 3.0)


def test_the_steady_state_is_what_every_checkpoint_would_cost_in_a_long_training(
    tmp_path: Path,
) -> None:
    def stall_s(rank: int, step: int) -> float:
        return 0.8 if step <= 10 else 0.2

    runs = [FakeRun(cell=cell("s5", repeat=repeat), stall_s=stall_s, keep=1) for repeat in range(2)]
    row = only_row(tmp_path, *runs)
    # Two checkpoints of 0.8 s, then two of 0.2 s, in 20 steps of 0.1 s.
    assert row["in_run"] == pytest.approx(2.0 / 2.0)
    steady = row[["in_run_steady", "in_run_steady_lo", "in_run_steady_hi"]]
    assert steady.tolist() == pytest.approx([4 * 0.2 / 2.0] * 3)


def test_where_no_step_is_outside_a_save_nothing_is_estimated_from_inside(tmp_path: Path) -> None:
    run = FakeRun(cell=cell("s1"), durable_s=100.0, warmup_steps=1)
    row = only_row(tmp_path, run)
    assert np.isnan(row["in_run"])
    assert "every step lies inside a background save" in row["note"]


def test_time_lost_where_no_checkpoint_is_makes_the_estimates_disagree(tmp_path: Path) -> None:
    runs = [
        FakeRun(cell=cell(which, repeat=repeat, epochs=4), step_s=lambda rank, step, s=seconds: s)
        for which, seconds in (("e1", 0.2), ("never", 0.1))
        for repeat in range(3)
    ]
    row = only_row(tmp_path, *runs)

    assert row[["paired", "in_run"]].tolist() == pytest.approx([1.5, 0.25])
    assert not row["agree"]
    assert row["note"] == (
        "the estimates disagree: 150.0% [150.0%, 150.0%] against the baseline, which counts, "
        "25.0% [25.0%, 25.0%] from inside the run"
    )


def test_noise_widens_both_intervals_around_the_estimates(tmp_path: Path) -> None:
    random = np.random.default_rng(0)

    def noisy(mean: float) -> ByRankAndStep:
        return lambda rank, step: float(mean * random.uniform(0.8, 1.2))

    runs = [
        run
        for repeat in range(3)
        for run in with_baseline(repeat=repeat, epochs=8, step_s=noisy(0.1), stall_s=noisy(0.5))
    ]
    row = only_row(tmp_path, *runs)

    for name in ("paired", "in_run"):
        assert row[f"{name}_lo"] < row[name] < row[f"{name}_hi"]
        assert row[f"{name}_lo"] < 0.5 < row[f"{name}_hi"]
    assert row["agree"]


def of_different_speed(repeat: int, interval: str = "e1", **fields: Any) -> list[FakeRun]:
    """A run, whose steps are the slower the later its repeat, and its baseline."""
    steps = {interval: 0.1 * (1 + repeat / 50), "never": 0.1}
    return [
        FakeRun(
            cell=cell(which, repeat=repeat, **(fields if which == interval else {})),
            step_s=lambda rank, step, s=seconds: s,
        )
        for which, seconds in steps.items()
    ]


def test_the_setups_of_a_study_share_what_is_known_of_its_runs_and_nothing_else(
    tmp_path: Path,
) -> None:
    runs = [run for repeat in range(2) for run in of_different_speed(repeat)]
    # It shares the baselines, and of what it lost its runs differ less.
    other = [of_different_speed(repeat, "s5", format="hdf5")[0] for repeat in range(2)]
    alone = table(tmp_path / "a", *runs)
    beside = table(tmp_path / "b", *runs, *other)
    beside = beside[beside["interval"] == "e1"].reset_index(drop=True)
    ends = [f"{name}_{end}" for name in ("paired", "in_run", "overhead") for end in ("lo", "hi")]
    pd.testing.assert_frame_equal(alone.drop(columns=ends), beside.drop(columns=ends))
    for estimate in ("paired", "in_run"):
        assert alone.loc[0, f"{estimate}_lo"] < beside.loc[0, f"{estimate}_lo"]
        assert alone.loc[0, f"{estimate}_hi"] > beside.loc[0, f"{estimate}_hi"]


def test_two_repeats_alone_have_the_wide_interval_of_one_degree_of_freedom(tmp_path: Path) -> None:
    row = only_row(tmp_path, *of_different_speed(0), *of_different_speed(1))
    # Times of 3.0 and 3.04 s against 2 s: their logarithms differ by log(3.04 / 3).
    half = 12.7062 * np.log(3.04 / 3.0) / 2
    assert row["paired"] == pytest.approx(0.51)
    assert row["paired_hi"] == pytest.approx(1.51 * np.exp(half) - 1, rel=1e-4)
    assert row["paired_lo"] == pytest.approx(1.51 * np.exp(-half) - 1, rel=1e-4)


def test_a_run_that_lost_no_time_in_a_background_save_has_an_interval(tmp_path: Path) -> None:
    def saved(repeat: int, later_s: float) -> FakeRun:
        """Saves after step 10 in the background: the steps during the save take `later_s`."""

        def step_s(rank: int, step: int) -> float:
            return later_s if step in {10, 11} else 0.1

        own = cell("s10", repeat=repeat, epochs=3)
        return FakeRun(
            cell=own, evaluates=False, step_s=step_s, stall_s=lambda rank, step: 0.0, durable_s=0.25
        )

    row = only_row(tmp_path, saved(0, 0.1), saved(1, 0.08))
    assert row["in_run_lo"] < row["in_run"] < 0 < row["in_run_hi"]


def test_without_a_baseline_there_is_no_paired_estimate_and_a_note(tmp_path: Path) -> None:
    row = only_row(tmp_path, FakeRun(cell=cell()), FakeRun(cell=cell("never", repeat=1)))
    assert row[["paired", "paired_lo", "baseline_s"]].isna().all()
    assert row["in_run"] == pytest.approx(0.5)
    assert pd.isna(row["agree"])
    assert "no baseline of the same repeat" in row["note"]


def test_one_repeat_says_so(tmp_path: Path) -> None:
    row = only_row(tmp_path, *with_baseline())
    assert row["repeats"] == 1
    assert row[["paired_lo", "paired_hi", "in_run_lo", "in_run_hi"]].isna().all()
    assert pd.isna(row["agree"])
    assert row["note"] == "one repeat: no interval, as nothing shows how far its runs would differ"


def test_one_repeat_beside_a_repeated_setup_has_the_spread_of_that(tmp_path: Path) -> None:
    repeated = [run for repeat in range(3) for run in of_different_speed(repeat)]
    once = of_different_speed(0, "s5", format="hdf5")[0]
    rows = table(tmp_path, *repeated, once)
    once_row = rows[rows["interval"] == "s5"].iloc[0]
    assert once_row["paired_lo"] < once_row["paired"] < once_row["paired_hi"]
    assert once_row["note"] == (
        "one repeat: the intervals take its runs to differ as much as those of the other setups"
    )


def test_a_resumed_run_is_in_no_estimate(tmp_path: Path) -> None:
    resumed = FakeRun(cell=cell(repeat=1), attempts=2, step_s=lambda rank, step: 9.0)
    row = only_row(tmp_path, *with_baseline(), resumed)
    assert row["repeats"] == 1
    assert row["paired"] == pytest.approx(0.5)


def test_a_baseline_from_another_machine_is_noted(tmp_path: Path) -> None:
    elsewhere = {"host": {**HOST, "host": "node2"}}
    run, baseline = FakeRun(cell=cell()), FakeRun(cell=cell("never"), manifest=elsewhere)
    assert "another machine" in only_row(tmp_path, run, baseline)["note"]


def test_a_gpu_is_never_paired_with_a_cpu(tmp_path: Path) -> None:
    on_gpu = FakeRun(cell=cell(), manifest={"measured_on": "gpu", "device": "V100"})
    row = only_row(tmp_path, on_gpu, FakeRun(cell=cell("never")))
    assert row["measured_on"] == "gpu"
    assert row["paired_repeats"] == 0


def test_a_run_with_an_elastic_recovery_is_paired_with_the_baseline_that_has_it(
    tmp_path: Path,
) -> None:
    elastic = {"recovery": PluginSpec("ulfm"), "ranks": 2}
    runs = [
        FakeRun(cell=cell("e1", ranks=2)),
        FakeRun(cell=cell("never", **elastic), step_s=lambda rank, step: 0.2),
        FakeRun(cell=cell("e1", **elastic), step_s=lambda rank, step: 0.2),
        FakeRun(cell=cell("never", ranks=2)),
    ]
    tables = collect([run.write(tmp_path) for run in runs])
    paired = overhead(tables).set_index("recovery")["paired"]
    assert paired.to_dict() == pytest.approx({"restart": 0.5, "ulfm": 0.25})
    # A step of 0.1 s of two ranks with eight images each: the baseline with an elastic recovery does not count.
    assert scaling(tables)["samples_per_s"].to_list() == pytest.approx([160.0])


@pytest.mark.parametrize(
    ("against_baseline", "inside", "told_by"),
    [
        ((0.3, 0.1, 0.5), (0.28, 0.27, 0.29), "in_run"),
        ((0.2, -0.3, 0.9), (0.275, 0.17, 0.45), "in_run"),
        ((-0.2, -0.3, -0.1), (0.01, 0.0, 0.02), "paired"),
        ((0.01, -0.02, 0.04), (0.03, -0.1, 0.2), "in_run"),
        ((0.5, 0.4, 0.6), (0.28, 0.27, 0.29), "paired"),
        ((0.01, -0.02, 0.04), (math.nan, math.nan, math.nan), "paired"),
        ((math.nan, math.nan, math.nan), (0.1, 0.05, 0.2), "in_run"),
        ((0.3, math.nan, math.nan), (0.28, 0.27, 0.29), "in_run"),
        ((0.3, math.nan, math.nan), (0.28, math.nan, math.nan), "in_run"),
        ((0.3, math.nan, math.nan), (math.nan, math.nan, math.nan), "paired"),
        ((0.3, 0.1, 0.5), (0.28, math.nan, math.nan), "paired"),
        ((math.nan, math.nan, math.nan), (0.28, math.nan, math.nan), "in_run"),
    ],
)
def test_the_estimate_from_inside_the_run_leads_unless_the_two_contradict_each_other(
    against_baseline: tuple[float, ...], inside: tuple[float, ...], told_by: str
) -> None:
    known = [Estimate(value, Interval(lo, hi)) for value, lo, hi in (against_baseline, inside)]
    assert estimate_to_quote(*known) == told_by


def test_what_noise_hides_from_the_baseline_is_told_from_inside_the_run(tmp_path: Path) -> None:
    """Baselines differ by as much as the checkpoints cost, and the stalls of the runs are alike."""
    runs = [
        run
        for repeat, seconds in enumerate((0.06, 0.1, 0.16))
        for run in (
            FakeRun(cell=cell(repeat=repeat)),
            FakeRun(cell=cell("never", repeat=repeat), step_s=lambda rank, step, s=seconds: s),
        )
    ]
    row = only_row(tmp_path, *runs)
    assert row["paired_lo"] < 0 < row["paired_hi"]
    assert row["overhead_from"] == "in_run"
    assert row[["overhead", "overhead_lo", "overhead_hi"]].tolist() == row[["in_run", "in_run_lo", "in_run_hi"]].tolist()  # fmt: skip
