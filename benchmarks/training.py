"""What the benchmarks in this folder train: a network of PyTorch on random images or tokens, and the strategies over it."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ckptbench.checkpointing.levels import Levels
from ckptbench.checkpointing.manager import CheckpointManager
from ckptbench.frameworks.contract import AdamW, Optimizer, Sgd, TrainSpec
from ckptbench.frameworks.pytorch import PyTorch
from ckptbench.inputs.datasets.dataset import Inputs
from ckptbench.matrix.levels import SHARED
from ckptbench.matrix.networks.models import READ_TOKENS, network_of
from ckptbench.matrix.plugin_spec import PluginSpec
from ckptbench.matrix.registry import FRAMEWORKS, Precision, formats_of, load
from ckptbench.run.control.ranks import RankContext
from ckptbench.run.identity import Identity
from ckptbench.run.position import Position
from ckptbench.run.recorder import Recorder

RESULTS = Path(__file__).resolve().parents[1] / "results"
OVER_PYTORCH = ("pytorch", "pytorch_fsdp")
IMAGE, CLASSES = (32, 32, 3), 10
LENGTH, VOCABULARY = 256, 256
"""Tokens of a sequence, and their kinds: bytes."""
OPTIMIZERS: dict[str, Optimizer] = {
    "sgd": Sgd(learning_rate=0.001, momentum=0.9, weight_decay=0.0),
    "adamw": AdamW(learning_rate=0.0003, weight_decay=0.1),
}
IDENTITY = Identity(
    run_id="0" * 32,
    cell={"framework": "pytorch"},
    training={"seed": 1},
    dataset_sha256="0" * 64,
    lock_sha256="0" * 64,
)


def one_rank() -> RankContext:
    """A rank that is alone and has all cores."""
    return RankContext(
        rank=0, world_size=1, local_rank=0, node="here", threads=len(os.sched_getaffinity(0)),
        addresses=("127.0.0.1:1",),
    )  # fmt: skip


def build(
    framework: PyTorch,
    model: str,
    *,
    optimizer: str = "sgd",
    precision: Precision = "fp32",
    length: int = LENGTH,
) -> None:
    """`length` is that of a sequence, where the model learns from tokens."""
    shape = ((length,), VOCABULARY) if model in READ_TOKENS else (IMAGE, CLASSES)
    network = network_of(model, *shape)
    weights = dict(network.initial_weights(1))
    framework.build(TrainSpec(network, weights, OPTIMIZERS[optimizer], precision))


def batch_of(
    model: str, batch: int, *, seed: int, length: int = LENGTH
) -> tuple[Inputs, NDArray[np.int64]]:
    """Random inputs and labels."""
    draw = np.random.default_rng(seed)
    if model in READ_TOKENS:
        tokens = draw.integers(VOCABULARY, size=(batch, length + 1))
        return tokens[:, :-1].copy(), tokens[:, 1:].copy()
    return draw.random((batch, *IMAGE), np.float32), draw.integers(CLASSES, size=batch)


class Training:
    """A network, and one batch with which it takes every step."""

    def __init__(
        self,
        world: RankContext,
        model: str,
        batch: int,
        *,
        framework: str = OVER_PYTORCH[0],
        optimizer: str = "sgd",
        precision: Precision = "fp32",
        length: int = LENGTH,
    ) -> None:
        self._batch = batch_of(model, batch, seed=world.rank, length=length)
        kind = load(FRAMEWORKS[framework].location)
        self.framework: PyTorch = kind.join(world, seed=1, deterministic=False)
        build(self.framework, model, optimizer=optimizer, precision=precision, length=length)

    def train(self, steps: int) -> None:
        for _ in range(steps):
            self.framework.step(*self._batch)


class Saver(CheckpointManager):
    """A strategy as a run calls it, with the framework's default format and a store of its own."""

    def __init__(
        self, name: str, framework: PyTorch, world: RankContext, folder: Path, *, keep: int
    ) -> None:
        """Versions are in `folder`; the trace is beside it."""
        levels = Levels({SHARED: folder}, keep=keep)
        self.store = levels.shared
        self.trace = folder.with_name(f"{folder.name}-{world.rank}.jsonl")
        self.saves = 0
        super().__init__(
            PluginSpec(name),
            training_state=framework,
            barrier=framework.barrier,
            world=world,
            format=formats_of("pytorch", name)[0],
            identity=IDENTITY,
            levels=levels,
            recorder=Recorder(self.trace),
            on_stage=lambda stage: None,
        )

    def save_next(self) -> None:
        self.saves += 1
        self.save(Position(step=self.saves, epoch=0, step_in_epoch=self.saves))
