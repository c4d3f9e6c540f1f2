import pytest
from fakes import SnakemakeJob
from snakemake_interface_common.exceptions import WorkflowError

from snakemake_executor_plugin_submitit.resources import Allocation, stop_seconds
from snakemake_executor_plugin_submitit.settings import ExecutorSettings, parse_options


def allocation(threads: int = 1, settings: ExecutorSettings | None = None, **resources: object):
    return Allocation.of(
        SnakemakeJob(threads=threads, resources=resources),  # type: ignore[arg-type]
        settings or ExecutorSettings(cluster="slurm"),
    )


def test_a_job_without_resources_is_one_task_on_one_node():
    made = allocation(threads=3)
    assert (made.nodes, made.tasks_per_node, made.cpus_per_task) == (1, 1, 3)
    assert (made.memory_mb_per_node, made.gpus_per_node, made.runtime_min) == (None, 0, 60)


def test_nodes_follow_from_the_tasks_that_fit_on_one():
    made = allocation(settings=ExecutorSettings(cluster="pbs", tasks_per_node=4), tasks=32, gpus=32)
    assert (made.nodes, made.tasks_per_node, made.gpus_per_node) == (8, 4, 4)


def test_fewer_tasks_than_fit_on_a_node_share_one():
    made = allocation(settings=ExecutorSettings(cluster="pbs", tasks_per_node=4), tasks=2, gpus=2)
    assert (made.nodes, made.tasks_per_node, made.gpus_per_node) == (1, 2, 2)


def test_threads_are_spread_over_the_tasks_of_a_node():
    assert allocation(threads=8, tasks=4).cpus_per_task == 2
    assert allocation(threads=2, tasks=4).cpus_per_task == 1
    assert allocation(threads=8, tasks=4, cpus_per_task=3).cpus_per_task == 3


def test_nodes_alone_mean_one_task_on_each():
    made = allocation(nodes=3)
    assert (made.nodes, made.tasks_per_node) == (3, 1)


def test_a_node_without_a_task_is_refused():
    with pytest.raises(WorkflowError, match="train: tasks=2 on nodes=3 leaves nodes without"):
        allocation(nodes=3, tasks=2)


def test_a_resource_that_is_no_number_is_named():
    with pytest.raises(WorkflowError, match="train: runtime='soon' is not a number"):
        allocation(runtime="soon")


def test_resources_win_over_settings_and_options_add_up():
    settings = ExecutorSettings(cluster="slurm", queue="main", account="a", options=["qos=low"])
    made = allocation(settings=settings, queue="urgent", options="exclusive=true constraint='a b'")
    assert (made.queue, made.account) == ("urgent", "a")
    assert made.options == ("qos=low", "exclusive=true", "constraint=a b")


def test_what_is_not_determined_before_the_input_exists_counts_as_unset():
    assert allocation(mem_mb="<TBD>").memory_mb_per_node is None


def test_short_jobs_lose_at_most_a_fifth_of_their_runtime_to_stopping():
    assert (stop_seconds(60, 120), stop_seconds(1, 120)) == (120, 12)


def test_option_values_are_json_where_they_can_be():
    options = parse_options(["a=3", "b=true", 'c=["x","y"]', "d=rt_F", "e-f=1=2"], "here")
    assert options == {"a": 3, "b": True, "c": ["x", "y"], "d": "rt_F", "e_f": "1=2"}


def test_an_option_without_a_value_is_refused_with_its_source():
    with pytest.raises(WorkflowError, match="--submitit-options: 'exclusive' is not of the form"):
        ExecutorSettings(cluster="slurm", options=["exclusive"]).check()


def test_a_setting_out_of_its_range_is_refused():
    with pytest.raises(WorkflowError, match="--submitit-tasks-per-node is 0"):
        ExecutorSettings(cluster="slurm", tasks_per_node=0).check()


@pytest.mark.parametrize("text", ["1e3", "1.50", "007", "NaN", "Infinity", "1E5", "-0"])
def test_a_name_that_looks_like_a_number_stays_text(text: str):
    assert parse_options([f"qos={text}"], "here") == {"qos": text}


def test_an_option_that_one_place_gives_twice_is_refused():
    """Only the last would count. A rule's own stands above that of the settings."""
    twice = ["extra=-v A=1", "queue=x", "extra=-v B=2"]
    with pytest.raises(WorkflowError, match=r"--submitit-options: extra is given twice.*one list"):
        ExecutorSettings(cluster="pbs", options=twice).check()
    with pytest.raises(WorkflowError, match="options of train: mem_per_cpu is given twice"):
        allocation(options="mem-per-cpu=1G mem_per_cpu=2G")
    settings = ExecutorSettings(cluster="pbs", options=["extra=-p 1"])
    assert allocation(settings=settings, options="extra=-p2").options == ("extra=-p 1", "extra=-p2")
