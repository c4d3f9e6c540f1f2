"""The table `strategies`: what a checkpoint of each strategy costs, from runs whose answers are known."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from run_folders import FakeRun, Kill, cell

from ckptbench.analysis.collect.runs import collect
from ckptbench.analysis.derive import derive
from ckptbench.matrix.plugin_spec import PluginSpec


def tables(folder: Path, *runs: FakeRun) -> dict[str, pd.DataFrame]:
    return derive(collect([run.write(folder) for run in runs]))


def in_background(repeat: int, **fields: Any) -> FakeRun:
    """Steps of 0.1 s, and of 0.15 s until a save is written, six steps later; the stall of a checkpoint is 0.05 s."""
    whole = cell("s10", strategy=PluginSpec("async"), format="safetensors", epochs=1, repeat=repeat)
    usual: dict[str, Any] = {
        "cell": whole,
        "steps_per_epoch": 40,
        "step_s": lambda rank, step: 0.15 if step >= 10 and step % 10 < 6 else 0.1,
        "stall_s": lambda rank, step: 0.05,
        "durable_s": 0.9,
    }
    return FakeRun(**{**usual, **fields})


def baseline(repeat: int) -> FakeRun:
    return FakeRun(cell=cell("never", epochs=1, repeat=repeat), steps_per_epoch=40)


def test_a_strategy_has_its_stall_slowdown_and_durable_time_for_one_checkpoint(
    tmp_path: Path,
) -> None:
    runs = [run(repeat) for repeat in range(2) for run in (in_background, baseline)]
    (row,) = tables(tmp_path, *runs)["strategies"].to_dict("records")
    assert (row["strategy"], row["runs"], row["checkpoints"]) == ("async", 2, 8)
    assert row["stall_s"] == pytest.approx(0.05)
    # Six steps of each save but the last took 0.05 s longer.
    assert row["slowdown_s"] == pytest.approx(3 * 6 * 0.05 / 4)
    assert row["durable_s"] == pytest.approx(0.9)
    assert row["overhead"] == pytest.approx((4 * 0.05 + 3 * 6 * 0.05) / 4.0)
    for name in ("stall", "slowdown", "durable"):
        assert row[f"{name}_s_lo"] <= row[f"{name}_s"] <= row[f"{name}_s_hi"]
    assert row["overhead_lo"] <= row["overhead"] <= row["overhead_hi"]
    assert (row["bytes"], row["files"]) == (1024, 2)
    assert pd.isna(row["load_s"])
    assert pd.isna(row["consistent"])


def test_where_every_version_reaches_the_shared_level_none_is_durable_at_a_nearer_one(
    tmp_path: Path,
) -> None:
    (row,) = tables(tmp_path, in_background(0), in_background(1))["strategies"].to_dict("records")
    assert pd.notna(row["durable_s"])
    assert pd.isna(row["near_durable_s"])


def test_the_stall_is_a_mean_without_the_wait_of_the_next_save(tmp_path: Path) -> None:
    def stall_s(rank: int, step: int) -> float:
        return 0.35 if step == 40 else 0.05

    waiting = in_background(0, stall_s=stall_s, hold_s={"save": 0.2})
    (row,) = tables(tmp_path, waiting)["strategies"].to_dict("records")
    assert row["stall_s"] == pytest.approx((3 * 0.05 + 0.35) / 4)
    assert row["waited"] == 1.0


def test_a_slowdown_that_differs_as_much_as_it_amounts_to_may_be_none(tmp_path: Path) -> None:
    def run(repeat: int) -> FakeRun:
        slower_s = 0.1 + 0.002 * (repeat + 1)
        return in_background(
            repeat, step_s=lambda rank, step: slower_s if step >= 10 and step % 10 < 6 else 0.1
        )

    (row,) = tables(tmp_path, *map(run, range(3)))["strategies"].to_dict("records")
    assert row["slowdown_s"] == pytest.approx(3 * 6 * 0.004 / 4)
    assert row["slowdown_s_lo"] < 0 < row["slowdown_s"] < row["slowdown_s_hi"]


def test_a_strategy_that_writes_nothing_behind_training_has_no_slowdown(tmp_path: Path) -> None:
    runs = [FakeRun(cell=cell(repeat=repeat)) for repeat in range(2)]
    (row,) = tables(tmp_path, *runs)["strategies"].to_dict("records")
    assert [row[f"slowdown_s{end}"] for end in ("", "_lo", "_hi")] == [0.0, 0.0, 0.0]


def test_only_checkpoints_of_the_steady_state_count_where_every_run_has_some(
    tmp_path: Path,
) -> None:
    def stall_s(rank: int, step: int) -> float:
        return 0.06 if step <= 20 else 0.05

    run = in_background(0, stall_s=stall_s, keep=1)
    (row,) = tables(tmp_path, run)["strategies"].to_dict("records")
    assert (row["checkpoints"], row["stall_s"]) == (2, pytest.approx(0.05))
    assert row["slowdown_s"] == pytest.approx(6 * 0.05 / 2)
    assert pd.isna(row["stall_s_lo"])
    assert row["overhead"] == pytest.approx(0.28)  # from inside the run, as it has no baseline


def test_the_time_to_load_is_that_of_the_warm_restarts_of_the_same_cell(tmp_path: Path) -> None:
    def restarted(load_s: float, **fields: str) -> FakeRun:
        return FakeRun(
            cell=cell(faults=PluginSpec("killed_between"), **fields),
            kills=(Kill(rank=0, step=15),),
            load_s=lambda rank, attempt: load_s,
        )

    cold, without = restarted(7.0, cache="cold"), restarted(9.0, omit="momentum")
    found = tables(tmp_path, FakeRun(cell=cell()), restarted(2.0), cold, without)["strategies"]
    assert found["load_s"].tolist() == [2.0]


def test_a_study_without_checkpoints_has_no_row(tmp_path: Path) -> None:
    assert tables(tmp_path, baseline(0))["strategies"].empty


def test_rows_that_are_compared_are_in_the_order_of_what_they_cost_in_all(tmp_path: Path) -> None:
    """The strategy with the smallest stall makes every step longer, which the baseline shows."""

    def saving(strategy: str, repeat: int, stall_s: float, step_s: float) -> FakeRun:
        return FakeRun(
            cell=cell("s10", strategy=PluginSpec(strategy), format="safetensors", epochs=1, repeat=repeat),
            steps_per_epoch=40,
            step_s=lambda rank, step: step_s,
            stall_s=lambda rank, step: stall_s,
        )  # fmt: skip

    costs = {"async": (0.01, 0.15), "deepfreeze": (0.2, 0.1), "sharded": (0.05, 0.1)}
    runs = [
        run
        for repeat in range(2)
        for run in (*(saving(name, repeat, *own) for name, own in costs.items()), baseline(repeat))
    ]
    found = tables(tmp_path, *runs)["strategies"]
    assert found["strategy"].tolist() == ["sharded", "deepfreeze", "async"]
    assert found["overhead"].tolist() == pytest.approx([0.05, 0.2, 0.51])


MEGABYTE = 1_000_000


def test_a_strategy_that_hardly_takes_memory_does_not_tell_how_far_that_of_others_differs(
    tmp_path: Path,
) -> None:
    def taking(strategy: str, peaks: tuple[float, float]) -> list[FakeRun]:
        return [
            in_background(
                repeat,
                cell=cell("s10", strategy=PluginSpec(strategy), format="safetensors", epochs=1, repeat=repeat),
                memory=lambda when, rank, step, own=own: round(own * MEGABYTE),
            )
            for repeat, own in enumerate(peaks)
        ]  # fmt: skip

    flat = [
        dataclasses.replace(baseline(repeat), memory=lambda when, rank, step: 300 * MEGABYTE)
        for repeat in range(2)
    ]
    runs = [*flat, *taking("async", (500, 502)), *taking("sharded", (301, 305))]
    rows = tables(tmp_path, *runs)["strategies"].set_index("strategy")
    assert rows.loc["async", "memory_bytes"] == 201 * MEGABYTE
    # Student's interval of the two alone is 13 standard errors wide to either side.
    assert rows.loc["async", "memory_bytes_lo"] > 185 * MEGABYTE
    assert rows.loc["sharded", "memory_bytes_hi"] > 10 * MEGABYTE


def with_memory(repeat: int, **fields: Any) -> list[FakeRun]:
    """A run that takes 50 MB more than its baseline on rank 1."""

    def memory(when: str, rank: int, step: int) -> int:
        taken = 50 * rank * (when == "saved")
        return MEGABYTE * (300 + taken)

    cells = [cell(interval, ranks=2, repeat=repeat, epochs=4) for interval in ("s5", "never")]
    flat = FakeRun(cell=cells[1], memory=lambda when, rank, step: 300 * MEGABYTE)
    return [FakeRun(cell=cells[0], memory=memory, **fields), flat]


def test_the_peak_of_memory_is_above_that_of_the_baseline_on_the_rank_that_needs_the_most(
    tmp_path: Path,
) -> None:
    (row,) = tables(tmp_path, *with_memory(0), *with_memory(1))["strategies"].to_dict("records")
    assert row["memory_bytes"] == 50 * MEGABYTE
    assert row["memory_bytes_lo"] <= row["memory_bytes"] <= row["memory_bytes_hi"]


def test_what_a_rank_needs_after_its_last_epoch_does_not_count(tmp_path: Path) -> None:
    """The last save in the background is written when the rank is already at its final digests."""
    run, flat = with_memory(0, peak=lambda when, rank, step: 900 * MEGABYTE * (when == "written"))
    run = dataclasses.replace(run, written_after=True)
    (row,) = tables(tmp_path, run, flat)["strategies"].to_dict("records")
    assert row["memory_bytes"] == 50 * MEGABYTE


def test_what_a_save_takes_and_gives_back_between_two_samples_counts(tmp_path: Path) -> None:
    runs = with_memory(0, peak=lambda when, rank, step: 80 * MEGABYTE * (when == "saved"))
    (row,) = tables(tmp_path, *runs)["strategies"].to_dict("records")
    assert row["memory_bytes"] == 130 * MEGABYTE


def test_without_a_baseline_the_peak_is_unknown(tmp_path: Path) -> None:
    (row,) = tables(tmp_path, with_memory(0)[0])["strategies"].to_dict("records")
    assert pd.isna(row["memory_bytes"])


GPU = {"measured_on": "gpu", "device": "H100"}


def on_gpu(repeat: int, strategy: str, format: str) -> list[FakeRun]:
    """A run that takes 20 MB of the GPU more than its baseline, and has the state on the host after 0.05 s."""
    own = cell("s10", strategy=PluginSpec(strategy), format=format, epochs=1, repeat=repeat)
    run = in_background(repeat, cell=own, manifest=GPU, gpu_peak=520 * MEGABYTE)
    return [run, dataclasses.replace(baseline(repeat), manifest=GPU, gpu_peak=500 * MEGABYTE)]


def test_on_a_gpu_its_memory_and_the_rate_of_copies_to_the_host_are_costs(tmp_path: Path) -> None:
    found = tables(tmp_path, *on_gpu(0, "async", "safetensors"), *on_gpu(1, "async", "safetensors"))
    (row,) = found["strategies"].to_dict("records")
    assert row["gpu_memory_bytes"] == 20 * MEGABYTE
    assert row["to_host_bytes_per_s"] == pytest.approx(1024 / 0.05)
    peaks = found["memory"].set_index("when")["gpu_peak_bytes"]
    assert peaks["epoch"].notna().all()
    assert peaks["saved"].isna().all()


def test_a_blocking_save_copies_while_it_writes_so_its_copy_has_no_rate(tmp_path: Path) -> None:
    (row,) = tables(tmp_path, *on_gpu(0, "native", "torch_save"))["strategies"].to_dict("records")
    assert row["gpu_memory_bytes"] == 20 * MEGABYTE
    assert pd.isna(row["to_host_bytes_per_s"])


def test_on_a_cpu_both_are_missing(tmp_path: Path) -> None:
    (row,) = tables(tmp_path, in_background(0), baseline(0))["strategies"].to_dict("records")
    assert pd.isna(row["gpu_memory_bytes"])
    assert pd.isna(row["to_host_bytes_per_s"])


def test_samples_and_digests_around_saves_are_no_part_of_the_steps(tmp_path: Path) -> None:
    """The step after a checkpoint begins when the pause has ended."""
    raw = collect([FakeRun(cell=cell("s5"), proof=True, pause_s=3.0).write(tmp_path)])
    assert (raw["steps"]["wait_s"] < 0.001).all()


def in_levels(repeat: int, shared: int = 4) -> FakeRun:
    """A run of 8 checkpoints: all to memory, every second to the node 1 s later, few to the shared level after 1 s more."""
    own = PluginSpec("deepfreeze", (("memory", 1), ("node", 2), ("shared", shared)))
    every = {"memory": 1, "node": 2, "shared": shared}
    return in_background(
        repeat,
        cell=cell("s5", strategy=own, format="safetensors", epochs=1, repeat=repeat),
        levels=("memory", "node", "shared"),
        takes=lambda level, step: step // 5 % every[level] == 0,
        lag_s=1.0,
    )


def test_durable_and_bytes_are_of_checkpoints_that_reached_the_shared_level(tmp_path: Path) -> None:
    found = tables(tmp_path, in_levels(0), in_levels(1))
    (row,) = found["strategies"].to_dict("records")
    assert (row["checkpoints"], row["durable_checkpoints"]) == (16, 4)
    assert row["durable_s"] == pytest.approx(2.9)  # to memory it takes 0.9
    assert 0.9 <= row["near_durable_s"] <= 1.9
    (cost,) = found["checkpoint_cost"].to_dict("records")
    assert cost["durable_s"] == pytest.approx(2.9)
    (size,) = found["sizes"].to_dict("records")
    assert (size["versions"], row["bytes"]) == (4, 1024)


def test_without_a_checkpoint_at_the_shared_level_durable_and_bytes_are_unknown(
    tmp_path: Path,
) -> None:
    found = tables(tmp_path, in_levels(0, shared=99), in_levels(1, shared=99))
    (row,) = found["strategies"].to_dict("records")
    assert (row["checkpoints"], row["durable_checkpoints"]) == (16, 0)
    assert row["stall_s"] == pytest.approx(0.05)
    for name in ("durable_s", "durable_s_lo", "durable_s_hi", "bytes", "files"):
        assert pd.isna(row[name])
    assert pd.notna(row["near_durable_s"])
    assert pd.isna(found["checkpoint_cost"]["durable_s"]).all()
    assert found["sizes"].empty


def test_the_overhead_says_how_many_checkpoints_reached_which_level(tmp_path: Path) -> None:
    usual = in_background(0)
    found = tables(tmp_path, in_levels(0), in_levels(1), usual)["overhead"].set_index("strategy")
    said = "memory 16, node 8, shared 4"
    assert found["levels"].tolist() == ["", said]
    note = f"checkpoints by the levels that they reached: {said}"
    assert [note in own for own in found["note"]] == [False, True]


def test_runs_that_were_continued_are_counted_and_not_timed(tmp_path: Path) -> None:
    timed = FakeRun(cell=cell("s5"))
    again = FakeRun(cell=cell("s5", repeat=1), attempts=2)
    alone = FakeRun(cell=cell("s2"), attempts=2)
    killed = FakeRun(
        cell=cell("s5", faults=PluginSpec("killed_between")), kills=(Kill(rank=0, step=8),)
    )
    unwritten = FakeRun(cell=cell("never"), attempts=2)
    found = tables(tmp_path, timed, again, alone, killed, unwritten)
    rows = found["strategies"].set_index("interval")
    assert rows["runs"].to_dict() == {"s5": 1, "s2": 0}
    assert rows["continued"].to_dict() == {"s5": 1, "s2": 1}
    assert rows["checkpoints"].to_dict() == {"s5": 4, "s2": 0}
    assert rows["stall_s"].notna().to_dict() == {"s5": True, "s2": False}
    assert found["provenance"]["continued"].tolist() == [3]


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        ({}, (False, 1)),
        ({"memory": 1, "shared": 6}, (False, 6)),
        ({"memory": 1, "shared": 0}, (False, 0)),
    ],
)
def test_the_options_of_a_strategy_that_costs_depend_on_are_columns(
    tmp_path: Path, options: dict[str, int], facts: tuple[bool, int]
) -> None:
    strategy = PluginSpec("deepfreeze", tuple(sorted(options.items())))
    run = FakeRun(cell=cell(strategy=strategy, format="safetensors"))
    row = tables(tmp_path, run)["strategies"].iloc[0]
    assert tuple(row[["blocking", "shared_every"]]) == facts
    assert (row["strategy"], row["strategy_name"]) == (strategy.label, "deepfreeze")
    assert json.loads(row["strategy_options"]) == options
