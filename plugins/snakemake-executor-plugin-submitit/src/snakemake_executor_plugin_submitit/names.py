"""Names of resources: this executor's own, and those that users of snakemake-executor-plugin-slurm know."""

import difflib
import json
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.jobs import JobExecutorInterface

from .settings import read_value

OWN = ("runtime", "mem_mb", "mem_mb_per_cpu", "nodes", "tasks", "tasks_per_node", "cpus_per_task", "cpus_per_gpu", "gpus", "queue", "account", "options", "mpi")  # fmt: skip
"""`mpi` is the rule's own: the program that starts its ranks."""
SAME = {"slurm_partition": "queue", "slurm_account": "account", "gpu": "gpus"}
SBATCH = ("constraint", "qos", "gres", "reservation", "nodelist", "exclusive", "clusters")
"""Sent to Slurm as they are."""
CLUSTERS = ("cluster", "slurm_cluster")
"""Other names of `clusters`."""
FOR_SLURM = (*SBATCH, *CLUSTERS, "gpu_model", "slurm_extra")
SNAKEMAKES = ("mem", "mem_mib", "disk", "disk_mb", "disk_mib", "tmpdir")

_ON_QSUB = {
    "gres": "use gpus",
    "qos": "use the option extra",
    "slurm_extra": "use the option extra",
}
_INSTEAD = {
    "gridengine": _ON_QSUB
    | dict.fromkeys(
        ("constraint", "nodelist", "exclusive", "gpu_model"), "use the option resources"
    )
    | {"reservation": "use the option extra, with -ar"},
    "pbs": _ON_QSUB
    | dict.fromkeys(("constraint", "nodelist", "gpu_model"), "use the option chunk")
    | {"reservation": "a reservation of PBS is a queue, so use queue"},
}
_SHORT = {
    "A": "account",
    "C": "constraint",
    "G": "gpus",
    "L": "licenses",
    "M": "clusters",
    "N": "nodes",
    "c": "cpus_per_task",
    "d": "dependency",
    "n": "ntasks",
    "p": "partition",
    "q": "qos",
    "t": "time",
    "w": "nodelist",
    "x": "exclude",
}


def remarks(
    jobs: Iterable[JobExecutorInterface], cluster: str, limits: Collection[str]
) -> Iterator[str]:
    """A line for each name that is not sent to the cluster; `limits` are names that the workflow counts itself."""
    rules: dict[str, set[str]] = {}
    for job in jobs:
        for name in job.resources.keys():  # noqa: SIM118 (Snakemake's list of resources is no mapping)
            rules.setdefault(name, set()).add(job.name)
    for name in sorted(rules.keys() - {*OWN, *SAME, *SNAKEMAKES, *limits}):
        if not name.startswith("_") and (why := _remark(name, cluster)):
            yield f"The resource {name} of {', '.join(sorted(rules[name]))} is not sent to {cluster}: {why}."


def _remark(name: str, cluster: str) -> str:
    """Why the name has no effect; "" where it has one, or where there is no scheduler."""
    if name in FOR_SLURM:
        if cluster in ("slurm", "local") or (name, cluster) == ("exclusive", "pbs"):
            return ""
        return _INSTEAD[cluster].get(name, "it is Slurm's")
    near = difflib.get_close_matches(name, (*OWN, *SAME, *FOR_SLURM), n=1)
    meant = f"is {near[0]} meant? If not, and" if near else "it is unknown. If"
    return (
        f'{meant} Snakemake only counts it, write resource_scopes: {name}="global" in the Snakefile'
    )


def options(
    given: Mapping[str, Any], cluster: str, nodes: int, gpus_per_node: int
) -> Iterator[str]:
    """The names that only some schedulers have, as options of the executor. Raises WorkflowError."""
    make: dict[str, Callable[..., dict[str, Any]]] = {"slurm": _for_slurm, "pbs": _for_pbs}
    if cluster in make:
        for key, value in make[cluster](given, nodes, gpus_per_node).items():
            yield f"{key}={json.dumps(value)}"


def gpus_in(gres: object) -> int | None:
    """GPUs on each node that a `gres` asks for; None where it says nothing of GPUs."""
    counts = []
    for item in str(gres or "").removeprefix("gres:").split(","):
        kind, *more = item.partition("(")[0].removeprefix("gres/").split(":")
        if kind == "gpu":
            counts.append(int(more[-1]) if more and more[-1].isdecimal() else 1)
    return sum(counts) if counts else None


def sbatch_options(text: str, place: str) -> dict[str, Any]:
    """`--key=value`, `--key value`, `--flag` and the short forms of sbatch's options. Raises WorkflowError."""
    found: dict[str, Any] = {}
    words = shlex.split(text)
    while words:
        word = words.pop(0)
        key, equals, value = word.removeprefix("--").partition("=")
        if not word.startswith("--"):
            key, equals, value = _short(word, place)
        if not equals and words and not words[0].startswith("-"):
            equals, value = "=", words.pop(0)
        found[key.replace("-", "_")] = read_value(value) if equals else True
    return found


def _short(word: str, place: str) -> tuple[str, str, str]:
    if word[:1] != "-" or word[1:2] not in _SHORT:
        raise WorkflowError(
            f"{place}: {word!r} is no option of sbatch that is known here: write its long form, --name=value."
        )
    return _SHORT[word[1]], "=" if word[2:] else "", word[2:].removeprefix("=")


def _for_slurm(given: Mapping[str, Any], nodes: int, gpus_per_node: int) -> dict[str, Any]:
    found = {name: given[name] for name in SBATCH if name in given}
    for name in CLUSTERS:
        if name in given:
            found["clusters"] = given[name]
    if "exclusive" in found:
        found["exclusive"] = _flag(found["exclusive"])
    if "mem_mb_per_cpu" in given:
        found["mem_per_cpu"] = f"{given['mem_mb_per_cpu']}M"
    if model := given.get("gpu_model"):
        if "gres" in given or not gpus_per_node:
            raise WorkflowError(
                f"gpu_model={model} needs gpus, and no gres: a gres names the model itself, as gpu:{model}:1."
            )
        found["gpus_per_node"] = f"{model}:{gpus_per_node}"
    return found | sbatch_options(str(given.get("slurm_extra", "")), "slurm_extra")


def _for_pbs(given: Mapping[str, Any], nodes: int, gpus_per_node: int) -> dict[str, Any]:
    if not _flag(given.get("exclusive", False)):
        return {}
    return {"place": "scatter:excl" if nodes > 1 else "excl"}


def _flag(value: Any) -> Any:
    """As true and false come from Snakemake: as numbers, or as text."""
    return {"true": True, "1": True, "false": False, "0": False}.get(str(value).lower(), value)
