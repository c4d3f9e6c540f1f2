"""What storage does, as a user tells it. `formulas` computes from it what a checkpoint and a recovery cost with any number of GPUs."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Self

GPUS_PER_NODE = 8
"""Where nothing else is said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """Sizes are in bytes, bandwidths in bytes a second: infinite where one is no limit."""

    state_bytes: float
    """Of a version, with `gpus` GPUs."""
    gpus: int
    shared_by: float = math.inf
    """So many GPUs hold one copy of the state in parts. Infinite: all of them (FSDP); 1: each holds it all, and one writes it."""
    grows: bool = False
    """Whether a version is larger with more GPUs, in proportion."""
    reads_once: bool = False
    """Whether one GPU of all that hold the same part reads it from storage for the others."""
    gpus_per_node: int = GPUS_PER_NODE
    rank_bytes_per_s: float = math.inf
    """To which one rank can write."""
    node_bytes_per_s: float = math.inf
    """To which all ranks of one node can."""
    all_bytes_per_s: float = math.inf
    """To which all nodes together can, and from which they can read."""
    copy_bytes_per_s: float = math.inf
    """At which a rank copies its part aside, before that is written in the background."""
    read_bytes_per_s: float = math.inf
    """At which one rank reads."""
    write_fixed_s: float = 0.0
    """Of a write, whatever its size."""
    copy_fixed_s: float = 0.0
    down_fixed_s: float = 0.0
    """Of a recovery, whatever the number of GPUs."""
    down_per_gpu_s: float = 0.0
    """What each GPU adds to a recovery."""

    @classmethod
    def of(cls, **fields: Any) -> Self:
        """From fields of which None is no limit."""
        known: dict[str, Any] = {
            name: math.inf if own is None else own for name, own in fields.items()
        }
        return cls(**known)

    def fields(self) -> dict[str, Any]:
        """For JSON, which has no infinity: what `of` takes."""
        return {name: None if own == math.inf else own for name, own in asdict(self).items()}
