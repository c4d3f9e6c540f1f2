"""The description of a network as a Keras model, and the model's variables under the description's names."""

from __future__ import annotations

from collections.abc import Iterable

import keras
import numpy as np
from keras import layers
from numpy.typing import NDArray

from ckptbench.matrix.networks import layers as arch

# For the last part of a tensor's name in the network: Keras' attribute of the layer.
_ATTRIBUTES = {
    "kernel": "kernel",
    "bias": "bias",
    "scale": "gamma",
    "shift": "beta",
    "mean": "moving_mean",
    "variance": "moving_variance",
}


def keras_model(network: arch.Network) -> keras.Model:
    """A model for images of any size, channels last. The logits of auxiliary heads follow its own as more outputs.

    It has Keras' own layers only, so that a `.keras` file can be opened anywhere.
    """
    first = next(layer for layer in network.flat() if isinstance(layer, arch.Conv))
    x = inputs = keras.Input((None, None, first.inputs))
    of_heads = []
    for layer in network.layers:
        if isinstance(layer, arch.AuxiliaryHead):
            of_heads.append(_stacked(layer.layers, x))
        else:
            x = _applied(layer, x)
    return keras.Model(inputs, [x, *of_heads] if of_heads else x)


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
            if x.shape[-1] is None:  # flattened from images whose size the model does not know
                x = layers.Reshape((layer.inputs,))(x)
            x = layers.Dense(layer.outputs, kernel_initializer="zeros", name=layer.name)(x)
        case arch.ReLU():
            x = layers.ReLU()(x)
        case arch.MaxPool():
            x = _max_pooled(layer, x)
        case arch.AveragePool():
            x = layers.AveragePooling2D(layer.kernel, layer.stride)(x)
        case arch.AveragePoolTo():
            x = _average_pooled(x, layer.size)
        case arch.Flatten():
            x = layers.Flatten()(layers.Permute((3, 1, 2))(x))
        case arch.Dropout():
            x = layers.Dropout(layer.rate)(x)
        case arch.Residual():
            branches = [_stacked(layer.body, x), _stacked(layer.shortcut, x)]
            x = layers.ReLU()(layers.Add()(branches))
        case arch.Branches():
            x = layers.Concatenate()([_stacked(branch, x) for branch in layer.branches])
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


def _max_pooled(layer: arch.MaxPool, x: keras.KerasTensor) -> keras.KerasTensor:
    """Max pooling with the network's padding. TensorFlow's "same" is equal to it only if the stride is 1.

    Padding is the lowest float32: it never is a maximum and, unlike -inf, can be written as JSON.
    """
    same = layer.pad > 0 and layer.stride == 1 and layer.kernel == 2 * layer.pad + 1
    # Behind so many more rows and columns, the windows that fit are those that were partial.
    behind = [stride - 1 if layer.partial else 0 for stride in arch.both(layer.stride)]
    sides = ((0, 0), *((layer.pad, layer.pad + more) for more in behind), (0, 0))
    if not same and any(sum(side) for side in sides):
        x = keras.ops.pad(x, sides, constant_values=float(np.finfo(np.float32).min))
    return layers.MaxPooling2D(layer.kernel, layer.stride, padding="same" if same else "valid")(x)


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


def variables_of(model: keras.Model, names: Iterable[str]) -> dict[str, keras.Variable]:
    """The Keras variable of each of the network's `<layer>.<kind>` names."""
    split = ((name, *name.rsplit(".", 1)) for name in names)
    return {name: getattr(model.get_layer(layer), _ATTRIBUTES[kind]) for name, layer, kind in split}


def keras_layout(array: NDArray[np.generic]) -> NDArray[np.generic]:
    """Convolutions change from (out, in, height, width) to (height, width, in, out). Dense kernels are transposed."""
    return array.transpose(2, 3, 1, 0) if array.ndim == 4 else array.T


def array_of(variable: keras.Variable) -> NDArray[np.generic]:
    """A copy in the layout of the network's description."""
    array = variable.numpy()
    return np.array(array.transpose(3, 2, 0, 1) if array.ndim == 4 else array.T, order="C")
