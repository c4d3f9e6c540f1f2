"""The networks of images: ResNet-50, VGG-16, AlexNet, GoogLeNet, NT3 and small ones for tests; and all networks by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ckptbench.common.errors import DataError
from ckptbench.matrix.networks.layers import (
    AveragePoolTo,
    BatchNorm,
    Branches,
    Conv,
    Dense,
    Dropout,
    Flatten,
    Layer,
    MaxPool,
    Network,
    ReLU,
    Residual,
    Shape,
)
from ckptbench.matrix.networks.transformers import gpt2, gpt2_medium, gpt_baby

Architecture = Callable[[Any, int], Network]
"""From the shape of an input, (height, width, channels) or (length,), and the number of classes to the network. Raises
DataError for inputs that the network cannot take.
"""
ARCHITECTURES: dict[str, Architecture] = {}
"""By their names in the config."""


def architecture(build: Architecture) -> Architecture:
    """Registers a network under the name of its function."""
    ARCHITECTURES[build.__name__] = build
    return build


@architecture
def resnet50(image: tuple[int, int, int], classes: int) -> Network:
    """ResNet-50 (He et al. 2016) with the ImageNet stem; the stride is in a block's 3x3 convolution."""
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
        # Scale 0: every block starts as the identity (Goyal et al. 2017, 5.1); else tiny batches make the loss explode.
        BatchNorm(f"{name}.norm3", outputs, initial_scale=0),
    )
    if stride == 1 and inputs == outputs:
        return Residual(body)
    projection = Conv(
        name=f"{name}.project", inputs=inputs, outputs=outputs, kernel=1, stride=stride
    )
    return Residual(body, (projection, BatchNorm(f"{name}.project_norm", outputs)))


@architecture
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


ALEXNET_PIXELS = 11 - 2 * 2
"""Fewest rows and columns to which the first convolution of AlexNet gives an output."""


@architecture
def alexnet(image: tuple[int, int, int], classes: int) -> Network:
    """AlexNet with one tower (Krizhevsky 2014, arXiv:1404.5997), without local response normalization.

    With 1,000 classes it has 61,100,840 parameters; the layers are torchvision's. Images need at least 7 rows and columns.
    """
    if min(image[:2]) < ALEXNET_PIXELS:
        raise DataError(
            f"alexnet needs images of {ALEXNET_PIXELS} x {ALEXNET_PIXELS} or more, and these have {image[0]} x "
            f"{image[1]}: use another dataset, or synthetic with a larger datasets.synthetic.height and width"
        )
    convolutions = [(64, 11, 4, 2), (192, 5, 1, 2), (384, 3, 1, 1), (256, 3, 1, 1), (256, 3, 1, 1)]
    layers: list[Layer] = []
    inputs = image[2]
    for number, (outputs, kernel, stride, pad) in enumerate(convolutions, start=1):
        layers += _convolved(f"conv{number}", inputs, outputs, kernel, stride=stride, pad=pad)
        if number in (1, 2, 5):
            layers.append(MaxPool(kernel=_fitting(3, layers, image), stride=2))
        inputs = outputs
    layers += [AveragePoolTo(6), Flatten(), Dropout(0.5)]
    layers += [Dense(name="fc6", inputs=256 * 36, outputs=4096), ReLU(), Dropout(0.5)]
    layers += [Dense(name="fc7", inputs=4096, outputs=4096), ReLU()]
    layers += [Dense(name="head", inputs=4096, outputs=classes)]
    return Network(tuple(layers))


Widths = tuple[int, tuple[int, int], tuple[int, int], int]
"""Output channels of an inception module: of the 1x1 convolution, of the 3x3 and of the 5x5, each behind those of the 1x1
before it, and of the 1x1 behind the pool."""
INCEPTIONS: dict[str, Widths] = {
    "3a": (64, (96, 128), (16, 32), 32),
    "3b": (128, (128, 192), (32, 96), 64),
    "4a": (192, (96, 208), (16, 48), 64),
    "4b": (160, (112, 224), (24, 64), 64),
    "4c": (128, (128, 256), (24, 64), 64),
    "4d": (112, (144, 288), (32, 64), 64),
    "4e": (256, (160, 320), (32, 128), 128),
    "5a": (256, (160, 320), (32, 128), 128),
    "5b": (384, (192, 384), (48, 128), 128),
}
"""The modules of GoogLeNet (Szegedy et al. 2015, table 1)."""


@architecture
def googlenet(image: tuple[int, int, int], classes: int) -> Network:
    """GoogLeNet (Szegedy et al. 2015: Inception v1, no batch norm), without local response normalization.

    With 1,000 classes it has 6,998,552 parameters. The layers are those of Caffe's bvlc_googlenet at test time.
    """
    # models/bvlc_googlenet/train_val.prototxt in the repository BVLC/caffe.
    layers: list[Layer] = []

    def pool() -> MaxPool:
        return MaxPool(
            kernel=_fitting(3, layers, image), stride=_fitting(2, layers, image), partial=True
        )

    layers += _convolved("conv1", image[2], 64, 7, stride=2, pad=3)
    layers.append(pool())
    layers += _convolved("conv2.reduce", 64, 64, 1)
    layers += _convolved("conv2.conv", 64, 192, 3, pad=1)
    layers.append(pool())
    channels = 192
    for module, widths in INCEPTIONS.items():
        layers.append(_inception(f"inception{module}", channels, widths))
        channels = _shape(layers, image)[0]
        if module in ("3b", "4e"):
            layers.append(pool())
    layers += [AveragePoolTo(1), Flatten(), Dropout(0.4)]
    layers += [Dense(name="head", inputs=channels, outputs=classes)]
    return Network(tuple(layers))


def _inception(name: str, inputs: int, widths: Widths) -> Branches:
    single, triple, quintuple, pooled = widths
    return Branches(
        (
            (*_convolved(f"{name}.branch1.conv", inputs, single, 1),),
            (
                *_convolved(f"{name}.branch2.reduce", inputs, triple[0], 1),
                *_convolved(f"{name}.branch2.conv", triple[0], triple[1], 3, pad=1),
            ),
            (
                *_convolved(f"{name}.branch3.reduce", inputs, quintuple[0], 1),
                *_convolved(f"{name}.branch3.conv", quintuple[0], quintuple[1], 5, pad=2),
            ),
            (
                MaxPool(kernel=3, stride=1, pad=1),
                *_convolved(f"{name}.branch4.project", inputs, pooled, 1),
            ),
        )
    )


def _convolved(
    name: str, inputs: int, outputs: int, kernel: int, *, stride: int = 1, pad: int = 0
) -> tuple[Layer, Layer]:
    """A convolution with bias, and the ReLU behind it."""
    convolution = Conv(
        name=name, inputs=inputs, outputs=outputs, kernel=kernel, stride=stride, pad=pad, bias=True
    )
    return convolution, ReLU()


def _fitting(kernel: int, layers: Sequence[Layer], image: tuple[int, int, int]) -> tuple[int, int]:
    """The kernel (height, width) of a pool behind `layers`: no larger than what it pools."""
    _, height, width = _shape(layers, image)
    return min(kernel, height), min(kernel, width)


def _shape(layers: Sequence[Layer], image: tuple[int, int, int]) -> tuple[int, ...]:
    """Shape of the output of `layers`, (channels, height, width)."""
    return Network(tuple(layers)).output_shape(image)


NT3_ROWS = 20 + 10 - 1 + 10 - 1
"""Fewest rows of which the two convolutions and the last pool of NT3 leave one."""


@architecture
def nt3(image: tuple[int, int, int], classes: int) -> Network:
    """NT3 (CANDLE's Pilot1 benchmarks): 1-D convolutions along the rows of an image, then dense layers.

    For the benchmark's images of (60483, 1, 1) it has 154,922,918 parameters. Images need at least 38 rows. CANDLE trains it
    without momentum, which doubles the size of a checkpoint here.
    """
    # Layers and sizes follow Pilot1/NT3/nt3_baseline_keras2.py and nt3_default_model.txt in the repository ECP-CANDLE/Benchmarks,
    # at commit f6a3da88 of 2022-06-06. CANDLE also has Glorot-uniform kernels, and lowers the learning rate on a plateau.
    height, width, channels = image
    if height < NT3_ROWS:
        raise DataError(
            f"nt3 needs images of {NT3_ROWS} rows or more, and these have {height}: use the dataset synthetic "
            "with a larger datasets.synthetic.height"
        )
    rows_left = (height - (20 - 1) - (10 - 1)) // 10
    layers = (
        Conv(name="conv1", inputs=channels, outputs=128, kernel=(20, 1), bias=True),
        ReLU(),
        MaxPool(kernel=1, stride=1),  # changes nothing, but the benchmark computes it
        Conv(name="conv2", inputs=128, outputs=128, kernel=(10, 1), bias=True),
        ReLU(),
        MaxPool(kernel=(10, 1), stride=(10, 1)),
        Flatten(),
        Dense(name="fc1", inputs=128 * rows_left * width, outputs=200),
        ReLU(),
        Dropout(0.1),
        Dense(name="fc2", inputs=200, outputs=20),
        ReLU(),
        Dropout(0.1),
        Dense(name="head", inputs=20, outputs=classes),
    )
    return Network(layers)


@architecture
def small_cnn(image: tuple[int, int, int], classes: int) -> Network:
    """For tests: batch norm, a residual, dropout and a few thousand parameters."""
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


@architecture
def plain_cnn(image: tuple[int, int, int], classes: int) -> Network:
    """For tests: no batch norm or dropout, so its gradient is a mean over samples."""
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


def linear(image: tuple[int, int, int], classes: int) -> Network:
    """Softmax regression: one dense layer over all pixels. The audit trains it, and no config can name it."""
    height, width, channels = image
    return Network(
        (Flatten(), Dense(name="head", inputs=height * width * channels, outputs=classes))
    )


_OF_TOKENS = {build.__name__: build for build in (gpt2, gpt2_medium, gpt_baby)}
ARCHITECTURES.update(_OF_TOKENS)
READ_TOKENS = frozenset(_OF_TOKENS)
"""The networks whose input is tokens. That of all others is images."""


def network_of(model: str, input: Shape, classes: int) -> Network:
    """The network of a cell's `model`, also of one that only the audit trains. Raises DataError where it cannot take such inputs."""
    reads, given = (
        "tokens" if each else "images" for each in (model in READ_TOKENS, len(input) == 1)
    )
    if reads != given:
        remedy = "the dataset text" if reads == "tokens" else "a dataset of images, or gpt_baby"
        raise DataError(f"{model} learns from {reads}, and this has {given}: use {remedy}")
    build: Architecture = linear if model == "linear" else ARCHITECTURES[model]
    return build(input, classes)
