"""The sizes of what a run trains on and with, for its plan."""

from __future__ import annotations

from ckptbench.inputs.datasets.dataset import Dataset
from ckptbench.matrix.networks.layers import Shape
from ckptbench.matrix.networks.models import network_of
from ckptbench.run.plan import Sizes


def sizes_of(model: str, dataset: Dataset) -> Sizes:
    """The sizes of the dataset, and of the model for it."""
    return sizes_for(model, dataset.sample_shape, dataset.classes, len(dataset.train_labels))


def sizes_for(model: str, input: Shape, classes: int, samples: int) -> Sizes:
    """The same of a dataset that need not be there yet."""
    network = network_of(model, input, classes)
    return Sizes(
        samples=samples,
        parameters=network.parameter_count,
        buffers=network.buffer_count,
        activations=network.activation_count(input),
        unfolded=network.unfolded_count(input),
        multiplications=network.multiplication_count(input),
    )
