"""The description of a network as one chain of Chainer."""

from __future__ import annotations

from typing import Any

import chainer
import numpy as np
from chainer import functions, links

from ckptbench.frameworks.contract import Arrays
from ckptbench.matrix.networks.layers import (
    BATCH_NORM_DECAY,
    BATCH_NORM_EPSILON,
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
)

ATTRIBUTES = {
    "kernel": "W",
    "bias": "b",
    "scale": "gamma",
    "shift": "beta",
    "mean": "avg_mean",
    "variance": "avg_var",
}
"""Chainer's attribute for the last part of each name of the network's tensors."""
WithLink = Conv | Dense | BatchNorm
"""Layers with parameters."""


class Model(chainer.Chain):
    """The network as a flat chain: each layer with weights is a link under the layer's name."""

    def __init__(self, network: Network, weights: Arrays) -> None:
        super().__init__()
        self._layers = network.layers
        for layer in network.flat():
            if isinstance(layer, WithLink):
                self.add_link(layer.name, _link(layer, weights))

    def forward(self, inputs: Any) -> Any:
        """Logits of images, shape (n, channels, height, width)."""
        return self._through(self._layers, inputs)

    def _through(self, layers: tuple[Layer, ...], x: Any) -> Any:
        for layer in layers:
            x = self._apply(layer, x)
        return x

    def _apply(self, layer: Layer, x: Any) -> Any:
        match layer:
            case Conv() | Dense() | BatchNorm():
                return self[layer.name](x)
            case Residual(body, shortcut):
                added = self._through(body, x) + self._through(shortcut, x)
                return functions.relu(added) if layer.relu else added
            case Branches(branches):
                return functions.concat([self._through(branch, x) for branch in branches], axis=1)
            case _:
                return _computed(layer, x)


def _computed(layer: Layer, x: Any) -> Any:
    """The output of a layer without parameters."""
    match layer:
        case ReLU():
            return functions.relu(x)
        case MaxPool(kernel=kernel, stride=stride, pad=pad):
            return functions.max_pooling_2d(x, kernel, stride, pad, cover_all=layer.partial)
        case AveragePoolTo():
            return _average_pooled(x, layer)
        case Flatten():
            return functions.reshape(x, (len(x), -1))
        case Dropout(rate):
            return _dropout(x, rate)


def _link(layer: WithLink, weights: Arrays) -> Any:
    match layer:
        case Conv(name=name, inputs=inputs, outputs=outputs):
            return links.Convolution2D(
                inputs,
                outputs,
                layer.kernel,
                layer.stride,
                layer.pad,
                nobias=not layer.bias,
                initialW=weights[f"{name}.kernel"],
                initial_bias=weights.get(f"{name}.bias"),
            )
        case Dense(name=name, inputs=inputs, outputs=outputs):
            return links.Linear(
                inputs,
                outputs,
                nobias=not layer.bias,
                initialW=weights[f"{name}.kernel"],
                initial_bias=weights.get(f"{name}.bias"),
            )
        case BatchNorm(name, channels):
            return links.BatchNormalization(
                channels,
                decay=BATCH_NORM_DECAY,
                eps=BATCH_NORM_EPSILON,
                initial_gamma=weights[f"{name}.scale"],
                initial_beta=weights[f"{name}.shift"],
            )


def _average_pooled(x: Any, layer: AveragePoolTo) -> Any:
    """Multiply height, then width, by the matrix of means. This serves even, uneven and repeated windows."""
    for extent in x.shape[2:]:
        x = functions.tensordot(x, x.xp.asarray(layer.weights(extent)), axes=(2, 1))
    return x


def _dropout(x: Any, rate: float) -> Any:
    """Dropout whose mask is drawn from NumPy's generator, on every device.

    On CPU Chainer does the same. On a GPU it would draw from cuDNN's or CuPy's generator. Their states cannot be read,
    so no restart could continue with the same masks.
    """
    if not chainer.config.train:
        return x
    kept = np.random.rand(*x.shape) >= rate
    mask = kept * np.float32(1 / (1 - rate))
    return functions.dropout(x, rate, mask=x.xp.asarray(mask))
