"""Runs one scenario of `scenarios.py` in every rank of a framework's environment and brings back what it found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from warm.environments import warm_environments

from ckptbench.launch.allocation import read_allocation
from ckptbench.launch.limits import Limits
from ckptbench.launch.ranks import run_ranks
from ckptbench.launch.starters import Program
from ckptbench.matrix.registry import FRAMEWORKS, environment_of

SCENARIOS = Path(__file__).with_name("scenarios.py")
Found = dict[str, np.ndarray[Any, Any]]


def run_scenario(
    framework: str,
    scenario: str,
    folder: Path,
    *,
    ranks: int = 1,
    script: Path = SCENARIOS,
    **options: Any,
) -> list[Found]:
    """The arrays that each rank saved, in the order of the ranks."""
    folder.mkdir(parents=True, exist_ok=True)
    python = warm_environments() / environment_of(framework) / "bin" / "python"
    command = [str(python), str(script), framework, scenario, str(folder), json.dumps(options)]
    speaks_mpi = FRAMEWORKS[framework].launcher == "mpiexec"
    program = Program(
        command=command, logs=folder, mpiexec=python.parent / "mpiexec" if speaks_mpi else None
    )
    run_ranks(program, ranks, read_allocation({}), Limits(timeout_seconds=300), threads=1)
    return [read(folder / f"found-{rank}.npz") for rank in range(ranks)]


def read(path: Path) -> Found:
    with np.load(path, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def part_of(found: Found, part: str) -> Found:
    """What scenario `resume` found with one of its formats, or `several` in one of its parts."""
    return {
        name.removeprefix(f"{part}/"): array
        for name, array in found.items()
        if name.startswith(f"{part}/")
    }


def at_the_end(found: Found) -> Found:
    """What scenario `save` found of the state when training was over, without what it found when it saved."""
    return {n: array for n, array in found.items() if not n.startswith("saved/") and n != "left"}
