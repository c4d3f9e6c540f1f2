"""Resources by the names that users of snakemake-executor-plugin-slurm know."""

import re
from pathlib import Path

import pytest
from fakes import SnakemakeJob
from snakemake_interface_common.exceptions import WorkflowError

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


def test_slurm_gets_what_its_own_executor_would_send():
    made = lines(
        slurm_partition="urgent",
        slurm_account="proj",
        gpu=4,
        gpu_model="a100",
        constraint="ib&fast",
        qos="high",
        reservation="r1",
        nodelist="n[1-2]",
        exclusive="true",
        mem_mb=100,
        mem_mb_per_cpu=4000,
        nodes=2,
        tasks_per_node=3,
        cpus_per_gpu=6,
        cpus_per_task=1,
    )
    assert made >= {
        "partition=urgent",
        "account=proj",
        "gpus-per-node=a100:2",
        "constraint='ib&fast'",
        "qos=high",
        "reservation=r1",
        "nodelist='n[1-2]'",
        "exclusive",
        "mem-per-cpu=4000M",
        "nodes=2",
        "ntasks-per-node=3",
        "cpus-per-task=4",
    }
    assert not options_named("mem", made)


@pytest.mark.parametrize("cluster", ["gridengine", "pbs"])
def test_queue_account_and_gpus_are_named_as_for_slurm_on_every_scheduler(cluster: str):
    given = ("gpu_resource=gpu", "memory_resource=m") if cluster == "gridengine" else ()
    words = {"slurm_partition": "q1", "slurm_account": "proj", "gpu": 2, "mem_mb_per_cpu": 500}
    made = lines(cluster, given, **words)
    assert "q q1" in made
    wanted = {"gridengine": {"l gpu=2", "l m=500M"}, "pbs": {"P proj", "l select=1:ncpus=1:mpiprocs=1:ngpus=2:mem=500mb"}}  # fmt: skip
    assert made >= wanted[cluster]
    assert not remarks(cluster, **words)


def test_memory_for_each_cpu_takes_the_place_of_all_of_the_nodes():
    for words in ({"mem_mb_per_cpu": 500}, {"slurm_extra": "--mem-per-cpu=500M"}):
        made = lines(mem_mb=0, **words)
        assert "mem-per-cpu=500M" in made
        assert not options_named("mem", made)


def test_memory_for_each_cpu_is_that_of_all_cpus_where_the_scheduler_counts_a_node():
    made = lines("pbs", mem_mb_per_cpu=500, tasks=2, cpus_per_task=3, mem_mb=1)
    assert "l select=1:ncpus=6:mpiprocs=2:mem=3000mb" in made


@pytest.mark.parametrize("option", ["--gpus=8", "-G 8", "--gpus-per-task=2"])
def test_gpus_that_sbatch_is_told_otherwise_are_not_asked_for_again(option: str):
    assert not options_named("gpus-per-node", lines(slurm_extra=option, gpus=8))


def test_a_gres_is_slurms_alone():
    assert "l select=1:ncpus=1:mpiprocs=1" in lines("pbs", gres="gpu:4")


def test_tasks_on_each_node_say_how_many_nodes_the_tasks_need():
    assert lines(tasks=8, tasks_per_node=2) >= {"nodes=4", "ntasks-per-node=2"}


def test_our_own_words_win_over_those_of_another_executor():
    assert lines(queue="a", slurm_partition="b", gpus=1, gpu=2) >= {"partition=a", "gpus-per-node=1"}  # fmt: skip


@pytest.mark.parametrize("gpus", [{}, {"gpus": 4}, {"gpu": 4}])
@pytest.mark.parametrize("place", ["gres", "slurm_extra", "options"])
def test_gpus_are_asked_for_once(place: str, gpus: dict[str, int]):
    asked = {"gres": "gpu:a100:4", "slurm_extra": "--gres=gpu:a100:4", "options": "gres=gpu:a100:4"}
    made = lines(**{place: asked[place]}, **gpus)
    assert options_named("gres", made) == ["gres=gpu:a100:4"]
    assert not options_named("gpus-per-node", made)


def test_a_gres_of_something_else_leaves_the_gpus():
    assert lines(gres="lustre:1", gpus=2) >= {"gres=lustre:1", "gpus-per-node=2"}


def test_a_gres_and_gpus_that_differ_are_refused():
    with pytest.raises(WorkflowError, match=r"gres=gpu:a100:4 are 4 GPUs a node, and gpus are 1"):
        lines(gres="gpu:a100:4", gpus=1)
    with pytest.raises(WorkflowError, match="train: gpu_model=a100 needs gpus"):
        lines(gpu_model="a100")


@pytest.mark.parametrize(
    ("gres", "gpus"),
    [
        ("gpu", 1),
        ("gpu:2", 2),
        ("gpu:a100:4", 4),
        ("gpu:a100", 1),
        ("gpu:v100:1,lustre:3,gpu:a100:2", 3),
        ("gres/gpu:a100:2(IDX:0-1)", 2),
        ("gres:gpu:2", 2),
        ("lustre:4", None),
        (None, None),
    ],
)
def test_gpus_of_a_gres(gres: str | None, gpus: int | None):
    assert names.gpus_in(gres) == gpus


def test_options_of_sbatch_are_read_in_each_form():
    words = "--qos=high --nice 100 --hold -pfast -C 'a b' --comment='x y' -x n1"
    assert names.sbatch_options(words, "here") == {
        "qos": "high",
        "nice": 100,
        "hold": True,
        "partition": "fast",
        "constraint": "a b",
        "comment": "x y",
        "exclude": "n1",
    }


@pytest.mark.parametrize("word", ["-Z", "script.sh"])
def test_what_is_no_option_of_sbatch_is_refused(word: str):
    with pytest.raises(WorkflowError, match=f"train: slurm_extra: '{word}' is no option of sbatch"):
        lines(slurm_extra=word)


@pytest.mark.parametrize("word", ["clusters", "cluster", "slurm_cluster"])
def test_another_cluster_of_a_federation_is_refused_by_name(word: str):
    with pytest.raises(WorkflowError, match="train: clusters=gpu is not taken"):
        lines(**{word: "gpu"})


@pytest.mark.parametrize("words", ["-M gpu", "-t 2-0", "--array=1-3", "--output=x"])
def test_what_the_executor_must_know_itself_is_no_option(words: str):
    with pytest.raises(WorkflowError, match="is not taken by this executor"):
        lines(slurm_extra=words)


def test_exclusive_nodes_of_pbs_are_a_placement():
    assert "l place=scatter:excl" in lines("pbs", nodes=2, exclusive=True)
    assert "l place=excl" in lines("pbs", exclusive=1)
    assert not {line for line in lines("pbs", exclusive="false") if "place" in line}


def test_a_word_without_a_meaning_is_said_once_with_the_one_to_use():
    assert remarks("pbs", gres="gpu:4") == [
        "The resource gres of train is not sent to pbs: use gpus."
    ]
    for word in names.FOR_SLURM:
        assert not remarks("slurm", **{word: "x"})
        assert not remarks("local", **{word: "x"})
        assert len(remarks("gridengine", **{word: "x"})) == 1


def test_an_unknown_resource_is_said_once_with_the_nearest_word():
    (line,) = remarks("slurm", slurm_partiton="x")
    assert "The resource slurm_partiton of train is not sent to slurm: is slurm_partition meant?" in line  # fmt: skip


def test_resources_that_snakemake_or_the_workflow_counts_are_known():
    assert not remarks("slurm", "machine", machine=1, _cores=1, tmpdir="/tmp", mem=1, disk_mb=1)
    (line,) = remarks("slurm", machine=1)
    assert "machine of train is not sent to slurm: it is unknown" in line
