"""PyTorch with FSDP2 and hybrid sharding: the ranks are two groups, and each of them holds model and optimizer in shards.

So the ranks r and r + R/2 of R hold the same shard. It is written once: each of the two writes a half of it, and
with DCP one writes all.
"""

from __future__ import annotations

from ckptbench.frameworks.fsdp.pytorch import PyTorchFsdp


class PyTorchHsdp(PyTorchFsdp):
    """One rank."""

    replicas = 2
