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

import psutil
import pytest
from numpy_framework import ALONE
from several_nodes import PATIENCE_S, Meeting, Nodes, levels_of_node, places
from strategies import IDENTITY, timed
from test_native import built

from ckptbench.checkpoints.store import CheckpointStore
from ckptbench.checkpoints.version import Version
from ckptbench.common.errors import CheckpointError
from ckptbench.matrix.levels import LEVELS, MEMORY, NODE, SHARED
from ckptbench.matrix.plugin_spec import PluginSpec
from ckptbench.runs.identity import Identity
from ckptbench.strategies import shard_assembly
from ckptbench.strategies.shard_assembly import (
    Candidate,
    Holding,
    Source,
    assemble_shards,
    candidates,
    choose,
)
from ckptbench.strategies.state_files import FORMAT
from tests.living import is_running

# The decision


def held(step: int, *ranks: int, level: str = MEMORY, attempt: int = 1) -> Holding:
    return Holding(level=level, step=step, attempt=attempt, ranks=ranks)


def chosen(nodes: list[list[Holding]], *, ranks: int, after: int = 0) -> Candidate | None:
    return choose(candidates(nodes, after=after), ranks=ranks)


def test_the_newest_step_that_all_nodes_have_is_taken() -> None:
    found = chosen([[held(8, 0), held(6, 0)], [held(6, 1), held(4, 1)]], ranks=2)
    assert found == Candidate(6, 1, {0: Source(0, MEMORY), 1: Source(1, MEMORY)})


def test_a_copy_stands_in_for_a_lost_node() -> None:
    found = chosen([[held(8, 0, 2)], [], [held(8, 1, 2)]], ranks=3)
    assert found is not None
    assert {rank: source.holder for rank, source in found.sources.items()} == {0: 0, 1: 2, 2: 0}


def test_a_step_that_lacks_a_share_is_not_taken() -> None:
    nodes = [[held(8, 0, 2), held(6, 0, 2)], [], []]
    assert chosen(nodes, ranks=3) is None
    (newest, _) = candidates(nodes, after=0)
    assert (newest.step, newest.lacking(3)) == (8, [1])


def test_a_step_that_the_shared_level_has_is_not_taken() -> None:
    nodes = [[held(8, 0), held(6, 0)], [held(6, 1)]]
    assert chosen(nodes, ranks=2, after=5) is not None
    assert chosen(nodes, ranks=2, after=6) is None


def test_files_come_from_the_nearest_level_and_levels_fill_each_other_up() -> None:
    nodes = [
        [held(6, 0, level=NODE), held(6, 0)],
        [held(6, 1, level=NODE)],
    ]
    found = chosen(nodes, ranks=2)
    assert found is not None
    assert found.sources == {0: Source(0, MEMORY), 1: Source(1, NODE)}


def test_parts_of_two_attempts_are_never_put_together() -> None:
    nodes = [[held(8, 0, attempt=1)], [held(8, 1, attempt=2)]]
    assert chosen(nodes, ranks=2) is None
    nodes[1].append(held(8, 1, attempt=1))
    found = chosen(nodes, ranks=2)
    assert found is not None
    assert found.attempt == 1
    nodes[0].append(held(8, 0, attempt=2))
    found = chosen(nodes, ranks=2)
    assert found is not None
    assert found.attempt == 2


def test_no_node_holds_anything() -> None:
    assert chosen([], ranks=1) is None
    assert chosen([[], []], ranks=2) is None


@pytest.mark.parametrize("seed", range(200))
def test_the_decision_is_the_best_one_and_the_same_on_every_node(seed: int) -> None:
    """Against a search over all steps and attempts, for random lists in random order."""
    drawn = random.Random(seed)
    ranks, nodes, after = drawn.randint(1, 4), drawn.randint(1, 4), drawn.randint(0, 3)
    lists = [
        [
            held(
                drawn.randint(1, 5),
                *drawn.sample(range(ranks), drawn.randint(0, ranks)),
                level=drawn.choice(LEVELS[:2]),
                attempt=drawn.randint(1, 2),
            )
            for _ in range(drawn.randint(0, 6))
        ]
        for _ in range(nodes)
    ]
    found = chosen(lists, ranks=ranks, after=after)
    expected = next(
        (
            key
            for key in itertools.product(range(5, after, -1), (2, 1))
            if set(range(ranks))
            <= {
                rank
                for each in itertools.chain(*lists)
                if (each.step, each.attempt) == key
                for rank in each.ranks
            }
        ),
        None,
    )
    assert (found and (found.step, found.attempt)) == expected
    if found is not None:
        for rank, source in found.sources.items():
            having = [
                (LEVELS.index(each.level), holder)
                for holder, own in enumerate(lists)
                for each in own
                if (each.step, each.attempt) == expected and rank in each.ranks
            ]
            assert (LEVELS.index(source.level), source.holder) == min(having)
    for own in lists:
        drawn.shuffle(own)
    assert chosen(lists, ranks=ranks, after=after) == found


# The nodes


def trained(folder: Path, nodes: str, *steps: int, attempt: int = 1, after: int = 0, **options: int) -> Nodes:  # fmt: skip
    run = Nodes(
        folder, nodes, attempt=attempt, after=after, **({"memory": 1, "shared": 0} | options)
    )
    run.train(*steps)
    run.close()
    return run


def brought_together(
    folder: Path, nodes: str, *, after: int = 0, identity: Identity = IDENTITY
) -> Version | None:
    """As the programs on all nodes do it. Returns what a launcher then finds."""
    meeting = Meeting(len(nodes))

    def one(rank: int) -> None:
        place = places(nodes)[rank]
        try:
            assemble_shards(
                levels_of_node(folder, place.node),
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


@pytest.mark.parametrize(("nodes", "lost"), [("ab", "a"), ("abc", "b"), ("aab", "a"), ("abb", "b")])
def test_a_lost_node_is_survived_by_the_copies_of_its_partner(
    tmp_path: Path, nodes: str, lost: str
) -> None:
    trained(tmp_path, nodes, 1, 2, 3)
    shutil.rmtree(tmp_path / lost)
    assert step_of(brought_together(tmp_path, nodes)) == 3


def test_another_node_in_the_place_of_a_lost_one_holds_nothing(tmp_path: Path) -> None:
    trained(tmp_path, "abc", 1, 2, 3)
    assert step_of(brought_together(tmp_path, "axc")) == 3


def test_two_of_three_nodes_lost_is_survived_from_the_shared_level_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trained(tmp_path, "abc", 1, 2, 3, 4, 5, shared=2)
    shutil.rmtree(tmp_path / "a")
    shutil.rmtree(tmp_path / "b")
    with caplog.at_level(logging.INFO):
        version = brought_together(tmp_path, "abc", after=4)
    assert step_of(version) == 4
    assert "step 5 of attempt 1 cannot be taken from the nodes: the shares of rank 0 are lost" in (
        caplog.text
    )
    assert "the nodes hold no whole step after step 4" in caplog.text


def test_two_lost_nodes_are_survived_with_two_copies(tmp_path: Path) -> None:
    trained(tmp_path, "abc", 1, 2, 3, partner=2)
    shutil.rmtree(tmp_path / "a")
    shutil.rmtree(tmp_path / "b")
    assert step_of(brought_together(tmp_path, "abc")) == 3


def test_a_node_that_is_ahead_goes_back_to_the_step_that_all_have(tmp_path: Path) -> None:
    """And it forgets what it was ahead, so that the step is not mixed with what another attempt makes of it."""
    trained(tmp_path, "ab", 1, 2, 3, partner=0)
    shutil.rmtree(tmp_path / "b" / MEMORY / "version-00000003")
    assert step_of(brought_together(tmp_path, "ab")) == 2
    run = Nodes(tmp_path, "ab", attempt=2, after=2, memory=1, shared=0, partner=0)
    run.close()
    assert run.levels[0].stores[MEMORY].steps() == [2]


def test_a_damaged_part_is_set_aside_and_the_copy_taken(tmp_path: Path) -> None:
    run = trained(tmp_path, "abc", 1, 2, 3)
    share = tmp_path / "b" / MEMORY / "version-00000003" / "state-1.safetensors"
    content = bytearray(share.read_bytes())
    content[-1] ^= 1
    share.write_bytes(content)
    assert step_of(brought_together(tmp_path, "abc")) == 3
    assert (share.parents[1] / "version-00000003.refused").is_dir()
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
    shutil.rmtree(tmp_path / "b")
    assert step_of(brought_together(tmp_path, "abc")) == 3
    trained(tmp_path, "abc", 4, 5, attempt=2, after=3)
    shutil.rmtree(tmp_path / "c")
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


@pytest.mark.parametrize("seed", range(6))
def test_killed_at_any_moment_and_with_a_node_lost_it_loses_no_step_but_the_last(
    tmp_path: Path, seed: int
) -> None:
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
    shutil.rmtree(tmp_path / drawn.choice("abc"))
    version = brought_together(tmp_path, "aabc")
    assert step_of(version) >= reached - 1
