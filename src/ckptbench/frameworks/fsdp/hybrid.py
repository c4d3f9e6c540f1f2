"""PyTorch with FSDP2 and hybrid sharding: two groups of ranks, each with a sharded copy of model and optimizer.

Of R ranks, r and r + R/2 hold the same shard. It is written once: each of the two writes half of it, with DCP one writes all.
"""

from __future__ import annotations

from ckptbench.frameworks.fsdp.pytorch import PyTorchFsdp


class PyTorchHsdp(PyTorchFsdp):
    """One rank."""

    replicas = 2
