"""What training comes out after failures: which samples the final model has seen, and how far it is from the undisturbed one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from elastic_runs import BATCH_SIZE, Elastic, replaced, shrunken
from run_folders import FakeRun
from test_failures_table import killed_once

from ckptbench.analysis.collect.runs import collect
from ckptbench.analysis.cost.goodput import goodput as derived
from ckptbench.analysis.derive import derive

PLANNED = 12 * 3 * BATCH_SIZE


def lineage(run: Elastic) -> dict[str, Any]:
    (row,) = collect([run.end()])["lineage"].to_dict("records")
    return {str(name): value for name, value in row.items()}


def test_where_the_global_batch_is_kept_survivors_see_every_sample_once(tmp_path: Path) -> None:
    row = lineage(shrunken(tmp_path))
    assert (row["planned_samples"], row["seen_once"]) == (PLANNED, PLANNED)
    assert (row["seen_twice"], row["never_seen"], row["undone_samples"]) == (0, 0, 0)
    assert row["mean_ranks"] == pytest.approx((4 * 3 + 8 * 2) / 12)


def test_where_it_shrinks_they_never_see_the_slice_of_the_lost_rank(tmp_path: Path) -> None:
    row = lineage(shrunken(tmp_path, kept=False))
    assert row["never_seen"] == 8 * BATCH_SIZE
    assert row["seen_once"] == PLANNED - 8 * BATCH_SIZE


def test_a_new_rank_sees_its_slice_from_when_it_joins(tmp_path: Path) -> None:
    assert lineage(replaced(tmp_path, kept=False))["never_seen"] == 5 * BATCH_SIZE


def test_steps_that_survivors_go_back_behind_were_computed_in_vain(tmp_path: Path) -> None:
    run = Elastic(tmp_path, kept=False)
    run.steps(0, 5)
    run.strike(2)
    run.regroup([0, 1], step=3, reached={0: 5, 1: 5})
    run.steps(3, 6)
    run.strike(1)
    run.regroup([0], step=5, reached={0: 6})
    run.steps(5, 12)
    row = lineage(run)
    assert row["undone_samples"] == 2 * 3 * BATCH_SIZE + 2 * BATCH_SIZE
    assert row["never_seen"] == 2 * BATCH_SIZE + 7 * 2 * BATCH_SIZE


def test_a_step_that_only_a_lost_rank_had_ended_was_in_vain(tmp_path: Path) -> None:
    run = Elastic(tmp_path)
    run.steps(0, 4)
    run.steps(4, 5, ranks=[0])
    run.strike(0)
    run.regroup([1, 2], step=4, reached={1: 4, 2: 4})
    run.steps(4, 12)
    row = lineage(run)
    assert row["undone_samples"] == 3 * BATCH_SIZE


def test_slices_that_overlap_are_seen_twice(tmp_path: Path) -> None:
    run = shrunken(tmp_path)
    for rank in (1, 2):
        path = run.folder / f"trace-{rank}.jsonl"
        path.write_text(path.read_text().replace('"first":[0,6]', '"first":[0,4]'))
    row = lineage(run)
    assert (row["seen_twice"], row["never_seen"]) == (8 * 2, 8 * 2)


def test_a_restart_computes_in_vain_what_came_after_its_version(tmp_path: Path) -> None:
    (row,) = collect([killed_once(tmp_path).folder])["lineage"].to_dict("records")
    assert row["undone_samples"] == 3 * 8
    assert (row["seen_once"], row["steps"], row["mean_ranks"]) == (80, 10, 1.0)


def test_a_changed_loss_is_told(tmp_path: Path) -> None:
    folders = []
    for repeat in range(2):
        run = shrunken(tmp_path, repeat=repeat)
        reference = FakeRun(
            cell=run.run.cell.reference,
            steps_per_epoch=6,
            loss=lambda rank, step: 1.75 - step / 10 + 0.015,
            evaluates=False,
        )
        folders += [run.end(), reference.write(tmp_path)]
    (row,) = derive(collect(folders))["goodput"].to_dict("records")
    assert (row["repeats"], row["kept"]) == (2, False)


def struck_and_whole(folder: Path) -> tuple[str, dict[str, pd.DataFrame]]:
    """A run that lost ranks, and the tables of it and its undisturbed run: the same losses, and neither was evaluated."""
    run = shrunken(folder)
    whole = FakeRun(cell=run.run.cell.reference, steps_per_epoch=6, evaluates=False)
    collected = collect([run.end(), whole.write(folder)])
    collected["steps"]["loss"] = 0.5
    return run.run.cell.id, {**collected, "evaluations": collected["evaluations"][:0]}


def test_the_same_loss_is_kept_though_neither_run_was_evaluated(tmp_path: Path) -> None:
    run, collected = struck_and_whole(tmp_path)
    tables = dict(derive(collected))
    assert tables["goodput"]["kept"].tolist() == [True]
    tables["resume_proof"] = pd.DataFrame({"run": [run], "bit_equal": [False]})
    assert derived(tables)["kept"].tolist() == [False]  # what was compared bit by bit tells


def test_training_that_diverged_is_not_kept(tmp_path: Path) -> None:
    run, collected = struck_and_whole(tmp_path)
    collected["steps"].loc[collected["steps"]["run"] == run, "loss"] = float("nan")
    assert derive(collected)["goodput"]["kept"].tolist() == [False]


def test_without_an_undisturbed_run_nothing_is_known_of_the_outcome(tmp_path: Path) -> None:
    assert derive(collect([shrunken(tmp_path).end()]))["goodput"]["kept"].isna().all()


def goodput(tmp_path: Path, run: Elastic) -> dict[str, Any]:
    baseline = FakeRun(
        cell=run.run.cell.baseline, steps_per_epoch=6, step_s=lambda rank, step: 1.0, evaluates=False
    )  # fmt: skip
    tables = derive(collect([run.end(), baseline.write(tmp_path)]))
    (row,) = tables["goodput"].to_dict("records")
    return {str(name): value for name, value in row.items()}


def test_goodput_of_ranks_counts_the_ranks_that_are_paid_for_and_gone(tmp_path: Path) -> None:
    run = shrunken(tmp_path)
    row = goodput(tmp_path, run)
    assert row["goodput"] == pytest.approx(12 / (run.now - 104))
    assert row["ranks_used"] == pytest.approx((4 * 3 + 8 * 2) / 12)
    assert row["goodput_of_ranks"] == pytest.approx(row["goodput"] * row["ranks_used"] / 3)


def test_time_that_is_saved_by_leaving_samples_out_is_not_useful(tmp_path: Path) -> None:
    run = shrunken(tmp_path, kept=False)
    row = goodput(tmp_path, run)
    seen = 1 - 8 * BATCH_SIZE / PLANNED
    assert row["useful_s"] == pytest.approx(12 * seen)
    assert row["goodput"] == pytest.approx(12 * seen / (run.now - 104))
