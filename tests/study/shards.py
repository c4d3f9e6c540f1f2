"""What `test_shards.py` asks of a framework whose ranks hold shards; run by `ranks.run_scenario` as one process a rank."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from scenario import open_strategy, strategies_of, varied_weights
from scenarios import main

from ckptbench.checkpointing.manager import CheckpointManager
from ckptbench.checkpointing.store import CheckpointStore
from ckptbench.checkpointing.version import read_version, version_name
from ckptbench.frameworks.contract import AdamW, Arrays, Framework, Optimizer, Sgd, TrainSpec
from ckptbench.matrix.networks.transformers import gpt
from ckptbench.matrix.plugin_spec import PluginSpec
from ckptbench.matrix.registry import FRAMEWORKS, NATIVE, formats_of, load
from ckptbench.run.control.ranks import RankContext
from ckptbench.run.position import Position

VOCABULARY, LENGTH = 257, 6
"""No number of ranks divides this prime."""
NETWORK = gpt(vocabulary=VOCABULARY, most=LENGTH, width=8, layers=2, heads=2)
"""Its head is tied to its embedding."""
ADAMW = AdamW(learning_rate=0.01, weight_decay=0.1)
SGD = Sgd(learning_rate=0.01, momentum=0.9, weight_decay=0.0)
"""Its momenta after a first step are the gradients."""
STEPS, SEQUENCES = 3, 2
SAVED = Position(step=STEPS, epoch=0, step_in_epoch=STEPS)


def strategies(framework: str) -> list[str]:
    return [NATIVE.name, *strategies_of(framework)]


def shards(
    framework: str, world: RankContext, folder: Path, *, written: str | None = None
) -> Arrays:
    """Model and optimizer, whole: as they were `saved` after some steps; by strategy, as loaded from its version in the folder
    `written`, by however many ranks; and after a step with SGD of `shards` and of `replicas`.

    `bytes`: of what this rank holds of each tensor. `written`, of rank 0: the bytes of each file of model and optimizer of a
    version, by strategy. Versions of this training are in `folder`.
    """
    from ckptbench.frameworks.pytorch import PyTorch  # the tests do without PyTorch

    kind_of_ranks = load(FRAMEWORKS[framework].location)
    assert getattr(kind_of_ranks, "replicas", 1) == FRAMEWORKS[framework].replicas
    joined: Framework = kind_of_ranks.join(world, seed=5, deterministic=True)
    _train(joined, world, ADAMW, STEPS)
    # An evaluation gathers what ranks hold, and keeps nothing of it.
    joined.predict(np.zeros((1, LENGTH), np.int64))
    sizes = [
        (each.held_range[1] - each.held_range[0]) * each.dtype.itemsize for each in joined.handles()
    ]
    for name in strategies(framework):
        saving = _open(name, framework, joined, world, folder)
        saving.ready()
        saving.save(SAVED)
        saving.close(complete=True)
    written_here = {
        name: _state_bytes(folder / name / version_name(STEPS))
        for name in (strategies(framework) if world.rank == 0 else ())
    }
    found = {
        **_in("saved", joined.state_dict()),
        "bytes": np.asarray(sizes),
        **_in("written", written_here),
    }
    for name in strategies(framework) if written is not None else ():
        _build(joined, ADAMW)
        version = read_version(Path(str(written)) / name / version_name(STEPS))
        _open(name, framework, joined, world, Path(str(written))).load(version)
        found |= _in(name, joined.state_dict())
    replicas = PyTorch(world)  # in the process group of the other
    for kind, each in (("shards", joined), ("replicas", replicas)):
        _train(each, world, SGD, 1)
        found |= _in(kind, each.state_dict())
    return found


def _state_bytes(folder: Path) -> np.ndarray:
    files = read_version(folder).files.values()
    return np.asarray([file.bytes for file in files if file.kind == "state"])


def _build(framework: Framework, optimizer: Optimizer) -> None:
    framework.build(TrainSpec(NETWORK, varied_weights(NETWORK), optimizer))


def _train(framework: Framework, world: RankContext, optimizer: Optimizer, steps: int) -> None:
    _build(framework, optimizer)
    for step in range(steps):
        drawn = np.random.default_rng((step, world.rank))
        tokens = drawn.integers(VOCABULARY, size=(SEQUENCES, LENGTH + 1))
        framework.step(tokens[:, :-1].copy(), tokens[:, 1:].copy())


def _open(
    name: str, framework: str, joined: Framework, world: RankContext, folder: Path
) -> CheckpointManager:
    return open_strategy(
        PluginSpec(name),
        joined,
        world,
        format=formats_of(framework, name)[0],
        store=CheckpointStore(folder / name, keep=1),
    )


def _in(group: str, found: Arrays) -> Arrays:
    return {f"{group}/{name}": array for name, array in found.items()}


if __name__ == "__main__":
    main({"shards": shards})
