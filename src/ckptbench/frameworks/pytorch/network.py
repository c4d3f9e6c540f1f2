"""The description of a network as PyTorch modules, and their tensors under the description's names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import nn

from ckptbench.matrix.networks import layers as arch


class _Positions(nn.Embedding):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs + super().forward(torch.arange(inputs.shape[1], device=inputs.device))


# For each type of layer: PyTorch's name of a tensor, and the last part of its name in the network.
_NAMES: dict[type[nn.Module], dict[str, str]] = {
    nn.Conv2d: {"weight": "kernel", "bias": "bias"},
    nn.Linear: {"weight": "kernel", "bias": "bias"},
    nn.BatchNorm2d: {
        "weight": "scale",
        "bias": "shift",
        "running_mean": "mean",
        "running_var": "variance",
    },
    nn.Embedding: {"weight": "kernel"},
    _Positions: {"weight": "kernel"},
    nn.LayerNorm: {"weight": "scale", "bias": "shift"},
}


def module_of(network: arch.Network) -> nn.Module:
    """The network with PyTorch's own initial weights."""
    module = _Network(network.layers)
    _tie(module)
    return module


Places = Sequence[tuple[str, Mapping[str, torch.Tensor | None], str]]
"""The name of a tensor, the dictionary of the module that has it, and its key there: another tensor may come to its place."""


def named_places(module: nn.Module, members: str) -> Places:
    """Where the `_parameters` or `_buffers` of all modules are, by the network's names, without PyTorch's counter of batches."""
    found = []
    for each in module.modules():
        # `fully_shard` gives a module a class of its own, which inherits from the one that it had.
        names = next((names for kind, names in _NAMES.items() if isinstance(each, kind)), {})
        tensors = getattr(each, members) if hasattr(each, "network_name") else {}
        found += [
            (f"{each.network_name}.{names[own]}", tensors, own) for own in tensors if own in names
        ]
    return found


def buffer_places(module: nn.Module) -> Places:
    """The same for all buffers, by PyTorch's names."""
    return [
        (f"{name}.{own}" if name else own, each._buffers, own)
        for name, each in module.named_modules()
        for own in each._buffers
    ]


def tensors_at(places: Places) -> list[tuple[str, torch.Tensor]]:
    """Those that are there now. Quick, as every save asks for them, and training waits."""
    return [(name, found) for name, of, own in places if (found := of[own]) is not None]


class _Network(nn.Sequential):
    """The layers as PyTorch modules. A module with tensors has the layer's name as `network_name`."""

    def __init__(self, layers: Iterable[arch.Layer]) -> None:
        super().__init__(*(_module(layer) for layer in layers))


class _Branches(nn.Module):
    def __init__(self, layer: arch.Branches) -> None:
        super().__init__()
        self.branches = nn.ModuleList(_Network(branch) for branch in layer.branches)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return torch.cat([branch(inputs) for branch in self.branches], dim=1)


class _Residual(nn.Module):
    def __init__(self, layer: arch.Residual) -> None:
        super().__init__()
        self.body = _Network(layer.body)
        self.shortcut = _Network(layer.shortcut)
        self._relu = layer.relu

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        outputs = self.body(inputs) + self.shortcut(inputs)
        return torch.relu(outputs) if self._relu else outputs


class _AveragePool(nn.AdaptiveAvgPool2d):
    """Adaptive average pooling that has a deterministic backward pass on GPUs.

    PyTorch's own layer has none for sizes above 1, so deterministic mode multiplies by the matrix of means instead. For
    size 1 PyTorch takes the mean, which is deterministic.
    """

    def __init__(self, layer: arch.AveragePoolTo) -> None:
        super().__init__(layer.size)
        self._layer = layer

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if self._layer.size == 1 or not torch.are_deterministic_algorithms_enabled():
            return super().forward(images)
        rows, columns = (
            torch.from_numpy(self._layer.weights(extent)).to(images.device)
            for extent in images.shape[2:]
        )
        return rows @ images @ columns.T


class _Attention(nn.Module):
    """Fused where PyTorch has a kernel for the device: `scaled_dot_product_attention` chooses."""

    def __init__(self, layer: arch.Attention) -> None:
        super().__init__()
        self._heads = layer.heads

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        batch, length, width = inputs.shape
        heads = inputs.view(batch, length, 3, self._heads, -1).permute(2, 0, 3, 1, 4)
        queries, keys, values = heads.unbind()
        attended = nn.functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        return attended.transpose(1, 2).reshape(batch, length, width // 3)


class _TiedHead(nn.Linear):
    """A head without tensors of its own; `_tie` gives it the embedding's."""

    def __init__(self, layer: arch.TiedHead) -> None:
        super().__init__(1, 1, bias=False)
        self.embedding = layer.embedding


def _tie(network: nn.Module) -> None:
    """Give every tied head the weight of its embedding: one parameter with two names, as in the scripts of GPTs."""
    modules = list(network.modules())
    embeddings = {each.network_name: each for each in modules if type(each) is nn.Embedding}
    for each in modules:
        if isinstance(each, _TiedHead):
            each.weight = embeddings[each.embedding].weight


def _module(layer: arch.Layer) -> nn.Module:
    match layer:
        case arch.Conv():
            module: nn.Module = nn.Conv2d(
                layer.inputs, layer.outputs, layer.kernel, layer.stride, layer.pad, bias=layer.bias
            )
        case arch.BatchNorm():
            module = nn.BatchNorm2d(
                layer.channels, eps=arch.BATCH_NORM_EPSILON, momentum=1 - arch.BATCH_NORM_DECAY
            )
        case arch.Dense():
            module = nn.Linear(layer.inputs, layer.outputs, bias=layer.bias)
        case arch.ReLU():
            return nn.ReLU()
        case arch.MaxPool() | arch.AveragePoolTo():
            return _pool(layer)
        case arch.Flatten():
            return nn.Flatten()
        case arch.Dropout():
            return nn.Dropout(layer.rate)
        case arch.Residual():
            return _Residual(layer)
        case arch.Branches():
            return _Branches(layer)
        case _:
            return _of_sequences(layer)
    module.network_name = layer.name
    return module


def _pool(layer: arch.MaxPool | arch.AveragePoolTo) -> nn.Module:
    match layer:
        case arch.MaxPool():
            return nn.MaxPool2d(layer.kernel, layer.stride, layer.pad, ceil_mode=layer.partial)
        case arch.AveragePoolTo():
            return _AveragePool(layer)


def _of_sequences(layer: arch.SequenceLayer) -> nn.Module:
    match layer:
        case arch.Embedding():
            module: nn.Module = nn.Embedding(layer.vocabulary, layer.width)
        case arch.Positions():
            module = _Positions(layer.most, layer.width)
        case arch.LayerNorm():
            module = nn.LayerNorm(layer.width, eps=arch.NORM_EPSILON, bias=layer.bias)
        case arch.Attention():
            return _Attention(layer)
        case arch.Gelu():
            return nn.GELU(approximate="tanh")
        case arch.TiedHead():
            return _TiedHead(layer)
    module.network_name = layer.name
    return module
