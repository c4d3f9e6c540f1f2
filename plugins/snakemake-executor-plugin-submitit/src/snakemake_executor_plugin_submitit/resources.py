"""What a job asks for: Snakemake's resources, read into one frozen allocation."""

import math
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.jobs import JobExecutorInterface

from .settings import ExecutorSettings, check_once

DEFAULT_RUNTIME_MIN = 60
LARGEST_STOP_SHARE = 0.2
"""The share of its runtime that a job may lose to stopping in time."""


@dataclass(frozen=True)
class Allocation:
    """The shape of a job for the scheduler; jobs of equal shape may form one array."""

    name: str
    runtime_min: int
    memory_mb_per_node: int | None
    """0: all that the node has."""
    nodes: int
    tasks_per_node: int
    cpus_per_task: int
    gpus_per_node: int
    queue: str | None
    account: str | None
    stop_seconds: int
    options: tuple[str, ...]

    @classmethod
    def of(cls, job: JobExecutorInterface, settings: ExecutorSettings) -> "Allocation":
        """Raises WorkflowError where a resource of the job has no meaning."""
        read = _Resources(job.name, _given(job))
        check_once(read.words("options"), f"options of {job.name}")
        nodes, tasks_per_node = _spread_tasks(read, settings.tasks_per_node)
        gpus = read.whole("gpus", least=0) or read.whole("gpu", least=0) or 0
        gpus_per_node = math.ceil(gpus / nodes)
        runtime_min = read.whole("runtime", least=1) or DEFAULT_RUNTIME_MIN
        cpus_per_task = _cpus_per_task(read, job.threads, tasks_per_node, gpus_per_node)
        return cls(
            name=job.name,
            runtime_min=runtime_min,
            memory_mb_per_node=_memory_mb_per_node(read, cpus_per_task * tasks_per_node),
            nodes=nodes,
            tasks_per_node=tasks_per_node,
            cpus_per_task=cpus_per_task,
            gpus_per_node=gpus_per_node,
            queue=read.text("queue") or read.text("slurm_partition") or settings.queue,
            account=read.text("account") or read.text("slurm_account") or settings.account,
            stop_seconds=stop_seconds(runtime_min, settings.stop_seconds),
            options=(*settings.options, *read.words("options")),
        )


def stop_seconds(runtime_min: int, wanted_seconds: int) -> int:
    """How long before the time limit a job is told to stop: less for short jobs, which would
    otherwise be told as soon as they start."""
    return max(1, min(wanted_seconds, int(LARGEST_STOP_SHARE * 60 * runtime_min)))


def _spread_tasks(read: "_Resources", fit_on_a_node: int | None) -> tuple[int, int]:
    """Nodes, and tasks on each of them (the last node may get fewer from the job itself)."""
    tasks = read.whole("tasks", least=1)
    nodes = read.whole("nodes", least=1)
    on_each = read.whole("tasks_per_node", least=1)
    if tasks is None and on_each is not None:
        tasks = on_each * (nodes or 1)
    fit_on_a_node = on_each or fit_on_a_node
    if nodes is None:
        nodes = math.ceil((tasks or 1) / (fit_on_a_node or tasks or 1))
    if tasks is None:
        tasks = nodes
    if tasks < nodes:
        raise WorkflowError(
            f"{read.job}: tasks={tasks} on nodes={nodes} leaves nodes without a task. "
            "Request fewer nodes or more tasks."
        )
    return nodes, math.ceil(tasks / nodes)


def _cpus_per_task(
    read: "_Resources", threads: object, tasks_per_node: int, gpus_per_node: int
) -> int:
    per_gpu = read.whole("cpus_per_gpu", least=1)
    if per_gpu and gpus_per_node:
        return math.ceil(per_gpu * gpus_per_node / tasks_per_node)
    on_a_node = max(1, threads) if isinstance(threads, int) else 1
    return read.whole("cpus_per_task", least=1) or math.ceil(on_a_node / tasks_per_node)


def _memory_mb_per_node(read: "_Resources", cpus: int) -> int | None:
    per_cpu = read.whole("mem_mb_per_cpu", least=1)
    return read.whole("mem_mb", least=0) if per_cpu is None else per_cpu * cpus


def _given(job: JobExecutorInterface) -> dict[str, Any]:
    """What is set, and known before the job's input exists."""
    return {
        name: value
        for name, value in {**job.resources}.items()
        if value is not None and value != "" and not _is_undetermined(value)
    }


@dataclass(frozen=True)
class _Resources:
    job: str
    values: Mapping[str, Any]

    def whole(self, name: str, least: int) -> int | None:
        """The resource as a whole number, rounded up; None where it is not given."""
        value = self.values.get(name)
        if value is None:
            return None
        try:
            number = math.ceil(float(value))
        except ValueError as error:
            raise WorkflowError(f"{self.job}: {name}={value!r} is not a number.") from error
        if number < least:
            raise WorkflowError(f"{self.job}: {name}={value} is less than {least}.")
        return number

    def text(self, name: str) -> str | None:
        value = self.values.get(name)
        return None if value is None else str(value)

    def words(self, name: str) -> tuple[str, ...]:
        value = self.values.get(name, "")
        return tuple(shlex.split(value)) if isinstance(value, str) else tuple(map(str, value))


def _is_undetermined(value: object) -> bool:
    """Snakemake's <TBD>: a string that stays the same in whatever operation."""
    return isinstance(value, str) and str.__eq__(value, "<TBD>")
