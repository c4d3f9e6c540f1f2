"""Ranks on the nodes of a real allocation: each comes up in its place, and none outlives the run."""

from __future__ import annotations

import dataclasses
import os
import re
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster import pbs_conf
from tests.cluster.commands import check, poll
from tests.cluster.rank_jobs import ROOT, RankJob, Request, through_mpiexec
from tests.cluster.rank_probe import LAST_WORDS
from tests.cluster.slurm_conf import GPUS_PER_NODE, NODES

Submit = Callable[..., RankJob]
Through = Callable[[Request], Request]

WAYS = [lambda request: request, through_mpiexec]

starters = pytest.mark.parametrize("through", WAYS, ids=["srun", "mpiexec"])
starters_of_gridengine = pytest.mark.parametrize("through", WAYS, ids=["qrsh", "mpiexec"])
starters_of_pbs = pytest.mark.parametrize("through", WAYS, ids=["pbs_tmrsh", "mpiexec"])


@pytest.fixture
def jobs() -> Iterator[list[RankJob]]:
    """Those of the test; what is left of them is cancelled."""
    submitted: list[RankJob] = []
    yield submitted
    for job in submitted:
        job.cancel()


@pytest.fixture
def sbatch(slurm: object, jobs: list[RankJob], tmp_path: Path) -> Submit:
    """Submits a launcher on the first so many nodes, with all their GPUs."""

    def submit(request: Request, nodes: int) -> RankJob:
        tasks = -(-request.ranks // nodes)
        command = ["sbatch", "--parsable", f"--output={tmp_path / 'job' / 'output'}", "--time=30"]
        shape = [f"--nodelist={','.join(NODES[:nodes])}", f"--ntasks-per-node={tasks}"]
        shape += [f"--nodes={nodes}", f"--gpus-per-node={GPUS_PER_NODE}"]
        jobs.append(RankJob(tmp_path / "job", request, [*command, *shape, "--mem=1000"], "scancel"))
        return jobs[-1]

    return submit


@pytest.fixture
def qsub(gridengine: object, jobs: list[RankJob], tmp_path: Path) -> Submit:
    """Submits a launcher that takes its host for another, in so many slots."""

    def submit(request: Request) -> RankJob:
        request = dataclasses.replace(request, elsewhere=True, accelerator="cpu")
        command = [
            "qsub",
            "-terse",
            "-cwd",
            "-V",
            "-j",
            "y",
            "-o",
            f"{tmp_path / 'job' / 'output'}",
        ]
        shape = ["-S", "/bin/sh", "-pe", "mpi", str(request.ranks)]
        jobs.append(RankJob(tmp_path / "job", request, [*command, *shape], "qdel"))
        return jobs[-1]

    return submit


@pytest.fixture
def pbs_qsub(pbs_client: object, jobs: list[RankJob], tmp_path: Path) -> Submit:
    """Submits a launcher on both hosts. The path of its folder has a space."""

    def submit(request: Request) -> RankJob:
        folder = tmp_path / "a job"
        chunk = f"ncpus=2:mpiprocs={request.ranks // 2}"
        command = ["qsub", "-k", "oed", "-j", "oe", "-o", f"{folder / 'output'}"]
        shape = ["-l", f"select=2:{chunk}", "-l", "place=scatter"]
        request = dataclasses.replace(request, accelerator="cpu")
        jobs.append(RankJob(folder, request, [*command, *shape], "qdel"))
        return jobs[-1]

    return submit


def nobody_is_left(job: RankJob) -> bool:
    """Before the ranks, or their job, would end by themselves."""
    return poll(lambda: not job.processes())


def no_secret_was_shown(job: RankJob) -> bool:
    """Neither in arguments while the ranks ran, nor in a file that they have left behind."""
    return not any(note["secret_in"] for note in job.found()) and not job.handed()


# Slurm


@starters
@pytest.mark.parametrize(("ranks", "nodes"), [(2, 1), (4, 2), (6, 3), (5, 3)])
def test_every_rank_comes_up_on_its_node_with_a_gpu_of_its_own(
    sbatch: Submit, through: Through, ranks: int, nodes: int
) -> None:
    request = through(Request(ranks=ranks))
    job = sbatch(request, nodes)
    assert job.error() is None, job.said()
    places = [(node, gpu) for node in NODES[:nodes] for gpu in range(GPUS_PER_NODE)][:ranks]
    assert job.found() == [
        {
            "rank": rank,
            "node": node,
            "slurm_node": node,
            "local_rank": gpu,
            "gpu": str(gpu),
            "peers": ranks,
            "python": request.python,
            "secret_in": [],
        }
        for rank, (node, gpu) in enumerate(places)
    ]


@starters
def test_a_rank_without_a_gpu_is_the_one_error_of_the_run(sbatch: Submit, through: Through) -> None:
    job = sbatch(through(Request(ranks=3)), 1)
    error = job.error()
    assert error is not None
    assert (
        "LaunchError: rank 2 is number 3 on node1, which has 2 visible GPUs (CUDA_VISIBLE_DEVICES is '0,1'): one rank needs"
        in error
    )
    assert error.count("Error") == 1
    assert nobody_is_left(job)


@starters
def test_a_rank_that_dies_on_another_node_ends_all_at_once_and_is_quoted(
    sbatch: Submit, through: Through
) -> None:
    job = sbatch(through(Request(ranks=6, acts={"5": "die", "others": "stay"})), 3)
    job.wait_for_ranks(6)
    error = job.error()
    assert error is not None
    assert f"[rank-5] {LAST_WORDS}" in error
    assert nobody_is_left(job)


@starters
@pytest.mark.parametrize("act", ["vanish", "sleep"])
def test_a_rank_that_does_not_come_up_is_named_with_its_node(
    sbatch: Submit, through: Through, act: str
) -> None:
    request = through(Request(ranks=6, acts={"4": act, "others": "stay"}, impatient=True))
    job = sbatch(request, 3)
    error = job.error()
    assert error is not None
    assert re.search(r"1 ranks did not come up within \d+ s: 4 \(node3\); last lines:", error)
    assert nobody_is_left(job)


@starters
def test_ranks_end_with_their_launcher_on_every_node(sbatch: Submit, through: Through) -> None:
    job = sbatch(through(Request(ranks=6, acts={"others": "stay"})), 3)
    job.wait_for_ranks(6)
    os.kill(job.launcher(), signal.SIGKILL)
    assert nobody_is_left(job), job.said()


@pytest.mark.usefixtures("slurm")
def test_in_an_allocation_of_the_users_own_a_run_uses_its_node_alone() -> None:
    words = "import os; from ckptbench.launch.allocation import own_allocation, granted_cores"
    program = f"{words}; print(own_allocation(os.environ), granted_cores(os.environ))"
    shape = ["--nodelist=node1,node2", "--ntasks-per-node=1", "--mem=200", "--time=5"]
    step = ["srun", "--nodes=1", "--ntasks=1", "--nodelist=node2", sys.executable, "-c", program]
    found = check(["salloc", *shape, *step], {"PYTHONPATH": str(ROOT / "src")})
    assert "scheduler='none'" in found
    assert "nodes=('node2',), here='node2') 1\n" in found


# Grid Engine: its one host as if it were another


@starters_of_gridengine
def test_grid_engine_starts_ranks_on_a_host(qsub: Submit, through: Through) -> None:
    request = through(Request(ranks=3))
    job = qsub(request)
    assert job.error() is None, job.said()
    found = [(note["rank"], note["local_rank"], note["peers"]) for note in job.found()]
    assert found == [(0, 0, 3), (1, 1, 3), (2, 2, 3)]
    assert no_secret_was_shown(job)
    assert {note["node"].split(".")[0] for note in job.found()} == {
        socket.gethostname().split(".")[0]
    }


@starters_of_gridengine
def test_a_rank_that_dies_on_a_host_of_grid_engine_ends_all_and_is_quoted(
    qsub: Submit, through: Through
) -> None:
    job = qsub(through(Request(ranks=3, acts={"2": "die", "others": "stay"})))
    job.wait_for_ranks(3)
    error = job.error()
    assert error is not None
    assert f"[rank-2] {LAST_WORDS}" in error
    assert nobody_is_left(job)


@starters_of_gridengine
def test_ranks_on_a_host_of_grid_engine_end_with_their_launcher(
    qsub: Submit, through: Through
) -> None:
    job = qsub(through(Request(ranks=3, acts={"others": "stay"})))
    job.wait_for_ranks(3)
    os.kill(job.launcher(), signal.SIGKILL)
    assert nobody_is_left(job), job.said()


# PBS


@starters_of_pbs
def test_pbs_starts_ranks_on_both_hosts(pbs_qsub: Submit, through: Through) -> None:
    job = pbs_qsub(through(Request(ranks=4)))
    assert job.error() is None, job.said()
    found = [
        (note["rank"], note["node"], note["local_rank"], note["peers"]) for note in job.found()
    ]
    nodes = sorted({note["node"] for note in job.found()})
    assert nodes == list(pbs_conf.NODES)
    first, second = dict.fromkeys(note["node"] for note in job.found())
    assert found == [(0, first, 0, 4), (1, first, 1, 4), (2, second, 0, 4), (3, second, 1, 4)]
    assert no_secret_was_shown(job)


@starters_of_pbs
def test_a_rank_that_dies_on_another_host_of_pbs_ends_all_and_is_quoted(
    pbs_qsub: Submit, through: Through
) -> None:
    job = pbs_qsub(through(Request(ranks=4, acts={"3": "die", "others": "stay"})))
    job.wait_for_ranks(4)
    error = job.error()
    assert error is not None
    assert f"[rank-3] {LAST_WORDS}" in error
    assert nobody_is_left(job)


@starters_of_pbs
def test_ranks_on_hosts_of_pbs_end_with_their_launcher(pbs_qsub: Submit, through: Through) -> None:
    job = pbs_qsub(through(Request(ranks=4, acts={"others": "stay"})))
    job.wait_for_ranks(4)
    os.kill(job.launcher(), signal.SIGKILL)
    assert nobody_is_left(job), job.said()
