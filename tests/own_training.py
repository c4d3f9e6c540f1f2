"""A training of plain Python, which tests measure by the probe's explicit way in: 20 steps, a file every so many."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml

from ckptbench.own.record import read_run

TRAINING = """
import sys, time
from ckptbench_probe import session

folder, every = sys.argv[1], int(sys.argv[2])
with session() as s:
    for step in range(1, 21):
        time.sleep(0.002)
        s.step()
        if step % every == 0:
            with s.checkpoint(f"{folder}/step-{step}"):
                time.sleep(0.002)
                with open(f"{folder}/step-{step}", "w") as file:
                    file.write("x" * 1000)
print("printed")
"""
"""Its arguments are the folder and the interval."""


def write_study(folder: Path, *, code: str = TRAINING, repeats: int = 1, **own: object) -> str:
    """The training in `folder`, and a config that studies it at two intervals. Returns the path of the config, from there."""
    (folder / "train.py").write_text(code)
    settings = {
        "command": f"{sys.executable} train.py {{folder}} {{interval}}",
        "values": {"interval": [5, 10]},
        "baseline": {"interval": 1_000_000},
    }
    (folder / "own.yaml").write_text(yaml.safe_dump({"own": settings | own, "repeats": repeats}))
    return "own.yaml"


def complete_runs(folder: Path) -> dict[str, dict[str, Any]]:
    """What run.json says of each complete run below the checkout `folder`, by the id of its cell, in the order in which they were made."""
    runs = [read_run(seal.parent) for seal in folder.glob("results/own/runs/*/seal.json")]
    runs.sort(key=lambda run: run.content["started_unix_s"])
    return {run.cell.id: dict(run.content) for run in runs}
