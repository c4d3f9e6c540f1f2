"""Runs in which ranks are lost and others go on are read: the ranks that were there at the end did every step between them."""

from __future__ import annotations

from pathlib import Path

import pytest
from elastic_runs import Elastic, replaced, shrunken
from run_folders import FakeRun, cell

from ckptbench.analysis.collect.run_folder import Run
from ckptbench.analysis.collect.runs import collect
from ckptbench.analysis.derive import derive
from ckptbench.analysis.tables.curves import curves
from ckptbench.common.errors import RunFolderError
from ckptbench.run.layout import trace_path
from ckptbench.run.seal import seal


def test_a_run_is_read_whose_rank_0_was_lost(tmp_path: Path) -> None:
    run = Run.read(shrunken(tmp_path).end())
    assert run.survivors == [1, 2]
    assert run.reference_rank is run.ranks[1]
    assert (run.steps, run.steps_per_epoch) == (12, 6)
    assert [part.steps.index.tolist() for part in run.ranks] == [[*range(4)], *2 * [[*range(12)]]]
    assert run.interrupted


def recorded_steps(run: Run) -> list[int]:
    """The steps of its segments in the order of time."""
    return [int(step) for segment in run.segments for step in segment.steps().index]


def test_the_rank_that_was_there_all_the_time_tells_the_progress(tmp_path: Path) -> None:
    run = Run.read(replaced(tmp_path).end())
    assert run.survivors == [0, 1, 2]
    assert run.reference_rank is run.ranks[1]
    assert run.ranks[0].steps.index.tolist() == [0, 1, 2, 3, 9, 10, 11]


def test_where_all_were_replaced_one_tells_after_the_other(tmp_path: Path) -> None:
    story = Elastic(tmp_path, ranks=2)
    story.steps(0, 3)
    story.strike(0)
    story.regroup([1], step=3, reached={1: 3})
    began = story.now
    story.steps(3, 8)
    story.start([0], began=began)
    story.regroup([0, 1], step=8, reached={0: 0, 1: 8})
    story.steps(8, 9)
    story.strike(1)
    story.regroup([0], step=9, reached={0: 9})
    began = story.now
    story.steps(9, 10)
    story.start([1], began=began)
    story.regroup([0, 1], step=10, reached={0: 10, 1: 0})
    story.steps(10, 12)
    folder = story.end()
    run = Run.read(folder)
    assert [segment.rank for segment in run.segments] == [1, 0]
    tables = collect([folder])
    assert recorded_steps(run) == [*range(12)]
    assert tables["runs"]["wall_s"].tolist() == [pytest.approx(story.now - 104)]
    assert tables["failures"]["step"].tolist() == [3, 9]


def test_steps_of_a_lost_rank_that_were_undone_are_in_no_table(tmp_path: Path) -> None:
    story = Elastic(tmp_path, interval="s3")
    story.steps(0, 7)  # rank 0 evaluates after six steps, and is lost: the others go back to step 5
    story.strike(0)
    story.lose(0)
    story.regroup([1, 2], step=5, reached={1: 7, 2: 7})
    story.steps(5, 12, seconds=1.5)
    folder = story.end()
    collected = collect([folder])
    steps = collected["steps"]
    assert steps.loc[steps["rank"] == 0, "step"].tolist() == [*range(5)]
    evaluations = collected["evaluations"].set_index(["epoch", "rank"])["samples"]
    assert evaluations.to_dict() == {(0, 1): 30, (0, 2): 30, (1, 1): 30, (1, 2): 30}
    checkpoints = collected["checkpoints"]
    assert checkpoints.loc[checkpoints["writes"], ["rank", "step"]].to_numpy().tolist() == [
        [0, 3], [1, 6], [1, 9], [1, 12],
    ]  # fmt: skip
    assert recorded_steps(Run.read(folder)) == [*range(7), *range(5, 12)]
    accuracy = curves(collected, collected["runs"]["run"])["test_accuracy"]
    assert accuracy.tolist() == pytest.approx([40 / 60, 40 / 60])
    (row,) = collected["runs"].to_dict("records")
    assert (row["timing_valid"], row["steps"]) == (False, 12)
    assert collected["epochs"]["rank"].tolist() == [1, 1, 2, 2]


def test_the_training_loss_counts_each_step_once_however_many_ranks_did_it(tmp_path: Path) -> None:
    collected = collect([shrunken(tmp_path).end()])
    losses = curves(collected, collected["runs"]["run"])["training_loss"].tolist()
    first = [2.0 - step / 10 + 0.01 for step in range(4)] + [1.6 + 0.015, 1.5 + 0.015]
    assert losses == pytest.approx([sum(first) / 6, 2.0 - 0.85 + 0.015])


def test_a_rank_that_takes_over_the_state_of_another_lacks_its_step(tmp_path: Path) -> None:
    story = Elastic(tmp_path)
    story.steps(0, 4)
    story.steps(4, 5, ranks=[0, 2])  # rank 1 does not get what it waits for
    story.strike(0)
    story.lose(0)
    story.regroup([1, 2], step=5, reached={1: 4, 2: 5})
    story.steps(5, 12)
    run = Run.read(story.end())
    assert 4 not in run.ranks[1].steps.index
    assert run.executions is not None
    assert [(doing.step, doing.kept) for doing in run.executions] == [
        (step, True) for step in range(12)
    ]
    assert run.executions[4].members.ranks == (0, 1, 2)


def test_an_agreement_that_failed_is_followed_too(tmp_path: Path) -> None:
    story = Elastic(tmp_path, ranks=4)
    story.steps(0, 4)
    story.steps(4, 5, ranks=[0, 2])
    story.strike(0)
    story.lose(0)
    story.regroup([1, 2, 3], step=5, reached={}, ready=False)  # rank 3 is lost before all are ready
    story.strike(3)
    story.lose(3)
    story.regroup([1, 2], step=5, reached={1: 5, 2: 5})
    story.steps(5, 12)
    run = Run.read(story.end())
    assert run.executions is not None
    assert all(doing.kept for doing in run.executions)
    assert run.executions[4].members.ranks == (0, 1, 2, 3)
    assert collect([story.folder])["failures"]["ranks_after"].tolist()[1] == 2


def test_a_rank_without_a_step_may_be_lost(tmp_path: Path) -> None:
    story = Elastic(tmp_path)
    story.strike(2)
    story.lose(2)
    story.regroup([0, 1], step=0, reached={0: 0, 1: 0})
    story.steps(0, 12)
    run = Run.read(story.end())
    assert run.ranks[2].steps.index.tolist() == []
    assert len(collect([story.folder])["steps"]) == 24


def test_a_line_that_a_lost_rank_did_not_end_is_left_out(tmp_path: Path) -> None:
    story = shrunken(tmp_path)
    with trace_path(story.folder, 0).open("a") as trace:
        trace.write('{"event":"steps","ep')
    assert Run.read(story.end()).survivors == [1, 2]


def test_a_restart_after_a_shrink_goes_back_to_what_its_version_has(tmp_path: Path) -> None:
    story = shrunken(tmp_path, interval="s4")
    story.strike(1)
    story.lose(1)
    story.relaunch(8)
    story.steps(8, 12)
    run = Run.read(story.end(attempts=2))
    assert run.survivors == [0, 1, 2]
    assert run.executions is not None
    kept = {doing.step: doing.members.ranks for doing in run.executions if doing.kept}
    assert [kept[step] for step in (3, 4, 7, 8)] == [(0, 1, 2), (1, 2), (1, 2), (0, 1, 2)]
    assert [doing.step for doing in run.executions if not doing.kept] == [8, 9, 10, 11]


@pytest.mark.parametrize("did_it", [True, False])
def test_a_rank_may_be_lost_when_the_others_need_it_no_more(tmp_path: Path, did_it: bool) -> None:
    """After its last step, or in it when the sum of gradients was done: they do not regroup."""
    story = Elastic(tmp_path, interval="s4")
    story.steps(0, 11)
    story.world = [0, 1]
    story.steps(11, 12, ranks=[0, 1, 2] if did_it else [0, 1])
    story.strike(2)
    story.lose(2)
    run = Run.read(story.end())
    assert (run.survivors, run.regrouped) == ([0, 1], False)
    tables = collect([run.folder])
    assert len(tables["failures"]) == 1
    assert len(derive(tables)["goodput"]) == 1
    (lineage,) = tables["lineage"].to_dict("records")
    assert (lineage["seen_once"], lineage["never_seen"]) == (lineage["planned_samples"], 0)


def test_a_rank_that_ended_too_early_though_nobody_went_on_without_it_is_refused(
    tmp_path: Path,
) -> None:
    story = Elastic(tmp_path)
    story.steps(0, 12)
    story.world = [0, 1]
    with pytest.raises(RunFolderError, match=r'trace-2.*does not close with an "end" event'):
        Run.read(story.end())


def test_a_state_that_comes_from_nowhere_is_refused(tmp_path: Path) -> None:
    story = shrunken(tmp_path)
    story.end()
    for rank in (1, 2):
        path = trace_path(story.folder, rank)
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join(line for line in lines if '"first_step":6,' not in line))
    seal(story.folder, 3)
    with pytest.raises(RunFolderError, match=r"no trace has step 6, which the final state"):
        Run.read(story.folder)


def test_a_rank_that_was_lost_is_in_no_comparison_of_bits(tmp_path: Path) -> None:
    again = FakeRun(cell=cell(ranks=2, history="rerun"), proof=True)
    whole = FakeRun(cell=again.cell.reference, proof=True)
    tables = collect([again.write(tmp_path), whole.write(tmp_path)])
    digests = tables["digests"]
    lost = (digests["run"] == again.cell.id) & (digests["rank"] == 1) & (digests["epoch"] == 1)
    tables["digests"] = digests[~lost]
    tables["values"] = tables["values"][tables["values"]["rank"] == 0]
    (row,) = derive(tables)["resume_proof"].to_dict("records")
    assert row["bit_equal"]
    assert row["tensors"] > 0
