"""The description of a network as a function of JAX, over the parameters by the description's names."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from ckptbench.matrix.networks import layers as arch
from ckptbench.matrix.registry import Precision

Named = dict[str, jax.Array]
IMAGES = ("NHWC", "HWIO", "NHWC")
TYPES = {"fp32": jnp.float32, "bf16": jnp.bfloat16}


@dataclass
class Forward:
    """One forward pass over images of shape (n, height, width, channels), or tokens of shape (n, length).

    With precision `bf16` the operands of products are rounded to bfloat16, and norms, softmax and loss are in float32, as
    in PyTorch's autocast.
    """

    weights: Named
    statistics: Named
    precision: Precision
    key: jax.Array | None
    """For dropout. None: evaluation mode."""
    changed: Named = field(default_factory=dict)
    """The running statistics after a pass in training mode."""
    draws: int = 0

    def logits(self, network: arch.Network, x: jax.Array) -> jax.Array:
        """In float32."""
        return self._stacked(network.layers, x).astype(jnp.float32)

    def _stacked(self, stack: Iterable[arch.Layer], x: jax.Array) -> jax.Array:
        for layer in stack:
            x = self._applied(layer, x)
        return x

    def _applied(self, layer: arch.Layer, x: jax.Array) -> jax.Array:
        match layer:
            case arch.Conv():
                return self._convolved(layer, x)
            case arch.Dense():
                return self._biased(layer, self._product(x, self.weights[f"{layer.name}.kernel"]))
            case arch.BatchNorm():
                return self._batch_normalized(layer, x)
            case arch.ReLU():
                return jax.nn.relu(x)
            case arch.MaxPool() | arch.AveragePoolTo():
                return _pooled(layer, x)
            case arch.Flatten():
                return x.transpose(0, 3, 1, 2).reshape(len(x), -1)
            case arch.Dropout():
                return self._dropped(layer, x)
            case arch.Residual():
                x = self._stacked(layer.body, x) + self._stacked(layer.shortcut, x)
                return jax.nn.relu(x) if layer.relu else x
            case arch.Branches():
                return jnp.concatenate([self._stacked(each, x) for each in layer.branches], axis=-1)
            case _:
                return self._of_sequences(layer, x)

    def _of_sequences(self, layer: arch.SequenceLayer, x: jax.Array) -> jax.Array:
        match layer:
            case arch.Embedding():
                return self.weights[f"{layer.name}.kernel"][x]
            case arch.Positions():
                return x + self.weights[f"{layer.name}.kernel"][: x.shape[1]]
            case arch.LayerNorm():
                return self._normalized(layer, x.astype(jnp.float32))
            case arch.Attention():
                return _attended(layer, x)
            case arch.Gelu():
                return jax.nn.gelu(x, approximate=True)
            case arch.TiedHead():
                return self._product(x, self.weights[f"{layer.embedding}.kernel"].T)

    def _product(self, x: jax.Array, kernel: jax.Array) -> jax.Array:
        return self._rounded(x) @ self._rounded(kernel)

    def _rounded(self, x: jax.Array) -> jax.Array:
        return x.astype(TYPES[self.precision])

    def _convolved(self, layer: arch.Conv, x: jax.Array) -> jax.Array:
        x = jax.lax.conv_general_dilated(
            self._rounded(x),
            self._rounded(self.weights[f"{layer.name}.kernel"]),
            (layer.stride, layer.stride),
            [(layer.pad, layer.pad)] * 2,
            dimension_numbers=IMAGES,
        )
        return self._biased(layer, x)

    def _biased(self, layer: arch.Conv | arch.Dense, x: jax.Array) -> jax.Array:
        return x + self._rounded(self.weights[f"{layer.name}.bias"]) if layer.bias else x

    def _batch_normalized(self, layer: arch.BatchNorm, x: jax.Array) -> jax.Array:
        x = x.astype(jnp.float32)
        names = [f"{layer.name}.{kind}" for kind in ("mean", "variance")]
        mean, variance = running = [self.statistics[name] for name in names]
        if self.key is not None:
            mean, variance = x.mean((0, 1, 2)), x.var((0, 1, 2))
            for name, old, new in zip(names, running, (mean, variance), strict=True):
                decay = arch.BATCH_NORM_DECAY
                self.changed[name] = decay * old + (1 - decay) * new
        return self._scaled(
            layer, (x - mean) * jax.lax.rsqrt(variance + arch.BATCH_NORM_EPSILON), shifted=True
        )

    def _normalized(self, layer: arch.LayerNorm, x: jax.Array) -> jax.Array:
        """Over the last axis."""
        x = x - x.mean(-1, keepdims=True)
        x = x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + arch.NORM_EPSILON)
        return self._scaled(layer, x, shifted=layer.bias)

    def _scaled(
        self, layer: arch.BatchNorm | arch.LayerNorm, x: jax.Array, *, shifted: bool
    ) -> jax.Array:
        x = x * self.weights[f"{layer.name}.scale"]
        return x + self.weights[f"{layer.name}.shift"] if shifted else x

    def _dropped(self, layer: arch.Dropout, x: jax.Array) -> jax.Array:
        if self.key is None:
            return x
        self.draws += 1
        key = jax.random.fold_in(self.key, self.draws)
        kept = jax.random.bernoulli(key, 1 - layer.rate, x.shape)
        return jnp.where(kept, x / (1 - layer.rate), 0)


def _attended(layer: arch.Attention, x: jax.Array) -> jax.Array:
    """Fused where JAX has a kernel for the device: `dot_product_attention` chooses."""
    count, length, width = x.shape
    heads = x.reshape(count, length, 3, layer.heads, -1)
    queries, keys, values = (heads[:, :, part] for part in range(3))
    attended = jax.nn.dot_product_attention(queries, keys, values, is_causal=True)
    return attended.reshape(count, length, width // 3)


def _pooled(layer: arch.MaxPool | arch.AveragePoolTo, x: jax.Array) -> jax.Array:
    match layer:
        case arch.MaxPool():
            # Behind so many more rows and columns, the windows that fit are those that were partial.
            behind = [stride - 1 if layer.partial else 0 for stride in arch.both(layer.stride)]
            sides = [(layer.pad, layer.pad + more) for more in behind]
            kernel, stride = ((1, *arch.both(each), 1) for each in (layer.kernel, layer.stride))
            padding = [(0, 0), *sides, (0, 0)]
            return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, kernel, stride, padding)
        case arch.AveragePoolTo():
            rows, columns = (layer.weights(extent) for extent in x.shape[1:3])
            return jnp.einsum("ih,nhwc,jw->nijc", rows, x, columns)


def tables_of(network: arch.Network) -> set[str]:
    """The names of tables of vectors, which have the description's layout here too."""
    return {
        f"{layer.name}.kernel"
        for layer in network.flat()
        if isinstance(layer, arch.Embedding | arch.Positions)
    }


def own_layout(array: NDArray[np.generic]) -> NDArray[np.generic]:
    """Convolutions change from (out, in, height, width) to (height, width, in, out). Dense kernels are transposed."""
    return array.transpose(2, 3, 1, 0) if array.ndim == 4 else array.T


def described(array: NDArray[np.generic]) -> NDArray[np.generic]:
    """The layout of the network's description."""
    return array.transpose(3, 2, 0, 1) if array.ndim == 4 else array.T
