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
    NORM_EPSILON,
    Attention,
    AveragePoolTo,
    BatchNorm,
    Branches,
    Conv,
    Dense,
    Dropout,
    Embedding,
    Flatten,
    Gelu,
    Layer,
    LayerNorm,
    MaxPool,
    Network,
    Positions,
    ReLU,
    Residual,
    TiedHead,
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
WithLink = Conv | Dense | BatchNorm | Embedding | Positions | LayerNorm
"""Layers with parameters."""
SLOPE = float(np.sqrt(2 / np.pi))
"""Of the argument of tanh, in GELU."""


class Model(chainer.Chain):
    """The network as a flat chain: each layer with weights is a link under the layer's name."""

    def __init__(self, network: Network, weights: Arrays) -> None:
        super().__init__()
        self._layers = network.layers
        for layer in network.flat():
            if isinstance(layer, WithLink):
                self.add_link(layer.name, _link(layer, weights))

    def forward(self, inputs: Any) -> Any:
        """Logits of images, shape (n, channels, height, width), or tokens."""
        return self._through(self._layers, inputs)

    def _through(self, layers: tuple[Layer, ...], x: Any) -> Any:
        for layer in layers:
            x = self._apply(layer, x)
        return x

    def _apply(self, layer: Layer, x: Any) -> Any:
        match layer:
            case Dense():
                return self[layer.name](x, n_batch_axes=x.ndim - 1)
            case TiedHead(embedding):
                return functions.linear(x, self[embedding].W, n_batch_axes=x.ndim - 1)
            case _ if isinstance(layer, WithLink):
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
        case Attention():
            return _attended(layer, x)
        case Gelu():
            return 0.5 * x * (1 + functions.tanh(SLOPE * (x + 0.044715 * x**3)))


def _attended(layer: Attention, x: Any) -> Any:
    """Causal attention, which Chainer does not fuse."""
    batch, length, width = x.shape
    heads = x.reshape(batch, length, 3, layer.heads, -1).transpose(2, 0, 3, 1, 4)
    queries, keys, values = (heads[part] for part in range(3))
    scores = functions.matmul(queries, keys, transb=True) / np.sqrt(queries.shape[-1])
    later = x.xp.triu(x.xp.full((length, length), -np.inf, np.float32), 1)
    chances = functions.softmax(scores + x.xp.broadcast_to(later, scores.shape), axis=-1)
    attended = functions.matmul(chances, values)
    return attended.transpose(0, 2, 1, 3).reshape(batch, length, width // 3)


class _Table(chainer.Link):
    """Adds a vector for every place of a sequence."""

    def __init__(self, vectors: Any) -> None:
        super().__init__()
        with self.init_scope():
            self.W = chainer.Parameter(vectors)

    def forward(self, x: Any) -> Any:
        return x + functions.broadcast_to(self.W[: x.shape[1]], x.shape)


class _Norm(chainer.Link):
    """LayerNorm with or without shift, over the last axis."""

    def __init__(self, scale: Any, shift: Any | None) -> None:
        super().__init__()
        with self.init_scope():
            self.gamma = chainer.Parameter(scale)
            if shift is not None:
                self.beta = chainer.Parameter(shift)

    def forward(self, x: Any) -> Any:
        x = x - functions.broadcast_to(functions.mean(x, axis=-1, keepdims=True), x.shape)
        square = functions.mean(x * x, axis=-1, keepdims=True) + NORM_EPSILON
        normed = x / functions.broadcast_to(functions.sqrt(square), x.shape)
        scaled = normed * functions.broadcast_to(self.gamma, x.shape)
        return (
            scaled + functions.broadcast_to(self.beta, x.shape)
            if "beta" in self._params
            else scaled
        )


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
        case Embedding(name=name):
            vectors = weights[f"{name}.kernel"]
            return links.EmbedID(*vectors.shape, initialW=vectors)
        case Positions(name=name):
            return _Table(weights[f"{name}.kernel"])
        case LayerNorm(name=name):
            return _Norm(weights[f"{name}.scale"], weights.get(f"{name}.shift"))
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
