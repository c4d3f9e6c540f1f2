"""PyTorch with Horovod: its DistributedOptimizer averages gradients; gloo on CPU, NCCL on GPUs.

Deterministic mode is PyTorch's, plus `HOROVOD_FUSION_THRESHOLD=0`, because gradients that share a buffer are summed in
another order.
"""

from __future__ import annotations

import horovod.torch as hvd
import torch
from torch import nn

from ckptbench.frameworks.contract import Optimizer
from ckptbench.frameworks.horovod.ranks import OverHorovod
from ckptbench.frameworks.pytorch import PyTorch


class HorovodPyTorch(OverHorovod, PyTorch):
    """One rank. Every rank keeps its own batch-norm statistics, unlike under DistributedDataParallel.

    Every rank loads the whole state, because sending rank 0's state to the others would lose their statistics. It loads
    into the optimizer that Horovod has wrapped, because wrapping drops the momentum that was there before.
    """

    horovod = hvd

    def _optimizer(self, settings: Optimizer) -> torch.optim.Optimizer:
        return hvd.DistributedOptimizer(
            super()._optimizer(settings),
            named_parameters=self.module.named_parameters(),
            backward_passes_per_step=self._spec.accumulation,
        )

    def _wrapped(self) -> nn.Module:
        return self.module

    def barrier(self) -> None:
        hvd.barrier()
