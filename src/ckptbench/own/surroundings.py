"""The environment of a user's command: that in which they started the workflow, without the workflow's own Python."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from ckptbench.common.errors import LaunchError
from ckptbench.own.cell import OwnCell

OF_A_STEP = (
    "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_STEP_ID", "SLURM_STEPID", "SLURM_STEP_NODELIST", "SLURM_STEP_NUM_NODES",
    "SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE", "SLURM_NTASKS_PER_NODE", "SLURM_NPROCS",
    "SLURM_CPU_BIND", "SLURM_CPU_BIND_LIST", "SLURM_CPU_BIND_TYPE", "SLURM_CPU_BIND_VERBOSE", "PMI_RANK", "PMI_SIZE",
)  # fmt: skip
"""The workflow runs in a step of Slurm with one task. To the command these would say that it is this task."""


def given_to(process: int) -> dict[str, str]:
    """The environment that this process of the same user was started with. What it has changed since is not in it.

    Raises LaunchError where there is no such process any more.
    """
    try:
        entries = Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError) as error:
        raise LaunchError("the workflow that started this run is gone") from error
    pairs = (os.fsdecode(entry).partition("=") for entry in entries if b"=" in entry)
    return {name: value for name, _, value in pairs}


def of_user(given: Mapping[str, str]) -> dict[str, str]:
    """The environment without the folder of the workflow's Python in PATH, and without its virtual environment."""
    own = Path(sys.executable).parent
    kept = dict(given)
    if "PATH" in kept:
        parts = kept["PATH"].split(os.pathsep)
        kept["PATH"] = os.pathsep.join(part for part in parts if Path(part) != own)
    if kept.get("VIRTUAL_ENV") == str(own.parent):
        del kept["VIRTUAL_ENV"]
        kept.pop("VIRTUAL_ENV_PROMPT", None)
    return kept


def of_command(cell: OwnCell, given: Mapping[str, str], folder: str) -> dict[str, str]:
    """The environment of the cell's command. `given` is that of the workflow, `folder` that of the run's checkpoints."""
    kept = of_user(given)
    if "SLURM_JOB_ID" in kept:
        kept = {name: value for name, value in kept.items() if name not in OF_A_STEP}
        # srun in the command starts the ranks, beside the workflow's own step.
        kept |= {"SLURM_NTASKS": str(cell.ranks), "SLURM_OVERLAP": "1"}
    return kept | cell.variables(folder)


def check_program(cell: OwnCell, environment: Mapping[str, str]) -> None:
    """Raises LaunchError where the program of the command, or its directory, is not there."""
    directory = Path(cell.directory).absolute()
    if not directory.is_dir():
        raise LaunchError(f"own.directory is {cell.directory!r}: there is no such folder")
    program = cell.words("")[0]
    path = environment.get("PATH", os.defpath)
    named = directory / program if "/" in program else Path(program)
    if shutil.which(str(named), path=path) is None:
        python = Path(sys.executable).parent
        where = (
            f"in {directory}"
            if "/" in program
            else f"on PATH ({python}, which has Snakemake's own programs, is left out)"
        )
        raise LaunchError(
            f"the program of own.command, {program}, is not there, or not executable, {where}: activate the environment that trains, or "
            "write the program's whole path"
        )
