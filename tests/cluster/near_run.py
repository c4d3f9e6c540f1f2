"""What runs in a scheduler's job: a run that keeps its checkpoints on its nodes, is killed, and loses a node meanwhile.

Run as `python near_run.py FOLDER PYTHON`. It trains one cell four times with PyTorch, a rank on each node of the job: whole;
killed between two checkpoints; and with a failure that kills the second node from outside, under two recoveries. The outcome is `outcome.json`.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import traceback
from pathlib import Path

from ckptbench.config.inputs import sizes_of
from ckptbench.inputs.datasets.dataset import Dataset, dataset_sha256
from ckptbench.inputs.datasets.sources import prepare
from ckptbench.inputs.environments.lock_file import pinned_sha256
from ckptbench.launch.run import Execution, run_cell
from ckptbench.matrix.cell import Cell
from ckptbench.matrix.interval import Interval
from ckptbench.matrix.plugin_spec import PluginSpec
from ckptbench.matrix.training import Training
from ckptbench.run.failure import Failure
from ckptbench.run.plan import RunSpec

RANKS = 3
STEPS = 12
BETWEEN = 2
IMAGES = {"height": 16, "width": 16, "channels": 3, "classes": 4, "train_samples": 288, "test_samples": 16}  # fmt: skip
TRAINING = Training(
    seed=1,
    learning_rate=0.01,
    momentum=0.9,
    weight_decay=0.0,
    steps_per_epoch=None,
    test_samples=16,
    warmup_steps=1,
    keep_during_run=2,
    proof=True,
)


STRUCK = {"struck": "restart", "struck_torchrun": "torchrun"}
"""What the runs with a listed failure are called here, where the others are by their faults, and their recoveries."""
FAILURE = {"step": 7, "node": 1}


def spec_of(folder: Path, history: str, lock: Path) -> RunSpec:
    """Every second step has a checkpoint in the memory of the nodes, and every fourth one in the shared folder."""
    cell = Cell(
        framework="pytorch",
        model="small_cnn",
        dataset="synthetic",
        ranks=RANKS,
        batch_size=8,
        epochs=1,
        format="safetensors",
        interval=Interval.parse(f"s{BETWEEN}"),
        deterministic=True,
        strategy=PluginSpec("deepfreeze", (("memory", 1), ("shared", 2))),
        **(
            {
                "faults": PluginSpec("listed", (("name", "node"),)),
                "recovery": PluginSpec(STRUCK[history]),
            }
            if history in STRUCK
            else {"faults": PluginSpec(history)}
        ),
    )
    dataset = folder / "dataset"
    return RunSpec(
        cell=cell,
        training=TRAINING,
        dataset_folder=dataset,
        run_folder=folder / history,
        checkpoint_folder=folder / history / "checkpoints",
        memory_folder=folder / "memory",
        dataset_sha256=dataset_sha256(dataset),
        lock_sha256=pinned_sha256(lock),
        sizes=sizes_of(cell.model, Dataset.open(dataset)),
        listed=(Failure(**FAILURE),) if history in STRUCK else (),
    )


def train(folder: Path, python: Path) -> None:
    prepare("synthetic", folder / "dataset", IMAGES)
    for history in ("none", "killed_between", *STRUCK):
        logs = folder / f"logs-{history}"
        lock = folder / "lock.txt"
        lock.write_text("none\n")
        run_cell(
            spec_of(folder, history, lock),
            Execution(python=python, lock=lock.name, logs=logs, timeout_seconds=900),
        )


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
    # As in the jobs of the workflow, whose runs use all of their nodes.
    os.environ["SUBMITIT_EXECUTOR"] = "slurm"
    folder, python = Path(sys.argv[1]), Path(sys.argv[2])
    error = None
    try:
        train(folder, python)
    except Exception:  # noqa: BLE001 (the test tells it)
        error = traceback.format_exc()
    new = folder / "outcome.new"
    new.write_text(json.dumps({"error": error}))
    new.replace(folder / "outcome.json")


if __name__ == "__main__":
    main()
