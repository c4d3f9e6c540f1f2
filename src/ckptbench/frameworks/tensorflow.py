"""TensorFlow with Keras 3: a custom training loop under MultiWorkerMirroredStrategy, one worker a rank."""

from __future__ import annotations

import json
import os
import random
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, ClassVar, Self

# TensorFlow and Keras read these when they are imported. Level 2 logs errors, and leaves out advice at the start.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import numpy as np
import tensorflow as tf
from keras import layers
from numpy.typing import NDArray

from ckptbench.errors import LaunchError
from ckptbench.frameworks.contract import Arrays, Format, Framework, Sgd
from ckptbench.frameworks.determinism import settle_libraries
from ckptbench.frameworks.random_state import load_random_state, random_state
from ckptbench.frameworks.state import Tensor
from ckptbench.networks import layers as arch
from ckptbench.world.seats import Place

# For the last part of a tensor's name in the network: Keras' attribute of the layer.
_PARAMETERS = {"kernel": "kernel", "bias": "bias", "scale": "gamma", "shift": "beta"}
_BUFFERS = {"mean": "moving_mean", "variance": "moving_variance"}


class TensorFlow(Framework):
    """One rank. A run with a single rank trains under OneDeviceStrategy through the same code.

    Keras does not aggregate running statistics and seeds. Under MultiWorkerMirroredStrategy every rank keeps its own,
    and can read them without the other ranks. The formats store rank 0's statistics and no seeds, so `rank_state` has
    both. Keras' running variance follows the variance of the batch; that of PyTorch and Chainer follows n / (n - 1) of
    it. The weights do not depend on this.
    """

    formats: ClassVar[dict[str, Format[TensorFlow]]]
    biased_variance = True
    model: keras.Model
    optimizer: keras.optimizers.SGD
    checkpoint: tf.train.Checkpoint
    _strategy: tf.distribute.Strategy

    def __init__(self, place: Place) -> None:
        self._place = place

    @classmethod
    def join(cls, place: Place, *, seed: int, deterministic: bool) -> Self:
        _configure_devices(place)
        keras.utils.set_random_seed(seed + place.rank)
        if deterministic:
            settle_libraries()
            tf.config.experimental.enable_op_determinism()
        framework = cls(place)
        framework._meet()
        return framework

    def _meet(self) -> None:
        strategy = self._strategy = _strategy(self._place)
        self._sum = _traced(lambda: strategy.run(_sum_over_ranks))
        self.barrier()

    def build(
        self, network: arch.Network, weights: Arrays, optimizer: Sgd, batch_size: int
    ) -> None:
        """See `Framework.build`. The step is traced when it first runs, because the size of images is unknown before."""
        with self._strategy.scope():
            self.model = _model(network)
            self.optimizer = keras.optimizers.SGD(
                float(optimizer.learning_rate), momentum=float(optimizer.momentum)
            )
            self.optimizer.build(self.model.trainable_variables)
            # Compiled, so that Keras' own formats store the optimizer too.
            self.model.compile(optimizer=self.optimizer, jit_compile=False)
        self._parameters = _variables(self.model, network.parameters(), _PARAMETERS)
        self._buffers = _variables(self.model, network.buffers(), _BUFFERS)
        for name, variable in self._parameters.items():
            variable.assign(_keras_layout(weights[name]))
        self._seed_dropouts()
        self.checkpoint = tf.train.Checkpoint(model=self.model, optimizer=self.optimizer)
        self._train = self._traced_step(optimizer.weight_decay)
        self._predict = _traced(
            lambda images: self.model(images, training=False), reduce_retracing=True
        )

    def _seed_dropouts(self) -> None:
        """Give each rank its own seeds. The strategy would give every rank the seeds that rank 0 drew."""
        self._seeds = [
            layer.seed_generator.state
            for layer in self.model.layers
            if isinstance(layer, layers.Dropout)
        ]
        for state in self._seeds:
            state.assign([random.randrange(2**31), 0])

    def _traced_step(self, weight_decay: float) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
        variables = self.model.trainable_variables

        def replica_step(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
            with tf.GradientTape() as tape:
                logits = self.model(images, training=True)
                losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
                loss = tf.reduce_mean(losses)
            gradients = tape.gradient(loss, [variable.value for variable in variables])
            if weight_decay:
                gradients = [
                    gradient + weight_decay * variable
                    for gradient, variable in zip(gradients, variables, strict=True)
                ]
            gradients = self._after_hook(gradients)
            self.optimizer.apply(self._mean_over_ranks(gradients), variables)
            return loss

        def step(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
            return self._strategy.run(replica_step, (images, labels))

        return _traced(step)

    def _after_hook(self, gradients: list[tf.Tensor]) -> list[tf.Tensor]:
        """The gradients, after `before_update` has returned. Without that hook nothing is added to the traced step."""
        if self.before_update is None:
            return gradients
        with tf.control_dependencies(gradients):
            called = tf.py_function(self.before_update, [], [])
        with tf.control_dependencies([called]):
            return [tf.identity(gradient) for gradient in gradients]

    def _mean_over_ranks(self, gradients: list[tf.Tensor]) -> list[tf.Tensor]:
        """This rank's share of the mean. Keras sums gradients over the ranks of its strategy."""
        share = 1 / self._place.world_size
        return [share * gradient for gradient in gradients]

    def step(self, images: NDArray[np.float32], labels: NDArray[np.int64]) -> float:
        loss = float(self._train(tf.constant(images), tf.constant(labels)))
        if self._place.accelerator == "cuda":
            tf.test.experimental.sync_devices()  # the loss is known before the update has ended
        return loss

    def predict(self, images: NDArray[np.float32]) -> NDArray[np.float32]:
        return self._predict(tf.constant(images)).numpy()

    def barrier(self) -> None:
        self._sum().numpy()

    def abort(self) -> None:
        """Nothing to do: when this process ends, collectives of the others fail with UnavailableError."""

    def tensors(self) -> Arrays:
        """Under `optimizer/` there are also `optimizer/iteration` and `optimizer/learning_rate`."""
        # Keras' slots hold the momentum that `Sgd` defines, times -learning_rate.
        scale = -self.optimizer.learning_rate.numpy()
        momenta = {f"optimizer/{name}" for name in self._momenta()}
        return {
            name: array / scale if name in momenta else array for name, array in self.held().items()
        }

    def held(self) -> Arrays:
        variables = {**self._parameters, **self._buffers}
        return {
            **{f"model/{name}": _array(variable) for name, variable in variables.items()},
            **{f"optimizer/{name}": _array(slot) for name, slot in self._momenta().items()},
            "optimizer/iteration": _array(self.optimizer.iterations),
            "optimizer/learning_rate": _array(self.optimizer.learning_rate),
        }

    def _momenta(self) -> dict[str, keras.Variable]:
        """Momentum slots by the name of their parameter. Keras makes none if the momentum is zero."""
        names = {variable.path: name for name, variable in self._parameters.items()}
        slots = zip(self.model.trainable_variables, self.optimizer.momentums, strict=False)
        return {names[variable.path]: slot for variable, slot in slots}

    def state(self) -> list[Tensor]:
        variables = {
            **{f"model/{name}": variable for name, variable in self._parameters.items()},
            **{f"optimizer/{name}": slot for name, slot in self._momenta().items()},
            "optimizer/iteration": self.optimizer.iterations,
            "optimizer/learning_rate": self.optimizer.learning_rate,
        }
        return [self._tensor(name, variable) for name, variable in variables.items()]

    def _tensor(self, name: str, variable: keras.Variable) -> Tensor:
        """While an array that `read` returned lives, TensorFlow moves the variable to new memory before it changes it."""
        # Of a variable of MultiWorkerMirroredStrategy this is the part that lies in this process.
        (own,) = self._strategy.experimental_local_results(variable.value)
        return Tensor(
            name=name,
            shape=tuple(own.shape),
            dtype=np.dtype(own.dtype.as_numpy_dtype),
            read=lambda: np.asarray(memoryview(own.read_value())),
            write=own.assign,
        )

    def rank_state(self) -> Arrays:
        state = random_state()
        state |= {f"buffer/{name}": _array(variable) for name, variable in self._buffers.items()}
        state |= {f"seed/{index}": _array(seed) for index, seed in enumerate(self._seeds)}
        return state

    def load_rank_state(self, state: Arrays) -> None:
        load_random_state(state)
        for name, variable in self._buffers.items():
            variable.assign(state[f"buffer/{name}"])
        for index, seed in enumerate(self._seeds):
            seed.assign(state[f"seed/{index}"])

    def forget(self, part: str) -> None:
        if part != "momentum":
            raise ValueError(f"{type(self).__name__} has no {part} to forget")
        for slot in self._momenta().values():
            slot.assign(np.zeros(slot.shape, np.float32))

    def device(self) -> str:
        if self._place.accelerator == "cpu":
            return "cpu"
        (gpu,) = tf.config.get_visible_devices("GPU")
        return str(tf.config.experimental.get_device_details(gpu)["device_name"])

    def close(self) -> None:
        """Wait for all ranks: one that stayed on longer would find the coordination service gone."""
        self.barrier()


def _traced(function: Callable[..., Any], *, reduce_retracing: bool = False) -> Callable[..., Any]:
    """A graph of `function`, whose Python is not converted by AutoGraph, as Keras' own training step is not.

    No branch in it depends on a tensor, and the conversion of Horovod's operations alone takes seconds of every start.
    """
    return tf.function(
        function, jit_compile=False, autograph=False, reduce_retracing=reduce_retracing
    )


def _configure_devices(place: Place) -> None:
    """Set threads and devices. TensorFlow's runtime accepts them only before it starts."""
    tf.config.threading.set_intra_op_parallelism_threads(place.threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    if place.accelerator == "cpu":
        tf.config.set_visible_devices([], "GPU")
        return
    gpus = tf.config.list_physical_devices("GPU")
    if len(gpus) != 1:
        raise LaunchError(
            f"rank {place.rank} sees {len(gpus)} GPUs, it needs exactly one: check CUDA_VISIBLE_DEVICES "
            "and that its environment holds a TensorFlow built for CUDA"
        )
    tf.config.experimental.set_memory_growth(gpus[0], True)


def one_device(place: Place) -> tf.distribute.Strategy:
    return tf.distribute.OneDeviceStrategy("/cpu:0" if place.accelerator == "cpu" else "/gpu:0")


def _strategy(place: Place) -> tf.distribute.Strategy:
    if place.world_size == 1:
        return one_device(place)
    os.environ["TF_CONFIG"] = json.dumps(
        {
            "cluster": {"worker": list(place.addresses)},
            "task": {"type": "worker", "index": place.rank},
        }
    )
    communication = tf.distribute.experimental.CommunicationImplementation
    return tf.distribute.MultiWorkerMirroredStrategy(
        communication_options=tf.distribute.experimental.CommunicationOptions(
            implementation=communication.RING if place.accelerator == "cpu" else communication.NCCL
        )
    )


def _sum_over_ranks() -> tf.Tensor:
    return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, tf.ones(()))


def _model(network: arch.Network) -> keras.Model:
    """A model for images of any size, channels last.

    It has Keras' own layers only, so that a `.keras` file can be opened anywhere.
    """
    first = next(layer for layer in network.flat() if isinstance(layer, arch.Conv))
    inputs = keras.Input((None, None, first.inputs))
    return keras.Model(inputs, _stacked(network.layers, inputs))


def _stacked(stack: Iterable[arch.Layer], x: keras.KerasTensor) -> keras.KerasTensor:
    for layer in stack:
        x = _applied(layer, x)
    return x


def _applied(layer: arch.Layer, x: keras.KerasTensor) -> keras.KerasTensor:
    match layer:
        case arch.Conv():
            x = _convolved(layer, x)
        case arch.BatchNorm():
            x = layers.BatchNormalization(
                momentum=arch.BATCH_NORM_DECAY, epsilon=arch.BATCH_NORM_EPSILON, name=layer.name
            )(x)
        case arch.Dense():
            x = layers.Dense(layer.outputs, kernel_initializer="zeros", name=layer.name)(x)
        case arch.ReLU():
            x = layers.ReLU()(x)
        case arch.MaxPool():
            x = layers.MaxPooling2D(layer.kernel, layer.stride)(_padded(x, layer.pad))
        case arch.AveragePoolTo():
            x = _average_pooled(x, layer.size)
        case arch.Flatten():
            x = layers.Flatten()(layers.Permute((3, 1, 2))(x))
        case arch.Dropout():
            x = layers.Dropout(layer.rate)(x)
        case arch.Residual():
            branches = [_stacked(layer.body, x), _stacked(layer.shortcut, x)]
            x = layers.ReLU()(layers.Add()(branches))
    return x


def _convolved(layer: arch.Conv, x: keras.KerasTensor) -> keras.KerasTensor:
    """A convolution with the network's padding. TensorFlow's "same" is equal to it only if the stride is 1."""
    same = layer.stride == 1 and layer.kernel == 2 * layer.pad + 1
    if layer.pad and not same:
        x = layers.ZeroPadding2D(layer.pad)(x)
    convolution = layers.Conv2D(
        layer.outputs,
        layer.kernel,
        strides=layer.stride,
        padding="same" if same else "valid",
        use_bias=layer.bias,
        kernel_initializer="zeros",
        name=layer.name,
    )
    return convolution(x)


def _padded(x: keras.KerasTensor, pad: int) -> keras.KerasTensor:
    """Pad with the lowest float32: it never is a maximum and, unlike -inf, can be written as JSON."""
    if pad == 0:
        return x
    sides = ((0, 0), (pad, pad), (pad, pad), (0, 0))
    return keras.ops.pad(x, sides, constant_values=float(np.finfo(np.float32).min))


def _average_pooled(x: keras.KerasTensor, size: int) -> keras.KerasTensor:
    """Average pooling by products with matrices of weights. Keras' own adaptive layer refuses images of one pixel."""
    if size == 1:
        return layers.GlobalAveragePooling2D(keepdims=True)(x)
    x = keras.ops.einsum("ih,nhwc->niwc", _window_weights(x[0, :, 0, 0], size), x)
    return keras.ops.einsum("jw,niwc->nijc", _window_weights(x[0, 0, :, 0], size), x)


def _window_weights(line: keras.KerasTensor, size: int) -> keras.KerasTensor:
    """Weight of each input in each output, shape (size, length of `line`). The values in `line` do not matter."""
    ends = keras.ops.cumsum(keras.ops.ones_like(line))
    length = keras.ops.max(ends)
    output = np.arange(size, dtype=np.float32)[:, np.newaxis]
    first = keras.ops.floor(length * output / size)
    last = keras.ops.ceil(length * (output + 1) / size)
    covered = keras.ops.logical_and(ends > first, ends <= last)
    weights = keras.ops.cast(covered, "float32")
    return weights / keras.ops.sum(weights, axis=1, keepdims=True)


def _variables(
    model: keras.Model, names: Iterable[str], attributes: dict[str, str]
) -> dict[str, Any]:
    """The Keras variable of each of the network's `<layer>.<kind>` names."""
    split = ((name, *name.rsplit(".", 1)) for name in names)
    return {name: getattr(model.get_layer(layer), attributes[kind]) for name, layer, kind in split}


def _keras_layout(array: NDArray[np.generic]) -> NDArray[np.generic]:
    """Convolutions change from (out, in, height, width) to (height, width, in, out). Dense kernels are transposed."""
    return array.transpose(2, 3, 1, 0) if array.ndim == 4 else array.T


def _array(variable: keras.Variable) -> NDArray[np.generic]:
    """A copy in the layout of the network's description."""
    array = variable.numpy()
    return np.array(array.transpose(3, 2, 0, 1) if array.ndim == 4 else array.T, order="C")


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
