"""What a job in which the workflow runs has been told does not reach the jobs that the workflow submits."""

from __future__ import annotations

import pytest

from snakemake_executor_plugin_submitit import outer_job


@pytest.mark.parametrize(
    ("told", "kept"),
    [
        (
            {"SLURM_JOB_ID": "7", "SLURM_MEM_PER_CPU": "2000", "SBATCH_MEM_BIND": "none"},
            {"SLURM_CONF": "/etc/slurm.conf", "SBATCH_ACCOUNT": "a"},
        ),
        ({"PBS_JOBID": "7.host", "PBS_NODEFILE": "/nodes"}, {"PBS_CONF_FILE": "/etc/pbs.conf"}),
        (
            {"JOB_ID": "7", "SGE_TASK_ID": "undefined", "PE_HOSTFILE": "/hosts", "NSLOTS": "4"},
            {"SGE_ROOT": "/opt/sge", "SGE_CELL": "default"},
        ),
    ],
)
def test_an_outer_job_is_forgotten(told: dict[str, str], kept: dict[str, str]) -> None:
    environment = {**told, **kept, "PATH": "/bin"}
    assert outer_job.leave(environment) in {"7", "7.host"}
    assert environment == {**kept, "PATH": "/bin"}


def test_outside_of_a_job_nothing_is_forgotten() -> None:
    environment = {
        "SLURM_CONF": "/etc/slurm.conf",
        "SBATCH_ACCOUNT": "a",
        "JOB_ID": "of a CI service",
    }
    assert outer_job.leave(environment) is None
    assert len(environment) == 3
