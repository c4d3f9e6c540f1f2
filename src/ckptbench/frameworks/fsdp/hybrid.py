"""PyTorch with FSDP2 and hybrid sharding: the ranks are two groups, and each of them holds model and optimizer in shards.

So the ranks r and r + R/2 of R hold the same shard, and it is written once: half by each of them, by DCP in one piece.
"""

from __future__ import annotations

from ckptbench.frameworks.fsdp.pytorch import PyTorchFsdp


class PyTorchHsdp(PyTorchFsdp):
    """One rank."""

    replicas = 2
