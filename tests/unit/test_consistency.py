"""Whether a version is the state of its step: in run folders whose answers are known, and in real runs in NumPy."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from numpy_framework import NumpyFramework
from run_folders import Arrays, FakeRun, Kill, Moment, cell, trained

from ckptbench.analysis.collect.runs import collect
from ckptbench.analysis.derive import derive
from ckptbench.checkpointing.contract import Shard, Slot, Strategy, StrategyContext, done
from ckptbench.checkpointing.levels import KEPT_LOCAL
from ckptbench.checkpointing.state_files import load_shards, save_own, save_shard
from ckptbench.checkpointing.version import Version
from ckptbench.launch.run import Execution, run_cell
from ckptbench.matrix.plugin_spec import PluginSpec
from ckptbench.matrix.registry import STRATEGIES, StrategyEntry
from ckptbench.run.events import Digest, File, Pause, Save
from ckptbench.run.plan import Plan
from ckptbench.run.position import Position
from ckptbench.run.trace import read_trace, whole_events

MakePlan = Callable[..., Plan]
STATISTICS = "buffer/norm.running_mean"


def consistency(folder: Path, *runs: FakeRun) -> list[dict[str, Any]]:
    tables = derive(collect([run.write(folder) for run in runs]))
    rows: list[dict[str, Any]] = tables["consistency"].to_dict("records")
    return rows


def proof(**fields: Any) -> FakeRun:
    """Four checkpoints, at steps 10 to 40, on two ranks."""
    return FakeRun(**{"cell": cell(ranks=2, epochs=4), "proof": True, **fields})


def late(*names: str, versions: tuple[int, ...], by: int = 10, rank: int = 1) -> Any:
    """The states of a run in which these tensors of these versions are those of `by` steps later, on one rank."""

    def state(moment: Moment) -> Arrays:
        own = trained(moment)
        if (moment.when, moment.rank) == ("version", rank) and moment.step in versions:
            later = trained(moment._replace(step=moment.step + by))
            own |= {name: later[name] for name in names}
        return own

    return state


def test_versions_with_the_digests_of_their_steps_are_consistent(tmp_path: Path) -> None:
    (row,) = consistency(tmp_path, proof(keep=3))
    assert (row["versions_taken"], row["versions_compared"]) == (4, 3)
    assert (row["torn"], row["torn_names"], row["torn_groups"]) == (0, "", "")
    assert row["consistent"] is True


def test_a_version_with_tensors_of_a_later_checkpoint_is_torn_and_names_them(
    tmp_path: Path,
) -> None:
    state = late("model/norm.mean", STATISTICS, versions=(20, 30))
    (row,) = consistency(tmp_path, proof(state=state))
    assert (row["versions_compared"], row["torn"]) == (4, 2)
    assert row["torn_names"] == f"{STATISTICS}, model/norm.mean"
    assert row["torn_groups"] == "statistics"
    assert row["consistent"] is False


@pytest.mark.parametrize("level", ["memory", "shared"])
def test_versions_are_compared_at_every_level(tmp_path: Path, level: str) -> None:
    def state(moment: Moment) -> Arrays:
        torn = (moment.level, moment.step) == (level, 20)
        return trained(moment._replace(step=moment.step + 1) if torn else moment)

    (row,) = consistency(tmp_path, proof(state=state, levels=("memory", "shared")))
    assert (row["versions_taken"], row["versions_compared"]) == (8, 8)
    assert row["torn"] == 1


def test_a_tensor_of_a_step_without_a_digest_is_torn(tmp_path: Path) -> None:
    (row,) = consistency(tmp_path, proof(state=late(STATISTICS, versions=(20,), by=1)))
    assert (row["torn"], row["torn_names"]) == (1, STATISTICS)


def test_a_tensor_that_a_version_lacks_is_torn(tmp_path: Path) -> None:
    def state(moment: Moment) -> Arrays:
        own = trained(moment)
        lost = {STATISTICS} if moment.when == "version" else set()
        return {name: array for name, array in own.items() if name not in lost}

    (row,) = consistency(tmp_path, proof(state=state))
    assert (row["torn"], row["torn_names"], row["consistent"]) == (4, STATISTICS, False)


def test_up_to_three_torn_tensors_are_named(tmp_path: Path) -> None:
    names = sorted(name for name in trained(Moment("saved", 0, 0, 1)) if name != "position/data")
    (row,) = consistency(tmp_path, proof(state=late(*names, versions=(10,))))
    assert len(names) > 3
    assert row["torn_names"].split(", ") == names[:3]


def test_a_version_is_held_against_what_its_own_attempt_saved(tmp_path: Path) -> None:
    """In default mode a restarted run comes to other numbers at the same step."""

    def state(moment: Moment) -> Arrays:
        own = trained(moment)
        return {**own, STATISTICS: own[STATISTICS] + 100 * moment.attempt}

    killed = cell(ranks=2, epochs=4, faults=PluginSpec("killed_between"))
    run = proof(cell=killed, kills=(Kill(rank=0, step=25),), state=state)
    (row,) = consistency(tmp_path, run)
    assert (row["versions_compared"], row["consistent"]) == (4, True)


def test_runs_without_proof_or_without_checkpoints_have_no_row(tmp_path: Path) -> None:
    never = FakeRun(cell=cell("never", ranks=2), proof=True)
    assert consistency(tmp_path, proof(proof=False), never) == []


def test_without_a_digest_of_a_version_it_is_not_known_whether_it_is_consistent(
    tmp_path: Path,
) -> None:
    raw = collect([proof().write(tmp_path)])
    raw["digests"] = raw["digests"][raw["digests"]["when"] != "version"]
    (row,) = derive(raw)["consistency"].to_dict("records")
    assert (row["versions_taken"], row["versions_compared"]) == (4, 0)
    assert pd.isna(row["consistent"])


def test_the_table_strategies_says_of_each_setup_whether_it_is_consistent(tmp_path: Path) -> None:
    torn = proof(cell=cell("s5", ranks=2), state=late(STATISTICS, versions=(5,)))
    unknown = proof(cell=cell("s4", ranks=2), proof=False)
    raw = collect([run.write(tmp_path) for run in (proof(), torn, unknown)])
    found = derive(raw)["strategies"].set_index("interval")["consistent"]
    assert (found["e1"], found["s5"]) == (True, False)
    assert pd.isna(found["s4"])


def test_digests_before_saves_are_no_part_of_an_epochs_time(tmp_path: Path) -> None:
    raw = collect([run.write(tmp_path) for run in (proof(pause_s=3.0, cell=cell("s5")),)])
    assert raw["epochs"]["duration_s"].tolist() == pytest.approx([10 * 0.1 + 2 * 0.5] * 2)
    warm = proof(pause_s=3.0, cell=cell("s5", repeat=1), warmup_steps=6)
    raw = collect([warm.write(tmp_path)])
    assert raw["epochs"]["warmup_s"].tolist() == pytest.approx([6 * 0.1 + 0.5, 0.0])


# Real runs


class Late(Strategy):
    """Says that it has captured the state, and reads it after the next update. At the last step it reads it at once."""

    LAST = 12
    go, taken = threading.Event(), threading.Event()

    def __init__(self, context: StrategyContext) -> None:
        super().__init__(context)
        self._thread = ThreadPoolExecutor(1)

    def save(self, position: Position, slots: Sequence[Slot]) -> Shard:
        (slot,) = slots
        staging = slot.open()
        own = save_own(staging, 0, self._training_state.local_state())
        self.go.clear(), self.taken.clear()
        written: Future[tuple[File, ...]] = self._thread.submit(self._write, position, staging, own)
        return Shard(captured=done(None), written={slot.level: written})

    def _write(self, position: Position, staging: Path, own: File) -> tuple[File, ...]:
        if position.step < self.LAST:
            assert self.go.wait(300)
        shard = save_shard(staging, self._training_state.handles(), 0, 1)
        self.taken.set()
        return own, shard

    def load(self, version: Version, folder: Path) -> None:
        load_shards(version, folder, self._training_state, 0)

    def close(self) -> None:
        self._thread.shutdown()


@pytest.fixture
def late_strategy(monkeypatch: pytest.MonkeyPatch) -> Iterator[PluginSpec]:
    entry = StrategyEntry(
        location="test_consistency:Late",
        stages=("begun", "written"),
        formats=("safetensors",),
        blocking=False,
    )
    monkeypatch.setitem(STRATEGIES, "late", entry)
    step, begun = NumpyFramework.step, Late.save

    def stepping(self: NumpyFramework, *batch: Any) -> float:
        """After the update wait until the strategy has read what it should have read before."""
        loss = step(self, *batch)
        if waiting:
            waiting.clear()
            Late.go.set()
            assert Late.taken.wait(300)
        return loss

    def saving(self: Late, position: Position, slots: Sequence[Slot]) -> Shard:
        shard = begun(self, position, slots)
        waiting.append(position.step)
        return shard

    waiting: list[int] = []
    monkeypatch.setattr(NumpyFramework, "step", stepping)
    monkeypatch.setattr(Late, "save", saving)
    yield PluginSpec("late")
    Late.go.set()


def proven(plan: Plan, strategy: PluginSpec | None = None) -> Plan:
    """The same run with a proof, in the folder that the name of its cell asks for."""
    own = plan.cell
    if strategy is not None:
        own = dataclasses.replace(own, strategy=strategy, format="safetensors")
    folder = plan.run_folder / own.id
    folder.mkdir()
    return dataclasses.replace(
        plan,
        cell=own,
        training=dataclasses.replace(plan.training, proof=True),
        run_folder=folder,
        checkpoint_folder=folder / "checkpoints",
    )


def of_run(plan: Plan) -> dict[str, Any]:
    (row,) = derive(collect([plan.run_folder]))["consistency"].to_dict("records")
    found: dict[str, Any] = row
    return found


@pytest.mark.parametrize("name", ["native", "sharded", "async", "deepfreeze"])
def test_every_version_that_is_left_is_compared_after_training(
    make_plan: MakePlan, execution: Execution, name: str
) -> None:
    plan = proven(make_plan("s3"), None if name == "native" else PluginSpec(name))
    run_cell(plan, execution)
    row = of_run(plan)
    assert (row["versions_taken"], row["versions_compared"]) == (4, 2)
    assert row["consistent"] is True
    trace = read_trace(plan.run_folder / "trace-0.jsonl")
    order = [(digest.when, digest.step) for _, digest in trace.digests]
    assert order[-3:] == [("end", 12), ("version", 9), ("version", 12)]
    assert [step for when, step in order if when == "saved"] == [3, 6, 9, 12]
    events = list(whole_events(trace.path))
    for step in (3, 6, 9, 12):
        of_step = [event for event in events if getattr(event, "step", None) == step]
        kinds = [type(event) for event in of_step if isinstance(event, Digest | Pause | Save)]
        assert kinds[:4] == [Digest, Pause, Save, Pause]


def test_versions_at_a_near_level_are_compared_too(
    make_plan: MakePlan, execution: Execution, tmp_path: Path
) -> None:
    """Memory takes every checkpoint, the shared level every second; both are left after training."""
    deepfreeze = PluginSpec("deepfreeze", (("memory", 1), ("shared", 2)))
    plan = proven(make_plan("s3"), deepfreeze)
    run_cell(dataclasses.replace(plan, memory_folder=tmp_path / "memory"), execution)
    trace = read_trace(plan.run_folder / "trace-0.jsonl")
    found = [(digest.level, digest.step) for _, digest in trace.digests if digest.level]
    near = [step for level, step in found if level == "memory"]
    assert near == [3, 6, 9, 12][-KEPT_LOCAL:]
    assert [step for level, step in found if level == "shared"] == [6, 12]
    row = of_run(plan)
    assert (row["versions_taken"], row["versions_compared"]) == (4 + 2, KEPT_LOCAL + 2)
    assert row["consistent"] is True


def test_a_strategy_that_reads_too_late_is_torn_with_the_names_of_its_tensors(
    make_plan: MakePlan, execution: Execution, late_strategy: PluginSpec
) -> None:
    plan = proven(make_plan("s3", keep=9), late_strategy)
    run_cell(plan, execution)
    row = of_run(plan)
    assert (row["versions_taken"], row["versions_compared"]) == (4, 4)
    assert (row["torn"], row["torn_groups"]) == (3, "weights, momentum")
    assert row["torn_names"] == "model/head.bias, model/head.kernel, optimizer/head.bias"
    assert row["consistent"] is False


def test_a_run_without_proof_compares_no_version(make_plan: MakePlan, execution: Execution) -> None:
    plan = make_plan("s3")
    run_cell(plan, execution)
    trace = read_trace(plan.run_folder / "trace-0.jsonl")
    assert [digest.when for _, digest in trace.digests] == ["end"]
