"""Trains a few steps on several ranks in each way, and saves three times by DCP.

torchrun --nproc-per-node 2 probe_tearing_ranks.py
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

STEPS, SAVE_EVERY = 12, 4


class Staging:
    """FSDP2, with staging in a thread."""

    def __init__(self, awaited: bool) -> None:
        self.name = "sharded_awaited" if awaited else "sharded"
        self.model: nn.Module = network()
        fully_shard(self.model)
        self._awaited = awaited
        self._stager = DefaultStager(StagingOptions(False, False, True, False))
        self._group = dist.new_group(backend="gloo")
        self._pending: list[Any] = []

    def save(self, optimizer: torch.optim.Optimizer, name: str) -> None:
        self.wait()
        weights, moments = get_state_dict(self.model, optimizer)
        response = dcp.async_save(
            {"model": weights, "optimizer": moments}, checkpoint_id=name, async_stager=self._stager, process_group=self._group,
        )  # fmt: skip
        self._pending.append(response.upload_completion)
        if self._awaited:
            response.staging_completion.result()

    def wait(self) -> None:
        while self._pending:
            self._pending.pop().result()


class Replicated:
    """DDP, whose buffers, as the random states, are another thing on each rank: DCP keeps those of one rank."""

    name = "replicated"

    def __init__(self) -> None:
        self.model = DistributedDataParallel(network(nn.BatchNorm1d(256)))

    def save(self, optimizer: torch.optim.Optimizer, name: str) -> None:
        state = {"model": self.model.state_dict(), "optimizer": optimizer.state_dict(), "random": torch.get_rng_state()}  # fmt: skip
        dcp.save(state, checkpoint_id=name)

    def wait(self) -> None:
        """A save is finished when the call returns."""


def network(*inside: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(64, 256), *inside, nn.ReLU(), nn.Linear(256, 64))


def train(make: Callable[[], Staging | Replicated]) -> None:
    torch.manual_seed(0)
    way = make()
    optimizer = torch.optim.AdamW(way.model.parameters())
    torch.manual_seed(dist.get_rank())
    for step in range(1, STEPS + 1):
        optimizer.zero_grad()
        way.model(torch.randn(8, 64)).square().mean().backward()
        optimizer.step()
        if step % SAVE_EVERY == 0:
            way.save(optimizer, f"{way.name}-{step}")
    way.wait()


def main() -> None:
    dist.init_process_group("gloo")
    train(lambda: Staging(awaited=False))
    train(lambda: Staging(awaited=True))
    train(Replicated)
    dist.barrier()  # a rank that ends while another still talks to it makes that one abort
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
