"""The sizes of what a run trains on and with, for its plan."""

from __future__ import annotations

from ckptbench.inputs.datasets.dataset import Dataset
from ckptbench.matrix.networks.models import network_of
from ckptbench.run.plan import Sizes


def sizes_of(model: str, dataset: Dataset) -> Sizes:
    """The sizes of the dataset, and of the model for it."""
    network = network_of(model, dataset.sample_shape, dataset.classes)
    return Sizes(
        samples=len(dataset.train_labels),
        parameters=network.parameter_count,
        buffers=network.buffer_count,
        activations=network.activation_count(dataset.sample_shape),
        unfolded=network.unfolded_count(dataset.sample_shape),
    )
