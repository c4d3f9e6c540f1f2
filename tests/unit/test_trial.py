"""A folder in which a run cannot write is found before the first step, with the remedy."""

from __future__ import annotations

import dataclasses
import errno
import fcntl
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from numpy_framework import Unasked

from ckptbench.checkpointing import preflight
from ckptbench.checkpointing.levels import open_levels
from ckptbench.checkpointing.state_files import FORMAT
from ckptbench.common.errors import EnvironmentSetupError, LaunchError
from ckptbench.inputs.environments.folder import locked
from ckptbench.launch.run import Execution, run_cell
from ckptbench.matrix.levels import NODE
from ckptbench.matrix.plugin_spec import PluginSpec
from ckptbench.run.control.ranks import RankContext
from ckptbench.run.plan import Plan
from ckptbench.training import rank

MakePlan = Callable[..., Plan]


def refuse_at(monkeypatch: pytest.MonkeyPatch, folder: Path, number: int = errno.EACCES) -> None:
    """As for an ordinary user: root may write everywhere."""
    real = tempfile.TemporaryFile

    def refuse(*, dir: Path) -> object:
        if dir == folder:
            raise OSError(number, os.strerror(number), f"{dir}/gone")
        return real(dir=dir)

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)


@pytest.fixture
def plan(make_plan: MakePlan, tmp_path: Path) -> Plan:
    plan = make_plan("s1")
    strategy = PluginSpec("deepfreeze", (("memory", 1), ("node", 2), ("shared", 4)))
    cell = dataclasses.replace(plan.cell, strategy=strategy, format=FORMAT)
    return dataclasses.replace(
        plan, cell=cell, memory_folder=tmp_path / "shm", node_folder=tmp_path / "disk"
    )


@pytest.mark.parametrize(
    ("of", "remedy"),
    [
        ("run", "have the study in another folder"),
        ("shared", "set checkpoints.folder to another folder"),
        ("node", "set checkpoints.node_folder to another folder, or set node: 0"),
    ],
)
def test_a_run_is_refused_before_its_first_step_in_one_line(
    plan: Plan, execution: Execution, monkeypatch: pytest.MonkeyPatch, of: str, remedy: str
) -> None:
    folders = {
        "run": plan.run_folder,
        "shared": plan.checkpoint_folder,
        "node": open_levels(plan).stores[NODE].folder,
    }
    refuse_at(monkeypatch, folders[of])
    with pytest.raises(
        LaunchError,
        match=rf"^{folders[of]} cannot be written: Permission denied; let this user write {folders[of]}, or {remedy}$",
    ):
        run_cell(plan, execution)
    assert not (plan.run_folder / "trace-0.jsonl").exists()


@pytest.mark.parametrize("number", [errno.EROFS, errno.EDQUOT, errno.ENOSPC])
def test_a_disk_that_takes_no_file_is_found_before_the_first_step(
    plan: Plan, execution: Execution, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    refuse_at(monkeypatch, plan.checkpoint_folder, number)
    with pytest.raises(
        LaunchError, match=f"checkpoints cannot be written: {os.strerror(number)}; "
    ):
        run_cell(plan, execution)


def test_a_folder_that_can_be_written_stays_as_it_is(plan: Plan) -> None:
    preflight.check(plan, ranks_here=1)
    assert not [*plan.checkpoint_folder.iterdir()]


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EIO])
def test_a_file_system_without_locks_is_warned_of_and_one_that_fails_refused(
    plan: Plan, execution: Execution, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture, *, number: int,
) -> None:  # fmt: skip
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    environment = plan.run_folder.parent / "environment"
    if number == errno.ENOLCK:
        run_cell(plan, execution)
        with locked(environment):
            pass
        for folder in (plan.run_folder, plan.checkpoint_folder, environment):
            assert f"{folder} is on a file system without locks" in caplog.text
        return
    with pytest.raises(
        LaunchError,
        match=r"run cannot be locked: Input/output error; have the",
    ):
        run_cell(plan, execution)
    with (
        pytest.raises(EnvironmentSetupError, match="environment cannot be locked"),
        locked(environment),
    ):
        pass


def test_each_node_of_several_checks_its_own(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    preflight.check_node(plan, "b", ranks_here=1, part=1)
    refuse_at(monkeypatch, open_levels(plan, node="b").stores[NODE].folder)
    with pytest.raises(LaunchError, match=r"^on b: .* cannot be written: .*node: 0$"):
        preflight.check_node(plan, "b", ranks_here=1, part=1)
    monkeypatch.setattr(preflight, "available_memory", lambda: 10**6)
    with pytest.raises(LaunchError, match=r"^on b: 1 ranks of linear need about .* of memory"):
        preflight.check_node(plan, "b", ranks_here=1, part=1)


def test_the_first_rank_of_a_node_checks_before_it_imports_its_framework(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[str] = []

    def refuse(_: Plan, node: str, **__: object) -> None:
        checked.append(node)
        raise LaunchError("on b: no room")

    monkeypatch.setattr(preflight, "check_node", refuse)
    monkeypatch.setattr(rank, "load", lambda _: pytest.fail("imported"))
    world = RankContext(
        rank=1, world_size=2, local_rank=0, node="b", threads=1, addresses=("a:1", "b:1"), nodes=("a", "b")
    )  # fmt: skip
    with pytest.raises(LaunchError, match="on b: no room"):
        rank.run_rank(plan, world, Unasked(), started_ns=2)
    assert checked == ["b"]
    assert not (plan.run_folder / "trace-1.jsonl").exists()


def test_no_rank_checks_its_node_in_a_restart_that_is_timed(plan: Plan) -> None:
    world = RankContext(
        rank=1, world_size=2, local_rank=0, node="b", threads=1, addresses=("a:1", "b:1"), nodes=("a", "b")
    )  # fmt: skip
    again = dataclasses.replace(plan, attempt=2)
    killed = dataclasses.replace(
        again, cell=dataclasses.replace(again.cell, faults=PluginSpec("killed_thrice"))
    )
    assert rank._checks_node(again, world, Unasked())
    assert not rank._checks_node(killed, world, Unasked())
    assert not rank._checks_node(plan, dataclasses.replace(world, local_rank=1), Unasked())
    assert not rank._checks_node(plan, dataclasses.replace(world, nodes=("b", "b")), Unasked())
