"""The training loop: what it writes, and that a resume is the same training."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy_framework import ALONE, NumpyFramework, Unasked, linear
from strategies import timed

from ckptbench.checkpointing import done_markers
from ckptbench.checkpointing.manager import CheckpointManager
from ckptbench.checkpointing.store import CheckpointStore
from ckptbench.common.clock import boot_id, clock
from ckptbench.common.errors import CheckpointError, CkptbenchError, LaunchError
from ckptbench.failures.injector_client import InjectorClient
from ckptbench.failures.recovery.contract import RankRecovery, Regrouped
from ckptbench.frameworks.contract import Arrays, Sgd, TrainSpec
from ckptbench.matrix.registry import RECOVERIES, load
from ckptbench.run.control import variables
from ckptbench.run.layout import trace_path
from ckptbench.run.plan import Plan
from ckptbench.run.position import Position
from ckptbench.training import rank
from ckptbench.training.evaluation import cross_entropy_sum
from ckptbench.training.rank import launched_ns, run_rank

MakePlan = Callable[..., Plan]


@pytest.fixture(autouse=True)
def launched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variables.LAUNCHED, f"{boot_id()} 1 1")


def run(plan: Plan) -> list[dict[str, Any]]:
    run_rank(plan, ALONE, Unasked(), started_ns=2)
    return events(plan.run_folder)


def events(folder: Path, name: str | None = None) -> list[dict[str, Any]]:
    lines = trace_path(folder, 0).read_text().splitlines()
    found = [json.loads(line) for line in lines]
    return [event for event in found if name in (None, event["event"])]


def epochs(folder: Path) -> list[dict[str, Any]]:
    """An epoch that ends with a checkpoint is recorded before and after it: the later event counts."""
    return [*{event["epoch"]: event for event in events(folder, "epoch")}.values()]


def test_a_run_records_every_step_epoch_and_checkpoint_in_order(make_plan: MakePlan) -> None:
    plan = make_plan("e1", keep=3)  # it removes no version, as a removal may end at any moment
    trace = run(plan)
    names = [event["event"] for event in trace]
    assert names[:8] == [*["phase"] * 4, "start", "phase", "phase", "state"]
    assert names[8:] == 3 * [
        *("memory", "steps", "epoch", "pause", "save", "captured", "written", "durable"),
        *("memory", "pause", "epoch", "memory", "evaluation"),
    ] + ["digest", "memory", "end"]
    assert [event["first_step"] for event in trace if event["event"] == "steps"] == [0, 4, 8]
    assert [event["step"] for event in trace if event["event"] == "save"] == [4, 8, 12]


def test_a_rank_that_cannot_join_says_why(
    make_plan: MakePlan, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def join(*_: object, **__: object) -> NumpyFramework:
        raise LaunchError("2 GPUs are wanted, none is seen")

    monkeypatch.setattr(NumpyFramework, "join", join)
    with pytest.raises(LaunchError):
        run(make_plan("e1"))
    assert "LaunchError: 2 GPUs are wanted, none is seen" in caplog.text


def test_a_rank_that_dies_hangs_up_before_it_tears_the_others_out(
    make_plan: MakePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    link, order = Unasked(), []
    monkeypatch.setattr(Unasked, "hang_up", lambda _: order.append("hang up"))
    monkeypatch.setattr(NumpyFramework, "abort", lambda _: order.append("abort"))
    monkeypatch.setattr(NumpyFramework, "step", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run_rank(make_plan("e1"), ALONE, link, started_ns=2)
    assert order == ["hang up", "abort"]


@pytest.mark.parametrize("named", ["InjectorClient.open", "load"])
def test_a_rank_that_dies_before_it_has_joined_says_why(
    make_plan: MakePlan,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    named: str,
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ImportError("libmpi.so.40: cannot open shared object file")

    owner, _, name = named.rpartition(".")
    monkeypatch.setattr(getattr(rank, owner) if owner else rank, name, fail)
    with pytest.raises(ImportError):
        run_rank(make_plan("e1"), ALONE, Unasked(), started_ns=2)
    assert "ImportError: libmpi.so.40: cannot open shared object file" in caplog.text


def test_the_clocks_of_a_checkpoint_are_in_order_and_lie_in_its_epoch(make_plan: MakePlan) -> None:
    plan = make_plan("e1")
    run(plan)
    kinds = ("save", "captured", "written", "durable")
    for save, captured, written, durable, epoch in zip(
        *(events(plan.run_folder, kind) for kind in kinds), epochs(plan.run_folder), strict=True
    ):
        parts = [durable[f"{name}_ns"] for name in ("synced", "checked", "committed")]
        begun = [epoch["start_ns"], save["start_ns"], captured["at_ns"], written["at_ns"]]
        times = [*begun, *parts, save["end_ns"], epoch["end_ns"]]
        assert times == sorted(times)
        assert {file["name"] for file in durable["files"]} == {"model.npz", "rank-0.safetensors"}


def test_checkpoints_follow_the_interval_in_steps(make_plan: MakePlan) -> None:
    plan = make_plan("s5", epochs=4)
    run(plan)
    assert [event["step"] for event in events(plan.run_folder, "save")] == [5, 10, 15]


def test_a_baseline_writes_no_checkpoint_and_trains_the_same(make_plan: MakePlan) -> None:
    baseline, plan = make_plan("never", name="baseline"), make_plan("e1")
    run(baseline), run(plan)
    assert not baseline.checkpoint_folder.exists()
    assert events(baseline.run_folder, "digest") == events(plan.run_folder, "digest")


def test_the_loss_falls(make_plan: MakePlan) -> None:
    plan = make_plan("never", epochs=10)
    run(plan)
    evaluations = events(plan.run_folder, "evaluation")
    assert evaluations[-1]["loss_sum"] < 0.5 * evaluations[0]["loss_sum"]
    assert evaluations[-1]["correct"] > 0.8 * evaluations[-1]["samples"]


@pytest.mark.parametrize("interval", ["e1", "s3", "s5"])
def test_a_resumed_run_ends_with_the_same_bits(make_plan: MakePlan, interval: str) -> None:
    whole = make_plan(interval, name="whole")
    run(whole)
    part = make_plan(interval, name="part", keep=99)
    run(part)
    for version in sorted(part.checkpoint_folder.iterdir()):
        resumed = dataclasses.replace(make_plan(interval, name=version.name), resume_from=version)
        run(resumed)
        assert events(resumed.run_folder, "digest") == events(whole.run_folder, "digest")
        assert all(event["samples"] > 0 for event in events(resumed.run_folder, "epoch"))
        later = {event["epoch"] for event in events(resumed.run_folder, "evaluation")}
        assert max(later) == 2


def test_a_resume_without_the_random_state_is_seen(
    make_plan: MakePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make_plan("e1", keep=99)
    run(plan)

    def forget(self: NumpyFramework, state: Arrays) -> None:
        """Loads nothing."""

    monkeypatch.setattr(NumpyFramework, "load_local_state", forget)
    first = min(plan.checkpoint_folder.iterdir())
    resumed = dataclasses.replace(make_plan("e1", name="resumed"), resume_from=first)
    run(resumed)
    assert events(resumed.run_folder, "digest") != events(plan.run_folder, "digest")


def test_retention_keeps_the_newest_versions(make_plan: MakePlan) -> None:
    plan = make_plan("e1", keep=2)
    run(plan)
    newest = CheckpointStore(plan.checkpoint_folder, keep=2).newest()
    assert newest is not None
    assert newest.position.step == 12
    assert sorted(path.name for path in plan.checkpoint_folder.iterdir()) == [
        "version-00000008",
        "version-00000012",
    ]


def test_a_framework_that_builds_another_network_is_refused(
    make_plan: MakePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    state_dict = NumpyFramework.state_dict

    def transposed(self: NumpyFramework) -> Arrays:
        return {name: array.T for name, array in state_dict(self).items()}

    monkeypatch.setattr(NumpyFramework, "state_dict", transposed)
    with pytest.raises(CkptbenchError, match=r"built another network.*head\.kernel"):
        run(make_plan())


def test_a_full_disk_is_one_error_that_names_the_folder(make_plan: MakePlan) -> None:
    plan = make_plan("e1")
    staging = plan.checkpoint_folder / "version-00000004.partial"
    staging.mkdir(parents=True)
    (staging / "model.npz").symlink_to("/dev/full")
    with pytest.raises(
        CheckpointError, match=r"step 4 cannot be written to .*No space left"
    ) as error:
        run(plan)
    assert str(plan.checkpoint_folder) in str(error.value)
    assert "free some, or set checkpoints.folder" in str(error.value)
    assert CheckpointStore(plan.checkpoint_folder, keep=2).newest() is None


def test_cross_entropy_is_the_sum_of_negative_log_probabilities() -> None:
    logits = np.log(np.array([[0.5, 0.25, 0.25], [0.1, 0.1, 0.8]]))
    expected = -np.log(0.25) - np.log(0.8)
    assert cross_entropy_sum(logits + 100, np.array([1, 2])) == pytest.approx(expected)


def test_told_to_stop_it_leaves_a_checkpoint_of_that_step_and_goes_on_to_the_same_bits(
    make_plan: MakePlan,
) -> None:
    whole, plan = make_plan("never"), make_plan("never", name="stopped")
    run(whole)
    link = Unasked(last_step=6)
    run_rank(plan, ALONE, link, started_ns=2)
    assert link.stopped == 6
    assert [event["step"] for event in events(plan.run_folder, "stop")] == [6]
    version = CheckpointStore(plan.checkpoint_folder, keep=2).newest()
    assert version is not None
    assert (version.position.step, version.position.step_in_epoch) == (6, 2)
    run(dataclasses.replace(plan, attempt=2, resume_from=version.folder))
    digests = [events(each.run_folder, "digest")[-1]["tensors"] for each in (whole, plan)]
    assert digests[0] == digests[1]


@pytest.mark.parametrize(("last_step", "steps"), [(0, []), (4, [4]), (5, [4, 5])])
def test_a_stop_writes_no_checkpoint_that_is_there_already(
    make_plan: MakePlan, last_step: int, steps: list[int]
) -> None:
    plan = make_plan("e1", keep=5)
    run_rank(plan, ALONE, Unasked(last_step=last_step), started_ns=2)
    assert [event["step"] for event in events(plan.run_folder, "save")] == steps


def test_a_launcher_on_another_host_is_told_by_the_wall_clock() -> None:
    started_ns = clock() - 1_000_000
    wall_ns = time.time_ns() - 2_000_000_000
    told = {variables.LAUNCHED: f"another-boot 5 {wall_ns}"}
    assert 1.9e9 < started_ns - launched_ns(Unasked(), told, started_ns) < 30e9
    here = {variables.LAUNCHED: f"{boot_id()} 5 6"}
    assert launched_ns(Unasked(), here, started_ns) == 5


def test_a_checkpoint_that_lacks_a_ranks_file_is_never_committed(
    make_plan: MakePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where each node has a disk of its own: the other rank's file is on the other node's."""
    monkeypatch.setattr(done_markers, "VISIBLE_SECONDS", 0.05)
    plan = make_plan("e1")
    framework = NumpyFramework.join(ALONE, seed=1, deterministic=False)
    network = linear((4, 4, 1), 3)
    sgd = Sgd(learning_rate=0.1, momentum=0.9, weight_decay=0)
    framework.build(TrainSpec(network, dict(network.initial_weights(1)), sgd))
    store = CheckpointStore(plan.checkpoint_folder, keep=2)
    strategy = timed(store, framework, dataclasses.replace(ALONE, world_size=2))
    with pytest.raises(
        CheckpointError, match=r"lacks the shard of rank 1.*a file system that all nodes share"
    ):
        strategy.save(Position(step=4, epoch=0, step_in_epoch=4))
    assert store.newest() is None


class Regrouping(RankRecovery):
    """Goes on where a step failed, or where newcomers came: after the step `admits`, once."""

    admits: int | None = None
    ranks = (0,)
    step: int | None = None
    """After which it goes on. None: after the last one that was done."""
    goes_back = False
    """Whether it goes back to the newest version."""

    def __init__(self) -> None:
        super().__init__(ALONE, Unasked(), {})
        self.errors: list[Exception] = []

    def barrier(self) -> None:
        """No other rank runs."""

    def regroup(self, error: Exception, reached: Position) -> Regrouped:
        self.errors.append(error)
        if self.goes_back and len(self.errors) > 1:
            raise error  # no loss that it knows
        if self.goes_back:
            return self._regrouped(None)
        return self._regrouped(reached.step if self.step is None else self.step)

    def admit(self, reached: Position) -> Regrouped | None:
        if reached.step != self.admits:
            return None
        self.admits = None
        return self._regrouped(reached.step)

    def _regrouped(self, step: int | None) -> Regrouped:
        return Regrouped(step=step, ranks=self.ranks, noticed_ns=5, agreed_ns=6, ready_ns=7)


@pytest.fixture
def regrouping(monkeypatch: pytest.MonkeyPatch) -> Regrouping:
    recovery = Regrouping()
    entry = dataclasses.replace(RECOVERIES["restart"], rank="a test's own")
    monkeypatch.setitem(RECOVERIES, "restart", entry)
    monkeypatch.setattr(
        rank, "load", lambda place: (lambda *_: recovery) if place == entry.rank else load(place)
    )
    return recovery


def fail_before_step(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """The step of this number (from 1) ends once in an error before it changes anything."""
    step, calls = NumpyFramework.step, iter(range(1, 1000))

    def failing(self: NumpyFramework, *batch: Any) -> float:
        if next(calls) == number:
            raise OSError("connection reset by peer")
        return step(self, *batch)

    monkeypatch.setattr(NumpyFramework, "step", failing)


@pytest.mark.parametrize("elastic", [True, False])
def test_a_rank_that_only_ends_does_not_recover(
    make_plan: MakePlan, monkeypatch: pytest.MonkeyPatch, elastic: bool
) -> None:
    """A failure that strikes while it recovers is for the attempt that goes on."""
    told = []
    monkeypatch.setattr(InjectorClient, "recovering", lambda _: told.append("recovering"))
    entry = dataclasses.replace(RECOVERIES["restart"], elastic=elastic)
    monkeypatch.setitem(RECOVERIES, "restart", entry)
    fail_before_step(monkeypatch, 3)
    with pytest.raises(OSError, match="reset by peer"):
        run_rank(make_plan("never"), ALONE, Unasked(), started_ns=2)
    assert told == (["recovering"] if elastic else [])


def test_a_rank_whose_recovery_regroups_goes_on_after_the_last_whole_step(
    make_plan: MakePlan, regrouping: Regrouping, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, plan = make_plan("e1", name="whole"), make_plan("e1", name="failed")
    run(whole)
    fail_before_step(monkeypatch, 6)
    run(plan)
    assert [str(error) for error in regrouping.errors] == ["connection reset by peer"]
    assert ends(plan) == ends(whole)
    assert [block["first_step"] for block in events(plan.run_folder, "steps")] == [0, 4, 5, 8]
    (regroup,) = events(plan.run_folder, "regroup")
    assert (regroup["reached"], regroup["step"], regroup["bytes"]) == (5, 5, 0)


@pytest.mark.parametrize(("step", "firsts"), [(4, [0, 4, 4, 8]), (6, [0, 4, 6, 8])])
def test_it_may_go_on_after_an_earlier_step_or_a_later_one(
    make_plan: MakePlan,
    regrouping: Regrouping,
    monkeypatch: pytest.MonkeyPatch,
    step: int,
    firsts: list[int],
) -> None:
    plan = make_plan("e1")
    fail_before_step(monkeypatch, 6)
    regrouping.step = step
    run(plan)
    assert [block["first_step"] for block in events(plan.run_folder, "steps")] == firsts
    assert [epoch["epoch"] for epoch in epochs(plan.run_folder)] == [0, 1, 2]


def test_it_may_go_back_to_the_newest_version_with_all_of_its_state(
    make_plan: MakePlan, regrouping: Regrouping, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, plan = make_plan("e1", name="whole"), make_plan("e1", name="failed")
    run(whole)
    fail_before_step(monkeypatch, 7)
    regrouping.goes_back = True
    monkeypatch.setattr(Unasked, "gather", lambda _, name, value: [value, None], raising=False)
    run(plan)
    assert ends(plan) == ends(whole)
    assert [block["first_step"] for block in events(plan.run_folder, "steps")] == [0, 4, 4, 8]
    (regroup,) = events(plan.run_folder, "regroup")
    (membership,) = events(plan.run_folder, "membership")
    assert (regroup["reached"], regroup["step"], membership["step"]) == (6, 4, 4)
    assert regroup["bytes"] > 0
    assert regroup["ready_ns"] > membership["monotonic_ns"]


def test_without_a_version_there_is_none_to_go_back_to(
    make_plan: MakePlan, regrouping: Regrouping, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_before_step(monkeypatch, 3)
    regrouping.goes_back = True
    monkeypatch.setattr(Unasked, "gather", lambda _, name, value: [value], raising=False)
    with pytest.raises(LaunchError, match="there is no sound version to go back to"):
        run_rank(make_plan("e1"), ALONE, Unasked(), started_ns=2)


def fail_first_save(monkeypatch: pytest.MonkeyPatch) -> None:
    save, calls = CheckpointManager.save, iter(range(1000))

    def failing(self: CheckpointManager, position: Position, **options: Any) -> None:
        if next(calls) == 0:
            raise OSError("connection reset by peer")
        save(self, position, **options)

    monkeypatch.setattr(CheckpointManager, "save", failing)


def test_an_epoch_is_recorded_though_its_last_save_has_failed(
    make_plan: MakePlan, regrouping: Regrouping, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make_plan("e1")
    fail_first_save(monkeypatch)
    run(plan)
    (regroup,) = events(plan.run_folder, "regroup")
    assert regroup["step"] == 4
    assert [event["step"] for event in events(plan.run_folder, "save")] == [8, 12]
    assert [(epoch["epoch"], epoch["samples"]) for epoch in epochs(plan.run_folder)] == [
        (epoch, 4 * plan.cell.batch_size) for epoch in range(3)
    ]


def test_a_stop_saves_a_step_whose_save_the_loss_cut_short(
    make_plan: MakePlan, regrouping: Regrouping, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make_plan("e1")
    fail_first_save(monkeypatch)
    run_rank(plan, ALONE, Unasked(last_step=4), started_ns=2)
    assert len(regrouping.errors) == 1
    assert [event["step"] for event in events(plan.run_folder, "save")] == [4]


@pytest.mark.parametrize(("batch", "batch_slice"), [("kept", (0, 24)), ("shrunk", (8, 8))])
def test_the_one_that_is_left_reads_the_whole_global_batch_or_its_own_slice(
    make_plan: MakePlan,
    regrouping: Regrouping,
    monkeypatch: pytest.MonkeyPatch,
    batch: str,
    batch_slice: tuple[int, int],
) -> None:
    plan = make_plan("never")
    cell = dataclasses.replace(plan.cell, ranks=3, batch_size=8)
    plan = dataclasses.replace(plan, cell=cell)
    read: list[int] = []
    regrouping.ranks, regrouping.options = (1,), {"batch": batch}
    step = NumpyFramework.step

    def reading(self: NumpyFramework, images: Any, labels: Any) -> float:
        read.append(len(labels))
        if len(read) == 2:
            raise OSError("connection reset by peer")
        return step(self, images, labels)

    monkeypatch.setattr(NumpyFramework, "step", reading)
    place = dataclasses.replace(ALONE, rank=1, world_size=3, addresses=("127.0.0.1:1",) * 3)
    run_rank(plan, place, Unasked(), started_ns=2)
    lines = map(json.loads, trace_path(plan.run_folder, 1).read_text().splitlines())
    (membership,) = [event for event in lines if event["event"] == "membership"]
    assert (membership["step"], membership["ranks"]) == (1, [1])
    assert (*membership["first"], *membership["samples"]) == batch_slice
    assert regrouping.part_read == membership["samples"][0] / 24
    assert read[:2] == [8, 8]
    assert set(read[2:]) == {batch_slice[1]}


def test_a_loss_at_the_end_has_the_last_epoch_evaluated_by_those_that_are_left(
    make_plan: MakePlan, regrouping: Regrouping, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Samples that the lost rank has evaluated, perhaps, count no more."""
    plan, lost = make_plan("e1"), [OSError("a rank is lost")]

    def finish() -> None:
        if lost:
            raise lost.pop()

    monkeypatch.setattr(regrouping, "finish", finish)
    run(plan)
    (regroup,) = events(plan.run_folder, "regroup")
    assert (regroup["reached"], regroup["step"]) == (12, 12)
    assert [event["epoch"] for event in events(plan.run_folder, "evaluation")] == [0, 1, 2, 2]
    assert [event["epoch"] for event in epochs(plan.run_folder)] == [0, 1, 2]


def test_newcomers_are_admitted_between_two_steps(
    make_plan: MakePlan, regrouping: Regrouping
) -> None:
    whole, plan = make_plan("e1", name="whole"), make_plan("e1", name="joined")
    run(whole)
    regrouping.admits = 6
    run(plan)
    assert regrouping.admits is None
    assert ends(plan) == ends(whole)


def test_a_restarted_rank_ends_with_the_error_of_its_step(
    make_plan: MakePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_before_step(monkeypatch, 6)
    with pytest.raises(OSError, match="connection reset by peer"):
        run(make_plan("e1"))


def ends(plan: Plan) -> list[dict[str, str]]:
    return [digest["tensors"] for digest in events(plan.run_folder, "digest")][-1:]
