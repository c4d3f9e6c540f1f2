"""A restart from the local tiers of several nodes: what is left of them becomes one version of the shared store."""

from __future__ import annotations

import dataclasses
import itertools
import logging
import multiprocessing
import os
import random
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
from numpy_framework import ALONE
from several_nodes import PATIENCE_S, Meeting, Nodes, levels_of_node, places
from strategies import IDENTITY, timed
from test_native import built

from ckptbench.checkpointing import shard_assembly
from ckptbench.checkpointing.shard_assembly import (
    Key,
    Part,
    assemble_shards,
    choose,
    parts_held,
)
from ckptbench.checkpointing.state_files import FORMAT, own_name, shard_name
from ckptbench.checkpointing.store import CheckpointStore
from ckptbench.checkpointing.version import Version
from ckptbench.common.errors import CheckpointError
from ckptbench.matrix.levels import MEMORY, NODE, SHARED
from ckptbench.matrix.plugin_spec import PluginSpec
from ckptbench.run.identity import Identity
from ckptbench.run.trace import read_trace
from tests.living import is_running
from tests.study.selection import FULL

# The decision


def chosen(nodes: list[list[Part]], *, ranks: int, after: int = 0) -> Key | None:
    return choose(parts_held(nodes, after=after), ranks=ranks)


def test_the_newest_step_that_all_nodes_have_is_taken() -> None:
    nodes: list[list[Part]] = [[(8, 1, [0]), (6, 1, [0])], [(6, 1, [1, 2]), (4, 1, [1, 2])]]
    assert chosen(nodes, ranks=3) == (6, 1)
    assert parts_held(nodes, after=4) == {(8, 1): {0}, (6, 1): {0, 1, 2}}


def test_a_step_that_lacks_a_shard_is_not_taken() -> None:
    assert chosen([[(8, 1, [0, 2]), (6, 1, [0, 2])], [], []], ranks=3) is None


def test_a_step_that_the_shared_level_has_is_not_taken() -> None:
    nodes: list[list[Part]] = [[(8, 1, [0]), (6, 1, [0])], [(6, 1, [1])]]
    assert chosen(nodes, ranks=2, after=5) is not None
    assert chosen(nodes, ranks=2, after=6) is None


def test_parts_of_two_attempts_are_never_put_together() -> None:
    nodes: list[list[Part]] = [[(8, 1, [0])], [(8, 2, [1])]]
    assert chosen(nodes, ranks=2) is None
    nodes[1].append((8, 1, [1]))
    assert chosen(nodes, ranks=2) == (8, 1)
    nodes[0].append((8, 2, [0]))
    assert chosen(nodes, ranks=2) == (8, 2)


def test_no_node_holds_anything() -> None:
    assert chosen([], ranks=1) is None
    assert chosen([[], []], ranks=2) is None


@pytest.mark.parametrize("seed", range(50 if FULL else 10))
def test_the_decision_is_the_best_one_and_the_same_on_every_node(seed: int) -> None:
    """Against a search over all steps and attempts, for random lists in random order."""
    drawn = random.Random(seed)
    ranks, nodes, after = drawn.randint(1, 4), drawn.randint(1, 4), drawn.randint(0, 3)
    lists: list[list[Part]] = [
        [
            (
                drawn.randint(1, 5),
                drawn.randint(1, 2),
                drawn.sample(range(ranks), drawn.randint(0, ranks)),
            )
            for _ in range(drawn.randint(0, 6))
        ]
        for _ in range(nodes)
    ]
    expected = next(
        (
            key
            for key in itertools.product(range(5, after, -1), (2, 1))
            if set(range(ranks))
            <= {rank for *of, own in itertools.chain(*lists) if (*of,) == key for rank in own}
        ),
        None,
    )
    assert chosen(lists, ranks=ranks, after=after) == expected
    for own in lists:
        drawn.shuffle(own)
    assert chosen(lists, ranks=ranks, after=after) == expected


# What is written


def files_of(*ranks: int) -> set[str]:
    return {name for rank in ranks for name in (own_name(rank), shard_name(rank))}


def test_a_node_has_the_shards_of_its_ranks_at_every_near_level(tmp_path: Path) -> None:
    run = Nodes(tmp_path, "ab", levels=(MEMORY, NODE), memory=1, node=2, shared=2)
    run.train(1, 2)
    run.close()
    for rank, levels in enumerate(run.levels):
        assert {level: store.steps() for level, store in levels.stores.items()} == {
            MEMORY: [2, 1],
            NODE: [2],
            SHARED: [2],
        }
        for level, store in levels.stores.items():
            version = store.newest()
            assert version is not None
            assert version.files.keys() == (files_of(0, 1) if level == SHARED else files_of(rank))
    written = read_trace(run.trace(0)).checkpoints[2].written
    assert {file.name for file in written[NODE].files} == files_of(0)
    assert {file.name for file in written[SHARED].files} == files_of(0)


def test_each_first_rank_of_a_node_tells_what_its_node_has(tmp_path: Path) -> None:
    run = Nodes(tmp_path, "aab", memory=1, shared=2)
    run.train(1, 2)
    run.close()
    durable = [read_trace(run.trace(rank)).checkpoints[2].durable for rank in range(3)]
    assert [list(each) for each in durable] == [[MEMORY, SHARED], [], [MEMORY]]
    assert {file.name for file in durable[2][MEMORY].files} == files_of(2)


def test_no_node_begins_a_version_before_all_have_the_one_before(tmp_path: Path) -> None:
    run = Nodes(tmp_path, "ab", memory=1, shared=0)
    slow = run.levels[1].stores[MEMORY]
    commit, seen = slow.commit, []

    def commit_and_look(*arguments: Any, **named: Any) -> Any:
        time.sleep(0.1)  # for the other node to go on, if it could
        seen.append(run.levels[0].stores[MEMORY].steps()[:1])
        return commit(*arguments, **named)

    slow.commit = commit_and_look  # type: ignore[method-assign]
    run.train(1, 2, 3, 4)
    run.close()
    for step, newest in enumerate(seen, start=1):
        assert newest in ([], [step - 1], [step]), "the other node is ahead by a version at most"
    assert [hold.why for hold in read_trace(run.trace(0)).checkpoints[1].holds] == ["save"]


def test_nothing_near_is_left_when_training_is_complete(tmp_path: Path) -> None:
    run = Nodes(tmp_path, "ab", memory=1, shared=2)
    run.train(1, 2)
    run.close(complete=True)
    for levels in run.levels:
        assert not levels.stores[MEMORY].folder.exists()
        assert levels.stores[SHARED].steps() == [2]


def test_a_stopped_run_leaves_its_near_levels(tmp_path: Path) -> None:
    run = Nodes(tmp_path, "ab", memory=1, shared=0)
    run.train(1)
    run.close()
    assert all(levels.stores[MEMORY].steps() == [1] for levels in run.levels)


def test_a_run_that_begins_anew_forgets_what_its_nodes_hold(tmp_path: Path) -> None:
    trained = Nodes(tmp_path, "ab", memory=1, shared=0)
    trained.train(1, 2)
    trained.close()
    anew = Nodes(tmp_path, "ab", memory=1, shared=0)
    assert [levels.stores[MEMORY].steps() for levels in anew.levels] == [[], []]
    anew.close()


def test_a_proof_loads_what_lies_on_several_nodes(tmp_path: Path) -> None:
    """The newest version of a level that belongs to the nodes, put together, and every shared one."""
    run = Nodes(tmp_path, "aabc", levels=(MEMORY, NODE), memory=1, node=2, shared=2)
    run.train(1, 2, 3)
    run.settle()

    def compared(rank: int) -> list[tuple[str, int, set[float]]]:
        found = []
        framework = run.frameworks[rank]
        for level, version in run.ranks[rank].versions():
            for momentum in framework.momenta.values():
                momentum[...] = 0
            run.ranks[rank].load(version)
            values = {float(x) for array in framework.momenta.values() for x in array.ravel()}
            found.append((level, version.position.step, values))
        return found

    expected = [(MEMORY, 3, {3.0}), (NODE, 2, {2.0}), (SHARED, 2, {2.0})]
    assert run.all(compared) == [expected] * 4
    run.close(complete=True)
    assert {path.name for path in (tmp_path / SHARED).iterdir()} == {"version-00000002"}


# The nodes


def trained(folder: Path, nodes: str, *steps: int, attempt: int = 1, after: int = 0, levels: tuple[str, ...] = (MEMORY,), **options: int) -> Nodes:  # fmt: skip
    run = Nodes(
        folder,
        nodes,
        attempt=attempt,
        after=after,
        levels=levels,
        **({"memory": 1, "shared": 0} | options),
    )
    run.train(*steps)
    run.close()
    return run


def brought_together(
    folder: Path,
    nodes: str,
    *,
    after: int = 0,
    identity: Identity = IDENTITY,
    levels: tuple[str, ...] = (MEMORY,),
) -> Version | None:
    """As the programs on all nodes do it. Returns what a launcher then finds."""
    meeting = Meeting(len(nodes))

    def one(rank: int) -> None:
        place = places(nodes)[rank]
        try:
            assemble_shards(
                levels_of_node(folder, place.node, levels),
                place,
                lambda name, value: meeting.gather(rank, name, value),
                identity=identity,
                after=after,
            )
        except BaseException:
            meeting.abort()
            raise

    with ThreadPoolExecutor(len(nodes)) as pool:
        begun = [pool.submit(one, rank) for rank in range(len(nodes))]
        errors = [error for each in begun if (error := each.exception(PATIENCE_S)) is not None]
    for error in sorted(errors, key=lambda error: not isinstance(error, CheckpointError)):
        raise error
    return CheckpointStore(folder / SHARED, keep=2).newest()


def step_of(version: Version | None) -> float:
    """The step that the momenta of a version say, which every rank can load."""
    assert version is not None
    framework = built(seed=3)
    folder = version.folder.parent
    reader = timed(
        CheckpointStore(folder, keep=2), framework, ALONE, format=FORMAT, spec=PluginSpec("deepfreeze"),
        trace=folder / "load.jsonl",
    )  # fmt: skip
    reader.load(version)
    (value,) = {float(x) for array in framework.momenta.values() for x in array.ravel()}
    assert value == version.position.step
    return value


@pytest.mark.parametrize("nodes", ["ab", "abc", "aab", "aabbc"])
def test_the_newest_step_comes_from_the_nodes(tmp_path: Path, nodes: str) -> None:
    trained(tmp_path, nodes, 1, 2, 3)
    version = brought_together(tmp_path, nodes)
    assert step_of(version) == 3
    assert version is not None
    assert version.world_size == len(nodes)
    assert {file.rank for file in version.files.values()} == set(range(len(nodes)))


@pytest.mark.parametrize("nodes", ["axc", "xyz"])
def test_on_other_nodes_the_run_goes_on_from_the_shared_level(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, nodes: str
) -> None:
    trained(tmp_path, "abc", 1, 2, 3, shared=2)
    with caplog.at_level(logging.INFO):
        assert step_of(brought_together(tmp_path, nodes, after=2)) == 2
    assert "the nodes hold no whole step after step 2: the level shared serves" in caplog.text


def test_each_node_gives_its_files_from_its_nearest_level(tmp_path: Path) -> None:
    levels = (MEMORY, NODE)
    trained(tmp_path, "ab", 1, 2, levels=levels, node=1)
    shutil.rmtree(tmp_path / "a" / MEMORY)
    (shard,) = (tmp_path / "b" / NODE / "version-00000002").glob("state-*")
    shard.write_bytes(b"damaged")
    assert step_of(brought_together(tmp_path, "ab", levels=levels)) == 2


def test_two_of_three_nodes_lost_is_survived_from_the_shared_level_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trained(tmp_path, "abc", 1, 2, 3, 4, 5, shared=2)
    shutil.rmtree(tmp_path / "a")
    shutil.rmtree(tmp_path / "b")
    with caplog.at_level(logging.INFO):
        version = brought_together(tmp_path, "abc", after=4)
    assert step_of(version) == 4
    assert (
        "step 5 of attempt 1 cannot be taken from the nodes: the shards of rank 0, 1 are lost"
        in (caplog.text)
    )
    assert "the nodes hold no whole step after step 4: the level shared serves" in caplog.text


def test_a_node_that_is_ahead_goes_back_to_the_step_that_all_have(tmp_path: Path) -> None:
    """And it forgets what it was ahead, so that the step is not mixed with what another attempt makes of it."""
    trained(tmp_path, "ab", 1, 2, 3)
    shutil.rmtree(tmp_path / "b" / MEMORY / "version-00000003")
    assert step_of(brought_together(tmp_path, "ab")) == 2
    run = Nodes(tmp_path, "ab", attempt=2, after=2, memory=1, shared=0)
    run.close()
    assert run.levels[0].stores[MEMORY].steps() == [2]


def test_a_damaged_part_is_set_aside_and_the_step_before_taken(tmp_path: Path) -> None:
    run = trained(tmp_path, "abc", 1, 2, 3)
    shard = tmp_path / "b" / MEMORY / "version-00000003" / "state-1.safetensors"
    content = bytearray(shard.read_bytes())
    content[-1] ^= 1
    shard.write_bytes(content)
    assert step_of(brought_together(tmp_path, "abc")) == 2
    assert (shard.parents[1] / "version-00000003.refused").is_dir()
    assert run.levels[1].stores[MEMORY].steps() == [2]


def test_nothing_is_taken_from_another_run(tmp_path: Path) -> None:
    trained(tmp_path, "ab", 1)
    other = dataclasses.replace(IDENTITY, run_id="b2" * 16)
    assert brought_together(tmp_path, "ab", identity=other) is None


def test_half_written_versions_are_removed_and_not_taken(tmp_path: Path) -> None:
    trained(tmp_path, "ab", 1)
    (tmp_path / "a" / MEMORY / "version-00000002.partial").mkdir(exist_ok=True)
    assert step_of(brought_together(tmp_path, "ab")) == 1
    assert not (tmp_path / "a" / MEMORY / "version-00000002.partial").exists()


def test_the_shared_level_keeps_its_number_of_versions(tmp_path: Path) -> None:
    trained(tmp_path, "ab", 1, 2, 3, 4, 5, shared=2)
    assert step_of(brought_together(tmp_path, "ab", after=4)) == 5
    assert CheckpointStore(tmp_path / SHARED, keep=2).steps() == [5, 4]


def test_a_part_that_changes_while_it_is_copied_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained(tmp_path, "ab", 1)
    monkeypatch.setattr(
        shard_assembly, "checksums_of", lambda folder: dict.fromkeys(os.listdir(folder), "x")
    )
    with pytest.raises(CheckpointError, match="was changed while it was copied"):
        brought_together(tmp_path, "ab")


def test_a_folder_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained(tmp_path, "ab", 1)
    uid = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: uid + 1)
    with pytest.raises(CheckpointError, match="belongs to another user"):
        brought_together(tmp_path, "ab")


def test_training_goes_on_after_it_and_is_killed_again(tmp_path: Path) -> None:
    """The second attempt writes a step that the first had written, too, on another state of affairs."""
    trained(tmp_path, "abc", 1, 2, 3)
    assert step_of(brought_together(tmp_path, "abc")) == 3
    trained(tmp_path, "abc", 4, 5, attempt=2, after=3)
    version = brought_together(tmp_path, "abc", after=3)
    assert step_of(version) == 5
    assert version is not None
    assert version.attempt == 2


# Killed at any moment


def train_until_killed(folder: Path) -> None:
    """Three nodes, each step of which has a checkpoint. The file `begun` has the last step whose save all have begun."""
    run = Nodes(folder, "aabc", memory=1, shared=0)
    for step in itertools.count(1):
        run.train(step)
        (folder / "begun.new").write_text(str(step))
        (folder / "begun.new").replace(folder / "begun")


def begun(folder: Path) -> int:
    path = folder / "begun"
    return int(path.read_text()) if path.exists() else 0


@pytest.mark.parametrize("seed", range(6 if FULL else 1))
def test_killed_at_any_moment_it_loses_no_step_but_the_last(tmp_path: Path, seed: int) -> None:
    drawn = random.Random(seed)
    child = multiprocessing.get_context("spawn").Process(
        target=train_until_killed, args=(tmp_path,)
    )
    child.start()
    deadline, enough = time.monotonic() + PATIENCE_S, drawn.randint(3, 9)
    while begun(tmp_path) < enough:
        assert child.is_alive()
        assert time.monotonic() < deadline
        time.sleep(0.001)
    time.sleep(drawn.uniform(0, 0.05))  # any moment of the next steps will do
    writers = [process.pid for process in psutil.Process(child.pid).children(recursive=True)]
    child.kill()
    child.join(PATIENCE_S)
    while any(map(is_running, writers)):  # the kernel ends them with it, but perhaps a moment later
        assert time.monotonic() < deadline
        time.sleep(0.001)
    reached = begun(tmp_path)
    version = brought_together(tmp_path, "aabc")
    assert step_of(version) >= reached - 1
