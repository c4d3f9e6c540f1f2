"""TensorFlow with Horovod: gradients are averaged by its allreduce inside the traced step; gloo on CPU, NCCL on GPUs.

Deterministic mode is that of TensorFlow, and `HOROVOD_FUSION_THRESHOLD=0`, as gradients that share a buffer are summed in
another order.
"""

from __future__ import annotations

# Imported before TensorFlow, because it makes settings that TensorFlow reads when it is imported.
from ckptbench.frameworks.tensorflow.framework import TensorFlow, one_device  # isort: skip

from collections.abc import Sequence

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf
from horovod.common.elastic import ObjectState
from horovod.common.exceptions import HorovodInternalError

from ckptbench.frameworks.horovod.ranks import OverHorovod, is_of_horovod


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

    def elastic_state(self, *, step: int) -> VariablesState:
        """It holds running statistics too, as Horovod's state of PyTorch does."""
        variables = [*self._variables().values(), *self._buffers.values()]
        return VariablesState([variable.value for variable in variables], step=step)

    @classmethod
    def tells_of_a_loss(cls, error: BaseException) -> bool:
        """TensorFlow makes one error of its own of every error in a step. The text alone tells what it was."""
        if isinstance(error, tf.errors.OpError):
            return is_of_horovod(str(error))
        return isinstance(error, HorovodInternalError)


class VariablesState(ObjectState):
    """The elastic state of TensorFlow variables.

    Horovod's own do not serve: TensorFlowKerasState asks for the optimizer's variables as Keras 2 had them, and
    TensorFlowState sends nothing when TensorFlow runs eagerly.
    """

    def __init__(self, variables: Sequence[tf.Variable], *, step: int) -> None:
        self._variables = variables
        self._keep()
        super().__init__(bcast_object=hvd.broadcast_object, get_rank=hvd.rank, step=step)

    def save(self) -> None:
        self._keep()
        super().save()

    def restore(self) -> None:
        for variable, value in zip(self._variables, self._kept, strict=True):
            variable.assign(value)
        super().restore()

    def sync(self) -> None:
        for number, variable in enumerate(self._variables):
            # Keras' names do not tell variables apart, and ranks match what they send by its name.
            name = f"state.{number}"
            variable.assign(hvd.broadcast(variable.read_value(), root_rank=0, name=name))
        super().sync()

    def _keep(self) -> None:
        self._kept = [np.array(variable) for variable in self._variables]
