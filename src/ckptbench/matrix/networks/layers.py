"""Networks described as data: layers with their shapes. Every framework builds its network from this description.

The layouts are: images (height, width, channels), tokens (length,), convolution kernels (out, in, height, width), dense
kernels (out, in), tables of vectors (entries, width). A framework with other layouts must transpose.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from math import prod

import numpy as np
from numpy.typing import NDArray

BATCH_NORM_EPSILON = 1e-5
BATCH_NORM_DECAY = 0.9
"""running = decay * running + (1 - decay) * batch."""
NORM_EPSILON = 1e-5
"""Of LayerNorm."""

Size = int | tuple[int, int]
"""Rows and columns: one number for both, or (height, width). (20, 1) is a 1-D window of 20 rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conv:
    """2-D convolution with `pad` zeros on every side."""

    name: str
    inputs: int
    outputs: int
    kernel: Size
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
    """Fully connected layer over the last axis: of features (inputs,), or of every place of a sequence (length, inputs)."""

    name: str
    inputs: int
    outputs: int
    bias: bool = True
    deviation: float | None = None
    """Standard deviation of the initial kernel. None: He-normal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedding:
    """A vector for every token: from tokens (length,) to (length, width)."""

    name: str
    vocabulary: int
    width: int
    deviation: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Positions:
    """Adds a learned vector for every place in a sequence (length, width), which has at most `most` places."""

    name: str
    most: int
    width: int
    deviation: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerNorm:
    """Layer normalization (Ba et al. 2016) over the last axis, with scale and, with `bias`, shift. It uses NORM_EPSILON."""

    name: str
    width: int
    bias: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Causal self-attention of `heads` heads (Vaswani et al. 2017, eq. 1), without parameters.

    The input is (length, 3 * width): queries, keys and values side by side, in each the heads side by side. The output
    is (length, width).
    """

    heads: int


@dataclass(frozen=True, slots=True)
class Gelu:
    """0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3))), the form that GPT-2 uses."""


@dataclass(frozen=True, slots=True)
class TiedHead:
    """Logits (length, vocabulary): products with the vectors of the layer `embedding`. It has no parameters of its own."""

    embedding: str


@dataclass(frozen=True, slots=True)
class ReLU:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class MaxPool:
    """Max pooling. Padding is minus infinity, so it is never the maximum. Windows that do not fit are dropped.

    With `partial` one more window counts where rows (or columns) are left: the part of it that fits. So Caffe rounds
    up. Such a pool has no padding and no stride above its kernel. Raises ValueError for others.
    """

    kernel: Size
    stride: Size
    pad: int = 0
    partial: bool = False

    def __post_init__(self) -> None:
        gaps = any(s > k for s, k in zip(both(self.stride), both(self.kernel), strict=True))
        if self.partial and (self.pad or gaps):
            raise ValueError(
                "a pool with partial windows has no padding and no stride above its kernel"
            )


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
    """ReLU(body(x) + shortcut(x)), without ReLU unless `relu`; an empty shortcut is the identity."""

    body: tuple[Layer, ...]
    shortcut: tuple[Layer, ...] = ()
    relu: bool = True


@dataclass(frozen=True, slots=True)
class Branches:
    """Branches that all take the same input. Their outputs, of one height and width, are joined along the channels."""

    branches: tuple[tuple[Layer, ...], ...]


SequenceLayer = Embedding | Positions | LayerNorm | Attention | Gelu | TiedHead
"""What only networks of tokens have."""
Layer = (
    Conv
    | BatchNorm
    | Dense
    | ReLU
    | MaxPool
    | AveragePoolTo
    | Flatten
    | Dropout
    | Residual
    | Branches
    | SequenceLayer
)

Shape = tuple[int, ...]
"""Of one input: (height, width, channels) of an image, (length,) of tokens."""


@dataclass(frozen=True, slots=True)
class Network:
    """A stack of layers from images or tokens to logits."""

    layers: tuple[Layer, ...]

    def flat(self) -> Iterator[Layer]:
        """All layers that hold no others, in order: of a Residual the body first, then the shortcut."""
        yield from _flat(self.layers)

    def parameters(self) -> dict[str, tuple[int, ...]]:
        """Shape by name: `<layer>.kernel`, `.bias`, and for norms `.scale`, `.shift`."""
        shapes: dict[str, tuple[int, ...]] = {}
        for layer in self.flat():
            match layer:
                case Conv():
                    shapes[f"{layer.name}.kernel"] = (
                        layer.outputs,
                        layer.inputs,
                        *both(layer.kernel),
                    )
                    if layer.bias:
                        shapes[f"{layer.name}.bias"] = (layer.outputs,)
                case Dense():
                    shapes[f"{layer.name}.kernel"] = (layer.outputs, layer.inputs)
                    if layer.bias:
                        shapes[f"{layer.name}.bias"] = (layer.outputs,)
                case Embedding():
                    shapes[f"{layer.name}.kernel"] = (layer.vocabulary, layer.width)
                case Positions():
                    shapes[f"{layer.name}.kernel"] = (layer.most, layer.width)
                case LayerNorm():
                    shapes[f"{layer.name}.scale"] = (layer.width,)
                    if layer.bias:
                        shapes[f"{layer.name}.shift"] = (layer.width,)
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

    def output_shape(self, input: Shape) -> tuple[int, ...]:
        """Shape of the output for one input: (channels, height, width), (features,) or (length, features)."""
        return _outputs(self.layers, _channels_first(input))[-1][1]

    def activation_count(self, input: Shape) -> int:
        """Number of output elements of all layers for one input. Backward keeps them.

        Attention counts its scores (heads, length, length) too, which only a fused one does not keep.
        """
        outputs = _outputs(self.layers, _channels_first(input))
        scores = (
            layer.heads * shape[0] ** 2 for layer, shape in outputs if isinstance(layer, Attention)
        )
        return sum(prod(shape) for _, shape in outputs) + sum(scores)

    def unfolded_count(self, input: Shape) -> int:
        """Number of elements of the largest unfolded input of a convolution, for one input.

        The unfolded input (im2col) has every window as a row, so that the convolution is a product of matrices.
        """
        outputs = _outputs(self.layers, _channels_first(input))
        return max(
            (
                layer.inputs * prod(both(layer.kernel)) * prod(shape[1:])
                for layer, shape in outputs
                if isinstance(layer, Conv)
            ),
            default=0,
        )

    def multiplication_count(self, input: Shape) -> int:
        """Number of multiplications of the forward pass for one input: those of kernels and attention, which take nearly all of its time."""
        outputs = _outputs(self.layers, _channels_first(input))
        total = 0
        for layer, shape in outputs:
            match layer:
                case Conv():
                    total += layer.inputs * prod(both(layer.kernel)) * prod(shape)
                case Dense():
                    total += layer.inputs * prod(shape)
                case Attention():
                    total += 2 * shape[0] ** 2 * shape[1]
                case TiedHead():
                    total += _embedding(layer, outputs).width * prod(shape)
        return total

    def initial_weights(self, seed: int) -> dict[str, NDArray[np.float32]]:
        """Float32 arrays by name, drawn from `seed`.

        Kernels are He-normal (He et al. 2015, eq. 10) or normal with their layer's `deviation`. Biases and shifts are
        zero. Scales are 1, or the layer's `initial_scale`.
        """
        random = np.random.default_rng(seed)
        deviations = {
            f"{layer.name}.kernel": layer.deviation
            for layer in self.flat()
            if isinstance(layer, Dense | Embedding | Positions) and layer.deviation is not None
        }
        scales = {
            f"{layer.name}.scale": layer.initial_scale if isinstance(layer, BatchNorm) else 1.0
            for layer in self.flat()
            if isinstance(layer, BatchNorm | LayerNorm)
        }
        weights = {}
        for name, shape in self.parameters().items():
            if name.endswith(".kernel"):
                deviation = np.float32(deviations.get(name, np.sqrt(2 / prod(shape[1:]))))
                weights[name] = random.standard_normal(shape, np.float32) * deviation
            else:
                weights[name] = np.full(shape, scales.get(name, 0), np.float32)
        return weights


def is_decayed(parameter: str) -> bool:
    """Whether AdamW decays the parameter of this name: a kernel or a table of vectors, but no bias and nothing of a norm."""
    return parameter.endswith(".kernel")


def _flat(layers: Iterable[Layer]) -> Iterator[Layer]:
    for layer in layers:
        match layer:
            case Residual():
                yield from _flat((*layer.body, *layer.shortcut))
            case Branches():
                yield from _flat(chain(*layer.branches))
            case _:
                yield layer


def _channels_first(input: Shape) -> Shape:
    return (input[2], *input[:2]) if len(input) == 3 else input


def _outputs(
    layers: Iterable[Layer], shape: tuple[int, ...]
) -> list[tuple[Layer, tuple[int, ...]]]:
    """Each layer and the shape of its output: (channels, height, width), (features,) or (length, features)."""
    outputs: list[tuple[Layer, tuple[int, ...]]] = []
    for layer in layers:
        match layer:
            case Conv():
                shape = (layer.outputs, *_windows(layer, shape[1:], layer.pad))
            case MaxPool():
                shape = (shape[0], *_windows(layer, shape[1:], layer.pad, layer.partial))
            case AveragePoolTo():
                shape = (shape[0], layer.size, layer.size)
            case Flatten():
                shape = (prod(shape),)
            case Dense():
                shape = (*shape[:-1], layer.outputs)
            case Embedding() | Attention() | TiedHead():
                shape = (shape[0], _width(layer, shape[-1], outputs))
            case Residual():
                inside = _outputs(layer.body, shape)
                outputs += [*inside, *_outputs(layer.shortcut, shape)]
                shape = inside[-1][1]
            case Branches():
                branches = [_outputs(branch, shape) for branch in layer.branches]
                outputs += chain(*branches)
                ends = [branch[-1][1] for branch in branches]
                shape = (sum(end[0] for end in ends), *ends[0][1:])
        outputs.append((layer, shape))
    return outputs


def _width(
    layer: Embedding | Attention | TiedHead,
    inputs: int,
    before: Iterable[tuple[Layer, tuple[int, ...]]],
) -> int:
    """Of the output of a layer whose input is so wide, behind these layers and their outputs."""
    match layer:
        case Embedding():
            return layer.width
        case Attention():
            return inputs // 3
        case TiedHead():
            return _embedding(layer, before).vocabulary


def _embedding(head: TiedHead, outputs: Iterable[tuple[Layer, tuple[int, ...]]]) -> Embedding:
    """The layer whose vectors the head shares."""
    embeddings = {each.name: each for each, _ in outputs if isinstance(each, Embedding)}
    return embeddings[head.embedding]


def _windows(
    layer: Conv | MaxPool,
    extents: tuple[int, ...],
    pad: int = 0,
    partial: bool = False,
) -> tuple[int, ...]:
    """Number of windows along the height and the width, which are `extents`."""
    kernels, strides = both(layer.kernel), both(layer.stride)
    return tuple(
        (extent + 2 * pad - kernel + (stride - 1 if partial else 0)) // stride + 1
        for extent, kernel, stride in zip(extents, kernels, strides, strict=True)
    )


def both(size: Size) -> tuple[int, int]:
    """The pair (height, width) of a size."""
    return (size, size) if isinstance(size, int) else size
