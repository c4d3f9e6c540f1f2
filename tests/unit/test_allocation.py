"""Who sits where: what the scheduler says, and the commands that start ranks there."""

from __future__ import annotations

import os
import re
import shlex
import socket
from pathlib import Path

import pytest

from ckptbench.common.errors import LaunchError
from ckptbench.launch.allocation import (
    Allocation,
    granted_cores,
    own_allocation,
    read_allocation,
    scheduler_job,
    was_requeued,
)
from ckptbench.launch.starters import PBS_RSH, TAKE, Program, rank_processes
from ckptbench.run.control import variables
from ckptbench.run.control.ranks import RankAssignment, same_host
from ckptbench.run.control.variables import rank_of

HOST = socket.gethostname()
MPIEXEC = Path("/env/bin/mpiexec")
LOGS = Path("/logs")
TRAIN = ["python", "-m", "train", "a plan.json"]


def on(scheduler: str, *nodes: str, here: str | None = None) -> Allocation:
    return Allocation(
        scheduler=scheduler,  # type: ignore[arg-type]
        job_id="7",
        nodes=nodes,
        here=here if here else nodes[0],
    )


def processes(allocation: Allocation, ranks: int, *, mpi: bool = False) -> list[list[str]]:
    program = Program(command=TRAIN, logs=LOGS, mpiexec=MPIEXEC if mpi else None)
    variables = {"CKPTBENCH_CONTROL": "n1:5", "PYTHONPATH": "/s"}
    started = rank_processes(program, allocation, allocation.assignments(ranks), variables)
    return [process.command for process in started]


def commands(allocation: Allocation, ranks: int, *, mpi: bool = False) -> list[str]:
    return [" ".join(words) for words in processes(allocation, ranks, mpi=mpi)]


def test_without_a_scheduler_all_ranks_sit_on_this_host() -> None:
    allocation = read_allocation({})
    assert allocation.scheduler == "none"
    assert allocation.assignments(2) == (RankAssignment(0, HOST, 0), RankAssignment(1, HOST, 1))


def test_ranks_fill_nodes_block_wise_and_evenly() -> None:
    assignments = on("slurm", "a", "b", "c").assignments(7)
    assert [assignment.node for assignment in assignments] == [*"aaabbcc"]
    assert [assignment.local_rank for assignment in assignments] == [0, 1, 2, 0, 1, 0, 1]


def test_more_nodes_than_ranks_is_an_error() -> None:
    with pytest.raises(LaunchError, match="job 7 holds 2 nodes for 1 ranks"):
        on("slurm", "a", "b").assignments(1)


def test_slurm_says_which_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scontrol = tmp_path / "scontrol"
    scontrol.write_text('#!/bin/sh\n[ "$*" = "show hostnames n[1-2]" ] && printf "n1\\nn2\\n"\n')
    scontrol.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    job = {"SLURM_JOB_ID": "12", "SLURM_JOB_NODELIST": "n[1-2]", "SLURMD_NODENAME": "n1"}
    assert read_allocation(job) == Allocation(
        scheduler="slurm", job_id="12", nodes=("n1", "n2"), here="n1"
    )
    del job["SLURMD_NODENAME"]  # the shell of an salloc runs on the login node
    assert read_allocation(job).here is None


def test_a_slurm_job_without_scontrol_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(LaunchError, match=r"job 12 cannot be read.*is scontrol on the PATH"):
        read_allocation({"SLURM_JOB_ID": "12", "SLURM_JOB_NODELIST": "n[1-2]"})


def test_grid_engine_lists_hosts_with_their_slots(tmp_path: Path) -> None:
    hosts = tmp_path / "pe_hostfile"
    hosts.write_text(f"{HOST} 2 main.q@{HOST} UNDEFINED\nnode2.site 2 main.q@node2 UNDEFINED\n")
    job = {"JOB_ID": "5", "SGE_ROOT": "/sge", "PE_HOSTFILE": str(hosts)}
    assert read_allocation(job) == Allocation(
        scheduler="gridengine", job_id="5", nodes=(HOST, "node2.site"), here=HOST
    )
    assert read_allocation({"JOB_ID": "5", "SGE_ROOT": "/sge"}).nodes == (HOST,)


def test_pbs_lists_a_host_once_a_slot(tmp_path: Path) -> None:
    hosts = tmp_path / "nodefile"
    hosts.write_text(f"{HOST}\n{HOST}\nhnode002\nhnode002\n")
    job = {"PBS_JOBID": "9.server", "PBS_NODEFILE": str(hosts)}
    assert read_allocation(job).nodes == (HOST, "hnode002")
    with pytest.raises(
        LaunchError, match=r"list of nodes, .*/gone, cannot be read: No such file or directory; ask"
    ):
        read_allocation({**job, "PBS_NODEFILE": str(tmp_path / "gone")})


@pytest.mark.parametrize(
    ("executor", "scheduler", "nodes"),
    [
        ({"SUBMITIT_EXECUTOR": "pbs"}, "pbs", (HOST, "hnode002")),
        ({"SUBMITIT_EXECUTOR": "local"}, "none", (HOST,)),
        ({}, "none", (HOST,)),
    ],
)
def test_in_a_job_of_the_users_own_a_run_uses_this_node_alone_with_its_cores_of_the_job(
    tmp_path: Path,
    executor: dict[str, str],
    scheduler: str,
    nodes: tuple[str, ...],
    caplog: pytest.LogCaptureFixture,
) -> None:
    hosts = tmp_path / "nodefile"
    hosts.write_text(f"{HOST}\nhnode002\n")
    job = {"PBS_JOBID": "9.server", "PBS_NODEFILE": str(hosts), "NCPUS": "1", **executor}
    found = own_allocation(job)
    assert (found.scheduler, found.nodes, found.here, found.job_id) == (
        scheduler,
        nodes,
        HOST,
        "9.server",
    )
    assert granted_cores(job) == 1
    assert ("uses " in caplog.text) == (scheduler == "none")


def test_a_login_node_with_an_allocation_is_no_node_of_it(tmp_path: Path) -> None:
    hosts = tmp_path / "nodefile"
    hosts.write_text("hnode001\nhnode002\n")
    found = own_allocation({"PBS_JOBID": "9.server", "PBS_NODEFILE": str(hosts)})
    assert (found.here, found.nodes) == (None, ("hnode001", "hnode002"))


@pytest.mark.parametrize(
    ("environment", "job_id", "requeued"),
    [
        ({}, None, False),
        ({"JOB_ID": "5"}, None, False),  # many a program sets it
        ({"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n1"}, "7", False),
        (
            {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n1", "SLURM_RESTART_COUNT": "2"},
            "7",
            True,
        ),
        (
            {
                "SLURM_JOB_ID": "9",
                "SLURM_JOB_NODELIST": "n1",
                "SLURM_ARRAY_JOB_ID": "7",
                "SLURM_ARRAY_TASK_ID": "2",
            },
            "7_2",
            False,
        ),
        ({"JOB_ID": "5", "SGE_ROOT": "/s", "SGE_TASK_ID": "undefined"}, "5", False),
        ({"JOB_ID": "5", "SGE_ROOT": "/s", "SGE_TASK_ID": "3", "RESTARTED": "1"}, "5.3", True),
        ({"PBS_JOBID": "9.s", "PBS_NODEFILE": "f"}, "9.s", None),
        ({"PBS_JOBID": "10.s", "PBS_NODEFILE": "f", "SUBMITIT_PBS_JOB_ID": "9"}, "9", None),
        ({"PBS_JOBID": "9.s", "PBS_NODEFILE": "f", "SUBMITIT_PBS_RESTARTED": "0"}, "9.s", False),
        ({"PBS_JOBID": "9.s", "PBS_NODEFILE": "f", "SUBMITIT_PBS_RESTARTED": "1"}, "9.s", True),
    ],
)
def test_a_job_has_the_id_that_its_requeue_keeps(
    environment: dict[str, str], job_id: str | None, requeued: bool | None
) -> None:
    assert scheduler_job(environment) == job_id
    assert was_requeued(environment) is requeued


def test_cores_are_those_that_the_scheduler_granted_on_this_host(tmp_path: Path) -> None:
    usable = len(os.sched_getaffinity(0))
    hosts = tmp_path / "pe_hostfile"
    hosts.write_text(f"elsewhere 9 q UNDEFINED\n{HOST} 1 q UNDEFINED\n")
    job = {"JOB_ID": "5", "SGE_ROOT": "/s", "PE_HOSTFILE": str(hosts)}
    slurm = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n1"}
    assert granted_cores({}) == usable
    assert granted_cores(job) == 1
    assert granted_cores({**job, "SGE_JOB_HOSTLIST": "whole nodes"}) == usable
    assert granted_cores({**slurm, "SLURM_CPUS_ON_NODE": "1"}) == 1
    assert granted_cores({**slurm, "SLURM_CPUS_ON_NODE": "512"}) == usable
    assert granted_cores({"PBS_JOBID": "9", "PBS_NODEFILE": "f", "NCPUS": "1"}) == 1


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [("n1", "n1.site", True), ("n1", "n2.site", False), ("10.0.0.1", "10.0.0.2", False)],
)
def test_hosts_are_known_with_or_without_domain(one: str, other: str, same: bool) -> None:
    assert same_host(one, other) is same


@pytest.mark.parametrize("scheduler", ["none", "slurm", "gridengine", "pbs"])
def test_on_one_node_ranks_are_started_without_the_scheduler(scheduler: str) -> None:
    assert commands(on(scheduler, "n1"), 2) == ["python -m train a plan.json"] * 2
    assert commands(on(scheduler, "n1"), 2, mpi=True) == [
        "/env/bin/mpiexec -launcher fork -rmk user -n 2 python -m train a plan.json"
    ]


def test_slurm_starts_one_step_with_every_rank_on_its_node() -> None:
    (command,) = commands(on("slurm", "n1", "n2"), 3)
    assert command.startswith("srun --nodes=2 --ntasks=3 --distribution=arbitrary")
    assert "--nodelist=n1,n1,n2" in command
    assert command.endswith(" python -m train a plan.json")


def test_from_a_login_node_even_one_node_needs_the_scheduler() -> None:
    allocation = Allocation(scheduler="slurm", job_id="7", nodes=("n1",), here=None)
    (command,) = commands(allocation, 1)
    assert command.startswith("srun --nodes=1 --ntasks=1")


def test_grid_engine_quotes_the_words_of_a_remote_rank_for_its_shell() -> None:
    here, there = commands(on("gridengine", "n1", "n2"), 2)
    assert here == "python -m train a plan.json"
    assert re.fullmatch(
        rf"qrsh -nostdin -inherit n2 /bin/sh -c {re.escape(shlex.quote(TAKE))} /logs/\.environment-1-\w+ python -m train 'a plan.json'",
        there,
    )


def test_pbs_starts_the_words_of_a_remote_rank_as_they_are() -> None:
    """Quotes would reach the shell."""
    _, there = processes(on("pbs", "n1", "n2"), 2)
    assert there[:5] == ["pbs_tmrsh", "n2", "/bin/sh", "-c", TAKE]
    assert there[6:] == TRAIN


@pytest.mark.parametrize("scheduler", ["slurm", "gridengine", "pbs"])
@pytest.mark.parametrize(
    "program",
    [
        Program(command=TRAIN, logs=LOGS),
        Program(command=TRAIN, logs=LOGS, mpiexec=MPIEXEC),
        Program(command=TRAIN, logs=LOGS, starts_all=True),
    ],
)
def test_no_variable_stands_in_the_arguments_of_what_starts_ranks(
    scheduler: str, program: Program
) -> None:
    """Every user of the host can read them."""
    allocation = on(scheduler, "n1", "n2")
    secret = {variables.TOKEN: "hunter2", "OF_THE_RECOVERY": "hunter2"}
    started = rank_processes(program, allocation, allocation.assignments(3), secret)
    assert not any("hunter2" in word for process in started for word in process.command)
    for rank, process in enumerate(started):
        if process.handed:
            assert process.handed.variables == {**secret, variables.RANK: str(rank)}


def test_on_one_host_mpiexec_starts_ranks_itself_whatever_the_site_says() -> None:
    site = {"HYDRA_LAUNCHER_AUTOFORK": "0", "HYDRA_HOST_FILE": "/site/hosts"}
    program = Program(command=TRAIN, logs=LOGS, mpiexec=MPIEXEC)
    one, two = on("pbs", "n1"), on("pbs", "n1", "n2")
    (alone,) = rank_processes(program, one, one.assignments(2), {})
    (spread,) = rank_processes(program, two, two.assignments(2), {})
    found = {**site, **alone.variables}
    assert (found["HYDRA_LAUNCHER_AUTOFORK"], found["HYDRA_HOST_FILE"]) == ("1", None)
    assert {**site, **spread.variables}["HYDRA_LAUNCHER_AUTOFORK"] == "0"


@pytest.mark.parametrize(
    ("scheduler", "launcher"),
    [
        ("slurm", "-launcher slurm"),
        ("gridengine", "-launcher sge"),
        ("pbs", f"-launcher rsh -launcher-exec {PBS_RSH}"),
    ],
)
def test_mpi_ranks_are_started_by_mpiexec_over_the_schedulers_starter(
    scheduler: str, launcher: str
) -> None:
    (command,) = commands(on(scheduler, "n1", "n2"), 3, mpi=True)
    assert command.startswith(f"/env/bin/mpiexec {launcher} -rmk user -hosts n1:2,n2:1 -n 3 python")


def test_other_hosts_without_a_scheduler_are_refused() -> None:
    with pytest.raises(LaunchError, match="need a scheduler that starts them there"):
        commands(on("none", "n1", "n2"), 2)


@pytest.mark.parametrize("mpi", [True, False])
def test_what_starts_ranks_in_a_batch_script_is_none_of_them(*, mpi: bool) -> None:
    """Slurm counts it as task 0. It would be killed in the place of a rank 0 that hangs."""
    allocation = on("slurm", "n1", "n2")
    program = Program(command=TRAIN, logs=LOGS, mpiexec=MPIEXEC if mpi else None)
    (starter,) = rank_processes(program, allocation, allocation.assignments(2), {})
    here = {"SLURM_PROCID": "0", "PMI_RANK": "0", **starter.variables}
    here = {name: value for name, value in here.items() if value is not None}
    assert rank_of(here) is None
    by_srun = rank_of({**here, "SLURM_PROCID": "0"})
    assert by_srun == (None if mpi else 0), "srun also starts what starts the ranks of a node"
    assert rank_of({**here, "PMI_RANK" if mpi else "SLURM_PROCID": "1"}) == 1
