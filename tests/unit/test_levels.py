"""Levels: which checkpoints go where, and from where a restart goes on."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from in_process import interrupt, last_digest, stop
from numpy_framework import ALONE, NumpyFramework
from strategies import IDENTITY
from test_native import built, same

from ckptbench.checkpointing import preflight
from ckptbench.checkpointing.levels import Levels, open_levels
from ckptbench.checkpointing.manager import CheckpointManager
from ckptbench.checkpointing.state_files import FORMAT
from ckptbench.common.errors import CheckpointError, ConfigError, LaunchError
from ckptbench.launch.run import Execution, run_cell
from ckptbench.matrix.interval import Interval
from ckptbench.matrix.levels import MEMORY, NODE, SHARED, levels_of
from ckptbench.matrix.plugin_spec import PluginSpec
from ckptbench.run.plan import Plan
from ckptbench.run.position import Position
from ckptbench.run.recorder import Recorder
from ckptbench.run.trace import read_trace

MakePlan = Callable[..., Plan]


def deepfreeze(**every: int) -> PluginSpec:
    return PluginSpec("deepfreeze", tuple(sorted(every.items())))


def three(folder: Path) -> Levels:
    return Levels({level: folder / level for level in (MEMORY, NODE, SHARED)}, keep=2)


def opened(
    spec: PluginSpec,
    levels: Levels,
    framework: NumpyFramework,
    trace: Path,
    *,
    interval_steps: int = 1,
) -> CheckpointManager:
    timed = CheckpointManager(
        spec,
        training_state=framework,
        barrier=framework.barrier,
        world=ALONE,
        format=FORMAT,
        identity=IDENTITY,
        levels=levels,
        recorder=Recorder(trace),
        on_stage=lambda stage: None,
        interval_steps=interval_steps,
    )
    timed.ready()
    return timed


def save(
    timed: CheckpointManager, framework: NumpyFramework, step: int, *, everywhere: bool = False
) -> None:
    """A step that sets the momenta to its number, and its checkpoint."""
    assert timed.hook is not None
    timed.hook()
    for momentum in framework.momenta.values():
        momentum[...] = step
    timed.save(Position(step=step, epoch=0, step_in_epoch=step), everywhere=everywhere)


def saved(folder: Path, steps: int, **every: int) -> Levels:
    """Every step of a training has a checkpoint."""
    levels, framework = three(folder), built()
    timed = opened(deepfreeze(**every), levels, framework, folder / "trace.jsonl")
    for step in range(1, steps + 1):
        save(timed, framework, step)
    timed.close()
    return levels


def loaded_step(levels: Levels, folder: Path) -> float:
    """The step of the newest version, as its momenta say."""
    version, framework = levels.newest(), built(seed=3)
    assert version is not None
    opened(deepfreeze(memory=1), levels, framework, folder / "load.jsonl").load(version)
    (value,) = {float(x) for array in framework.momenta.values() for x in array.ravel()}
    assert value == version.position.step
    assert same(
        {n: a for n, a in framework.normalized_state().items() if n.startswith("model/")},
        {n: a for n, a in built().normalized_state().items() if n.startswith("model/")},
    )
    return value


def test_each_level_takes_its_own_checkpoints_and_keeps_its_own_number(tmp_path: Path) -> None:
    levels = saved(tmp_path, 8, memory=1, node=2, shared=3)
    assert {level: store.steps() for level, store in levels.stores.items()} == {
        MEMORY: [8],
        NODE: [8],
        SHARED: [6, 3],
    }
    durable = {
        step: list(checkpoint.durable)
        for step, checkpoint in read_trace(tmp_path / "trace.jsonl").checkpoints.items()
    }
    assert durable[1] == [MEMORY]
    assert durable[2] == [MEMORY, NODE]
    assert durable[6] == [MEMORY, NODE, SHARED]


def test_a_save_everywhere_goes_to_all_levels(tmp_path: Path) -> None:
    levels, framework = three(tmp_path), built()
    spec = deepfreeze(memory=1, node=5, shared=5)
    timed = opened(spec, levels, framework, tmp_path / "trace.jsonl")
    save(timed, framework, 1, everywhere=True)
    timed.close()
    assert [store.steps() for store in levels.stores.values()] == [[1], [1], [1]]


@pytest.mark.parametrize("interval_steps", [1, 2])
def test_the_turn_of_a_level_goes_on_in_the_next_attempt(
    tmp_path: Path, interval_steps: int
) -> None:
    """Five attempts of two checkpoints each: a level whose turn began anew with each would never get one."""
    levels, framework = three(tmp_path), built()
    for attempt in range(5):
        timed = opened(
            deepfreeze(memory=1, node=2, shared=3),
            levels, framework, tmp_path / "trace.jsonl", interval_steps=interval_steps,
        )  # fmt: skip
        for number in (2 * attempt + 1, 2 * attempt + 2):
            save(timed, framework, interval_steps * number)
        timed.close()
    assert levels.stores[NODE].steps() == [interval_steps * 10]
    assert levels.stores[SHARED].steps() == [interval_steps * 9, interval_steps * 6]


def test_the_newest_version_of_the_nearest_level_is_taken(tmp_path: Path) -> None:
    levels = saved(tmp_path, 6, memory=1, node=2, shared=3)
    newest = levels.newest()
    assert newest is not None
    assert newest.folder.parent == tmp_path / MEMORY
    assert loaded_step(levels, tmp_path) == 6


@pytest.mark.parametrize(
    ("lost", "step", "level"),
    [((MEMORY,), 4, NODE), ((MEMORY, NODE), 3, SHARED), ((NODE, SHARED), 5, MEMORY)],
)
def test_lost_levels_are_survived_from_the_others(
    tmp_path: Path, lost: tuple[str, ...], step: int, level: str
) -> None:
    levels = saved(tmp_path, 5, memory=1, node=2, shared=3)
    for each in lost:
        shutil.rmtree(tmp_path / each)
    newest = levels.newest()
    assert newest is not None
    assert (newest.position.step, newest.folder.parent.name) == (step, level)
    assert loaded_step(levels, tmp_path) == step


def test_a_damaged_version_is_set_aside_and_the_next_level_taken(tmp_path: Path) -> None:
    levels = saved(tmp_path, 6, memory=1, node=1, shared=3)
    for level in (MEMORY, NODE):
        (shard,) = (tmp_path / level / "version-00000006").glob("state-*")
        with shard.open("r+b") as file:
            file.write(b"x")
    newest = levels.newest()
    assert newest is not None
    assert newest.folder == tmp_path / SHARED / "version-00000006"
    for level in (MEMORY, NODE):
        assert (tmp_path / level / "version-00000006.refused").is_dir()


def test_a_newer_version_of_a_farther_level_is_taken(tmp_path: Path) -> None:
    levels = saved(tmp_path, 7, memory=2, node=0, shared=1)
    assert levels.stores[MEMORY].steps() == [6]
    newest = levels.newest()
    assert newest is not None
    assert newest.folder == tmp_path / SHARED / "version-00000007"
    assert loaded_step(levels, tmp_path) == 7


def test_nothing_is_newest_where_every_level_is_lost(tmp_path: Path) -> None:
    levels = saved(tmp_path, 3, memory=1)
    for level in (MEMORY, SHARED):
        shutil.rmtree(tmp_path / level, ignore_errors=True)
    assert levels.newest() is None


@pytest.mark.parametrize(
    ("every", "taken"),
    [
        ({}, {SHARED: 1}),
        ({"memory": 1}, {MEMORY: 1, SHARED: 1}),
        ({"memory": 1, "node": 4, "shared": 0}, {MEMORY: 1, NODE: 4}),
    ],
)
def test_options_say_every_how_many_th_checkpoint(
    every: dict[str, int], taken: dict[str, int]
) -> None:
    assert levels_of(deepfreeze(**every)) == taken
    assert levels_of(PluginSpec("native")) == {SHARED: 1}


@pytest.mark.parametrize(
    ("every", "message"),
    [
        ({"shared": 0}, "no level takes every checkpoint: set one of memory, node, shared to 1"),
        ({"memory": 2, "shared": 4}, "no level takes every checkpoint"),
    ],
)
def test_a_schedule_that_cannot_be_is_refused(every: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        levels_of(deepfreeze(**every))


@pytest.fixture
def plan(make_plan: MakePlan, tmp_path: Path) -> Plan:
    """Four checkpoints an epoch in memory, one of them also in the shared folder."""
    plan = make_plan("s1")
    strategy = deepfreeze(memory=1, node=2, shared=4)
    cell = dataclasses.replace(plan.cell, strategy=strategy, format=FORMAT)
    return dataclasses.replace(
        plan, cell=cell, memory_folder=tmp_path / "shm", node_folder=tmp_path / "disk"
    )


def interrupted(
    plan: Plan, execution: Execution, monkeypatch: pytest.MonkeyPatch, *, steps: int
) -> None:
    """As `interrupt`, and then wait for the last save, which the death of a process would end."""
    strategies: list[CheckpointManager] = []
    ready = CheckpointManager.ready

    def readied(self: CheckpointManager) -> None:
        strategies.append(self)
        ready(self)

    with monkeypatch.context() as patch:
        patch.setattr(CheckpointManager, "ready", readied)
        interrupt(plan, execution, monkeypatch, steps=steps)
    for strategy in strategies:
        strategy.close()


def test_a_run_goes_on_from_memory_and_leaves_nothing_there(
    plan: Plan, make_plan: MakePlan, execution: Execution, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    whole = dataclasses.replace(
        make_plan("s1", name="whole"), cell=plan.cell, memory_folder=plan.memory_folder,
        node_folder=plan.node_folder,
    )  # fmt: skip
    run_cell(whole, execution)
    interrupted(plan, execution, monkeypatch, steps=6)
    near = open_levels(plan).stores[MEMORY].folder
    assert near.parent == plan.memory_folder / f"ckptbench-{os.getuid()}"  # type: ignore[operator]
    assert near.parent.stat().st_mode & 0o777 == 0o700
    caplog.set_level("INFO")
    run_cell(plan, dataclasses.replace(execution, resume=True))
    assert f"goes on from {near}/version-0000000" in caplog.text
    assert last_digest(plan) == last_digest(whole)
    for base in (plan.memory_folder, plan.node_folder):
        assert base is not None
        assert list((base / f"ckptbench-{os.getuid()}").iterdir()) == []


def test_the_shared_level_gets_its_turns_though_the_run_is_restarted_often(
    plan: Plan, execution: Execution, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes every fourth checkpoint, one a step, and each attempt makes three."""
    for _ in range(3):
        interrupted(plan, execution, monkeypatch, steps=3)
        execution = dataclasses.replace(execution, resume=True)
    assert open_levels(plan).shared.steps() == [8, 4]


@pytest.mark.parametrize("interval", ["s1", "s4"])
def test_a_run_that_is_told_to_stop_saves_at_all_levels(
    plan: Plan, execution: Execution, monkeypatch: pytest.MonkeyPatch, interval: str
) -> None:
    """It may go on on other nodes. Of every step it has saved the last one at some levels already."""
    cell = dataclasses.replace(plan.cell, interval=Interval.parse(interval))
    plan = dataclasses.replace(plan, cell=cell)
    stop(plan, execution, monkeypatch, after=6)
    newest = {level: store.steps()[0] for level, store in open_levels(plan).stores.items()}
    assert newest == {MEMORY: 6, NODE: 6, SHARED: 6}
    shutil.rmtree(open_levels(plan).stores[MEMORY].folder)
    shutil.rmtree(open_levels(plan).stores[NODE].folder)
    stop(plan, dataclasses.replace(execution, resume=True), monkeypatch, after=6)
    stores = open_levels(plan).stores.values()
    assert {store.steps()[0] for store in stores if store.steps()} == {6}


def test_a_run_that_begins_anew_forgets_what_lies_in_memory(
    plan: Plan, execution: Execution, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted(plan, execution, monkeypatch, steps=6)
    memory = open_levels(plan).stores[MEMORY]
    assert memory.steps()
    interrupted(plan, execution, monkeypatch, steps=0)
    assert memory.steps() == []


@pytest.mark.parametrize(("level", "folder"), [(MEMORY, "shm"), (NODE, "disk")])
def test_a_folder_that_cannot_be_made_is_named_with_the_setting_of_its_level(
    plan: Plan, tmp_path: Path, level: str, folder: str
) -> None:
    (tmp_path / folder).write_text("no folder")
    with pytest.raises(
        CheckpointError,
        match=rf"{folder}/.* cannot be made: .*checkpoints.{level}_folder .* {level}: 0$",
    ) as error:
        open_levels(plan).make()
    assert str(error.value).count("checkpoints.") == 1


def test_a_resumed_run_makes_near_folders_for_this_user_alone(
    plan: Plan, execution: Execution, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where memory was lost, as by a boot, or where the folder was made by a release that let others in."""
    interrupted(plan, execution, monkeypatch, steps=6)
    assert plan.memory_folder is not None
    assert plan.node_folder is not None
    shutil.rmtree(plan.memory_folder)
    near = [base / f"ckptbench-{os.getuid()}" for base in (plan.memory_folder, plan.node_folder)]
    near[1].chmod(0o755)
    run_cell(plan, dataclasses.replace(execution, resume=True))
    assert [folder.stat().st_mode & 0o777 for folder in near] == [0o700, 0o700]


SAME = (
    "two levels in one place are no two levels: set one of them to another folder, or set node: 0"
)


@pytest.mark.parametrize("by", ["name", "link"])
def test_two_levels_in_one_folder_are_refused_before_anything_runs(
    plan: Plan, execution: Execution, tmp_path: Path, by: str
) -> None:
    memory, node = tmp_path / "shm", tmp_path / ("shm" if by == "name" else "link")
    if by == "link":
        node.symlink_to(memory)
    same = dataclasses.replace(plan, memory_folder=memory, node_folder=node)
    with pytest.raises(LaunchError, match=SAME) as error:
        run_cell(same, execution)
    for named in ("checkpoints.memory_folder", "checkpoints.node_folder", str(memory), str(node)):
        assert named in str(error.value)
    assert not (plan.run_folder / "trace-0.jsonl").exists()


def test_a_folder_of_a_level_that_is_not_used_may_be_that_of_another(
    plan: Plan, tmp_path: Path
) -> None:
    cell = dataclasses.replace(plan.cell, strategy=deepfreeze(memory=1, shared=4))
    alone = dataclasses.replace(plan, cell=cell, node_folder=plan.memory_folder)
    preflight.check_levels(alone, None, part=1)


def test_levels_never_share_a_folder(plan: Plan) -> None:
    """The other nodes may have another TMPDIR, and no check sees it."""
    stores = open_levels(dataclasses.replace(plan, node_folder=plan.memory_folder)).stores
    assert stores[MEMORY].folder != stores[NODE].folder


def test_each_node_has_local_folders_of_its_own(plan: Plan) -> None:
    folders = [
        open_levels(plan, node=node).stores[MEMORY].folder for node in (None, "node1", "node2")
    ]
    assert len(set(folders)) == 3
    assert len({folder.parent for folder in folders}) == 1


@pytest.mark.parametrize(
    ("node", "part", "versions"), [(None, 1.0, 2.0), ("a", 0.5, 1.5), ("a", 0.75, 2.25)]
)
def test_the_space_of_a_node_is_for_its_shards(
    plan: Plan, monkeypatch: pytest.MonkeyPatch, node: str | None, part: float, versions: float
) -> None:
    """Of one node one version is kept, of several two; one more is being written."""
    options = {"memory": 1, "node": 0, "shared": 4}
    cell = dataclasses.replace(plan.cell, strategy=deepfreeze(**options))
    plan = dataclasses.replace(plan, cell=cell)
    asked: list[int] = []
    monkeypatch.setattr(preflight, "_compare", lambda need, needed, *_: asked.append(needed))
    preflight.check_levels(plan, node, part=part)
    one = preflight.needed_disk(plan, 0)
    assert asked == [pytest.approx(versions * one, abs=3)]


def test_a_memory_that_is_too_small_for_its_versions_is_named(
    plan: Plan, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=10)
    monkeypatch.setattr(preflight.shutil, "disk_usage", lambda _: usage)
    wanted = re.escape(f"2 checkpoint versions in {plan.memory_folder} need about")
    with pytest.raises(LaunchError, match=wanted):
        preflight.check_levels(plan, None, part=1)
