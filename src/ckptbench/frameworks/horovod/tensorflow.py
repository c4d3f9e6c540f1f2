"""TensorFlow with Horovod: gradients are averaged by its allreduce inside the traced step; gloo on CPU, NCCL on GPUs."""

from __future__ import annotations

# Before TensorFlow, whose settings it makes for their imports.
from ckptbench.frameworks.tensorflow import TensorFlow, one_device  # isort: skip

import horovod.tensorflow as hvd
import tensorflow as tf

from ckptbench.frameworks.horovod_ranks import Meeting, OverHorovod


class HorovodTensorFlow(OverHorovod, TensorFlow):
    """One rank: to TensorFlow it is alone, and Horovod's operations reach the others.

    Every rank loads the whole state: what rank 0 could send to the others knows nothing of their statistics and seeds.
    """

    def _meet(self) -> None:
        self._strategy = one_device(self._place)
        self._meeting = Meeting.begin(self._place, hvd.init, hvd.shutdown)

    def _mean_over_ranks(self, gradients: list[tf.Tensor]) -> list[tf.Tensor]:
        """As Horovod's DistributedGradientTape does it; the names say which of other ranks' belong together."""
        if self._place.world_size == 1:
            return gradients
        return [
            hvd.allreduce(gradient, op=hvd.Average, name=f"gradient.{index}")
            for index, gradient in enumerate(gradients)
        ]

    def barrier(self) -> None:
        hvd.allreduce(tf.ones(()), name="barrier").numpy()
