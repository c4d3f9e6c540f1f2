"""The networks of the study: ResNet-50, VGG-16 and two small ones for tests."""

from __future__ import annotations

from collections.abc import Callable

from ckptbench.networks.layers import (
    AveragePoolTo,
    BatchNorm,
    Conv,
    Dense,
    Dropout,
    Flatten,
    Layer,
    MaxPool,
    Network,
    ReLU,
    Residual,
)


def resnet50(image: tuple[int, int, int], classes: int) -> Network:
    """ResNet-50 (He et al. 2016) with the ImageNet stem; the 3x3 convolution of a block has the stride."""
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
    """A network for tests, with every kind of layer and a few thousand parameters."""
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
    """A network for tests, without batch norm and dropout, so that its gradient is a mean over samples."""
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
"""Functions (image shape as height, width, channels; number of classes) -> Network, by their names in the config."""
