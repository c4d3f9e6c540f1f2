"""What a submission asks for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from submitit_qsub import Parameters, quoting

_INSTEAD = {
    "select": "nodes and chunk",
    "place": "place",
    "walltime": "timeout_min (in Snakemake the resource runtime)",
}
"""What the executor asks for itself, by the parameter that says it."""


@dataclass(frozen=True, kw_only=True)
class PbsParameters(Parameters):
    """Each of the `nodes` is a chunk of the selection. `array_parallelism` needs version 2020.1."""

    lines: ClassVar[tuple[str, ...]] = ("chunk", "place", "python")

    chunk: str | None = None
    """What stands after `select=N:`. None: worked out from the numbers; empty: nothing,
    where the queue fixes what a node is, as on ABCI 3.0."""
    place: str | None = None
    """None: a node for each chunk (scatter), unless there is one only or the queue says what a
    node is."""

    def __post_init__(self) -> None:
        super().__post_init__()
        asked = {"select", "walltime", *(["place"] if self.placement else [])}
        for line in self.extra:
            for request in ",".join(quoting.arguments(line, "-l")[0]).split(","):
                if (name := request.partition("=")[0]) in asked:
                    raise ValueError(
                        f"extra is {line!r}: if a resource is requested twice, PBS uses the first request, which is the executor's. "
                        f"Use {_INSTEAD[name]}."
                    )

    @property
    def walltime(self) -> str:
        minutes, seconds = divmod(self.limit_s, 60)
        return f"{minutes // 60:02}:{minutes % 60:02}:{seconds:02}"

    @property
    def placement(self) -> str | None:
        """What stands after `place=`. Left to itself PBS may put all chunks on one node."""
        several = self.nodes > 1 and self.chunk != ""
        return self.place or ("scatter" if several else None)

    @property
    def select(self) -> str:
        chunk = self._computed_chunk() if self.chunk is None else self.chunk
        return f"{self.nodes}:{chunk}" if chunk else f"{self.nodes}"

    def _computed_chunk(self) -> str:
        parts = [f"ncpus={self.cpus_per_node}", f"mpiprocs={self.processes_per_node}"]
        if self.gpus_per_node:
            parts.append(f"ngpus={self.gpus_per_node}")
        if self.mem_gb is not None:
            parts.append(f"mem={round(1024 * self.mem_gb)}mb")
        return ":".join(parts)
