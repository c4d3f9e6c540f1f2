"""A training of two ranks over the small network, for tests of a single run."""

from __future__ import annotations

from ckptbench.matrix.cell import Cell
from ckptbench.matrix.interval import Interval
from ckptbench.matrix.registry import FRAMEWORKS
from ckptbench.matrix.training import Training

TRAINING = Training(
    seed=1,
    learning_rate=0.01,
    momentum=0.9,
    weight_decay=0.0,
    steps_per_epoch=30,
    test_samples=16,
    warmup_steps=2,
    keep_during_run=2,
)


def cell_of(framework: str, *, epochs: int, interval: str, deterministic: bool) -> Cell:
    return Cell(
        framework=framework,
        model="small_cnn",
        dataset="digits",
        ranks=2,
        batch_size=8,
        epochs=epochs,
        format=FRAMEWORKS[framework].formats[0],
        interval=Interval.parse(interval),
        deterministic=deterministic,
    )
