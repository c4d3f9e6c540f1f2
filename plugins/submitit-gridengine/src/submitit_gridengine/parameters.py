"""What a submission asks for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from submitit_qsub import Parameters


@dataclass(frozen=True, kw_only=True)
class GridEngineParameters(Parameters):
    """The CPUs of all processes count as slots. `mem_gb` is asked for only where `memory_resource` names what to ask for."""

    words: ClassVar[tuple[str, ...]] = (
        "queue",
        "account",
        "parallel_environment",
        "node_resource",
        "memory_resource",
        "gpu_resource",
    )
    lists: ClassVar[tuple[str, ...]] = ("resources", "extra")

    parallel_environment: str | None = None
    node_resource: str | None = None
    """Asks for `-l NODE_RESOURCE=nodes` instead of a parallel environment."""
    memory_resource: str | None = None
    gpu_resource: str | None = None
    resources: Sequence[str] = ()
    """More of `-l`, each as `name=value`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.slots > 1 and not self.node_resource and not self.parallel_environment:
            raise ValueError(
                f"{self.slots} slots need a parallel environment: set "
                "gridengine_parallel_environment (`qconf -spl` lists them), or "
                "gridengine_node_resource where the site allocates whole nodes."
            )
        if self.gpus_per_node and not self.gpu_resource and not self.node_resource:
            raise ValueError(
                f"gpus_per_node is {self.gpus_per_node}, but it is not configured how this Grid Engine "
                "counts GPUs: set gridengine_gpu_resource (`qconf -sc` lists resources)."
            )

    @property
    def slots(self) -> int:
        return self.nodes * self.cpus_per_node

    def requests(self) -> list[str]:
        """The arguments of `-l`, one each."""
        requests = [f"h_rt={self.limit_s}"]
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
