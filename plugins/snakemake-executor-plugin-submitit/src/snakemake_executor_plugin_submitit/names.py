"""Names of resources: this executor's own, and a line for each that is not sent to the cluster."""

import difflib
from collections.abc import Collection, Iterable, Iterator

from snakemake_interface_executor_plugins.jobs import JobExecutorInterface

OWN = ("runtime", "mem_mb", "mem_mb_per_cpu", "nodes", "tasks", "tasks_per_node", "cpus_per_task", "cpus_per_gpu", "gpus", "queue", "account", "options", "mpi")  # fmt: skip
"""`mpi` is the rule's own: the program that starts its ranks."""
SAME = ("slurm_partition", "slurm_account", "gpu")
"""Of snakemake-executor-plugin-slurm, for queue, account and gpus."""
SNAKEMAKES = ("mem", "mem_mib", "disk", "disk_mb", "disk_mib", "tmpdir")


def remarks(
    jobs: Iterable[JobExecutorInterface], cluster: str, limits: Collection[str]
) -> Iterator[str]:
    """A line for each name that is not sent to the cluster; `limits` are names that the workflow counts itself."""
    rules: dict[str, set[str]] = {}
    for job in jobs:
        for name in job.resources.keys():  # noqa: SIM118 (Snakemake's list of resources is no mapping)
            rules.setdefault(name, set()).add(job.name)
    for name in sorted(rules.keys() - {*OWN, *SAME, *SNAKEMAKES, *limits}):
        if not name.startswith("_"):
            near = difflib.get_close_matches(name, (*OWN, *SAME), n=1)
            meant = f"is {near[0]} meant? If not, write" if near else "write"
            yield (
                f"The resource {name} of {', '.join(sorted(rules[name]))} is not sent to {cluster}: {meant} an option of the scheduler in "
                f'options="...", and where Snakemake only counts it resource_scopes: {name}="global" in the Snakefile.'
            )
