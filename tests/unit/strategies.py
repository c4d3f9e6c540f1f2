"""Strategies without a training loop: opened as the loop opens them, over the NumPy framework."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from numpy_framework import ALONE

from ckptbench.checkpointing.levels import Levels
from ckptbench.checkpointing.manager import CheckpointManager
from ckptbench.checkpointing.store import CheckpointStore
from ckptbench.frameworks.contract import Framework
from ckptbench.matrix.levels import SHARED
from ckptbench.matrix.plugin_spec import PluginSpec
from ckptbench.matrix.registry import NATIVE
from ckptbench.run.control.ranks import RankContext
from ckptbench.run.identity import Identity
from ckptbench.run.recorder import Recorder

IDENTITY = Identity(
    run_id="a1" * 16,
    cell={"framework": "numpy", "ranks": 1},
    training={"seed": 1, "learning_rate": 0.1},
    dataset_sha256="d" * 64,
    lock_sha256="e" * 64,
)


def levels_with(store: CheckpointStore) -> Levels:
    """The shared level alone."""
    levels = Levels({SHARED: store.folder}, keep=1)
    levels.shared = store
    return levels


def timed(
    store: CheckpointStore,
    training_state: Framework,
    world: RankContext = ALONE,
    *,
    format: str = "npz",
    spec: PluginSpec = NATIVE,
    on_stage: Callable[[str], None] = lambda stage: None,
    trace: Path | None = None,
) -> CheckpointManager:
    """The strategy of one rank; `trace` takes its events, by default a file beside the store."""
    store.folder.parent.mkdir(parents=True, exist_ok=True)
    return CheckpointManager(
        spec,
        training_state=training_state,
        barrier=training_state.barrier,
        world=world,
        format=format,
        identity=IDENTITY,
        levels=levels_with(store),
        recorder=Recorder(
            trace or store.folder.with_name(f"{store.folder.name}-{world.rank}.jsonl")
        ),
        on_stage=on_stage,
    )
