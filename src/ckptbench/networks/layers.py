"""Each network described once, as data; every framework builds from this description.

Layouts are the description's own: images (height, width, channels), convolution kernels
(out, in, height, width), dense kernels (out, in). A framework that lays them otherwise transposes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

BATCH_NORM_EPSILON = 1e-5
BATCH_NORM_DECAY = 0.9
"""running = decay * running + (1 - decay) * batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conv:
    """Square 2-D convolution, `pad` zeros on every side."""

    name: str
    inputs: int
    outputs: int
    kernel: int
    stride: int = 1
    pad: int = 0
    bias: bool = False


@dataclass(frozen=True, slots=True)
class BatchNorm:
    """Over batch, height and width, with scale and shift, BATCH_NORM_EPSILON and BATCH_NORM_DECAY."""

    name: str
    channels: int
    initial_scale: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Dense:
    """Fully connected, with bias."""

    name: str
    inputs: int
    outputs: int


@dataclass(frozen=True, slots=True)
class ReLU:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class MaxPool:
    """Padding never wins: it counts as minus infinity. Windows that do not fit are dropped."""

    kernel: int
    stride: int
    pad: int = 0


@dataclass(frozen=True, slots=True)
class AveragePoolTo:
    """Adaptive average pooling to `size` x `size`; an input smaller than that is repeated.

    Where neither size divides the other, output i averages rows floor(i*in/out) to ceil((i+1)*in/out).
    """

    size: int

    def weights(self, extent: int) -> NDArray[np.float32]:
        """Shape (size, extent): what each output takes of each of `extent` rows, or columns."""
        matrix = np.zeros((self.size, extent), np.float32)
        for i in range(self.size):
            first, last = i * extent // self.size, -(-(i + 1) * extent // self.size)
            matrix[i, first:last] = 1 / (last - first)
        return matrix


@dataclass(frozen=True, slots=True)
class Flatten:
    """(channels, height, width) in that order, whatever layout the framework computes in."""


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
        """Every layer that is no container, bodies before shortcuts."""
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
        """Elements that the layers put out for one image (height, width, channels): what backward keeps."""
        return sum(prod(shape) for shape in _output_shapes(self.layers, (image[2], *image[:2])))

    def initial_weights(self, seed: int) -> dict[str, NDArray[np.float32]]:
        """He-normal kernels (He et al. 2015, eq. 10), zero biases, batch norm scaled as described."""
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
    """The shape that each layer puts out, as (channels, height, width) or (features,)."""
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


def resnet50(image: tuple[int, int, int], classes: int) -> Network:
    """ResNet-50 (He et al. 2016) with the ImageNet stem, stride on the 3x3 convolution."""
    layers: list[Layer] = [
        Conv(name="stem.conv", inputs=image[2], outputs=64, kernel=7, stride=2, pad=3),
        BatchNorm("stem.norm", 64),
        ReLU(),
        MaxPool(kernel=3, stride=2, pad=1),
    ]
    channels = 64
    for stage, (blocks, width) in enumerate([(3, 64), (4, 128), (6, 256), (3, 512)], start=1):
        for block in range(blocks):
            stride = 2 if stage > 1 and block == 0 else 1
            layers.append(_bottleneck(f"stage{stage}.block{block}", channels, width, stride))
            channels = 4 * width
    layers += [AveragePoolTo(1), Flatten(), Dense(name="head", inputs=channels, outputs=classes)]
    return Network(tuple(layers))


def _bottleneck(name: str, inputs: int, width: int, stride: int) -> Residual:
    outputs = 4 * width
    body = (
        Conv(name=f"{name}.conv1", inputs=inputs, outputs=width, kernel=1),
        BatchNorm(f"{name}.norm1", width),
        ReLU(),
        Conv(name=f"{name}.conv2", inputs=width, outputs=width, kernel=3, stride=stride, pad=1),
        BatchNorm(f"{name}.norm2", width),
        ReLU(),
        Conv(name=f"{name}.conv3", inputs=width, outputs=outputs, kernel=1),
        # Blocks begin as the identity (Goyal et al. 2017, 5.1), or tiny batches make the loss explode.
        BatchNorm(f"{name}.norm3", outputs, initial_scale=0),
    )
    if stride == 1 and inputs == outputs:
        return Residual(body)
    projection = Conv(
        name=f"{name}.project", inputs=inputs, outputs=outputs, kernel=1, stride=stride
    )
    return Residual(body, (projection, BatchNorm(f"{name}.project_norm", outputs)))


def vgg16(image: tuple[int, int, int], classes: int) -> Network:
    """VGG-16 (Simonyan and Zisserman 2015, configuration D) with its 7x7 pooled head."""
    layers: list[Layer] = []
    inputs = image[2]
    for group, (convolutions, outputs) in enumerate(
        [(2, 64), (2, 128), (3, 256), (3, 512), (3, 512)], start=1
    ):
        for index in range(1, convolutions + 1):
            name = f"conv{group}_{index}"
            layers += [
                Conv(name=name, inputs=inputs, outputs=outputs, kernel=3, pad=1, bias=True),
                ReLU(),
            ]
            inputs = outputs
        layers.append(MaxPool(kernel=2, stride=2))
    layers += [AveragePoolTo(7), Flatten()]
    layers += [Dense(name="fc6", inputs=512 * 49, outputs=4096), ReLU(), Dropout(0.5)]
    layers += [Dense(name="fc7", inputs=4096, outputs=4096), ReLU(), Dropout(0.5)]
    layers += [Dense(name="head", inputs=4096, outputs=classes)]
    return Network(tuple(layers))


def small_cnn(image: tuple[int, int, int], classes: int) -> Network:
    """A network for tests: every kind of layer, a few thousand parameters."""
    return Network(
        (
            Conv(name="conv1", inputs=image[2], outputs=8, kernel=3, stride=2, pad=1),
            BatchNorm("norm1", 8),
            ReLU(),
            MaxPool(kernel=3, stride=2, pad=1),
            Residual(
                (
                    Conv(name="conv2", inputs=8, outputs=16, kernel=3, pad=1),
                    BatchNorm("norm2", 16),
                ),
                (Conv(name="project", inputs=8, outputs=16, kernel=1),),
            ),
            AveragePoolTo(2),
            Flatten(),
            Dense(name="fc", inputs=64, outputs=32),
            ReLU(),
            Dropout(0.25),
            Dense(name="head", inputs=32, outputs=classes),
        )
    )


def plain_cnn(image: tuple[int, int, int], classes: int) -> Network:
    """A network for tests without batch norm and dropout: its gradient is a mean over samples."""
    return Network(
        (
            Conv(name="conv1", inputs=image[2], outputs=8, kernel=3, stride=2, pad=1, bias=True),
            ReLU(),
            MaxPool(kernel=2, stride=2),
            AveragePoolTo(4),
            Flatten(),
            Dense(name="fc", inputs=128, outputs=32),
            ReLU(),
            Dense(name="head", inputs=32, outputs=classes),
        )
    )


ARCHITECTURES: dict[str, Callable[[tuple[int, int, int], int], Network]] = {
    "resnet50": resnet50,
    "vgg16": vgg16,
    "small_cnn": small_cnn,
    "plain_cnn": plain_cnn,
}
"""By the name the config uses: (image shape as height, width, channels; classes) -> Network."""
