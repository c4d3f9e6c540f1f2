"""PyTorch with Horovod: gradients are averaged by its DistributedOptimizer; gloo on CPU, NCCL on GPUs."""

from __future__ import annotations

import horovod.torch as hvd
import torch
from torch import nn

from ckptbench.frameworks.base import Sgd
from ckptbench.frameworks.horovod_ranks import Meeting, OverHorovod
from ckptbench.frameworks.pytorch import PyTorch


class HorovodPyTorch(OverHorovod, PyTorch):
    """One rank. Unlike under DistributedDataParallel every rank keeps batch-norm statistics of its own.

    Every rank loads the whole state, and into the optimizer as Horovod has wrapped it. Both matter: the wrapper takes
    over no momentum that was there before it, and sending rank 0's state to the others forgets their statistics.
    """

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
