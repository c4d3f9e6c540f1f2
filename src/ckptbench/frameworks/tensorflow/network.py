"""The description of a network as a Keras model, and the model's variables under the description's names."""

from __future__ import annotations

from collections.abc import Iterable

import keras
import numpy as np
from keras import layers
from numpy.typing import NDArray

from ckptbench.matrix.networks import layers as arch

# For the last part of a tensor's name in the network: Keras' attribute of the layer, and of layers that have another.
_ATTRIBUTES = {
    "kernel": "kernel",
    "bias": "bias",
    "scale": "gamma",
    "shift": "beta",
    "mean": "moving_mean",
    "variance": "moving_variance",
}
_OTHERS = {
    (layers.Embedding, "kernel"): "embeddings",
}


def keras_model(network: arch.Network) -> keras.Model:
    """A model for images of any size, channels last, or for tokens.

    It has Keras' own layers only, so that a `.keras` file can be opened anywhere.
    """
    x = inputs = _input(network)
    tables: dict[str, layers.Embedding] = {}
    for layer in network.layers:
        if isinstance(layer, arch.Embedding):
            tables[layer.name] = layers.Embedding(
                layer.vocabulary, layer.width, "zeros", name=layer.name
            )
            x = tables[layer.name](x)
        elif isinstance(layer, arch.TiedHead):
            x = _tied(tables[layer.embedding], x, inputs)
        else:
            x = _applied(layer, x)
    return keras.Model(inputs, x)


def _input(network: arch.Network) -> keras.KerasTensor:
    """The width of images that are flattened at once is not known here."""
    match next(network.flat()):
        case arch.Embedding():
            return keras.Input((None,), dtype="int64")
        case arch.Conv() as first:
            return keras.Input((None, None, first.inputs))
        case _:
            return keras.Input((None, None, None))


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
            x = _dense(layer)(x)
        case arch.ReLU():
            x = layers.ReLU()(x)
        case arch.MaxPool():
            x = _max_pooled(layer, x)
        case arch.AveragePoolTo():
            x = _average_pooled(layer.size, x)
        case arch.Flatten():
            x = layers.Flatten()(layers.Permute((3, 1, 2))(x))
        case arch.Dropout():
            x = layers.Dropout(layer.rate)(x)
        case arch.Residual():
            branches = [_stacked(layer.body, x), _stacked(layer.shortcut, x)]
            x = layers.Add()(branches)
            x = layers.ReLU()(x) if layer.relu else x
        case arch.Branches():
            x = layers.Concatenate()([_stacked(branch, x) for branch in layer.branches])
        case _:
            x = _of_sequences(layer, x)
    return x


def _dense(layer: arch.Dense) -> layers.Dense:
    return layers.Dense(
        layer.outputs, use_bias=layer.bias, kernel_initializer="zeros", name=layer.name
    )


def _of_sequences(layer: arch.SequenceLayer, x: keras.KerasTensor) -> keras.KerasTensor:
    match layer:
        case arch.Positions():
            table = layers.Embedding(layer.most, layer.width, "zeros", name=layer.name)
            return x + table(_counted(x[0, :, 0]))
        case arch.LayerNorm():
            return layers.LayerNormalization(
                epsilon=arch.NORM_EPSILON, center=layer.bias, name=layer.name
            )(x)
        case arch.Attention():
            return _attended(layer, x)
        case arch.Gelu():
            return keras.ops.gelu(x, approximate=True)
        case _:
            raise TypeError(f"{layer} is allowed only at the top of a network")


def _attended(layer: arch.Attention, x: keras.KerasTensor) -> keras.KerasTensor:
    """Causal attention, which Keras does not fuse on TensorFlow."""
    width = x.shape[-1] // 3
    parts = keras.ops.split(x, 3, axis=-1)
    head = (-1, layer.heads, width // layer.heads)
    queries, keys, values = (layers.Reshape(head)(part) for part in parts)
    scores = keras.ops.einsum("bqhd,bkhd->bhqk", queries, keys) / np.sqrt(width // layer.heads)
    places = keras.ops.cast(_counted(x[0, :, 0]), "float32")
    later = keras.ops.expand_dims(places, 0) > keras.ops.expand_dims(places, 1)
    hidden = keras.ops.cast(later, scores.dtype) * NEVER
    chances = layers.Softmax()(scores + hidden)
    attended = keras.ops.einsum("bhqk,bkhd->bqhd", chances, values)
    return layers.Reshape((-1, width))(attended)


NEVER = -30_000.0
"""Added to the scores of later places: exp of it is 0, and bfloat16 can hold it."""


def _counted(line: keras.KerasTensor) -> keras.KerasTensor:
    """0, 1, 2... as many as `line` has values, which do not matter."""
    return keras.ops.cumsum(keras.ops.ones_like(line, dtype="int32")) - 1


def _tied(
    table: layers.Embedding, x: keras.KerasTensor, tokens: keras.KerasTensor
) -> keras.KerasTensor:
    """Products with all vectors of the table, which its own layer looks up: one variable, and Keras' own layers only."""
    each = keras.ops.broadcast_to(tokens[0, :1], (table.input_dim,))
    return keras.ops.matmul(x, keras.ops.transpose(table(_counted(each))))


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


def _average_pooled(size: int, x: keras.KerasTensor) -> keras.KerasTensor:
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
    return {name: _variable(model.get_layer(layer), kind) for name, layer, kind in split}


def _variable(layer: keras.Layer, kind: str) -> keras.Variable:
    return getattr(layer, _OTHERS.get((type(layer), kind), _ATTRIBUTES[kind]))


def tables_of(network: arch.Network) -> set[str]:
    """The names of tables of vectors: they have the description's layout in Keras too."""
    return {
        f"{layer.name}.kernel"
        for layer in network.flat()
        if isinstance(layer, arch.Embedding | arch.Positions)
    }


def keras_layout(array: NDArray[np.generic], *, is_table: bool) -> NDArray[np.generic]:
    """Convolutions change from (out, in, height, width) to (height, width, in, out). Dense kernels are transposed."""
    if is_table:
        return array
    return array.transpose(2, 3, 1, 0) if array.ndim == 4 else array.T


def array_of(variable: keras.Variable, *, is_table: bool = False) -> NDArray[np.generic]:
    """A copy in the layout of the network's description."""
    array = variable.numpy()
    if not is_table:
        array = array.transpose(3, 2, 0, 1) if array.ndim == 4 else array.T
    return np.array(array, order="C")
