"""TensorFlow with Keras 3: a custom training loop under MultiWorkerMirroredStrategy, one worker per rank.

Deterministic mode is `enable_op_determinism()`: an operation without a deterministic implementation raises an error. Both
modes use seeds, one operation at a time, ring or NCCL, and no XLA.
"""

from __future__ import annotations

import json
import os
import random
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, ClassVar, Self

import keras
import numpy as np
import tensorflow as tf
from keras import layers
from numpy.typing import NDArray

from ckptbench.common.errors import LaunchError
from ckptbench.frameworks.contract import (
    SECOND_MOMENT,
    Arrays,
    Format,
    Framework,
    Optimizer,
    Sgd,
    TensorHandle,
    TrainSpec,
    left_out,
    parts_of,
)
from ckptbench.frameworks.determinism import settle_libraries
from ckptbench.frameworks.random_state import load_random_state, random_state
from ckptbench.frameworks.tensorflow.network import (
    array_of,
    keras_layout,
    keras_model,
    tables_of,
    variables_of,
)
from ckptbench.inputs.datasets.dataset import Inputs
from ckptbench.matrix.networks import layers as arch
from ckptbench.matrix.registry import Precision
from ckptbench.run.control.ranks import RankContext


class TensorFlow(Framework):
    """One rank. A run with a single rank trains under OneDeviceStrategy through the same code.

    Keras does not aggregate running statistics and seeds. Under MultiWorkerMirroredStrategy every rank keeps its own,
    and can read them without the other ranks. The formats store rank 0's statistics and no seeds, so `local_state` has
    both. Keras' running variance follows the variance of the batch; that of PyTorch and Chainer follows n / (n - 1) of
    it. The weights do not depend on this.
    """

    formats: ClassVar[dict[str, Format[TensorFlow]]]
    biased_variance = True
    model: keras.Model
    optimizer: keras.optimizers.Optimizer
    checkpoint: tf.train.Checkpoint
    _strategy: tf.distribute.Strategy

    def __init__(self, world: RankContext) -> None:
        self._world = world

    @classmethod
    def join(cls, world: RankContext, *, seed: int, deterministic: bool) -> Self:
        _configure_devices(world)
        keras.utils.set_random_seed(seed + world.rank)
        if deterministic:
            settle_libraries()
            # https://www.tensorflow.org/api_docs/python/tf/config/experimental/enable_op_determinism
            tf.config.experimental.enable_op_determinism()
        framework = cls(world)
        framework._connect()
        return framework

    def _connect(self) -> None:
        strategy = self._strategy = _strategy(self._world)
        self._sum = _traced(lambda: strategy.run(_sum_over_ranks))
        self.barrier()

    def build(self, spec: TrainSpec) -> None:
        """See `Framework.build`. The step is traced when it first runs, because the size of images is unknown before."""
        network, optimizer = spec.network, spec.optimizer
        with self._strategy.scope():
            self.model = _in_precision(spec.precision, network)
            self._parameters = variables_of(self.model, network.parameters())
            self._accumulation = spec.accumulation
            self.optimizer = self._optimizer(optimizer)
            self.optimizer.build(self.model.trainable_variables)
            # Compiled, so that Keras' own formats store the optimizer too.
            self.model.compile(optimizer=self.optimizer, jit_compile=False)
        self._tables = tables_of(network)
        self._buffers = variables_of(self.model, network.buffers())
        for name, variable in self._parameters.items():
            variable.assign(keras_layout(spec.weights[name], is_table=name in self._tables))
        self._seed_dropouts()
        self.checkpoint = tf.train.Checkpoint(model=self.model, optimizer=self.optimizer)
        self._train = self._traced_step(
            optimizer.weight_decay if isinstance(optimizer, Sgd) else 0.0
        )
        self._predict = _traced(
            lambda images: self._logits(images, training=False), reduce_retracing=True
        )

    def _optimizer(self, settings: Optimizer) -> keras.optimizers.Optimizer:
        rate = float(settings.learning_rate)
        if isinstance(settings, Sgd):
            return keras.optimizers.SGD(rate, momentum=float(settings.momentum))
        optimizer = keras.optimizers.AdamW(
            rate,
            weight_decay=float(settings.weight_decay),
            beta_1=settings.beta1,
            beta_2=settings.beta2,
            epsilon=settings.epsilon,
        )
        optimizer.exclude_from_weight_decay(
            [variable for name, variable in self._parameters.items() if not arch.is_decayed(name)]
        )
        return optimizer

    def _seed_dropouts(self) -> None:
        """Give each rank its own seeds. The strategy would give every rank the seeds that rank 0 drew."""
        self._seeds = [
            layer.seed_generator.state
            for layer in self.model.layers
            if isinstance(layer, layers.Dropout)
        ]
        for state in self._seeds:
            state.assign([random.randrange(2**31), 0])

    def _logits(self, images: tf.Tensor, *, training: bool) -> tf.Tensor:
        return tf.cast(self.model(images, training=training), tf.float32)

    def _traced_step(self, weight_decay: float) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
        variables = self.model.trainable_variables

        def replica_step(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
            loss, gradients = self._accumulated(images, labels, variables)
            if self.average is not None:
                gradients = self._averaged(gradients)
            if weight_decay:
                gradients = [
                    gradient + weight_decay * variable
                    for gradient, variable in zip(gradients, variables, strict=True)
                ]
            with self._after_hook(gradients):
                self.optimizer.apply(self._mean_over_ranks(gradients), variables)
            return loss

        def step(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
            return self._strategy.run(replica_step, (images, labels))

        return _traced(step)

    def _accumulated(
        self, images: tf.Tensor, labels: tf.Tensor, variables: list[keras.Variable]
    ) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """The loss, and the gradients that are added up over the parts of a batch."""
        first, *others = parts_of(labels.shape[0], self._accumulation)
        loss, gradients = self._gradients(images[first], labels[first], variables)
        if not others:
            return loss, gradients
        share = first.stop / labels.shape[0]
        loss, gradients = share * loss, [share * gradient for gradient in gradients]
        for part in others:
            share = (part.stop - part.start) / labels.shape[0]
            # Else the parts would be computed side by side, with the memory of all of them.
            with tf.control_dependencies(gradients):
                of_part, more = self._gradients(
                    tf.identity(images[part]), tf.identity(labels[part]), variables
                )
            loss += share * of_part
            gradients = [sum_ + share * each for sum_, each in zip(gradients, more, strict=True)]
        return loss, gradients

    def _gradients(
        self, images: tf.Tensor, labels: tf.Tensor, variables: list[keras.Variable]
    ) -> tuple[tf.Tensor, list[tf.Tensor]]:
        with tf.GradientTape() as tape:
            logits = self._logits(images, training=True)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
        found = tape.gradient(loss, [variable.value for variable in variables])
        # Of a table they come as those of its single vectors.
        return loss, [tf.convert_to_tensor(gradient) for gradient in found]

    def _averaged(self, gradients: list[tf.Tensor]) -> list[tf.Tensor]:
        """The gradients after `average`, which changes copies: a tensor's own memory must not change."""

        def average(*arrays: NDArray[np.float32]) -> list[NDArray[np.float32]]:
            assert self.average is not None
            copies = [array.copy() for array in arrays]
            self.average(copies)
            return copies

        averaged = tf.numpy_function(average, gradients, [gradient.dtype for gradient in gradients])
        for each, gradient in zip(averaged, gradients, strict=True):
            each.set_shape(gradient.shape)
        return averaged

    def _after_hook(self, gradients: list[tf.Tensor]) -> AbstractContextManager[None]:
        """Operations that are added in this context run after `before_update` has returned, which needs the gradients.

        That of Keras which counts the steps depends on no gradient. Without the hook nothing is added to the traced step.
        """
        if self.before_update is None:
            return nullcontext()
        with tf.control_dependencies(gradients):
            called = tf.py_function(self.before_update, [], [])
        return tf.control_dependencies([called])

    def _mean_over_ranks(self, gradients: list[tf.Tensor]) -> list[tf.Tensor]:
        """This rank's share of the mean. Keras sums gradients over the ranks of its strategy."""
        share = 1 / self._world.world_size
        return [share * gradient for gradient in gradients]

    def step(self, inputs: Inputs, labels: NDArray[np.int64]) -> float:
        loss = float(self._train(tf.constant(inputs), tf.constant(labels)))
        if self._world.accelerator == "cuda":
            tf.test.experimental.sync_devices()  # the loss is known before the update has ended
        return loss

    def predict(self, inputs: Inputs) -> NDArray[np.float32]:
        return self._predict(tf.constant(inputs)).numpy()

    def barrier(self) -> None:
        self._sum().numpy()

    def abort(self) -> None:
        """Nothing to do: when this process ends, collectives of the others fail with UnavailableError."""

    def momentum_scale(self) -> float:
        """Keras' slots hold the momentum that `Sgd` defines, times -learning_rate, and AdamW's moments as they are."""
        if isinstance(self.optimizer, keras.optimizers.AdamW):
            return 1.0
        return float(-1 / self.optimizer.learning_rate.numpy())

    def state_dict(self) -> Arrays:
        """Under `optimizer/` there are also `optimizer/iteration` and `optimizer/learning_rate`."""
        variables = {**self._parameters, **self._buffers}
        return {
            **{f"model/{name}": self._array(name, each) for name, each in variables.items()},
            **{
                f"optimizer/{name}": self._array(name.removesuffix(SECOND_MOMENT), slot)
                for name, slot in self._slots().items()
            },
            "optimizer/iteration": array_of(self.optimizer.iterations),
            "optimizer/learning_rate": array_of(self.optimizer.learning_rate),
        }

    def _array(self, name: str, variable: keras.Variable) -> NDArray[np.generic]:
        return array_of(variable, is_table=name in self._tables)

    def _slots(self) -> dict[str, keras.Variable]:
        """Slots by the name of their parameter, second moments with SECOND_MOMENT behind it.

        Keras makes none for SGD if the momentum is zero.
        """
        names = {variable.path: name for name, variable in self._parameters.items()}
        ordered = [names[variable.path] for variable in self.model.trainable_variables]
        if not isinstance(self.optimizer, keras.optimizers.AdamW):
            return dict(zip(ordered, self.optimizer.momentums, strict=False))
        second = (f"{name}{SECOND_MOMENT}" for name in ordered)
        return {
            **dict(zip(ordered, self.optimizer._momentums, strict=True)),
            **dict(zip(second, self.optimizer._velocities, strict=True)),
        }

    @property
    def native_objects(self) -> dict[str, Any]:
        """`variables`: the tf.Variable behind every tensor of `handles`, by its name."""
        return {"variables": {name: variable.value for name, variable in self._variables().items()}}

    def handles(self) -> list[TensorHandle]:
        return [self._handle(name, variable) for name, variable in self._variables().items()]

    def _variables(self) -> dict[str, keras.Variable]:
        """Those of `handles` by name. Raises CheckpointError if the optimizer has others."""
        slots, own = self._slots(), self.optimizer.variables
        if len(slots) % len(self._parameters) or len(own) != len(slots) + 2:
            raise left_out(
                f"the optimizer has {len(own)} variables for {len(self._parameters)} parameters"
            )
        return {
            **{f"model/{name}": variable for name, variable in self._parameters.items()},
            **{f"optimizer/{name}": slot for name, slot in slots.items()},
            "optimizer/iteration": self.optimizer.iterations,
            "optimizer/learning_rate": self.optimizer.learning_rate,
        }

    def _handle(self, name: str, variable: keras.Variable) -> TensorHandle:
        """While an array that `read` returned lives, TensorFlow moves the variable to new memory before it changes it."""
        # Of a variable of MultiWorkerMirroredStrategy this is the part that lies in this process.
        (own,) = self._strategy.experimental_local_results(variable.value)
        return TensorHandle(
            name=name,
            shape=tuple(own.shape),
            dtype=np.dtype(own.dtype.as_numpy_dtype),
            read=lambda: np.asarray(memoryview(own.read_value())),
            # A copy, because TensorFlow would go on to use the array's own memory where that is aligned.
            write=lambda array: own.assign(np.array(array)),
        )

    def local_state(self) -> Arrays:
        state = random_state()
        state |= {f"buffer/{name}": array_of(variable) for name, variable in self._buffers.items()}
        state |= {f"seed/{index}": array_of(seed) for index, seed in enumerate(self._seeds)}
        return state

    def load_local_state(self, state: Arrays) -> None:
        load_random_state(state)
        for name, variable in self._buffers.items():
            variable.assign(state[f"buffer/{name}"])
        for index, seed in enumerate(self._seeds):
            seed.assign(state[f"seed/{index}"])

    def device(self) -> str:
        if self._world.accelerator == "cpu":
            return "cpu"
        (gpu,) = tf.config.get_visible_devices("GPU")
        return str(tf.config.experimental.get_device_details(gpu)["device_name"])

    def close(self) -> None:
        """Wait for all ranks: one that stayed on longer would find the coordination service gone."""
        self.barrier()


def _in_precision(precision: Precision, network: arch.Network) -> keras.Model:
    """The model. With `bf16` its layers compute in bfloat16 and have float32 variables."""
    usual = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16" if precision == "bf16" else usual)
    try:
        return keras_model(network)
    finally:
        keras.config.set_dtype_policy(usual)


def _traced(function: Callable[..., Any], *, reduce_retracing: bool = False) -> Callable[..., Any]:
    """A graph of `function`, whose Python is not converted by AutoGraph, as Keras' own training step is not.

    No branch in it depends on a tensor, and the conversion of Horovod's operations alone takes seconds of every start.
    """
    return tf.function(
        function, jit_compile=False, autograph=False, reduce_retracing=reduce_retracing
    )


def _configure_devices(world: RankContext) -> None:
    """Set threads and devices. TensorFlow's runtime accepts them only before it starts."""
    tf.config.threading.set_intra_op_parallelism_threads(world.threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    if world.accelerator == "cpu":
        tf.config.set_visible_devices([], "GPU")
        return
    gpus = tf.config.list_physical_devices("GPU")
    if len(gpus) != 1:
        raise LaunchError(
            f"rank {world.rank} sees {len(gpus)} GPUs, it needs exactly one: check CUDA_VISIBLE_DEVICES "
            "and that its environment holds a TensorFlow built for CUDA"
        )
    tf.config.experimental.set_memory_growth(gpus[0], True)


def one_device(world: RankContext) -> tf.distribute.Strategy:
    return tf.distribute.OneDeviceStrategy("/cpu:0" if world.accelerator == "cpu" else "/gpu:0")


def _strategy(world: RankContext) -> tf.distribute.Strategy:
    if world.world_size == 1:
        return one_device(world)
    os.environ["TF_CONFIG"] = json.dumps(
        {
            "cluster": {"worker": list(world.addresses)},
            "task": {"type": "worker", "index": world.rank},
        }
    )
    communication = tf.distribute.experimental.CommunicationImplementation
    return tf.distribute.MultiWorkerMirroredStrategy(
        communication_options=tf.distribute.experimental.CommunicationOptions(
            implementation=communication.RING if world.accelerator == "cpu" else communication.NCCL
        )
    )


def _sum_over_ranks() -> tf.Tensor:
    return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, tf.ones(()))


def _save_weights(framework: TensorFlow, path: Path) -> None:
    framework.model.save_weights(path)


def _save_model(framework: TensorFlow, path: Path) -> None:
    framework.model.save(path)


def _load_weights(framework: TensorFlow, path: Path) -> None:
    """Load model and optimizer from `.weights.h5` or `.keras`. Of a `.keras` file only arrays are read."""
    with warnings.catch_warnings():
        # Keras only warns when it skips an optimizer's state that does not fit.
        warnings.filterwarnings("error", message="Skipping variable loading")
        framework.model.load_weights(path)


def _save_checkpoint(framework: TensorFlow, path: Path) -> None:
    framework.checkpoint.write(str(path))


def _load_checkpoint(framework: TensorFlow, path: Path) -> None:
    framework.checkpoint.read(str(path)).assert_existing_objects_matched()


TensorFlow.formats = {
    "hdf5": Format("model.weights.h5", _save_weights, _load_weights),
    "keras": Format("model.keras", _save_model, _load_weights),
    "tf_checkpoint": Format("model", _save_checkpoint, _load_checkpoint),
}
