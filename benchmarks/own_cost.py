"""What ckptbench itself adds to the stall of a checkpoint. The promise: at most 3 % of the stall of a plain script.

PyTorch's ResNet-50 trains with momentum. After every few steps its state is saved twice, in random order: by a plain
script (`torch.save`, sync of file and folder, rename, removal of the oldest version), and by the strategy `native` as a
run calls it. Both keep the same number of versions on the same file system, so that a change in the machine's
speed affects both. Each run begins with empty folders. Its first checkpoints are written to fresh blocks, later ones to
blocks that a removed version has freed; they are reported apart.

ckptbench removes old versions behind training, so the steps after a checkpoint may be slower. `with the steps after it`
therefore compares the stall and the following steps together.

It needs PyTorch's environment, and `make benchmarks` starts it there:

    PYTHONPATH=src .environments/pytorch/bin/python benchmarks/own_cost.py
"""

from __future__ import annotations

import argparse
import os
import pickle
import random
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from ratio import report
from training import RESULTS, Saver, Training, one_rank

from ckptbench.frameworks.pytorch import PyTorch
from ckptbench.matrix.registry import NATIVE

PROMISE = 1.03
OWN, PLAIN = "ckptbench", "plain script"
Run = dict[str, list[tuple[float, float]]]
"""By kind, for each checkpoint of a run: the seconds of its stall, and of the steps after it."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--folder", type=Path, default=RESULTS, help="on the file system to measure"
    )
    parser.add_argument("--runs", type=int, default=6)
    parser.add_argument("--checkpoints", type=int, default=10, help="of each kind in a run")
    parser.add_argument("--steps", type=int, default=3, help="between two checkpoints")
    parser.add_argument("--keep", type=int, default=2, help="versions kept")
    options = parser.parse_args()
    options.folder.mkdir(exist_ok=True)
    training = Training(one_rank(), "resnet50", batch=16)
    training.train(3)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        runs = [
            one_run(Path(folder, f"run-{number}"), training, options, random.Random(number))
            for number in range(options.runs)
        ]
    show(runs, first=options.keep + 1)


class PlainScript:
    """What a careful user writes."""

    def __init__(self, folder: Path, framework: PyTorch, keep: int) -> None:
        folder.mkdir(parents=True)
        self.folder, self.framework, self.keep = folder, framework, keep
        self.saves = 0

    def save(self) -> None:
        self.saves += 1
        path = self.folder / f"checkpoint-{self.saves:08d}.pt"
        partial = path.with_suffix(".partial")
        state = {
            "model": self.framework.module.state_dict(),
            "optimizer": self.framework.optimizer.state_dict(),
            "random": [
                torch.get_rng_state(),
                pickle.dumps(np.random.get_state()),
                random.getstate(),
            ],
            "step": self.saves,
        }
        torch.save(state, partial)
        sync(partial)
        partial.rename(path)
        sync(self.folder)
        for old in sorted(self.folder.glob("checkpoint-*.pt"))[: -self.keep]:
            old.unlink()


def sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def one_run(
    folder: Path, training: Training, options: argparse.Namespace, draw: random.Random
) -> Run:
    plain = PlainScript(folder / "plain", training.framework, options.keep)
    own = Saver(NATIVE.name, training.framework, one_rank(), folder / "own", keep=options.keep)
    own.ready()
    savers: dict[str, Callable[[], None]] = {OWN: own.save_next, PLAIN: plain.save}
    run: Run = {OWN: [], PLAIN: []}
    for _ in range(options.checkpoints):
        for name in draw.sample(sorted(savers), len(savers)):
            begun = time.perf_counter()
            savers[name]()
            saved = time.perf_counter()
            training.train(options.steps)
            run[name].append((saved - begun, time.perf_counter() - saved))
    own.close()
    shutil.rmtree(folder)
    os.sync()
    return run


def show(runs: list[Run], *, first: int) -> None:
    """`first`: so many checkpoints of a run are written to fresh blocks."""
    groups = {
        f"checkpoints 1 to {first}": slice(None, first),
        f"steady state, from checkpoint {first + 1} on": slice(first, None),
    }
    for name, chosen in groups.items():
        pairs = [pair for run in runs for pair in zip(run[OWN][chosen], run[PLAIN][chosen], strict=True)]  # fmt: skip
        if pairs:
            seconds = np.asarray(pairs)  # (pairs, 2 kinds, stall and steps)
            print(f"{name}: stall")
            report(seconds[:, :, 0], OWN, PLAIN, promise=PROMISE)
            print(f"{name}: stall with the steps after it")
            report(seconds.sum(axis=2), OWN, PLAIN, promise=PROMISE)


if __name__ == "__main__":
    main()
