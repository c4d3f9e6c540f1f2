"""The resume proof: runs with the bits of their reference, runs without, and controls that must be seen."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from run_folders import HOST, Arrays, FakeRun, Kill, Moment, cell, trained

from ckptbench.analysis.collect.runs import collect
from ckptbench.analysis.derive import derive
from ckptbench.analysis.proof.missing import missing_parts
from ckptbench.analysis.tables.registry import TABLES
from ckptbench.analysis.tables.store import read_tables, write_tables
from ckptbench.matrix.plugin_spec import PluginSpec

BETWEEN = (Kill(rank=0, step=15),)
"""Twenty steps, a checkpoint after ten: the restart goes on from there."""
TENSORS = len(trained(Moment("epoch", 0, 0, 1)))


def whole(**fields: Any) -> FakeRun:
    ranks = fields.pop("ranks", 2)
    return FakeRun(cell=cell(ranks=ranks), proof=True, **fields)


def killed(omit: str = "nothing", kills: tuple[Kill, ...] = BETWEEN, **fields: Any) -> FakeRun:
    faults = PluginSpec("killed_between" if len(kills) == 1 else "killed_thrice")
    framework = fields.pop("framework", "chainer" if omit != "nothing" else "pytorch")
    format = {"pytorch": "torch_save", "chainer": "npz", "tensorflow": "hdf5"}[framework]
    own = cell(ranks=2, framework=framework, format=format, faults=faults, omit=omit)
    return FakeRun(cell=own, proof=True, kills=kills, **fields)


def reference(run: FakeRun) -> FakeRun:
    return FakeRun(cell=run.cell.reference, proof=True)


def tables(folder: Path, *runs: FakeRun) -> dict[str, pd.DataFrame]:
    raw = collect([run.write(folder) for run in runs])
    return derive(raw)


def proof(folder: Path, *runs: FakeRun) -> pd.Series[Any]:
    rows = tables(folder, *runs)["resume_proof"]
    assert len(rows) == 1
    return rows.iloc[0]


def changed(state: Arrays, tensor: str, value: float) -> Arrays:
    """The state with another first element in one tensor."""
    other = state[tensor].copy()
    other.flat[0] = value
    return {**state, tensor: other}


def loses(tensor: str, rank: int | None = None, *, felt: bool = False) -> Any:
    """The states of a run whose restart finds other values in one tensor (of one rank), and trains on from there;
    `felt`: to other weights."""

    def state(moment: Moment) -> Arrays:
        if moment.attempt == 1:
            return trained(moment)
        found = trained(moment)
        if rank in (None, moment.rank):
            found = changed(found, tensor, 99.0)
        is_trained = felt and moment.when != "loaded"
        return changed(found, "model/dense.kernel", 99.0) if is_trained else found

    return state


def test_a_restart_that_gives_everything_back_is_bit_equal(tmp_path: Path) -> None:
    run = killed()
    row = proof(tmp_path, run, reference(run))

    assert row["run"] == run.cell.id
    assert row["reference"] == run.cell.reference.id
    assert row["attempts"] == 2
    # Two ranks: all tensors after each of two epochs, and at the end all but the position.
    assert (row["digests"], row["different_digests"]) == (2 * (2 * TENSORS + TENSORS - 1), 0)
    assert row["bit_equal"]
    assert pd.isna(row["first_epoch"])
    assert (row["tensors"], row["different_tensors"]) == (TENSORS - 1, 0)
    assert (row["max_ulp"], row["relative_l2"]) == (0, 0.0)
    assert (row["loss_difference"], row["accuracy_difference"]) == (0.0, 0.0)
    assert (row["first_tensors"], row["groups"], row["missing"]) == ("", "", "")
    assert pd.isna(row["caught"])


@pytest.mark.parametrize("disturbed", ["reference", "rerun"])
def test_a_run_that_was_to_be_left_alone_and_was_resumed_proves_nothing(
    tmp_path: Path, disturbed: str
) -> None:
    run = FakeRun(cell=cell(ranks=2, history="rerun"), proof=True)
    attempts = {"reference": 1, "rerun": 1, disturbed: 2}
    found = tables(
        tmp_path,
        dataclasses.replace(run, attempts=attempts["rerun"]),
        dataclasses.replace(reference(run), attempts=attempts["reference"]),
    )
    assert found["resume_proof"].empty


def test_a_large_model_is_compared_by_its_digests_alone(tmp_path: Path) -> None:
    run = killed(model_bytes=2**30)
    row = proof(tmp_path, run, dataclasses.replace(reference(run), model_bytes=2**30))
    assert row["bit_equal"]
    assert pd.isna(row["max_ulp"])
    assert not list(tmp_path.glob("*/final-*"))


def test_one_other_digest_names_its_epoch_and_tensor(tmp_path: Path) -> None:
    def state(moment: Moment) -> Arrays:
        here = (moment.rank, moment.when, moment.step) == (1, "epoch", 20)
        return changed(trained(moment), "model/norm.mean", 9.0) if here else trained(moment)

    run = killed(state=state)
    row = proof(tmp_path, run, reference(run))

    assert not row["bit_equal"]
    assert (row["first_epoch"], row["first_tensors"]) == (1, "model/norm.mean")
    assert row["different_digests"] == 1
    assert (row["groups"], row["different_tensors"]) == ("", 0)


def test_other_values_at_the_end_are_measured(tmp_path: Path) -> None:
    def state(moment: Moment) -> Arrays:
        here = (moment.rank, moment.when) == (1, "end")
        # The reference's kernel is [1, 21]: the next float32 after 1 is 2**-23 away.
        other = changed(trained(moment), "model/dense.kernel", 1 + 2**-23)
        return changed(other, "seed/0", 5.0) if here else trained(moment)

    run = killed(state=state)
    found = tables(tmp_path, run, reference(run))
    row = found["resume_proof"].iloc[0]

    assert not row["bit_equal"]
    assert (row["first_epoch"], row["first_tensors"]) == (1, "model/dense.kernel, seed/0")
    assert (row["groups"], row["different_tensors"]) == ("weights, dropout", 2)
    assert row["max_ulp"] == 1  # of weights and momentum: not the fifteen of the seed
    assert row["relative_l2"] == pytest.approx(2**-23 / math.hypot(1, 21))
    values = found["values"][found["values"]["different"] > 0]
    assert values[["rank", "tensor", "elements", "different", "max_ulp"]].to_numpy().tolist() == [
        [1, "model/dense.kernel", 2, 1, 1],
        [1, "seed/0", 2, 1, 15],
    ]


def test_up_to_three_tensors_are_named_that_part_first(tmp_path: Path) -> None:
    def state(moment: Moment) -> Arrays:
        return trained(moment._replace(step=moment.step + (moment.step > 10)))

    run = killed(state=state)
    row = proof(tmp_path, run, reference(run))
    assert row["first_epoch"] == 1
    assert row["first_tensors"].split(", ") == sorted(trained(Moment("epoch", 0, 0, 1)))[:3]
    assert row["different_tensors"] == row["tensors"]


def test_a_tensor_that_only_one_of_both_has_differs(tmp_path: Path) -> None:
    def state(moment: Moment) -> Arrays:
        return {name: array for name, array in trained(moment).items() if name != "seed/0"}

    run = killed(state=state)
    row = proof(tmp_path, run, reference(run))
    assert not row["bit_equal"]
    assert (row["first_epoch"], row["first_tensors"]) == (0, "seed/0")
    assert (row["tensors"], row["different_tensors"]) == (TENSORS - 1, 1)


def test_a_nan_beside_a_number_leaves_the_largest_distance_unknown(tmp_path: Path) -> None:
    def state(moment: Moment) -> Arrays:
        return changed(trained(moment), "optimizer/dense.kernel", math.nan)

    run = killed(state=state)
    row = proof(tmp_path, run, reference(run))
    assert pd.isna(row["max_ulp"])
    assert row["relative_l2"] == math.inf


@pytest.mark.parametrize(
    ("omit", "tensor", "rank"),
    [
        ("momentum", "optimizer/dense.kernel", None),
        ("random", "random/python/words", None),
        ("position", "position/data", None),
        ("statistics", "buffer/norm.running_mean", 1),
    ],
)
def test_a_control_that_differs_in_what_was_left_out_is_caught(
    tmp_path: Path, omit: str, tensor: str, rank: int | None
) -> None:
    run = killed(omit, state=loses(tensor, rank, felt=omit != "statistics"))
    row = proof(tmp_path, run, reference(run))
    assert row["missing"] == omit
    assert not row["bit_equal"]
    assert row["caught"]


@pytest.mark.parametrize(
    ("omit", "tensor"),
    [
        ("momentum", "optimizer/dense.kernel"),
        ("random", "random/python/words"),
        ("position", "position/data"),
    ],
)
def test_a_control_whose_weights_do_not_feel_what_was_left_out_is_not_caught(
    tmp_path: Path, omit: str, tensor: str
) -> None:
    run = killed(omit, state=loses(tensor))
    row = proof(tmp_path, run, reference(run))
    assert (row["missing"], row["bit_equal"]) == (omit, False)
    assert not row["caught"]


def test_statistics_that_are_back_at_the_end_are_not_caught_by_other_weights(
    tmp_path: Path,
) -> None:
    def state(moment: Moment) -> Arrays:
        if moment.when == "loaded":
            return changed(trained(moment), "buffer/norm.running_mean", 99.0)
        at_end = moment.when == "end"
        return changed(trained(moment), "model/dense.kernel", 99.0) if at_end else trained(moment)

    run = killed("statistics", state=state)
    row = proof(tmp_path, run, reference(run))
    assert (row["missing"], row["groups"]) == ("statistics", "weights")
    assert not row["caught"]


def test_a_first_update_without_effect_is_caught(tmp_path: Path) -> None:
    def state(moment: Moment) -> Arrays:
        if moment.attempt == 1:
            return trained(moment)
        lost = trained(moment._replace(step=moment.step - 1))["model/dense.kernel"]
        unchanged = trained(moment._replace(step=10))["model/dense.kernel"]
        kernel = unchanged if moment.when == "loaded" else lost
        return {**trained(moment), "model/dense.kernel": kernel}

    run = killed("first_update", state=state)
    row = proof(tmp_path, run, reference(run))
    assert row["missing"] == "first_update"
    assert row["caught"]


@pytest.mark.parametrize(
    "kills", [BETWEEN, (Kill(0, 11), Kill(0, 20, "begun"), Kill(1, 20, "written"))]
)
def test_weights_that_no_later_step_moves_either_miss_no_first_update(
    tmp_path: Path, kills: tuple[Kill, ...]
) -> None:
    """They are no numbers any more: NaN stays NaN."""

    def state(moment: Moment) -> Arrays:
        return {**trained(moment), "model/dense.kernel": np.full(2, np.nan, np.float32)}

    run = killed(kills=kills, state=state)
    assert proof(tmp_path, run, reference(run))["missing"] == ""


def test_a_first_update_counts_as_lost_where_no_later_weights_are_known(tmp_path: Path) -> None:
    def state(moment: Moment) -> Arrays:
        return {**trained(moment), "model/dense.kernel": np.zeros(2, np.float32)}

    digests = collect([killed(state=state).write(tmp_path)])["digests"]
    assert missing_parts(digests) == ""
    assert missing_parts(digests[digests["step"] <= 11]) == "first_update"


def test_a_control_that_trains_on_as_if_nothing_was_left_out_is_not_caught(tmp_path: Path) -> None:
    run = killed("momentum")
    row = proof(tmp_path, run, reference(run))
    assert (row["missing"], row["bit_equal"]) == ("", True)
    assert not row["caught"]


def test_a_control_that_misses_something_else_is_not_caught(tmp_path: Path) -> None:
    run = killed("momentum", state=loses("random/python/words"))
    row = proof(tmp_path, run, reference(run))
    assert row["missing"] == "random"
    assert not row["caught"]


def test_a_loss_that_no_bit_of_the_training_feels_is_not_caught(tmp_path: Path) -> None:
    def state(moment: Moment) -> Arrays:
        lost = moment.when == "loaded"
        return changed(trained(moment), "optimizer/dense.kernel", -1.0) if lost else trained(moment)

    run = killed("momentum", state=state)
    row = proof(tmp_path, run, reference(run))
    assert (row["missing"], row["bit_equal"]) == ("momentum", True)
    assert not row["caught"]


def test_what_any_restart_lost_is_missing(tmp_path: Path) -> None:
    """Three kills; only the second restart finds other random states than were saved."""

    def state(moment: Moment) -> Arrays:
        lost = (moment.when, moment.attempt) == ("loaded", 3)
        return changed(trained(moment), "random/python/words", 1.0) if lost else trained(moment)

    kills = (Kill(0, 11), Kill(1, 20, "begun"), Kill(0, 20, "synced"))
    run = killed(kills=kills, state=state)
    row = proof(tmp_path, run, reference(run))
    assert row["attempts"] == 4
    assert row["missing"] == "random"
    assert row["bit_equal"]


def test_a_load_is_held_against_the_last_attempt_that_saved_its_step(tmp_path: Path) -> None:
    """Two attempts save step 20 with different random states; the third loads the later one's."""

    def state(moment: Moment) -> Arrays:
        words = float(min(moment.attempt, 2))
        return changed(trained(moment), "random/python/words", words * (moment.step == 20))

    class Saves(FakeRun):
        def spans(self) -> list[tuple[int, int]]:
            return [(0, 21), (10, 21), (20, 22), (20, 30)]

    kills = (Kill(0, 21, "begun"), Kill(0, 21, "begun"), Kill(0, 22))
    own = cell(ranks=1, epochs=3, faults=PluginSpec("killed_thrice"))
    run = Saves(cell=own, proof=True, kills=kills, state=state)
    first = FakeRun(cell=own.reference, proof=True, state=state)
    found = tables(tmp_path, run, first)

    digests = found["digests"]
    twice = digests[(digests["when"] == "saved") & (digests["step"] == 20)]
    assert set(twice["attempt"]) == {1, 2}
    assert twice[twice["tensor"] == "random/python/words"]["digest"].nunique() == 2
    assert found["resume_proof"].iloc[0]["missing"] == ""


def test_a_step_that_no_attempt_is_known_to_have_saved_leaves_it_open_what_is_missing(
    tmp_path: Path,
) -> None:
    run = killed()
    raw = collect([one.write(tmp_path) for one in (run, reference(run))])
    raw["digests"] = raw["digests"][raw["digests"]["when"] != "saved"]
    assert derive(raw)["resume_proof"].iloc[0]["missing"] is None


def test_two_runs_of_the_same_seed_are_compared_too(tmp_path: Path) -> None:
    rerun = whole()
    rerun = dataclasses.replace(
        rerun,
        cell=dataclasses.replace(rerun.cell, history="rerun"),
        state=lambda moment: changed(trained(moment), "model/dense.kernel", 2.0),
        loss=lambda rank, step: 1.5 if step == 19 else 1.0,
    )
    row = proof(tmp_path, rerun, whole())
    assert row["attempts"] == 1
    assert (row["bit_equal"], row["groups"], row["max_ulp"]) == (False, "weights", 2**23)
    assert row["loss_difference"] == pytest.approx(0.5 / 10)
    assert row["missing"] is None
    assert pd.isna(row["caught"])


def test_losses_are_compared_over_the_steps_that_both_recorded(tmp_path: Path) -> None:
    """The killed attempt's steps 10 to 14 lie in no checkpoint of this run, so no trace holds them."""

    def loss(rank: int, step: int) -> float:
        return float(step)

    run = dataclasses.replace(killed(), loss=loss)
    folder = run.write(tmp_path)
    other = dataclasses.replace(reference(run), loss=loss).write(tmp_path)
    raw = collect([folder, other])
    steps = raw["steps"]
    raw["steps"] = steps[(steps["run"] != run.cell.id) | (steps["step"] % 10 > 4)]
    assert derive(raw)["resume_proof"].iloc[0]["loss_difference"] == 0.0


def test_a_loss_that_is_no_number_leaves_the_difference_open(tmp_path: Path) -> None:
    run = dataclasses.replace(killed(), loss=lambda rank, step: math.nan)
    assert math.isnan(proof(tmp_path, run, reference(run))["loss_difference"])


def test_groups_diverge_epoch_by_epoch(tmp_path: Path) -> None:
    run = killed(state=loses("buffer/norm.running_mean", rank=1))
    found = tables(tmp_path, run, reference(run))["divergence"]

    assert len(found) == 7 * 2  # groups and epochs
    # Of the first epoch what counts is the restart's: it went on from its end.
    statistics = found[found["group"] == "statistics"]
    assert statistics[["epoch", "tensors", "different"]].to_numpy().tolist() == [
        [0, 4, 1],
        [1, 4, 1],
    ]
    assert statistics["share"].tolist() == [0.25, 0.25]
    assert found.loc[found["group"] != "statistics", "different"].sum() == 0


def test_tables_of_a_proof_keep_their_types_through_parquet(tmp_path: Path) -> None:
    run = killed("momentum", state=loses("optimizer/dense.kernel"))
    found, empty = tables(tmp_path, run, reference(run)), tables(tmp_path)
    write_tables(tmp_path / "tables", found)
    for name, frame in read_tables(tmp_path / "tables", TABLES).items():
        pd.testing.assert_frame_equal(frame, found[name])
        pd.testing.assert_series_equal(frame.dtypes, empty[name].dtypes)


def test_without_a_reference_or_a_proof_nothing_is_proven(tmp_path: Path) -> None:
    alone = tables(tmp_path / "alone", killed())
    without = dataclasses.replace(reference(killed()), proof=False)
    unproven = tables(tmp_path / "unproven", killed(), without)
    for found in (alone, unproven):
        assert len(found["failures"]) == 1
        assert found["values"].empty
        assert found["resume_proof"].empty
        assert found["divergence"].empty


def test_runs_of_the_proof_are_in_no_table_of_times_or_sizes(tmp_path: Path) -> None:
    runs = [FakeRun(cell=cell()), FakeRun(cell=cell("never"))]
    rerun = FakeRun(
        cell=cell(history="rerun"), step_s=lambda rank, step: 9.0, files={"model.pt": 5}
    )
    ordinary = tables(tmp_path / "ordinary", *runs)
    found = tables(tmp_path / "more", *runs, rerun)

    for name in ("overhead", "sizes", "scaling", "checkpoint_cost", "stall"):
        assert not ordinary[name].empty
        pd.testing.assert_frame_equal(found[name], ordinary[name])
    assert found["runs"]["timing_valid"].all()


def test_determinism_costs_what_the_baselines_differ_by(tmp_path: Path) -> None:
    def baseline(deterministic: bool, repeat: int, step_s: float, **fields: Any) -> FakeRun:
        own = cell("never", deterministic=deterministic, repeat=repeat, **fields)
        return FakeRun(cell=own, step_s=lambda rank, step: step_s)

    runs = [
        *(baseline(True, repeat, 0.15) for repeat in range(3)),
        *(baseline(False, repeat, 0.1) for repeat in range(2)),
        baseline(True, 0, 0.1, ranks=2),
    ]
    cost = tables(tmp_path, *runs)["determinism_cost"]

    assert cost[["ranks", "repeats"]].to_numpy().tolist() == [[1, 2]]
    row = cost.iloc[0]
    assert row[["time_s", "default_s"]].tolist() == pytest.approx([3.0, 2.0])
    assert row[["cost", "cost_lo", "cost_hi"]].tolist() == pytest.approx([0.5] * 3)
    assert row["note"] == ""


def test_the_cost_of_determinism_says_how_few_its_repeats_are_and_where_they_ran(
    tmp_path: Path,
) -> None:
    elsewhere = {"host": {**HOST, "host": "node2"}}
    runs = [
        FakeRun(cell=cell("never", deterministic=True), manifest=elsewhere),
        FakeRun(cell=cell("never")),
    ]
    note = tables(tmp_path, *runs)["determinism_cost"].iloc[0]["note"]
    assert "different machines" in note
    assert "one repeat" in note


def test_digests_hold_every_moment_in_the_order_of_the_table(tmp_path: Path) -> None:
    digests = collect([killed().write(tmp_path)])["digests"]
    moments = digests.drop_duplicates(["attempt", "when", "step"])
    assert moments[["attempt", "step", "when", "epoch"]].to_numpy().tolist() == [
        [1, 10, "epoch", 0],
        [1, 10, "saved", 0],
        [2, 10, "epoch", 0],
        [2, 10, "loaded", 0],
        [2, 10, "version", 0],
        [2, 11, "stepped", 1],
        [2, 20, "end", 1],
        [2, 20, "epoch", 1],
        [2, 20, "saved", 1],
        [2, 20, "version", 1],
    ]
    key = ["run", "rank", "attempt", "step", "when", "tensor"]
    pd.testing.assert_frame_equal(digests, digests.sort_values(key, ignore_index=True))
    assert not digests.duplicated(key).any()
    position = digests[digests["tensor"] == "position/data"]
    assert "end" not in set(position["when"])
    assert np.unique(position["group"]) == ["position"]
