"""PyTorch with Horovod: gradients are averaged by its DistributedOptimizer; gloo on CPU, NCCL on GPUs."""

from __future__ import annotations

import os
from typing import Self

import horovod.torch as hvd
import torch
from torch import nn

from ckptbench.frameworks.base import Place, Sgd
from ckptbench.frameworks.horovod_ranks import Meeting, environment
from ckptbench.frameworks.pytorch import PyTorch


class HorovodPyTorch(PyTorch):
    """One rank. Unlike under DistributedDataParallel every rank keeps batch-norm statistics of its own.

    Every rank loads the whole state, and into the optimizer as Horovod has wrapped it. Both matter: the wrapper takes
    over no momentum that was there before it, and sending rank 0's state to the others forgets their statistics.
    """

    _meeting: Meeting

    @classmethod
    def join(cls, place: Place, *, seed: int, deterministic: bool) -> Self:
        os.environ |= environment(place, deterministic=deterministic)
        return super().join(place, seed=seed, deterministic=deterministic)

    def _meet(self) -> None:
        self._meeting = Meeting.begin(self._place, hvd.init, hvd.shutdown)

    def _sgd(self, settings: Sgd) -> torch.optim.SGD:
        return hvd.DistributedOptimizer(
            super()._sgd(settings), named_parameters=self.module.named_parameters()
        )

    def _wrapped(self) -> nn.Module:
        return self.module

    def barrier(self) -> None:
        hvd.barrier()

    def abort(self) -> None:
        """What the other ranks wait in fails with HorovodInternalError."""
        self._meeting.end()

    def close(self) -> None:
        self.barrier()
        self._meeting.end()
