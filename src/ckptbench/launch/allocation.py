"""Where the ranks of a run sit: what the scheduler gave this job, in the scheduler's own words."""

from __future__ import annotations

import os
import socket
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ckptbench.errors import LaunchError

Scheduler = Literal["none", "slurm", "gridengine", "pbs"]


@dataclass(frozen=True, slots=True)
class Seat:
    """The place of one rank: its node, and its number among the ranks of that node."""

    rank: int
    node: str
    local_rank: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """The nodes that a run may use."""

    scheduler: Scheduler
    job_id: str | None
    nodes: tuple[str, ...]
    """Their names as the scheduler calls them."""
    here: str | None
    """The one on which this process runs; None where it is none of them (a login node)."""

    def seats(self, ranks: int) -> tuple[Seat, ...]:
        """Block-wise: the first ranks on the first node, and as even as can be."""
        if ranks < len(self.nodes):
            raise LaunchError(
                f"job {self.job_id} holds {len(self.nodes)} nodes for {ranks} ranks: ask for "
                "fewer nodes, or let tasks-per-node decide"
            )
        share, rest = divmod(ranks, len(self.nodes))
        names = [
            name for n, name in enumerate(self.nodes) for _ in range(share + (1 if n < rest else 0))
        ]
        return seats_of(names)


def seats_of(nodes: list[str]) -> tuple[Seat, ...]:
    """The seats of ranks 0, 1, ... given the node of each."""
    taken: Counter[str] = Counter()
    seats = []
    for rank, node in enumerate(nodes):
        seats.append(Seat(rank, node, taken[node]))
        taken[node] += 1
    return tuple(seats)


def ranks_a_node(seats: Sequence[Seat]) -> int:
    """Of the fullest node."""
    return 1 + max(seat.local_rank for seat in seats)


def read_allocation(environment: Mapping[str, str]) -> Allocation:
    """The allocation of the job that this process belongs to; without a scheduler, this machine."""
    scheduler, job_id = _job(environment)
    match scheduler:
        case "slurm":
            return _slurm(environment)
        case "gridengine":
            hosts = _grid_engine_hosts(environment)
        case "pbs":
            hosts = _first_words(environment["PBS_NODEFILE"])
        case "none":
            hosts = []
    return _listed(scheduler, job_id, hosts)


def _job(environment: Mapping[str, str]) -> tuple[Scheduler, str | None]:
    """Which scheduler runs this process, and the id that a requeue of its job keeps."""
    if "SLURM_JOB_ID" in environment and "SLURM_JOB_NODELIST" in environment:
        array, task = (environment.get(f"SLURM_ARRAY_{name}") for name in ("JOB_ID", "TASK_ID"))
        return "slurm", f"{array}_{task}" if array and task else environment["SLURM_JOB_ID"]
    if "JOB_ID" in environment and "SGE_ROOT" in environment:
        task = environment.get("SGE_TASK_ID", "undefined")
        job_id = environment["JOB_ID"]
        return "gridengine", job_id if task == "undefined" else f"{job_id}.{task}"
    if "PBS_JOBID" in environment and "PBS_NODEFILE" in environment:
        # submitit may have to follow a job up with another, which it takes for the same.
        return "pbs", environment.get("SUBMITIT_PBS_JOB_ID", environment["PBS_JOBID"])
    return "none", None


def scheduler_job(environment: Mapping[str, str]) -> str | None:
    """The id of the scheduler's job, None outside of one; a requeued job keeps it."""
    return _job(environment)[1]


def was_requeued(environment: Mapping[str, str]) -> bool | None:
    """Whether this job has run before, as its scheduler says; None where it does not say."""
    match _job(environment)[0]:
        case "slurm":
            return environment.get("SLURM_RESTART_COUNT", "0") != "0"
        case "gridengine":
            return environment.get("RESTARTED") == "1"
        case "pbs":
            return None
        case "none":
            return False


def granted_cores(environment: Mapping[str, str]) -> int:
    """Cores of this host that the job may use: those of its affinity, or fewer where the scheduler granted fewer."""
    usable = len(os.sched_getaffinity(0))
    granted = {
        "slurm": environment.get("SLURM_CPUS_ON_NODE"),
        "gridengine": _slots_here(environment),
        "pbs": environment.get("NCPUS"),
    }.get(_job(environment)[0])
    return min(usable, int(granted)) if granted else usable


def _slots_here(environment: Mapping[str, str]) -> str | None:
    """A parallel environment's slots on this host; whole nodes granted by a resource have none to count."""
    if environment.get("SGE_JOB_HOSTLIST"):
        return None
    path = environment.get("PE_HOSTFILE")
    if not path:
        return environment.get("NSLOTS")
    rows = [line.split() for line in Path(path).read_text(encoding="utf-8").splitlines()]
    own = socket.gethostname()
    return next((row[1] for row in rows if row and same_host(row[0], own)), None)


def _slurm(environment: Mapping[str, str]) -> Allocation:
    command = ["scontrol", "show", "hostnames", environment["SLURM_JOB_NODELIST"]]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        raise LaunchError(
            f"the nodes of job {environment['SLURM_JOB_ID']} cannot be told ({error}): is scontrol "
            "on the PATH of the compute nodes?"
        ) from error
    nodes = tuple(done.stdout.split())
    here = environment.get("SLURMD_NODENAME")
    return Allocation(
        scheduler="slurm",
        job_id=_job(environment)[1],
        nodes=nodes,
        here=here if here in nodes else None,
    )


def _grid_engine_hosts(environment: Mapping[str, str]) -> list[str]:
    """A parallel environment's hosts; SGE_JOB_HOSTLIST is where a site grants whole nodes by a resource."""
    names = ("PE_HOSTFILE", "SGE_JOB_HOSTLIST")
    path = next((environment[name] for name in names if environment.get(name)), None)
    return _first_words(path) if path else []


def _first_words(path: str) -> list[str]:
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise LaunchError(f"the scheduler's list of nodes cannot be read: {error}") from error
    return [line.split()[0] for line in lines if line.split()]


def _listed(scheduler: Scheduler, job_id: str | None, hosts: list[str]) -> Allocation:
    """`hosts` may name one several times, once a slot; this process runs on one of them."""
    own = socket.gethostname()
    nodes = tuple(dict.fromkeys(hosts)) or (own,)
    here = next((node for node in nodes if same_host(node, own)), None)
    return Allocation(scheduler=scheduler, job_id=job_id, nodes=nodes, here=here)


def same_host(one: str, other: str) -> bool:
    """Whether two names are of one host, with or without its domain."""
    if one.replace(".", "").isdigit():  # an address has no domain
        return one == other
    return one.partition(".")[0] == other.partition(".")[0]
