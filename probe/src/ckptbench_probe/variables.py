"""Environment variables: by which the launcher reaches the processes, and by which launchers of trainings say who is who."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass

FOLDER = "CKPTBENCH_PROBE_FOLDER"
"""Absolute path of the folder that the processes write to."""
RUN = "CKPTBENCH_PROBE_RUN"
"""Name of the run: traces of several may lie in one folder."""
CHECK = "CKPTBENCH_PROBE_CHECK"
"""What `ckptbench-probe check` looks at in each process: a key of `check.armed.CHECKS`. Not set in a plain `run`, empty in `compare`."""
END_AT = "CKPTBENCH_PROBE_END_AT"
"""Updates after which a rank ends the training by SIGKILL, in `check resume`."""
END_BEFORE = "CKPTBENCH_PROBE_END_BEFORE"
"""Updates after which a rank ends the training as it begins the next one: what it saves after the last of them is seen."""
STOP_AT = "CKPTBENCH_PROBE_STOP_AT"
"""Updates after which a rank waits for the signal of `check stop`."""
STOP_BY = "CKPTBENCH_PROBE_STOP_BY"
"""Name of that signal, and `itself` where a rank sends it itself, as `SIGTERM itself`."""
KILL_IN = "CKPTBENCH_PROBE_KILL_IN"
"""Folder of checkpoints in which `check kill` notes what the saves do."""
KILL_AT = "CKPTBENCH_PROBE_KILL_AT"
"""Updates between which the events of a save lie, and the rank, the number of the event and how far it gets, as `6 8 0 5 half`; without these, the end of all that
the save does. `record 3`: the begin of the save after the third one."""
FAIL_AT = "CKPTBENCH_PROBE_FAIL_AT"
"""How `check fail` refuses a save, the updates between which it does, and the saves before, as `full 6 8 2`."""
PARTS = "CKPTBENCH_PROBE_PARTS"
"""Whether `check resume` records of each tensor the part that a rank has, as `1`: another number of ranks is to resume."""
DATA = "CKPTBENCH_PROBE_DATA"
"""Whether `check resume` records what the model is given, as `1`."""

RANKS = (
    ("RANK", "WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMIX_RANK", "PMIX_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
)
"""Of torchrun, srun, Open MPI, PMIx, and MPICH."""
RESTARTS = ("TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT")


@dataclass(frozen=True)
class Seat:
    """Who a process is in its training."""

    rank: int
    ranks: int


def seat_by_environment(environment: Mapping[str, str]) -> Seat | None:
    for rank, ranks in RANKS:
        if environment.get(rank, "").isdigit():
            size = environment.get(ranks, "")
            return Seat(int(environment[rank]), int(size) if size.isdigit() else 1)
    return None


def task_of_slurm(environment: Mapping[str, str]) -> Seat | None:
    """Which task of a step this is. None of a step of one task: a shell of `srun --pty bash` runs several commands, which are several runs."""
    own, ranks = environment.get("SLURM_PROCID", ""), environment.get("SLURM_NTASKS", "")
    in_step = environment.get("SLURM_JOB_ID") and environment.get("SLURM_STEP_ID")
    if not in_step or not own.isdigit() or not ranks.isdigit() or int(ranks) == 1:
        return None
    return Seat(int(own), int(ranks))


def seat() -> Seat | None:
    """By PyTorch's process group where there is one: processes that a script spawns itself have no variables. Else by the environment."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return Seat(distributed.get_rank(), distributed.get_world_size())
    return seat_by_environment(os.environ)
