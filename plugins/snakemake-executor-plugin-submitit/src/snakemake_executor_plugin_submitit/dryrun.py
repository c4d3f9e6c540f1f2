"""What would be submitted, in the scheduler's own terms, without a scheduler."""

import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from snakemake_interface_executor_plugins.dag import DAGExecutorInterface
from snakemake_interface_executor_plugins.jobs import JobExecutorInterface

from .cluster import Cluster
from .resources import Allocation
from .settings import ExecutorSettings

SCRIPT_NAME = "submission.sh"


def jobs_to_submit(dag: Any | DAGExecutorInterface) -> list[JobExecutorInterface]:
    """Jobs and groups that need to run, in an order in which they could."""
    found: dict[JobExecutorInterface, None] = {}
    for level in dag.toposorted(set(dag.needrun_jobs())):
        for job in sorted(level, key=lambda job: (job.rule.name, list(map(str, job.output)))):
            submitted = dag.get_job_group(job) or job
            if not submitted.is_local:
                found[submitted] = None
    return list(found)


def describe(
    jobs: Iterable[JobExecutorInterface],
    cluster: Cluster,
    folder: Path,
    settings: ExecutorSettings,
    at_once: int = sys.maxsize,
) -> Iterator[str]:
    """A block of text for each shape of jobs: which jobs, the command, the file. Then what they may cost. `at_once` jobs
    are in the queue or run at a time."""
    shapes: dict[Allocation, list[JobExecutorInterface]] = {}
    for job in jobs:
        shapes.setdefault(Allocation.of(job, settings), []).append(job)
    for allocation, alike in shapes.items():
        names = [f"#   {job.name}: {' '.join(map(str, job.output))}" for job in alike]
        executor: Any = cluster.executor(folder, allocation)
        in_array = min(len(alike), settings.array_size, at_once)
        if in_array > 1:
            cluster.set_array(executor, in_array)
        yield "\n".join(
            [
                f"# {len(alike)} x {allocation.name}, an array where several are ready at once:",
                *names,
                *_submission(executor, folder),
                "",
            ]
        )
    if shapes:
        yield _cost({allocation: len(alike) for allocation, alike in shapes.items()})


def _cost(jobs: Mapping[Allocation, int]) -> str:
    """The most that so many jobs of each shape may take."""
    hours = sum(n * each.nodes * each.runtime_min for each, n in jobs.items()) / 60
    return (
        f"# In all {sum(jobs.values())} jobs, at most {hours:,.1f} node-hours: every job for its whole runtime, none requeued. "
        "Sites charge by what they give to a job: multiply by the points of such a node."
    )


def _submission(executor: Any, folder: Path) -> list[str]:
    """The command line, and the text of the file that it names, indented."""
    command = executor._make_submission_command(folder / SCRIPT_NAME)
    text = executor._make_submission_file_text(executor._submitit_command_str, "0")
    return [shlex.join(command), *(f"    {line}".rstrip() for line in text.splitlines())]
