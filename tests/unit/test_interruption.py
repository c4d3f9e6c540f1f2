"""Runs that are killed for the resume proof: when, how they go on, and what they leave."""

from __future__ import annotations

import dataclasses
import json
import os
import secrets
import signal
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy_framework import ALONE, Unasked

from ckptbench.checkpointing.contract import Slot
from ckptbench.checkpointing.strategies.asynchronous import Asynchronous
from ckptbench.checkpointing.version import open_version
from ckptbench.common.clock import boot_id
from ckptbench.common.errors import ConfigError, LaunchError
from ckptbench.common.files import read_json
from ckptbench.failures.recovery.contract import Loss, Verdict
from ckptbench.frameworks.contract import Arrays
from ckptbench.launch.run import Execution, run_cell
from ckptbench.launch.series import AttemptSeries
from ckptbench.matrix.cell import Cell
from ckptbench.matrix.interval import Interval
from ckptbench.matrix.plugin_spec import PluginSpec
from ckptbench.matrix.registry import KILLED, REMOVING, STRATEGIES, SYNCED
from ckptbench.run.control import variables
from ckptbench.run.events import Digest, File
from ckptbench.run.failure import Failure
from ckptbench.run.layout import final_path, trace_path
from ckptbench.run.plan import Plan
from ckptbench.run.schedule import kills_of
from ckptbench.run.seal import verify_seal
from ckptbench.run.trace import whole_events
from ckptbench.training.rank import run_rank

MakePlan = Callable[..., Plan]
STAGES = (*STRATEGIES["native"].stages, SYNCED)


def cell(faults: str, *, epochs: int = 4, interval: str = "s5") -> Cell:
    return Cell(
        framework="pytorch", model="small_cnn", dataset="digits", ranks=2, batch_size=8, epochs=epochs,
        format="torch_save", interval=Interval.parse(interval), faults=PluginSpec(faults),
    )  # fmt: skip


def drawn(cell: Cell, seed: int) -> tuple[Failure, ...]:
    return kills_of(cell, seed=seed, steps_per_epoch=15)


@pytest.mark.parametrize("faults", KILLED)
def test_kills_come_after_the_first_checkpoint_in_order_and_depend_on_the_seed_alone(
    faults: str,
) -> None:
    of_seeds = {drawn(cell(faults), seed) for seed in range(100)}
    assert len(of_seeds) > 20
    for kills in of_seeds:
        steps = [kill.step or 0 for kill in kills]
        assert len(kills) == (3 if faults == "killed_thrice" else 1)
        assert steps == sorted(set(steps))
        assert steps[0] > 5
        assert all(
            kill.step is not None and kill.step < 60 + (kill.moment == "save") for kill in kills
        )
        assert all(kill.step is not None and kill.step % 5 == 0 for kill in kills if kill.stage)
    assert drawn(cell(faults), 7) == drawn(cell(faults), 7)


@pytest.mark.parametrize("faults", KILLED)
def test_kills_come_when_a_checkpoint_in_the_background_is_surely_there(faults: str) -> None:
    """The first one is durable when the second begins, and perhaps not before."""
    behind = dataclasses.replace(cell(faults), strategy=PluginSpec("async"), format="safetensors")
    assert all((drawn(behind, seed)[0].step or 0) > 10 for seed in range(100))
    with pytest.raises(ConfigError, match="too short"):
        kills_of(behind, seed=1, steps_per_epoch=2)


def test_kills_between_are_between_and_those_inside_meet_every_stage_and_rank() -> None:
    kills = [
        (faults, kill)
        for faults in KILLED
        for seed in range(200)
        for kill in drawn(cell(faults), seed)
    ]
    assert {kill.stage for faults, kill in kills if faults == "killed_between"} == {None}
    assert {kill.stage for faults, kill in kills if faults == "killed_inside"} == set(STAGES)
    assert {kill.rank for _, kill in kills} == {0, 1}
    # Only rank 0 passes the last stage: on another rank the kill would never come.
    assert {kill.rank for _, kill in kills if kill.stage == STAGES[-1]} == {0}


def test_a_run_that_is_too_short_to_be_killed_says_so() -> None:
    with pytest.raises(ConfigError, match=r"a run of 8 steps .* too short for .* killed_thrice"):
        kills_of(cell("killed_thrice"), seed=1, steps_per_epoch=2)


def test_a_kill_inside_a_checkpoint_is_never_quietly_one_between() -> None:
    rare = cell("killed_inside", interval="s16")
    with pytest.raises(ConfigError, match="too short for the faults killed_inside"):
        kills_of(rare, seed=1, steps_per_epoch=6)
    for seed in range(50):
        kills = kills_of(cell("killed_thrice", interval="s8"), seed=seed, steps_per_epoch=6)
        assert [kill.stage is None for kill in kills].count(True) == 1


@pytest.fixture
def execution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Execution:
    """The rank is a forked child of this process, so that a SIGKILL ends it alone."""
    monkeypatch.setenv(variables.LAUNCHED, f"{boot_id()} 1 1")
    monkeypatch.setenv(variables.TOKEN, secrets.token_hex(8))

    def launch(attempts: AttemptSeries) -> bool:
        plan = attempts.plan
        child = os.fork()
        if child == 0:
            try:
                run_rank(plan, ALONE, Unasked(), started_ns=2)
            finally:
                os._exit(0)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            return False
        how = f"rank 0 died of {signal.Signals(os.WTERMSIG(status)).name}"
        verdict = attempts.recovery.after(Loss(ranks=(0,), how=how), plan)
        if verdict is Verdict.GIVE_UP:
            raise LaunchError(how)
        assert verdict is Verdict.RELAUNCH
        return True

    monkeypatch.setattr(AttemptSeries, "launch", launch)
    return Execution(python=Path("python"), lock="numpy.txt", logs=tmp_path / "logs")


def proven(plan: Plan, **changes: object) -> Plan:
    return dataclasses.replace(
        plan,
        cell=dataclasses.replace(plan.cell, **changes),  # type: ignore[arg-type]
        training=dataclasses.replace(plan.training, proof=True),
    )


def digests(plan: Plan, when: str) -> list[dict[str, dict[str, str]]]:
    lines = trace_path(plan.run_folder, 0).read_text().splitlines()
    events = [json.loads(line) for line in lines]
    return [
        {**event["tensors"], **event["rank_state"]}
        for event in events
        if event["event"] == "digest" and event["when"] == when
    ]


@pytest.mark.parametrize("faults", KILLED)
def test_a_killed_run_goes_on_by_itself_and_ends_with_the_same_bits(
    make_plan: MakePlan, execution: Execution, faults: str
) -> None:
    whole = proven(make_plan("s2", name="whole"))
    killed = proven(make_plan("s2", name="killed"), faults=PluginSpec(faults))
    run_cell(whole, execution), run_cell(killed, execution)
    manifest = read_json(killed.run_folder / "manifest.json")
    kills = 3 if faults == "killed_thrice" else 1
    assert (manifest["status"], manifest["attempts"]) == ("complete", kills + 1)
    assert [strike["attempt"] for strike in manifest["strikes"]] == list(range(1, kills + 1))
    assert final_path(killed.run_folder, 0) in verify_seal(killed.run_folder)
    assert dict(enumerate(digests(killed, "epoch")))
    assert digests(killed, "epoch")[-1] == digests(whole, "epoch")[-1]
    assert digests(killed, "end") == digests(whole, "end")
    with (
        np.load(final_path(killed.run_folder, 0)) as one,
        np.load(final_path(whole.run_folder, 0)) as other,
    ):
        assert set(one.files) == set(digests(killed, "end")[0])
        assert all(one[name].tobytes() == other[name].tobytes() for name in other.files)


@pytest.mark.parametrize(
    ("omit", "left_out"),
    [
        ("momentum", {"optimizer/head.bias", "optimizer/head.kernel"}),
        ("random", {"random/numpy/keys", "random/numpy/position", "random/numpy/gauss"}),
        ("position", {"position/data"}),
    ],
)
def test_what_a_restart_leaves_out_shows_at_once_and_at_the_end(
    make_plan: MakePlan, execution: Execution, omit: str, left_out: set[str]
) -> None:
    whole = proven(make_plan("s2", name="whole"))
    killed = proven(make_plan("s2", name="killed"), faults=PluginSpec("killed_between"), omit=omit)
    run_cell(whole, execution), run_cell(killed, execution)
    (loaded,) = digests(killed, "loaded")
    # Both attempts may have saved the same step: the first one's is what was loaded.
    saved = next(state for state in digests(killed, "saved") if same_but(state, loaded, left_out))
    assert {name for name in saved if saved[name] != loaded[name]}
    assert digests(killed, "end") != digests(whole, "end")


def same_but(one: dict[str, str], other: dict[str, str], names: set[str]) -> bool:
    return {name for name in one if one[name] != other[name]} <= names


def test_a_run_whose_kill_never_comes_is_no_result(
    make_plan: MakePlan, execution: Execution, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = proven(make_plan("s2"), faults=PluginSpec("killed_inside"))
    never = Failure(step=6, moment="save", stage="never", rank=0)
    monkeypatch.setattr("ckptbench.run.schedule.kills_of", lambda *_, **__: (never,))
    with pytest.raises(LaunchError, match="did not occur: its step, save or recovery never came"):
        run_cell(killed, execution)
    assert not (killed.run_folder / "seal.json").exists()


def test_a_kill_strikes_the_last_checkpoint_that_ends_after_training(
    make_plan: MakePlan, execution: Execution, monkeypatch: pytest.MonkeyPatch
) -> None:
    behind = {"strategy": PluginSpec("async"), "format": "safetensors"}
    whole = proven(make_plan("s2", name="whole"), **behind)
    killed = proven(make_plan("s2", name="killed"), faults=PluginSpec("killed_inside"), **behind)
    run_cell(whole, execution)
    lines = trace_path(whole.run_folder, 0).read_text().splitlines()
    last = max(event["step"] for event in map(json.loads, lines) if event["event"] == "save")
    kill = Failure(rank=0, step=last, moment="save", stage="written")
    monkeypatch.setattr("ckptbench.run.schedule.kills_of", lambda *_, **__: (kill,))
    write = Asynchronous._write

    def digested() -> set[str]:
        return {
            event.when
            for event in whole_events(trace_path(killed.run_folder, 0))
            if isinstance(event, Digest)
        }

    def write_late(self: Asynchronous, slot: Slot, own: Arrays) -> tuple[File, ...]:
        deadline, is_last = time.monotonic() + 60, f"{last:08d}" in slot.folder.name
        while is_last and "end" not in digested() and time.monotonic() < deadline:
            time.sleep(0.01)
        return write(self, slot, own)

    monkeypatch.setattr(Asynchronous, "_write", write_late)
    run_cell(killed, execution)
    assert read_json(killed.run_folder / "manifest.json")["attempts"] == 2
    assert digests(killed, "end") == 2 * digests(whole, "end"), "both attempts reached it"


def test_a_death_that_was_not_planned_ends_the_run(
    make_plan: MakePlan, execution: Execution, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = proven(make_plan("s2"), faults=PluginSpec("killed_between"))
    monkeypatch.setattr(
        "numpy_framework.NumpyFramework.barrier", lambda _: os.kill(os.getpid(), signal.SIGKILL)
    )
    with pytest.raises(LaunchError, match="rank 0 died of SIGKILL"):
        run_cell(killed, execution)
    assert read_json(killed.run_folder / "manifest.json")["status"] == "failed"


def test_the_newest_sound_version_is_what_a_restart_goes_on_from(
    make_plan: MakePlan, execution: Execution
) -> None:
    killed = proven(make_plan("s2", epochs=4, keep=99), faults=PluginSpec("killed_inside"))
    run_cell(killed, dataclasses.replace(execution, keep_after_run=99))
    (kill,) = read_json(killed.run_folder / "manifest.json")["failures"]
    lines = trace_path(killed.run_folder, 0).read_text().splitlines()
    (loaded,) = (e for e in map(json.loads, lines) if e.get("when") == "loaded")
    assert loaded["step"] == kill["step"] - 2, "its own checkpoint was not whole"
    versions = list(killed.checkpoint_folder.glob("version-*"))
    assert versions
    for version in versions:
        open_version(version)


def test_a_kill_while_old_versions_are_removed_goes_on_from_the_checkpoint_just_written(
    make_plan: MakePlan, execution: Execution, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = proven(make_plan("s2", name="whole", keep=1))
    killed = proven(make_plan("s2", name="killed", keep=1), faults=PluginSpec("killed_inside"))
    run_cell(whole, execution)
    # Not at the end of an epoch: its event is written after the save, while the kill may come at once.
    kill = Failure(rank=0, step=6, moment="save", stage=REMOVING)
    monkeypatch.setattr("ckptbench.run.schedule.kills_of", lambda *_, **__: (kill,))
    run_cell(killed, execution)
    lines = trace_path(killed.run_folder, 0).read_text().splitlines()
    (loaded,) = (e for e in map(json.loads, lines) if e.get("when") == "loaded")
    assert loaded["step"] == 6
    assert digests(killed, "end") == digests(whole, "end")
