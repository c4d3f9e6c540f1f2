"""Names of resources: those that are sent to the scheduler, and a line for each other."""

import re
from pathlib import Path

import pytest
from fakes import SnakemakeJob

from snakemake_executor_plugin_submitit import clusters, dryrun, names
from snakemake_executor_plugin_submitit.settings import ExecutorSettings

FOLDER = Path("/shared/jobs")


def lines(cluster: str = "slurm", given: tuple[str, ...] = (), /, **resources: object) -> set[str]:
    """The options of one job's submission file."""
    settings = ExecutorSettings(cluster=cluster, options=[*given])
    job = SnakemakeJob(resources=resources)
    text = "\n".join(dryrun.describe([job], clusters.cluster(settings), FOLDER, settings))  # type: ignore[list-item]
    return set(re.findall(r"^ +#(?:SBATCH --|PBS -|\$ -)(.+)$", text, re.MULTILINE))


def remarks(cluster: str, /, *limits: str, **resources: object) -> list[str]:
    job = SnakemakeJob(resources=resources)
    return list(names.remarks([job, job], cluster, limits))  # type: ignore[list-item]


def options_named(key: str, made: set[str]) -> list[str]:
    return sorted(line for line in made if line.partition("=")[0] == key)


@pytest.mark.parametrize("cluster", ["slurm", "gridengine", "pbs"])
def test_queue_account_and_gpus_are_named_as_for_slurm_on_every_scheduler(cluster: str):
    given = ("gpu_resource=gpu", "memory_resource=m") if cluster == "gridengine" else ()
    words = {"slurm_partition": "q1", "slurm_account": "proj", "gpu": 2, "mem_mb_per_cpu": 500}
    made = lines(cluster, given, **words)
    wanted = {
        "slurm": {"partition=q1", "account=proj", "gpus-per-node=2", "mem=500MB"},
        "gridengine": {"q q1", "l gpu=2", "l m=500M"},
        "pbs": {"q q1", "P proj", "l select=1:ncpus=1:mpiprocs=1:ngpus=2:mem=500mb"},
    }
    assert made >= wanted[cluster]
    assert not remarks(cluster, **words)


def test_memory_for_each_cpu_is_that_of_all_cpus_of_a_node():
    made = lines("pbs", mem_mb_per_cpu=500, tasks=2, cpus_per_task=3, mem_mb=1)
    assert "l select=1:ncpus=6:mpiprocs=2:mem=3000mb" in made
    assert "mem=3000MB" in lines(mem_mb_per_cpu=500, tasks=2, cpus_per_task=3, mem_mb=0)


def test_memory_that_an_option_gives_to_each_cpu_takes_the_place_of_that_of_the_nodes():
    made = lines(mem_mb=0, options="mem_per_cpu=500M")
    assert "mem-per-cpu=500M" in made
    assert not options_named("mem", made)


def test_the_type_of_gpus_is_an_option():
    made = lines(gpus=4, options="gpus_per_node=a100:4")
    assert options_named("gpus-per-node", made) == ["gpus-per-node=a100:4"]


def test_cpus_of_a_gpu_say_how_many_a_task_gets():
    assert "cpus-per-task=4" in lines(gpus=4, nodes=2, tasks_per_node=3, cpus_per_gpu=6)


def test_tasks_on_each_node_say_how_many_nodes_the_tasks_need():
    assert lines(tasks=8, tasks_per_node=2) >= {"nodes=4", "ntasks-per-node=2"}


def test_our_own_words_win_over_those_of_another_executor():
    assert lines(queue="a", slurm_partition="b", gpus=1, gpu=2) >= {"partition=a", "gpus-per-node=1"}  # fmt: skip


def test_a_name_that_is_not_sent_is_said_once_with_what_to_write():
    assert remarks("pbs", gres="lustre:4") == [
        "The resource gres of train is not sent to pbs: write an option of the scheduler in "
        'options="...", and where Snakemake only counts it resource_scopes: gres="global" in the Snakefile.'
    ]


def test_an_unknown_resource_is_said_with_the_nearest_word():
    (line,) = remarks("slurm", slurm_partiton="x")
    assert "slurm_partiton of train is not sent to slurm: is slurm_partition meant? If not, write" in line  # fmt: skip


def test_resources_that_snakemake_or_the_workflow_counts_are_known():
    assert not remarks("slurm", "machine", machine=1, _cores=1, tmpdir="/tmp", mem=1, disk_mb=1)
    assert len(remarks("slurm", machine=1)) == 1
