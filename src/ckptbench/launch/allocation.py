"""The nodes that the scheduler gave to this job, and the assignment of each rank on them."""

from __future__ import annotations

import dataclasses
import logging
import os
import socket
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ckptbench.common.errors import LaunchError
from ckptbench.common.remedies import blame
from ckptbench.run.control.ranks import RankAssignment, assign_ranks, same_host

log = logging.getLogger(__name__)

Scheduler = Literal["none", "slurm", "gridengine", "pbs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """The nodes that a run may use."""

    scheduler: Scheduler
    job_id: str | None
    nodes: tuple[str, ...]
    """Their names, as the scheduler spells them."""
    here: str | None
    """The node on which this process runs. None: it runs on another host, such as a login node."""

    def assignments(self, ranks: int) -> tuple[RankAssignment, ...]:
        """The first ranks are on the first node, the next on the second, as evenly as possible.

        Raises LaunchError where there are fewer ranks than nodes.
        """
        if ranks < len(self.nodes):
            raise LaunchError(
                f"job {self.job_id} holds {len(self.nodes)} nodes for {ranks} ranks: ask for "
                "fewer nodes, or let tasks-per-node decide"
            )
        share, rest = divmod(ranks, len(self.nodes))
        names = [
            name for n, name in enumerate(self.nodes) for _ in range(share + (1 if n < rest else 0))
        ]
        return assign_ranks(names)


def read_allocation(environment: Mapping[str, str]) -> Allocation:
    """The allocation of the job that this process belongs to. Without a scheduler it is this machine."""
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


def own_allocation(environment: Mapping[str, str]) -> Allocation:
    """The nodes for the run that this process carries out: those of its job if the workflow has submitted it.

    In a job of the user's own (of salloc, say) every run uses this node alone, with the cores that the job has here.
    """
    allocation = read_allocation(environment)
    if environment.get("SUBMITIT_EXECUTOR") == allocation.scheduler or allocation.here is None:
        return allocation
    if len(allocation.nodes) > 1:
        log.warning(
            "job %s has %d nodes, and this run uses only %s: a cluster's profile gives runs nodes of their own",
            allocation.job_id,
            len(allocation.nodes),
            allocation.here,
        )
    return dataclasses.replace(allocation, scheduler="none", nodes=(allocation.here,))


def _job(environment: Mapping[str, str]) -> tuple[Scheduler, str | None]:
    """The scheduler that runs this process, and the id of the job. A requeued job keeps its id."""
    if "SLURM_JOB_ID" in environment and "SLURM_JOB_NODELIST" in environment:
        array, task = (environment.get(f"SLURM_ARRAY_{name}") for name in ("JOB_ID", "TASK_ID"))
        return "slurm", f"{array}_{task}" if array and task else environment["SLURM_JOB_ID"]
    if "JOB_ID" in environment and "SGE_ROOT" in environment:
        task = environment.get("SGE_TASK_ID", "undefined")
        job_id = environment["JOB_ID"]
        return "gridengine", job_id if task == "undefined" else f"{job_id}.{task}"
    if "PBS_JOBID" in environment and "PBS_NODEFILE" in environment:
        # submitit may continue a job in a second job. Both then have the id of the first.
        return "pbs", environment.get("SUBMITIT_PBS_JOB_ID", environment["PBS_JOBID"])
    return "none", None


def scheduler_job(environment: Mapping[str, str]) -> str | None:
    """The id of the scheduler's job. A requeued job keeps it. None outside of a job."""
    return _job(environment)[1]


def was_requeued(environment: Mapping[str, str]) -> bool | None:
    """Whether this job has run before. None: nobody says so.

    PBS does not, and submitit only in the jobs that it has submitted.
    """
    match _job(environment)[0]:
        case "slurm":
            return environment.get("SLURM_RESTART_COUNT", "0") != "0"
        case "gridengine":
            return environment.get("RESTARTED") == "1"
        case "pbs":
            return {"0": False, "1": True}.get(environment.get("SUBMITIT_PBS_RESTARTED", ""))
        case "none":
            return False


def granted_cores(environment: Mapping[str, str]) -> int:
    """Number of cores of this host that the job may use: the smaller of its CPU affinity and the scheduler's grant."""
    usable = len(os.sched_getaffinity(0))
    granted = {
        "slurm": environment.get("SLURM_CPUS_ON_NODE"),
        "gridengine": _slots_here(environment),
        "pbs": environment.get("NCPUS"),
    }.get(_job(environment)[0])
    return min(usable, int(granted)) if granted else usable


def _slots_here(environment: Mapping[str, str]) -> str | None:
    """The slots of a Grid Engine parallel environment on this host. None where the site grants whole nodes."""
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
            f"the nodes of job {environment['SLURM_JOB_ID']} cannot be read ({error}): is scontrol "
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
    """The hosts of a Grid Engine job. SGE_JOB_HOSTLIST lists them where a site grants whole nodes by a resource."""
    names = ("PE_HOSTFILE", "SGE_JOB_HOSTLIST")
    path = next((environment[name] for name in names if environment.get(name)), None)
    return _first_words(path) if path else []


def _first_words(path: str) -> list[str]:
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        words = blame(error, path, "ask those who run the cluster", reading=True)
        raise LaunchError(
            f"the scheduler's list of nodes, {path}, cannot be read: {words}"
        ) from error
    return [line.split()[0] for line in lines if line.split()]


def _listed(scheduler: Scheduler, job_id: str | None, hosts: list[str]) -> Allocation:
    """`hosts` may name a host several times: once for each slot. An empty list means this machine."""
    own = socket.gethostname()
    nodes = tuple(dict.fromkeys(hosts)) or (own,)
    here = next((node for node in nodes if same_host(node, own)), None)
    return Allocation(scheduler=scheduler, job_id=job_id, nodes=nodes, here=here)
