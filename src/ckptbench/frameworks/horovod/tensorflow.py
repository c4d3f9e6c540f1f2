"""TensorFlow with Horovod: its allreduce averages gradients inside the traced step; gloo on CPU, NCCL on GPUs.

Deterministic mode is TensorFlow's, plus `HOROVOD_FUSION_THRESHOLD=0`.
"""

from __future__ import annotations

# Imported before TensorFlow, because it makes settings that TensorFlow reads when it is imported.
from ckptbench.frameworks.tensorflow.framework import TensorFlow, one_device  # isort: skip


import horovod.tensorflow as hvd
import tensorflow as tf

from ckptbench.frameworks.horovod.ranks import OverHorovod


class HorovodTensorFlow(OverHorovod, TensorFlow):
    """One rank. TensorFlow takes it for the only one; Horovod's operations reach the others.

    Every rank loads the whole state. Rank 0 could not send it, because it does not have the others' statistics and seeds.
    """

    horovod = hvd

    def _connect(self) -> None:
        self._strategy = one_device(self._world)
        super()._connect()

    def _mean_over_ranks(self, gradients: list[tf.Tensor]) -> list[tf.Tensor]:
        """Average as Horovod's DistributedGradientTape does. Gradients with the same name on all ranks are averaged."""
        if self._world.world_size == 1:
            return gradients
        return [
            hvd.allreduce(gradient, op=hvd.Average, name=f"gradient.{index}")
            for index, gradient in enumerate(gradients)
        ]

    def barrier(self) -> None:
        hvd.allreduce(tf.ones(()), name="barrier").numpy()
