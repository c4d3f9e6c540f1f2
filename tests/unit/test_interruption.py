"""Runs that are killed as their history asks: when, how they go on, and what they leave."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy_framework import ALONE, Unasked

from ckptbench.checkpoints.version import open_version
from ckptbench.errors import CkptbenchError, LaunchError
from ckptbench.faults.schedule import Kill, kills_of
from ckptbench.faults.self_killer import SelfKiller
from ckptbench.launch import run
from ckptbench.launch.ranks import Attempts
from ckptbench.launch.run import Execution, run_cell
from ckptbench.machine.clock import boot_id
from ckptbench.machine.files import read_json
from ckptbench.matrix.catalogue import HISTORIES, REMOVING, STRATEGIES, SYNCED
from ckptbench.matrix.cell import Cell
from ckptbench.matrix.interval import Interval
from ckptbench.matrix.variant import Variant
from ckptbench.recovery.contract import GiveUp, Loss, Recovery, Relaunch
from ckptbench.runs.layout import final_path, trace_path
from ckptbench.runs.plan import Plan
from ckptbench.runs.position import Position
from ckptbench.runs.recorder import Recorder
from ckptbench.runs.seal import verify_seal
from ckptbench.training.rank import run_rank
from ckptbench.world import variables

MakePlan = Callable[..., Plan]
STAGES = (*STRATEGIES["native"].stages, SYNCED)
KILLED = [name for name in HISTORIES if name.startswith("killed")]


def cell(history: str, *, ranks: int = 2, repeat: int = 0) -> Cell:
    return Cell(
        framework="pytorch", model="small_cnn", dataset="digits", ranks=ranks, batch_size=8, epochs=4,
        format="torch_save", interval=Interval.parse("s5"), history=history, repeat=repeat,
    )  # fmt: skip


@pytest.mark.parametrize("history", KILLED)
def test_kills_come_after_the_first_checkpoint_in_order_and_depend_on_the_seed_alone(
    history: str,
) -> None:
    drawn = {kills_of(cell(history), seed=seed, steps=60, steps_between=5) for seed in range(100)}
    assert len(drawn) > 20
    for kills in drawn:
        steps = [kill.step for kill in kills]
        assert len(kills) == (3 if history == "killed_thrice" else 1)
        assert steps == sorted(set(steps))
        assert steps[0] > 5
        assert steps[-1] <= 60
        assert all(kill.step % 5 == 0 for kill in kills if kill.inside)
    again = kills_of(cell(history), seed=7, steps=60, steps_between=5)
    assert again == kills_of(cell(history), seed=7, steps=60, steps_between=5)


@pytest.mark.parametrize("history", KILLED)
def test_kills_come_when_a_checkpoint_in_the_background_is_surely_there(history: str) -> None:
    """The first one is durable when the second begins, and perhaps not before."""
    behind = dataclasses.replace(cell(history), strategy=Variant("async"), format="safetensors")
    drawn = [kills_of(behind, seed=seed, steps=60, steps_between=5) for seed in range(100)]
    assert all(kills[0].step > 10 for kills in drawn)
    with pytest.raises(CkptbenchError, match="too short"):
        kills_of(behind, seed=1, steps=10, steps_between=5)


def test_a_kill_inside_a_checkpoint_is_not_at_a_late_stage_of_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A save in the background passes its stages while training goes on."""
    killed: list[int] = []

    def kill(pid: int, number: int) -> None:
        killed.append(number)
        raise SystemExit

    monkeypatch.setattr("ckptbench.faults.self_killer.os.kill", kill)
    planned = Kill(rank=0, step=10, inside="written")
    recorder = Recorder(tmp_path / "trace-0.jsonl")
    self_killer = SelfKiller(planned, 0, recorder)
    first, second = (Position(step=step, epoch=0, step_in_epoch=step) for step in (5, 10))
    self_killer.after_step(first), self_killer.before_save(first)
    self_killer.after_step(second)
    self_killer.at_stage("written")
    assert killed == []
    self_killer.before_save(second)
    with pytest.raises(SystemExit):
        self_killer.at_stage("written")
    assert killed == [signal.SIGKILL]


def test_kills_between_are_between_and_those_inside_meet_every_stage_and_rank() -> None:
    kills = [
        (history, kill)
        for history in KILLED
        for seed in range(200)
        for kill in kills_of(cell(history), seed=seed, steps=60, steps_between=5)
    ]
    assert {kill.inside for history, kill in kills if history == "killed_between"} == {None}
    assert {kill.inside for history, kill in kills if history == "killed_inside"} == set(STAGES)
    assert {kill.rank for _, kill in kills} == {0, 1}
    # Only rank 0 passes the last stage: on another rank the kill would never come.
    assert {kill.rank for _, kill in kills if kill.inside == STAGES[-1]} == {0}


def test_an_undisturbed_run_is_not_killed() -> None:
    for history in ("whole", "again"):
        assert kills_of(cell(history), seed=1, steps=60, steps_between=5) == ()


def test_a_run_that_is_too_short_to_be_killed_says_so() -> None:
    with pytest.raises(CkptbenchError, match=r"a run of 6 steps .* too short for .* killed_thrice"):
        kills_of(cell("killed_thrice"), seed=1, steps=6, steps_between=5)


def test_a_kill_inside_a_checkpoint_is_never_quietly_one_between() -> None:
    with pytest.raises(CkptbenchError, match="too short for the history killed_inside"):
        kills_of(cell("killed_inside"), seed=1, steps=24, steps_between=16)
    for seed in range(50):
        kills = kills_of(cell("killed_thrice"), seed=seed, steps=24, steps_between=8)
        assert [kill.inside is None for kill in kills].count(True) == 1


@pytest.fixture
def execution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Execution:
    """The rank is a forked child of this process, so that a SIGKILL ends it alone."""
    monkeypatch.setenv(variables.LAUNCHED, f"{boot_id()} 1 1 1")

    def launch(
        attempts: Attempts, _allocation: object, recovery: Recovery, **_: object
    ) -> Relaunch | None:
        plan = attempts.plan
        child = os.fork()
        if child == 0:
            try:
                run_rank(plan, ALONE, Unasked(), started_ns=2)
            finally:
                os._exit(0)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            return None
        how = f"rank 0 died of {signal.Signals(os.WTERMSIG(status)).name}"
        match recovery.after(Loss(ranks=(0,), how=how), plan):
            case Relaunch() as relaunch:
                return relaunch
            case GiveUp(reason=reason):
                raise LaunchError(reason)
            case verdict:
                raise AssertionError(verdict)

    monkeypatch.setattr(run, "launch", launch)
    lock = tmp_path / "numpy.txt"
    lock.write_text("numpy==1\n")
    return Execution(python=Path("python"), lock=lock, logs=tmp_path / "logs")


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


@pytest.mark.parametrize("history", KILLED)
def test_a_killed_run_goes_on_by_itself_and_ends_with_the_same_bits(
    make_plan: MakePlan, execution: Execution, history: str
) -> None:
    whole = proven(make_plan("s2", name="whole"))
    killed = proven(make_plan("s2", name="killed"), history=history)
    run_cell(whole, execution), run_cell(killed, execution)
    manifest = read_json(killed.run_folder / "manifest.json")
    kills = 3 if history == "killed_thrice" else 1
    assert (manifest["status"], manifest["attempts"]) == ("complete", kills + 1)
    assert [kill["attempt"] for kill in manifest["kills"]] == list(range(1, kills + 1))
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
    killed = proven(make_plan("s2", name="killed"), history="killed_between", omit=omit)
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
    killed = proven(make_plan("s2"), history="killed_between")
    monkeypatch.setattr("ckptbench.training.loop.kills_of", lambda *_, **__: ())
    with pytest.raises(LaunchError, match="was killed 0 times, its history asks for 1"):
        run_cell(killed, execution)
    assert not (killed.run_folder / "seal.json").exists()


def test_a_death_that_no_history_asked_for_ends_the_run(
    make_plan: MakePlan, execution: Execution, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = proven(make_plan("s2"), history="killed_between")
    monkeypatch.setattr(
        "numpy_framework.NumpyFramework.barrier", lambda _: os.kill(os.getpid(), signal.SIGKILL)
    )
    with pytest.raises(LaunchError, match="rank 0 died of SIGKILL"):
        run_cell(killed, execution)
    assert read_json(killed.run_folder / "manifest.json")["status"] == "failed"


def test_the_newest_sound_version_is_what_a_restart_goes_on_from(
    make_plan: MakePlan, execution: Execution
) -> None:
    killed = proven(make_plan("s2", epochs=4, keep=99), history="killed_inside")
    run_cell(killed, dataclasses.replace(execution, keep_after_run=99))
    (kill,) = read_json(killed.run_folder / "manifest.json")["kills"]
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
    killed = proven(make_plan("s2", name="killed", keep=1), history="killed_inside")
    run_cell(whole, execution)
    # Not at the end of an epoch: its event is written after the save, while the kill may come at once.
    kill = Kill(rank=0, step=6, inside=REMOVING)
    monkeypatch.setattr("ckptbench.training.loop.kills_of", lambda *_, **__: (kill,))
    run_cell(killed, execution)
    lines = trace_path(killed.run_folder, 0).read_text().splitlines()
    (loaded,) = (e for e in map(json.loads, lines) if e.get("when") == "loaded")
    assert loaded["step"] == 6
    assert digests(killed, "end") == digests(whole, "end")
