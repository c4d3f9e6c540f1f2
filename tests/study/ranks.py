"""Runs one scenario of `scenarios.py` in every rank of a framework's environment and brings back what it found."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

from ckptbench import place
from ckptbench.frameworks import FRAMEWORKS
from ckptbench.launch import Process, free_addresses, run_processes

ROOT = Path(__file__).resolve().parents[2]
SCENARIOS = Path(__file__).with_name("scenarios.py")
Found = dict[str, np.ndarray[Any, Any]]


def run_scenario(
    framework: str, scenario: str, folder: Path, *, ranks: int = 1, **options: Any
) -> list[Found]:
    """The arrays that each rank saved, in the order of the ranks."""
    folder.mkdir(parents=True, exist_ok=True)
    python = ROOT / ".environments" / framework / "bin" / "python"
    command = [str(python), str(SCENARIOS), framework, scenario, str(folder), json.dumps(options)]
    logs = [folder / f"rank-{rank}.log" for rank in range(ranks)]
    if ranks > 1 and FRAMEWORKS[framework].launcher == "mpiexec":
        mpiexec = [str(python.parent / "mpiexec"), "-n", str(ranks)]
        processes = [Process([*mpiexec, *command], {}, logs)]
    else:
        processes = [
            Process(command, {place.RANK: str(rank)}, [logs[rank]]) for rank in range(ranks)
        ]
    told = place.rank_environment(
        ranks=ranks,
        threads=1,
        addresses=free_addresses(ranks),
        logs=str(folder),
        launched_ns=0,
    )
    environment = {**os.environ, **told, "PYTHONPATH": str(ROOT / "src")}
    run_processes(processes, environment, timeout_seconds=300)
    return [read(folder / f"found-{rank}.npz") for rank in range(ranks)]


def read(path: Path) -> Found:
    with np.load(path, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def environment_is_ready(framework: str) -> bool:
    python = ROOT / ".environments" / framework / "bin" / "python"
    return python.exists() and subprocess.run([python, "-c", ""], check=False).returncode == 0
