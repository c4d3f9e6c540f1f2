"""What a submission asks for."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields

from submitit_gridengine import quoting

_WORDS = (
    "queue",
    "account",
    "parallel_environment",
    "node_resource",
    "memory_resource",
    "gpu_resource",
)


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """The first eight are submitit's own, shared by every cluster; the others are prefixed
    with `gridengine_` in `submitit.AutoExecutor`."""

    name: str = "submitit"
    timeout_min: float = 5
    mem_gb: float | None = None
    """Per node. Asked for only where `memory_resource` names what to ask for."""
    nodes: int = 1
    tasks_per_node: int = 1
    """Processes that the job itself starts: they count as slots; submitit's task is always one."""
    cpus_per_task: int = 1
    gpus_per_node: int = 0
    stderr_to_stdout: bool = False

    queue: str | None = None
    account: str | None = None
    account_option: str = "-P"
    """The option of qsub that takes the account: a project (-P), ABCI's group (-g)..."""
    parallel_environment: str | None = None
    node_resource: str | None = None
    """Asks for `-l NODE_RESOURCE=nodes` instead of a parallel environment."""
    memory_resource: str | None = None
    gpu_resource: str | None = None
    resources: Sequence[str] = ()
    """More of `-l`, each as `name=value`."""
    stop_seconds: float = 90
    """How long before the limit h_rt the job is told to stop (s_rt); at most half of the limit;
    0: not at all."""
    setup: Sequence[str] = ()
    extra: Sequence[str] = ()
    """More options of qsub, each a line as it would stand after `#$`."""
    array_parallelism: int | None = None
    """How many tasks of an array may run at once; None: as many as fit."""
    python: str = shlex.quote(sys.executable)
    """The command that starts Python on the host, quoted for the shell."""

    def __post_init__(self) -> None:
        for name in ("resources", "setup", "extra"):
            if isinstance(value := getattr(self, name), str):
                object.__setattr__(self, name, (value,))
        self._check_text()
        for name in ("timeout_min", "nodes", "tasks_per_node", "cpus_per_task"):
            if (number := getattr(self, name)) <= 0:
                raise ValueError(f"{name} is {number!r}: it must be more than 0.")
        if self.slots > 1 and not self.node_resource and not self.parallel_environment:
            raise ValueError(
                f"{self.slots} slots need a parallel environment: set "
                "gridengine_parallel_environment (`qconf -spl` lists them), or "
                "gridengine_node_resource where the site hands out whole nodes."
            )
        if self.gpus_per_node and not self.gpu_resource and not self.node_resource:
            raise ValueError(
                f"gpus_per_node is {self.gpus_per_node}, and nothing says how this Grid Engine "
                "counts GPUs: set gridengine_gpu_resource (`qconf -sc` lists resources)."
            )

    def _check_text(self) -> None:
        """Raises ValueError for what would be another line or another word of the submission file."""
        for name in _WORDS:
            if text := getattr(self, name):
                quoting.word(str(text), name)
        quoting.option(str(self.account_option), "account_option")
        quoting.line(str(self.python), "python")
        for name in ("resources", "extra"):
            for text in getattr(self, name):
                quoting.line(str(text), name)

    @classmethod
    def names(cls) -> set[str]:
        return {field.name for field in fields(cls)}

    @property
    def slots(self) -> int:
        return self.nodes * self.tasks_per_node * self.cpus_per_task

    @property
    def hard_limit_s(self) -> int:
        return round(60 * self.timeout_min)

    @property
    def soft_limit_s(self) -> int | None:
        """When the job is told to stop; None: never."""
        lead_s = min(float(self.stop_seconds), self.hard_limit_s / 2)
        return self.hard_limit_s - round(lead_s) if lead_s > 0 else None

    def requests(self) -> list[str]:
        """The arguments of `-l`, one each."""
        requests = [f"h_rt={self.hard_limit_s}"]
        if self.soft_limit_s is not None:
            requests.append(f"s_rt={self.soft_limit_s}")
        if self.node_resource:
            requests.append(f"{self.node_resource}={self.nodes}")
        if self.memory_resource and self.mem_gb is not None:
            requests.append(f"{self.memory_resource}={self._memory_mb()}M")
        if self.gpu_resource and self.gpus_per_node:
            requests.append(f"{self.gpu_resource}={self.gpus_per_node}")
        return [*requests, *self.resources]

    def _memory_mb(self) -> int:
        """Grid Engine counts memory per slot."""
        slots_per_node = 1 if self.node_resource else self.slots // self.nodes
        return round(1024 * (self.mem_gb or 0) / slots_per_node)
