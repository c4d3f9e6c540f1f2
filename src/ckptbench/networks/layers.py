"""Networks described as data: layers with their shapes. Every framework builds its network from this description.

The layouts are: images (height, width, channels), convolution kernels (out, in, height, width), dense kernels (out,
in). A framework with other layouts must transpose.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

BATCH_NORM_EPSILON = 1e-5
BATCH_NORM_DECAY = 0.9
"""running = decay * running + (1 - decay) * batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conv:
    """2-D convolution with a square kernel and `pad` zeros on every side."""

    name: str
    inputs: int
    outputs: int
    kernel: int
    stride: int = 1
    pad: int = 0
    bias: bool = False


@dataclass(frozen=True, slots=True)
class BatchNorm:
    """Batch normalization over batch, height and width, with scale and shift.

    It uses BATCH_NORM_EPSILON and BATCH_NORM_DECAY.
    """

    name: str
    channels: int
    initial_scale: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Dense:
    """Fully connected layer with bias."""

    name: str
    inputs: int
    outputs: int


@dataclass(frozen=True, slots=True)
class ReLU:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class MaxPool:
    """Max pooling. Padding is minus infinity, so it is never the maximum. Windows that do not fit are dropped."""

    kernel: int
    stride: int
    pad: int = 0


@dataclass(frozen=True, slots=True)
class AveragePoolTo:
    """Adaptive average pooling to `size` x `size`. The rows and columns of a smaller input are repeated.

    Output i is the mean of the input rows from floor(i*in/out) up to, but without, ceil((i+1)*in/out).
    """

    size: int

    def weights(self, extent: int) -> NDArray[np.float32]:
        """Weight of each of `extent` input rows (or columns) in each output, shape (size, extent)."""
        matrix = np.zeros((self.size, extent), np.float32)
        for i in range(self.size):
            first, last = i * extent // self.size, -(-(i + 1) * extent // self.size)
            matrix[i, first:last] = 1 / (last - first)
        return matrix


@dataclass(frozen=True, slots=True)
class Flatten:
    """Flattens in the order (channels, height, width), whatever layout the framework uses."""


@dataclass(frozen=True, slots=True)
class Dropout:
    rate: float


@dataclass(frozen=True, slots=True)
class Residual:
    """ReLU(body(x) + shortcut(x)); an empty shortcut is the identity."""

    body: tuple[Layer, ...]
    shortcut: tuple[Layer, ...] = ()


Layer = Conv | BatchNorm | Dense | ReLU | MaxPool | AveragePoolTo | Flatten | Dropout | Residual


@dataclass(frozen=True, slots=True)
class Network:
    """A stack of layers from images to logits."""

    layers: tuple[Layer, ...]

    def flat(self) -> Iterator[Layer]:
        """All layers except Residual itself: its body first, then its shortcut."""
        yield from _flat(self.layers)

    def parameters(self) -> dict[str, tuple[int, ...]]:
        """Shape by name: `<layer>.kernel`, `.bias`, and for batch norm `.scale`, `.shift`."""
        shapes: dict[str, tuple[int, ...]] = {}
        for layer in self.flat():
            match layer:
                case Conv():
                    shapes[f"{layer.name}.kernel"] = (
                        layer.outputs,
                        layer.inputs,
                        layer.kernel,
                        layer.kernel,
                    )
                    if layer.bias:
                        shapes[f"{layer.name}.bias"] = (layer.outputs,)
                case Dense():
                    shapes[f"{layer.name}.kernel"] = (layer.outputs, layer.inputs)
                    shapes[f"{layer.name}.bias"] = (layer.outputs,)
                case BatchNorm():
                    shapes[f"{layer.name}.scale"] = (layer.channels,)
                    shapes[f"{layer.name}.shift"] = (layer.channels,)
        return shapes

    def buffers(self) -> dict[str, tuple[int, ...]]:
        """Shape by name of the running statistics: `<layer>.mean`, `<layer>.variance`."""
        return {
            f"{layer.name}.{statistic}": (layer.channels,)
            for layer in self.flat()
            if isinstance(layer, BatchNorm)
            for statistic in ("mean", "variance")
        }

    @property
    def parameter_count(self) -> int:
        return sum(prod(shape) for shape in self.parameters().values())

    @property
    def buffer_count(self) -> int:
        return sum(prod(shape) for shape in self.buffers().values())

    def activation_count(self, image: tuple[int, int, int]) -> int:
        """Number of output elements of all layers for one image (height, width, channels). Backward keeps them."""
        return sum(prod(shape) for shape in _output_shapes(self.layers, (image[2], *image[:2])))

    def initial_weights(self, seed: int) -> dict[str, NDArray[np.float32]]:
        """Float32 arrays by name, drawn from `seed`.

        Kernels are He-normal (He et al. 2015, eq. 10), biases and shifts are zero, and scales are each layer's
        `initial_scale`.
        """
        random = np.random.default_rng(seed)
        scales = {
            f"{layer.name}.scale": layer.initial_scale
            for layer in self.flat()
            if isinstance(layer, BatchNorm)
        }
        weights = {}
        for name, shape in self.parameters().items():
            if name.endswith(".kernel"):
                deviation = np.float32(np.sqrt(2 / prod(shape[1:])))
                weights[name] = random.standard_normal(shape, np.float32) * deviation
            else:
                weights[name] = np.full(shape, scales.get(name, 0), np.float32)
        return weights


def _flat(layers: tuple[Layer, ...]) -> Iterator[Layer]:
    for layer in layers:
        if isinstance(layer, Residual):
            yield from _flat(layer.body)
            yield from _flat(layer.shortcut)
        else:
            yield layer


def _output_shapes(layers: tuple[Layer, ...], shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Shape of each layer's output: (channels, height, width) or (features,)."""
    shapes = []
    for layer in layers:
        match layer:
            case Conv():
                shape = (layer.outputs, *(_windows(layer, size) for size in shape[1:]))
            case MaxPool():
                shape = (shape[0], *(_windows(layer, size) for size in shape[1:]))
            case AveragePoolTo():
                shape = (shape[0], layer.size, layer.size)
            case Flatten():
                shape = (prod(shape),)
            case Dense():
                shape = (layer.outputs,)
            case Residual():
                inside = _output_shapes(layer.body, shape)
                shapes += [*inside, *_output_shapes(layer.shortcut, shape)]
                shape = inside[-1]
        shapes.append(shape)
    return shapes


def _windows(layer: Conv | MaxPool, size: int) -> int:
    return (size + 2 * layer.pad - layer.kernel) // layer.stride + 1
