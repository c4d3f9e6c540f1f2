"""The parts of checkpoints, and the table `timeline`: one typical checkpoint of each setup, on the clock of each rank."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from run_folders import FakeRun, cell

from ckptbench.analysis.collect.runs import collect
from ckptbench.analysis.cost.timeline import parts_of
from ckptbench.analysis.derive import derive
from ckptbench.matrix.plugin_spec import PluginSpec


def timeline(folder: Path, *runs: FakeRun) -> pd.DataFrame:
    return derive(collect([run.write(folder) for run in runs]))["timeline"]


def spans(rows: pd.DataFrame, rank: int = 0) -> list[tuple[str, int, float, float]]:
    of_rank = rows[rows["rank"] == rank]
    columns = ["kind", "of_step", "start_s", "end_s"]
    return [
        (kind, of_step, round(start_s, 6), round(end_s, 6))
        for kind, of_step, start_s, end_s in of_rank[columns].to_numpy(dtype=object)
    ]


def test_a_blocking_save_lies_between_its_steps_and_removal_goes_on_behind_them(
    tmp_path: Path,
) -> None:
    run = FakeRun(
        cell=cell("s5", ranks=2, epochs=1), stall_s=lambda rank, step: 1.6, removal_s=0.15
    )
    rows = timeline(tmp_path, run)

    assert rows["step"].unique().tolist() == [5]  # the one of step 10 ends the epoch
    assert spans(rows) == [
        ("step", 5, -0.1, 0.0),
        ("write", 5, 0.0, 0.8),
        ("capture", 5, 0.0, 1.6),
        ("save", 5, 0.0, 1.6),
        ("sync", 5, 0.8, 1.1),
        ("checksum", 5, 1.1, 1.2),
        ("commit", 5, 1.2, 1.4),
        ("step", 6, 1.6, 1.7),
        ("removal", 5, 1.6, 1.75),
        ("step", 7, 1.7, 1.8),
    ]
    kinds = [kind for kind, *_ in spans(rows, rank=1)]
    assert kinds == ["step", "write", "capture", "save", "step", "step"]


def test_a_save_behind_training_ends_while_steps_go_on_and_the_next_one_is_there_too(
    tmp_path: Path,
) -> None:
    run = FakeRun(
        cell=cell("s2", epochs=1, strategy=PluginSpec("async"), format="safetensors"),
        stall_s=lambda rank, step: 0.05,
        durable_s=0.14,
        hold_s={"save": 0.03},
    )
    rows = timeline(tmp_path, run)
    shown = int(rows["step"].iloc[0])
    at = {(kind, of_step): (start, end) for kind, of_step, start, end in spans(rows)}
    assert at["capture", shown] == at["save", shown] == (0.0, 0.05)
    assert at["hold", shown] == (0.05, 0.08)
    assert at["commit", shown] == (0.12, 0.14)
    # After the commit at 0.14 s: step 2 from 0.18 s to the next save, which ends in time, and half of it is cut.
    assert at["step", shown + 2] == (0.18, 0.28)
    assert at["save", shown + 2] == (0.28, 0.33)
    assert at["step", shown + 3] == (0.36, 0.46)
    assert rows["end_s"].max() == pytest.approx(0.46)
    assert rows[rows["kind"] == "hold"]["why"].unique().tolist() == ["save"]
    assert set(rows[rows["kind"].isin(["write", "sync"])]["level"]) == {"shared"}


def test_the_typical_checkpoint_has_the_median_stall_of_the_steady_state(tmp_path: Path) -> None:
    stalls_s = {2: 9.0, 4: 9.0, 6: 0.5, 8: 0.1, 10: 0.3, 12: 0.2, 14: 0.4, 16: 0.6}
    run = FakeRun(
        cell=cell("s2", epochs=1),
        steps_per_epoch=20,
        keep=1,
        stall_s=lambda rank, step: stalls_s.get(step, 0.35),
    )
    found = timeline(tmp_path, run)
    # Of 0.1, 0.2, 0.3, 0.35, 0.35, 0.4, 0.5, 0.6 the lower median is one of 0.35; the last of these ends the epoch.
    assert found["step"].unique().tolist() == [18]


def test_a_checkpoint_at_the_end_of_its_epoch_is_shown_where_there_is_no_other(
    tmp_path: Path,
) -> None:
    rows = timeline(tmp_path, FakeRun(cell=cell(), stall_s=lambda rank, step: 1.6))
    assert rows["step"].unique().tolist() == [10]
    assert [of_step for kind, of_step, *_ in spans(rows) if kind == "step"] == [10]
    assert rows["end_s"].max() == pytest.approx(1.4)  # the commit: evaluation follows


def test_of_several_levels_a_checkpoint_that_went_to_the_most_is_shown(tmp_path: Path) -> None:
    stalls_s = {2: 0.1, 4: 0.2, 6: 0.3, 8: 0.4}
    run = FakeRun(cell=cell("s2", epochs=1), stall_s=lambda rank, step: stalls_s.get(step, 0.5))
    collected = collect([run.write(tmp_path)])
    assert derive(collected)["timeline"]["step"].unique().tolist() == [6]
    checkpoints = collected["checkpoints"]
    for place in checkpoints.index[checkpoints["step"].isin([2, 8])]:
        parts = json.loads(checkpoints.loc[place, "parts"])
        near = [[kind, why, "memory", *at] for kind, why, level, *at in parts if level]
        checkpoints.loc[place, "parts"] = json.dumps(parts + near)
    assert derive(collected)["timeline"]["step"].unique().tolist() == [2]


def test_the_clocks_of_two_hosts_are_never_compared(tmp_path: Path) -> None:
    """Rank 1, whose clock is far behind, commits last."""
    run = FakeRun(
        cell=cell("s5", ranks=2, epochs=1), stall_s=lambda rank, step: 0.5 + rank, levels=("memory",),
        is_spread=True,
    )  # fmt: skip
    collected = collect([run.write(tmp_path)])
    expected = derive(collected)["timeline"]
    for table in ("steps", "epochs", "evaluations", "checkpoints"):
        rows = collected[table].copy()
        clocks = [name for name in rows.columns if name.endswith("_ns")]
        rows.loc[rows["rank"] == 1, clocks] -= 10**15
        collected[table] = rows
    pd.testing.assert_frame_equal(derive(collected)["timeline"], expected)


def test_a_span_of_every_event_of_a_checkpoint_is_collected(tmp_path: Path) -> None:
    run = FakeRun(
        cell=cell("s5", epochs=1),
        stall_s=lambda rank, step: 1.6,
        removal_s=0.4,
        hold_s={"update": 0.1, "save": 0.2},
    )
    found = parts_of(collect([run.write(tmp_path)])["checkpoints"])
    first = found[found["step"] == 5]
    lengths_s = (first["end_ns"] - first["start_ns"]) / 1e9
    by_kind = dict(zip(first["kind"] + first["why"], lengths_s, strict=True))
    assert by_kind == pytest.approx(
        {
            "save": 1.6, "capture": 1.6, "write": 0.8, "sync": 0.3, "checksum": 0.1, "commit": 0.2,
            "removal": 0.4, "holdupdate": 0.1, "holdsave": 0.2,
        }
    )  # fmt: skip


def test_each_level_is_written_and_committed_after_the_nearer_one(tmp_path: Path) -> None:
    own = PluginSpec("deepfreeze", (("memory", 1), ("node", 1)))
    run = FakeRun(
        cell=cell("s5", epochs=1, strategy=own, format="safetensors"),
        stall_s=lambda rank, step: 0.05,
        durable_s=0.14,
        levels=("memory", "node", "shared"),
        lag_s=0.05,
    )
    found = parts_of(collect([run.write(tmp_path)])["checkpoints"])
    save = found[(found["step"] == 5) & (found["kind"] == "save")].iloc[0]
    parts = found[(found["step"] == 5) & found["kind"].isin(["write", "sync", "commit"])]
    at_s = {
        (row["level"], row["kind"]): tuple(
            round((row[end] - save["start_ns"]) / 1e9, 3) for end in ("start_ns", "end_ns")
        )
        for row in parts.to_dict("records")
    }
    assert at_s == {
        ("memory", "write"): (0.0, 0.08),
        ("memory", "sync"): (0.08, 0.11),
        ("memory", "commit"): (0.12, 0.14),
        ("node", "write"): (0.08, 0.13),
        ("node", "sync"): (0.14, 0.16),
        ("node", "commit"): (0.17, 0.19),
        ("shared", "write"): (0.13, 0.18),
        ("shared", "sync"): (0.19, 0.21),
        ("shared", "commit"): (0.22, 0.24),
    }


def test_evaluation_behind_which_a_save_goes_on_is_a_span(tmp_path: Path) -> None:
    run = FakeRun(
        cell=cell("e1", strategy=PluginSpec("async"), format="safetensors"),
        stall_s=lambda rank, step: 0.05,
        durable_s=0.9,
    )
    rows = timeline(tmp_path, run)
    assert rows["step"].unique().tolist() == [10]
    assert [span for span in spans(rows) if span[0] == "evaluation"] == [
        ("evaluation", 10, 0.05, 0.9)
    ]


def test_without_two_steps_after_the_commit_a_checkpoint_with_one_is_shown(tmp_path: Path) -> None:
    """The commit of step 4 is while step 8 computes, that of step 8 while the last one does."""
    run = FakeRun(
        cell=cell("s4", epochs=1, strategy=PluginSpec("async"), format="safetensors"),
        steps_per_epoch=9,
        stall_s=lambda rank, step: 0.05 if step == 4 else 0.04,
        durable_s=0.38,
    )
    rows = timeline(tmp_path, run)
    assert rows["step"].unique().tolist() == [4]
    commit = rows[(rows["kind"] == "commit") & (rows["of_step"] == 4)].iloc[0]
    later = rows[(rows["kind"] == "step") & (rows["start_s"] > commit["end_s"])]
    assert later["of_step"].tolist() == [9]
